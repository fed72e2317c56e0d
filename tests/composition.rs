//! What goes outside the layer and what inside. Each test is a sentence of `docs/composition.md`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // helpers of tests

mod support;

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use support::body::Step;
use support::script::{Reply, Script};
use support::{MS, layer, policy, request};
use tokio::time::Instant;
use tower::balance::p2c::Balance;
use tower::buffer::Buffer;
use tower::discover::ServiceList;
use tower::load::Load;
use tower::load_shed::error::Overloaded;
use tower::timeout::error::Elapsed;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_http::auth::AddAuthorizationLayer;
use tower_http::decompression::DecompressionLayer;
use tower_http::follow_redirect::FollowRedirectLayer;
use tower_http_retry::{
    Attempt, AttemptNumber, BoxError, Budget, Deadline, Delivery, Error, Evidence, EvidenceError,
    Failure, FailureKind, Policy, ReplayBody, Report, RetryDenied, RetryLayer, Rule,
    StandardPolicy,
};

#[test]
fn the_page_names_every_test() {
    let page = include_str!("../docs/composition.md");
    let tests =
        include_str!("composition.rs").split("#[tokio::test(start_paused = true)]\nasync fn ");
    let names = tests.skip(1).map(|test| test.split('(').next().unwrap());
    for name in names.filter(|name| !name.contains(char::is_whitespace)) {
        assert!(
            page.contains(&format!("`{name}`")),
            "{name} is not on the page"
        );
    }
}

// Timeouts

#[tokio::test(start_paused = true)]
async fn a_timeout_outside_loses_the_third_answer() {
    let script = Script::new([Reply::Hang]);
    let service = ServiceBuilder::new()
        .timeout(Duration::from_secs(1))
        .layer(layer())
        .service(script.clone());
    let error = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert!(
        error.is::<Elapsed>(),
        "nobody learns that the order was sent"
    );
    assert!(error.source().is_none());
    assert_eq!(script.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_keeps_it() {
    let script = Script::new([Reply::Hang]);
    let service = layer().with_deadline(Duration::from_secs(1)).layer(script);
    let start = Instant::now();
    let error = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_secs(1));
    assert!(error.is_ambiguous());
    assert_eq!(error.evidence(), Evidence::SentNoResponse);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_of_the_request_counts_if_it_is_earlier() {
    let script = Script::new([Reply::Hang]);
    let service = layer().with_deadline(Duration::from_secs(10)).layer(script);
    let start = Instant::now();
    let mut request = request(Method::GET, ());
    request
        .extensions_mut()
        .insert(Deadline::after(Duration::from_secs(1)));
    service.oneshot(request).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_inside_ends_an_attempt_and_the_next_one_has_its_own() {
    let script = Script::new([Reply::Hang, Reply::status(200)]);
    let service = ServiceBuilder::new()
        .layer(layer())
        .timeout(Duration::from_secs(1))
        .service(script.clone());
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap();
    let first = report.attempts()[0].failure().unwrap();
    assert_eq!(
        *first,
        Failure::sent_no_response(FailureKind::ResponseTimeout)
    );
    assert_eq!(script.waits(), [1100 * MS]);
}

#[tokio::test(start_paused = true)]
async fn only_the_attempt_timeout_covers_a_retrys_wait_for_readiness() {
    let inside = ServiceBuilder::new()
        .layer(layer().with_deadline(Duration::from_secs(60)))
        .timeout(Duration::from_secs(1))
        .service(Once::default());
    let start = Instant::now();
    inside.oneshot(request(Method::GET, ())).await.unwrap();
    assert!(
        start.elapsed() >= Duration::from_secs(60),
        "waited for readiness until the deadline"
    );

    let own = layer()
        .with_deadline(Duration::from_secs(60))
        .with_attempt_timeout(Duration::from_secs(1))
        .layer(Once::default());
    let start = Instant::now();
    own.oneshot(request(Method::GET, ())).await.unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
}

/// Answers its first call with 503, and is never ready again.
#[derive(Clone, Default)]
struct Once {
    calls: Arc<AtomicUsize>,
}

impl Service<Request<ReplayBody>> for Once {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        match self.calls.load(Ordering::SeqCst) {
            0 => Poll::Ready(Ok(())),
            _ => Poll::Pending,
        }
    }

    fn call(&mut self, _: Request<ReplayBody>) -> Self::Future {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let mut response = Response::new(String::new());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        std::future::ready(Ok(response))
    }
}

// Limits

#[tokio::test(start_paused = true)]
async fn a_concurrency_limit_inside_counts_attempts_and_is_free_during_a_wait() {
    let script = Script::new([Reply::status(503), Reply::status(200), Reply::status(200)]);
    let service = ServiceBuilder::new()
        .layer(layer())
        .concurrency_limit(1)
        .service(script);
    let waiting = tokio::spawn(service.clone().oneshot(request(Method::GET, ())));
    tokio::time::sleep(50 * MS).await;
    let start = Instant::now();
    service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_limit_outside_counts_calls_their_waits_included() {
    let script = Script::new([Reply::status(503), Reply::status(200), Reply::status(200)]);
    let service = ServiceBuilder::new()
        .concurrency_limit(1)
        .layer(layer())
        .service(script);
    let waiting = tokio::spawn(service.clone().oneshot(request(Method::GET, ())));
    tokio::time::sleep(50 * MS).await;
    let start = Instant::now();
    service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!(
        start.elapsed(),
        50 * MS,
        "the rest of the other call's backoff"
    );
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn load_shed_inside_is_final_and_was_not_sent() {
    let script = Script::new([Reply::Hang]);
    let service = ServiceBuilder::new()
        .layer(layer())
        .load_shed()
        .concurrency_limit(1)
        .service(script.clone());
    let busy = tokio::spawn(service.clone().oneshot(request(Method::GET, ())));
    tokio::task::yield_now().await;
    let error = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert_eq!(error.evidence(), Evidence::NotSent);
    assert_eq!(
        error.denied(),
        Some(RetryDenied::PermanentFailure(FailureKind::LocalOverload)),
        "our own shedding is not retried"
    );
    assert!(matches!(error, Error::Failed(_)));
    assert_eq!(script.attempts(), 1);
    busy.abort();
}

#[tokio::test(start_paused = true)]
async fn load_shed_outside_sheds_before_there_is_a_call() {
    let budget = Budget::default();
    let script = Script::new([Reply::Hang]);
    let service = ServiceBuilder::new()
        .load_shed()
        .concurrency_limit(1)
        .layer(layer().with_budgets(budget.clone()))
        .service(script.clone());
    let busy = tokio::spawn(service.clone().oneshot(request(Method::GET, ())));
    tokio::task::yield_now().await;
    let error = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert!(error.is::<Overloaded>());
    assert_eq!(script.attempts(), 1);
    busy.abort();
}

// Buffer and balance

#[tokio::test(start_paused = true)]
async fn a_buffer_inside_makes_any_service_one_that_can_be_cloned() {
    struct NotClone(Script);
    impl Service<Request<ReplayBody>> for NotClone {
        type Response = <Script as Service<Request<ReplayBody>>>::Response;
        type Error = <Script as Service<Request<ReplayBody>>>::Error;
        type Future = <Script as Service<Request<ReplayBody>>>::Future;
        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            self.0.poll_ready(cx)
        }
        fn call(&mut self, request: Request<ReplayBody>) -> Self::Future {
            self.0.call(request)
        }
    }
    let script = Script::new([Reply::status(503), Reply::status(200)]);
    let service = layer().layer(Buffer::new(NotClone(script.clone()), 8));
    let response = service
        .oneshot(request(Method::PUT, "stock"))
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    script.seen(|seen| assert_eq!(seen[1].body.as_deref(), Some(&b"stock"[..])));
}

#[tokio::test(start_paused = true)]
async fn a_buffer_outside_hands_the_layers_errors_on_boxed() {
    let failure = Failure::sent_no_response(FailureKind::Reset);
    let service = Buffer::new(layer().layer(Script::new([Reply::fails(failure)])), 8);
    let error = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    let error = error.downcast_ref::<Error>().unwrap();
    assert!(error.is_ambiguous());
}

/// One endpoint of a balancer: how loaded it is, is how often it was called.
#[derive(Clone)]
struct Endpoint {
    name: u8,
    calls: Arc<Mutex<Vec<u8>>>,
}

impl Load for Endpoint {
    type Metric = usize;
    fn load(&self) -> usize {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|name| **name == self.name).count()
    }
}

impl Service<Request<ReplayBody>> for Endpoint {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<String>, Infallible>>;
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
    fn call(&mut self, _: Request<ReplayBody>) -> Self::Future {
        let mut calls = self.calls.lock().unwrap();
        calls.push(self.name);
        let mut response = Response::new(String::new());
        if calls.len() == 1 {
            *response.status_mut() = StatusCode::BAD_GATEWAY;
        }
        std::future::ready(Ok(response))
    }
}

#[tokio::test(start_paused = true)]
async fn a_balancer_inside_gives_each_attempt_the_best_endpoint_of_its_moment() {
    let calls = Arc::<Mutex<Vec<u8>>>::default();
    let endpoints = [1, 2].map(|name| Endpoint {
        name,
        calls: Arc::clone(&calls),
    });
    let balance = Balance::new(ServiceList::new(endpoints));
    // A balancer is not `Clone`: a buffer makes it so.
    let service = layer().layer(Buffer::new(balance, 8));
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!(response.status(), 200);
    let calls = calls.lock().unwrap();
    assert_ne!(calls[0], calls[1], "the second attempt went elsewhere");
}

// Looking on

#[tokio::test(start_paused = true)]
async fn tracing_outside_sees_calls_and_inside_sees_attempts_with_their_numbers() {
    let (calls, attempts) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(Mutex::new(Vec::new())),
    );
    let (outer, inner) = (Arc::clone(&calls), Arc::clone(&attempts));
    let service = ServiceBuilder::new()
        .layer(tower_http::trace::TraceLayer::new_for_http().on_request(
            move |_: &Request<ReplayBody>, _: &tracing::Span| {
                outer.fetch_add(1, Ordering::SeqCst);
            },
        ))
        .layer(layer())
        .layer(tower_http::trace::TraceLayer::new_for_http().on_request(
            move |request: &Request<ReplayBody>, _: &tracing::Span| {
                let number = request.extensions().get::<AttemptNumber>();
                inner
                    .lock()
                    .unwrap()
                    .push(number.map(|number| number.number().get()));
            },
        ))
        .service(Script::new([Reply::status(503), Reply::status(200)]));
    service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(*attempts.lock().unwrap(), [None, Some(2)]);
}

// Credentials

#[tokio::test(start_paused = true)]
async fn a_header_that_is_added_outside_is_on_every_attempt() {
    let script = Script::new([Reply::status(503), Reply::status(200)]);
    let service = ServiceBuilder::new()
        .layer(AddAuthorizationLayer::bearer("token").as_sensitive(true))
        .layer(layer())
        .service(script.clone());
    service.oneshot(request(Method::GET, ())).await.unwrap();
    script.seen(|seen| {
        for attempt in seen {
            let value = &attempt.head.headers[header::AUTHORIZATION];
            assert_eq!(value, "Bearer token");
            assert!(value.is_sensitive(), "the flag is kept");
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_signature_that_is_made_inside_is_made_anew_for_each_attempt() {
    let script = Script::new([Reply::status(503), Reply::status(200)]);
    let signed = Arc::new(AtomicUsize::new(0));
    let service = ServiceBuilder::new()
        .layer(layer())
        .map_request(move |mut request: Request<ReplayBody>| {
            let signature = HeaderValue::from(signed.fetch_add(1, Ordering::SeqCst));
            request.headers_mut().append("x-signature", signature);
            request
        })
        .service(script.clone());
    service.oneshot(request(Method::GET, ())).await.unwrap();
    script.seen(|seen| {
        for (index, attempt) in seen.iter().enumerate() {
            let signatures: Vec<_> = attempt.head.headers.get_all("x-signature").iter().collect();
            assert_eq!(
                signatures,
                [&HeaderValue::from(index)],
                "one, and of its own"
            );
        }
    });
}

// Decompression

/// 40 000 times "0".
const ZIPPED: &[u8] = &[
    31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 237, 193, 49, 1, 0, 0, 0, 194, 160, 74, 235, 159, 206, 203,
    22, 64, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 55, 10, 73, 184, 13, 64, 156, 0, 0,
];

fn zipped(body: &'static [u8]) -> Reply {
    Reply::status(200)
        .header("content-encoding", "gzip")
        .header("content-length", &ZIPPED.len().to_string())
        .steps([Step::Data(body)])
}

#[tokio::test(start_paused = true)]
async fn decompression_outside_leaves_the_length_to_the_layer() {
    // The transport ends the first body cleanly, and too early.
    let script = Script::new([zipped(&ZIPPED[..40]), zipped(ZIPPED)]);
    let service = ServiceBuilder::new()
        .layer(DecompressionLayer::new())
        .layer(layer().with_delivery(Delivery::Whole { limit: 1024 }))
        .service(script.clone());
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap().clone();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body.len(), 40_000);
    let first = report.attempts()[0].failure().unwrap();
    assert_eq!(*first, Failure::partial_response(FailureKind::Truncated));
}

#[tokio::test(start_paused = true)]
async fn decompression_inside_lets_a_policy_read_the_text_and_counts_it_against_the_limit() {
    /// What the policy saw of the body: its length.
    #[derive(Clone, Default)]
    struct Looks(Arc<Mutex<Vec<Option<usize>>>>);
    impl Policy for Looks {
        fn rule(&self, attempt: &Attempt<'_>) -> Rule {
            self.0.lock().unwrap().push(attempt.body().map(<[u8]>::len));
            Rule::Accept
        }
    }
    let looks = Looks::default();
    for limit in [64 * 1024, 1024] {
        let layer = RetryLayer::new(looks.clone()).with_delivery(Delivery::Whole { limit });
        let inside = ServiceBuilder::new()
            .layer(layer.clone())
            .layer(DecompressionLayer::new())
            .service(Script::new([zipped(ZIPPED)]));
        let response = inside.oneshot(request(Method::GET, ())).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body.len(), 40_000, "whole in any case");

        let outside = layer.layer(Script::new([zipped(ZIPPED)]));
        outside.oneshot(request(Method::GET, ())).await.unwrap();
    }
    let zip = Some(ZIPPED.len());
    assert_eq!(*looks.0.lock().unwrap(), [Some(40_000), zip, None, zip]);
}

// Redirects

/// An order that is taken, and answered with a redirect to a host that cannot be reached.
fn redirected() -> Script {
    let unreachable = || {
        let failure = Failure::not_sent(FailureKind::Connect);
        Reply::DropUnread(EvidenceError::new(failure, "refused").into())
    };
    let see_other = || Reply::status(303).header("location", "http://other.example/receipt");
    Script::new([see_other(), unreachable(), see_other(), Reply::status(200)])
}

fn methods(script: &Script) -> Vec<Method> {
    script.seen(|seen| {
        seen.iter()
            .map(|attempt| attempt.head.method.clone())
            .collect()
    })
}

#[tokio::test(start_paused = true)]
async fn redirects_inside_send_an_order_twice() {
    let script = redirected();
    let service = ServiceBuilder::new()
        .layer(layer())
        .layer(FollowRedirectLayer::new())
        .service(script.clone());
    service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap();
    // The failure to reach the second host was taken for one of the order.
    assert_eq!(
        methods(&script),
        [Method::POST, Method::GET, Method::POST, Method::GET]
    );
}

#[tokio::test(start_paused = true)]
async fn redirects_outside_make_each_hop_a_call_of_its_own() {
    let script = redirected();
    let service = ServiceBuilder::new()
        .layer(FollowRedirectLayer::new())
        .layer(layer())
        .service(script.clone());
    // The third reply, to the retried GET, is one more redirect; the fourth is its end.
    service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap();
    assert_eq!(
        methods(&script),
        [Method::POST, Method::GET, Method::GET, Method::GET]
    );
}

// The body on its way

#[tokio::test(start_paused = true)]
async fn a_body_that_is_replaced_on_its_way_takes_the_proof_away() {
    // A client that gives a request up before it has looked at it, as at a timeout while connecting.
    let client = tower::service_fn(async |mut request: Request<ReplayBody>| {
        request.body_mut().sits_on_client();
        drop(request);
        Err::<Response<String>, BoxError>("timed out".into())
    });
    let direct = layer().layer(client);
    let error = direct
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert_eq!(error.evidence(), Evidence::NotSent);
    assert!(!error.is_ambiguous());

    let replaced = ServiceBuilder::new()
        .layer(layer())
        .map_request(|request: Request<ReplayBody>| request.map(ReplayBody::one_shot))
        .service(client);
    let error = replaced
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert_eq!(error.evidence(), Evidence::SentNoResponse);
    assert!(error.is_ambiguous());
}

// On and off

#[tokio::test(start_paused = true)]
async fn off_is_a_policy_and_not_another_type() {
    fn stack(policy: StandardPolicy, script: &Script) -> tower_http_retry::Retry<Script> {
        RetryLayer::new(policy).layer(script.clone())
    }
    let off = Script::new([Reply::status(503)]);
    let response = stack(StandardPolicy::none(), &off)
        .oneshot(request(Method::GET, ()))
        .await;
    assert_eq!(response.unwrap().status(), 503);
    let on = Script::new([Reply::status(503), Reply::status(200)]);
    let response = stack(policy().build().unwrap(), &on)
        .oneshot(request(Method::GET, ()))
        .await;
    assert_eq!(response.unwrap().status(), 200);
}
