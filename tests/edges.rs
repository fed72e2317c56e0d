//! Combinations at the edges of the contract: what two chapters mean together, values that only a
//! hostile or careless caller builds, services that break customs.
// helpers of tests
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing
)]

mod support;

use std::convert::Infallible;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, request, response,
};
use http_body_util::{BodyExt, Full};
use support::body::{Step, TestBody};
use support::script::{Reply, Script};
use support::{MS, layer, policy, request};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_http_retry::{
    AmbiguousResponses, Attempt, Backoff, BoxError, Budget, Delivery, Drain, Error, Evidence,
    EvidenceError, Execution, Failure, FailureKind, Outcome, Reconcile, Reconciled, Refresh,
    ReplayBody, Replayability, Report, RetryLayer, Rule, StandardPolicy, Upstream,
};

#[derive(Debug, thiserror::Error)]
#[error("the audit log is down")]
struct Wrapped(#[source] Error);

struct NotExecuted;
impl Reconcile for NotExecuted {
    async fn reconcile(&self, _: &request::Parts, _: Outcome<'_>) -> Result<Reconciled, BoxError> {
        Ok(Reconciled::NotExecuted)
    }
}

/// A service below executes the POST, and then fails in a side call through a layer of its own.
#[tokio::test(start_paused = true)]
async fn a_side_call_that_failed_is_no_proof_about_this_request() {
    let executed = Arc::new(AtomicUsize::new(0));
    let side = RetryLayer::new(StandardPolicy::none()).layer(Script::new(
        (0..10).map(|_| Reply::fails(Failure::not_sent(FailureKind::Connect))),
    ));
    let counter = Arc::clone(&executed);
    let below = service_fn(move |req: Request<ReplayBody>| {
        let (counter, side) = (Arc::clone(&counter), side.clone());
        async move {
            req.into_body().collect().await?; // sent, whole
            counter.fetch_add(1, Ordering::SeqCst);
            // e.g. an audit log
            let audit = side.oneshot(request(Method::GET, ())).await;
            audit.map_err(|error| -> BoxError { Wrapped(error).into() })
        }
    });
    let error = layer()
        .layer(below)
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert_eq!(executed.load(Ordering::SeqCst), 1, "a duplicate of a POST");
    assert!(error.is_ambiguous(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_side_call_that_gave_up_is_not_reported_as_a_plain_failure() {
    let side = layer().layer(Script::new(
        (0..10).map(|_| Reply::fails(Failure::not_sent(FailureKind::Connect))),
    ));
    let below = service_fn(move |req: Request<ReplayBody>| {
        let side = side.clone();
        async move {
            req.into_body().collect().await?; // sent, whole, executed
            let audit = side.oneshot(request(Method::GET, ())).await;
            audit.map_err(|error| -> BoxError { Wrapped(error).into() })
        }
    });
    let error = layer()
        .layer(below)
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert!(error.is_ambiguous(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_body_type_loses_nothing() {
    let service = layer().layer(Script::new([Reply::status(503).body(b"busy")]));
    let error = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    let error = error.into_response::<Full<Bytes>>().unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::SERVICE_UNAVAILABLE));
    let response = error.into_response::<TestBody>().expect("nothing is lost");
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "busy"
    );
}

#[tokio::test(start_paused = true)]
async fn a_reconciled_503_is_not_retried_earlier_than_asked() {
    let script = Script::new([
        Reply::status(503).header("retry-after", "5"),
        Reply::status(200),
    ]);
    let service = layer().with_reconcile(NotExecuted).layer(script.clone());
    service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap();
    let waits = script.waits();
    assert!(waits.iter().all(|wait| *wait >= 5000 * MS), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reconciled_503_with_a_longer_hint_than_agreed_to_is_not_retried() {
    let script = Script::new([
        Reply::status(503).header("retry-after", "3600"),
        Reply::status(200),
    ]);
    let service = layer().with_reconcile(NotExecuted).layer(script.clone());
    let _ = service.oneshot(request(Method::POST, "order")).await;
    assert_eq!(script.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_header_stops_after_a_reconciliation_too() {
    let upstream = Upstream::new().stop_header(
        HeaderName::from_static("x-should-retry"),
        HeaderValue::from_static("false"),
    );
    let policy = policy().default_upstream(upstream).build().unwrap();
    let script = Script::new([
        Reply::status(503).header("x-should-retry", "false"),
        Reply::status(200),
    ]);
    let service = RetryLayer::new(policy)
        .with_reconcile(NotExecuted)
        .layer(script.clone());
    let _ = service.oneshot(request(Method::POST, "order")).await;
    assert_eq!(
        script.attempts(),
        1,
        "a response header that forbids retries"
    );
}

#[tokio::test(start_paused = true)]
async fn a_reconciliation_does_not_multiply_layers() {
    // The inner layer gets its three attempts refused and delivers its last 503.
    let inner = RetryLayer::new(
        policy()
            .retries(2)
            .ambiguous_responses(AmbiguousResponses::Deliver)
            .build()
            .unwrap(),
    );
    let replies = [429, 429, 503, 429, 429, 503, 429, 429, 503, 429, 429, 503];
    let script = Script::new(replies.map(Reply::status));
    let service = ServiceBuilder::new()
        .layer(layer().with_reconcile(NotExecuted))
        .layer(inner)
        .service(script.clone());
    let _ = service.oneshot(request(Method::POST, "order")).await;
    assert_eq!(script.attempts(), 3, "layers never multiply");
}

async fn uri_of_the_retry(uri: Uri) -> (Uri, Uri) {
    let script = Script::new([Reply::status(503), Reply::status(200)]);
    let service = layer().layer(script.clone());
    let mut req = request(Method::GET, ());
    *req.uri_mut() = uri;
    service.oneshot(req).await.unwrap();
    script.seen(|seen| (seen[0].head.uri.clone(), seen[1].head.uri.clone()))
}

fn uri(authority: &str, path: String) -> Uri {
    Uri::builder()
        .scheme("http")
        .authority(authority)
        .path_and_query(path)
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_retry_of_options_star_goes_to_the_same_host() {
    let (first, second) = uri_of_the_retry(uri("shop.example", "*".into())).await;
    assert_eq!(second.authority(), first.authority());
    assert_eq!(second.path(), first.path());
}

#[tokio::test(start_paused = true)]
async fn the_retry_of_options_star_goes_to_the_same_port() {
    let (first, second) = uri_of_the_retry(uri("shop.example:8080", "*".into())).await;
    assert_eq!(second.authority(), first.authority());
    assert_eq!(second.path(), first.path());
}

#[tokio::test(start_paused = true)]
async fn the_retry_of_a_long_uri_goes_to_the_same_resource() {
    let (first, second) =
        uri_of_the_retry(uri("shop.example", format!("/{}", "a".repeat(65_530)))).await;
    assert_eq!(second.authority(), first.authority());
    assert!(second.path() == first.path(), "{}", second.path().len());
}

#[tokio::test(start_paused = true)]
async fn many_lines_of_a_header_do_not_panic() {
    let script = Script::new([Reply::status(503), Reply::status(200)]);
    let service = layer().layer(script.clone());
    let mut req = request(Method::GET, ());
    for _ in 0..25_000 {
        req.headers_mut()
            .append("x-a", HeaderValue::from_static("1"));
    }
    let response = service.oneshot(req).await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_never_below_the_backoff() {
    let policy = StandardPolicy::builder()
        .backoff(
            Backoff::exponential(10_000 * MS, 10_000 * MS)
                .with_throttled_base(10_000 * MS)
                .without_jitter()
                .without_hint_jitter(),
        )
        .build()
        .unwrap();
    let script = Script::new([
        Reply::status(503).header("retry-after", "4"),
        Reply::status(200),
    ]);
    let service = RetryLayer::new(policy)
        .with_deadline(9_000 * MS)
        .layer(script.clone());
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    // max(backoff, hint) = 10 s is more than remains: denied now.
    assert_eq!(script.attempts(), 1, "{:?}", script.waits());
    assert_eq!(response.status(), 503);
}

struct Slow(Arc<AtomicUsize>);
impl Refresh for Slow {
    async fn refresh(
        &self,
        _: &request::Parts,
        _: &response::Parts,
    ) -> Result<HeaderValue, BoxError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(100 * MS).await;
        Ok(HeaderValue::from_static("new"))
    }
}

fn futures_poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn a_failed_request_body_is_the_kind_whatever_the_response_says() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&attempts);
    let below = service_fn(move |req: Request<ReplayBody>| {
        let counter = Arc::clone(&counter);
        async move {
            counter.fetch_add(1, Ordering::SeqCst);
            // The upload fails; the server answers with what it has, and the stream breaks.
            let _ = req.into_body().collect().await;
            let body = TestBody::new([Step::Data(b"{"), Step::Fail("reset")]);
            Ok::<_, BoxError>(Response::new(body))
        }
    });
    let broken = || TestBody::new([Step::Data(b"a"), Step::Fail("the disk is gone")]);
    let service = layer()
        .with_delivery(Delivery::Whole { limit: 100 })
        .layer(below);
    let response = service
        .oneshot(request(
            Method::PUT,
            ReplayBody::factory(Replayability::Replayable, broken),
        ))
        .await
        .unwrap();
    let error = response.into_body().collect().await.unwrap_err();
    assert_eq!(error.failure().kind(), FailureKind::RequestBody);
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn the_outer_third_answer_has_the_response_too() {
    let script = Script::new([Reply::status(503).body(b"busy")]);
    let service = ServiceBuilder::new()
        .layer(layer())
        .layer(RetryLayer::new(StandardPolicy::none()))
        .service(script.clone());
    let error = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert!(error.is_ambiguous());
    assert!(
        error.evidence() >= Evidence::ResponseReceived,
        "headers were seen: {}",
        error.evidence()
    );
    assert_eq!(error.status(), Some(StatusCode::SERVICE_UNAVAILABLE));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_at_the_end_of_time_is_never() {
    let now = tokio::time::Instant::now();
    let seconds = (0..64).rev().map(|bit| Duration::from_secs(1 << bit));
    let nanos = (0..30).rev().map(|bit| Duration::from_nanos(1 << bit));
    let last = seconds
        .chain(nanos)
        .fold(now, |last, step| last.checked_add(step).unwrap_or(last));
    for layer in [
        layer().with_deadline(last - now),
        layer().with_attempt_timeout(last - now),
    ] {
        let script = Script::new([Reply::status(200).after(MS)]);
        layer
            .layer(script)
            .oneshot(request(Method::GET, ()))
            .await
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_body_is_the_kind_of_a_statement_too() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&attempts);
    let below = service_fn(move |req: Request<ReplayBody>| {
        let counter = Arc::clone(&counter);
        async move {
            counter.fetch_add(1, Ordering::SeqCst);
            let _ = req.into_body().collect().await;
            let failure = Failure::sent_no_response(FailureKind::Reset);
            Err::<Response<TestBody>, BoxError>(EvidenceError::new(failure, "reset").into())
        }
    });
    let broken = || TestBody::new([Step::Data(b"a"), Step::Fail("the disk is gone")]);
    let error = layer()
        .layer(below)
        .oneshot(request(
            Method::PUT,
            ReplayBody::factory(Replayability::Replayable, broken),
        ))
        .await
        .unwrap_err();
    assert_eq!(error.failure().unwrap().kind(), FailureKind::RequestBody);
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_side_calls_own_error_is_no_proof_about_this_request() {
    let executed = Arc::new(AtomicUsize::new(0));
    let side = RetryLayer::new(StandardPolicy::none()).layer(Script::new(
        (0..10).map(|_| Reply::fails(Failure::not_sent(FailureKind::Connect))),
    ));
    let counter = Arc::clone(&executed);
    let below = service_fn(move |req: Request<ReplayBody>| {
        let (counter, side) = (Arc::clone(&counter), side.clone());
        async move {
            req.into_body().collect().await?; // sent, whole
            counter.fetch_add(1, Ordering::SeqCst);
            let audited = side.oneshot(request(Method::GET, ())).await?;
            Ok::<_, BoxError>(audited)
        }
    });
    let error = layer()
        .layer(below)
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert_eq!(executed.load(Ordering::SeqCst), 1, "a duplicate of a POST");
    assert!(error.is_ambiguous(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_empty_path_with_a_query_survives() {
    let (first, second) = uri_of_the_retry(uri("shop.example", "?x=1".into())).await;
    assert_eq!(second, first);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_header_does_not_panic_where_the_map_is_full() {
    let script = Script::new([Reply::status(503), Reply::status(200)]);
    let service = layer()
        .with_attempt_header(HeaderName::from_static("x-attempt"))
        .layer(script.clone());
    let mut req = request(Method::GET, ());
    for i in 0..24_576 {
        let name = HeaderName::try_from(format!("x-{i}")).unwrap();
        if req
            .headers_mut()
            .try_append(name, HeaderValue::from_static("1"))
            .is_err()
        {
            break;
        }
    }
    let response = service.oneshot(req).await.unwrap();
    assert_eq!(response.status(), 200);
}

struct Never;
impl Reconcile for Never {
    async fn reconcile(&self, _: &request::Parts, _: Outcome<'_>) -> Result<Reconciled, BoxError> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconciliation_cut_by_the_deadline_is_the_third_answer_in_time() {
    let script = Script::new([Reply::status(503)]);
    let service = layer()
        .with_deadline(1000 * MS)
        .with_reconcile(Never)
        .layer(script.clone());
    let start = tokio::time::Instant::now();
    let error = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert!(error.is_ambiguous());
    assert_eq!(start.elapsed(), 1000 * MS);
}

/// Panics at once, before its future exists.
struct Rude;
impl Reconcile for Rude {
    fn reconcile(
        &self,
        _: &request::Parts,
        _: Outcome<'_>,
    ) -> impl Future<Output = Result<Reconciled, BoxError>> + Send {
        if true {
            panic!("rude");
        }
        std::future::ready(Ok(Reconciled::Unknown))
    }
}
#[tokio::test(start_paused = true)]
async fn a_rude_reconciler_is_an_unknown() {
    let service = layer()
        .with_reconcile(Rude)
        .layer(Script::new([Reply::status(503)]));
    let error = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert!(error.report().attempts()[0].reconcile_error().is_some());
}

// ================= second batch

#[tokio::test(start_paused = true)]
async fn no_new_retry_once_draining_though_the_body_was_being_opened() {
    let drain = Drain::new();
    let (handle, opens) = (drain.clone(), Arc::new(AtomicUsize::new(0)));
    let body = ReplayBody::reopenable(move || {
        let (handle, nth) = (handle.clone(), opens.fetch_add(1, Ordering::SeqCst));
        async move {
            if nth > 0 {
                tokio::time::sleep(10 * MS).await;
                handle.start();
            }
            Ok::<_, Infallible>(Full::new(Bytes::from_static(b"order")))
        }
    });
    let script = Script::new([Reply::status(503), Reply::status(200)]);
    let response = layer()
        .with_drain(drain)
        .layer(script.clone())
        .oneshot(request(Method::PUT, body))
        .await
        .unwrap();
    assert_eq!(script.attempts(), 1);
    assert_eq!(response.status(), 503);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_after_the_deadline_though_the_body_was_opened_in_time() {
    let body = ReplayBody::reopenable(|| async {
        tokio::time::sleep(500 * MS).await;
        Ok::<_, Infallible>(Full::new(Bytes::from_static(b"order")))
    });
    let script = Script::new([Reply::status(200).after(100 * MS)]);
    let service = layer().with_deadline(1000 * MS).layer(script.clone());
    let mut call = Box::pin(service.oneshot(request(Method::POST, body)));
    assert!(futures_poll(&mut call).is_pending());
    // The executor is busy for a while.
    tokio::time::advance(2000 * MS).await;
    let error = call.await.unwrap_err();
    assert_eq!(script.attempts(), 0, "{error}");
    assert!(!error.is_ambiguous(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_query_alone_survives() {
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = Some("?x=1".parse().unwrap());
    let (first, second) = uri_of_the_retry(Uri::from_parts(parts).unwrap()).await;
    assert_eq!(second.query(), first.query());
}

#[tokio::test(start_paused = true)]
async fn no_sleep_to_the_very_deadline() {
    let script = Script::new([Reply::status(503), Reply::status(200)]);
    let start = tokio::time::Instant::now();
    let service = layer().with_deadline(100 * MS).layer(script.clone());
    service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!((script.attempts(), start.elapsed()), (1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn an_outer_layer_that_delivers_delivers() {
    let deliver = policy()
        .ambiguous_responses(AmbiguousResponses::Deliver)
        .build()
        .unwrap();
    let script = Script::new([Reply::status(503).body(b"busy")]);
    let service = ServiceBuilder::new()
        .layer(RetryLayer::new(deliver))
        .layer(layer())
        .service(script);
    let response = service.oneshot(request(Method::POST, "order")).await;
    assert!(response.is_ok(), "{}", response.unwrap_err());
}

struct Outcomes(Arc<Mutex<Vec<Evidence>>>);
impl Reconcile for Outcomes {
    async fn reconcile(
        &self,
        _: &request::Parts,
        outcome: Outcome<'_>,
    ) -> Result<Reconciled, BoxError> {
        self.0.lock().unwrap().push(outcome.evidence());
        Ok(Reconciled::NotExecuted)
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_open_keeps_the_last_real_outcome() {
    let opens = Arc::new(AtomicUsize::new(0));
    let body = ReplayBody::reopenable(move || {
        let nth = opens.fetch_add(1, Ordering::SeqCst);
        async move {
            if nth > 0 {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(Full::new(Bytes::from_static(b"order")))
        }
    });
    let budget = Budget::builder()
        .floor_per_second(0.0)
        .ratio(0.0)
        .capacity(10)
        .build()
        .unwrap();
    let script = Script::new([Reply::status(429).body(b"busy")]);
    let response = layer()
        .with_budgets(budget.clone())
        .with_attempt_timeout(1000 * MS)
        .layer(script.clone())
        .oneshot(request(Method::POST, body))
        .await
        .unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(budget.balance(), 10.0);
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "busy"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_leaks_to_the_next_call_of_the_thread() {
    let script = Script::new([401, 503, 200, 425, 503, 200, 503, 503, 200].map(Reply::status));
    let service = layer()
        .with_refresh(Slow(Arc::default()))
        .layer(script.clone());
    for auth in [Some("a"), None, None] {
        let mut req = request(Method::GET, ());
        if let Some(auth) = auth {
            req.headers_mut()
                .insert("authorization", HeaderValue::from_static(auth));
            req.extensions_mut()
                .insert(tower_http_retry::Deadline::after(100_000 * MS));
        }
        service.clone().oneshot(req).await.unwrap();
    }
    script.seen(|seen| {
        let auth: Vec<_> = seen
            .iter()
            .map(|s| {
                s.head
                    .headers
                    .get("authorization")
                    .map(|v| v.to_str().unwrap().to_owned())
            })
            .collect();
        assert_eq!(auth[3..], vec![None::<String>; 6]);
        let early: Vec<_> = seen
            .iter()
            .map(|s| {
                s.head
                    .extensions
                    .get::<tower_http_retry::NoEarlyData>()
                    .is_some()
            })
            .collect();
        assert_eq!(
            early,
            [false, false, false, false, true, true, false, false, false]
        );
        assert!(seen[3..].iter().all(|s| {
            s.head
                .extensions
                .get::<tower_http_retry::Deadline>()
                .is_none()
        }));
    });
}

#[tokio::test(start_paused = true)]
async fn a_generated_key_does_not_panic_where_the_map_is_full() {
    let upstream = Upstream::new().generates_key(HeaderName::from_static("idempotency-key"));
    let policy = policy().default_upstream(upstream).build().unwrap();
    let service = RetryLayer::new(policy).layer(Script::new([Reply::status(200)]));
    let mut req = request(Method::POST, ());
    for i in 0..24_576 {
        let name = HeaderName::try_from(format!("x-{i}")).unwrap();
        if req
            .headers_mut()
            .try_append(name, HeaderValue::from_static("1"))
            .is_err()
        {
            break;
        }
    }
    assert_eq!(service.oneshot(req).await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_policys_upstream_of_options_star_is_the_upstream() {
    let key = tower_http_retry::UpstreamKey::origin(
        Some(&http::uri::Scheme::HTTP),
        &"shop.example".parse().unwrap(),
    );
    let upstream = Upstream::new().stop_header(
        HeaderName::from_static("x-stop"),
        HeaderValue::from_static("1"),
    );
    let policy = policy().upstream(key, upstream).build().unwrap();
    let script = Script::new([Reply::status(503).header("x-stop", "1"), Reply::status(200)]);
    let mut req = request(Method::OPTIONS, ());
    *req.uri_mut() = uri("shop.example", "*".into());
    RetryLayer::new(policy)
        .layer(script.clone())
        .oneshot(req)
        .await
        .unwrap();
    assert_eq!(script.attempts(), 1);
}

/// The refreshed credential, as the reconciler and the observers' request see it.
#[tokio::test(start_paused = true)]
async fn a_refused_replacement_of_one_resource_does_not_make_every_straggler_refresh() {
    let count = Arc::new(AtomicUsize::new(0));
    // a: 401, refresh, 200. b (forbidden to this user, 401 whatever it carries), then a straggler with "old".
    let script = Script::new([401, 200, 401, 401, 401, 200].map(Reply::status));
    let service = layer()
        .with_refresh(Slow(Arc::clone(&count)))
        .layer(script.clone());
    for _ in 0..3 {
        let mut req = request(Method::GET, ());
        req.headers_mut()
            .insert("authorization", HeaderValue::from_static("old"));
        service.clone().oneshot(req).await.unwrap();
    }
    println!("refreshes: {}", count.load(Ordering::SeqCst));
}

#[derive(Debug)]
struct OwnSource;
impl std::fmt::Display for OwnSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("its own source")
    }
}
impl std::error::Error for OwnSource {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self)
    }
}

#[test]
fn an_error_that_is_its_own_source_ends_the_call() {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let answer = support::paused(async {
            let script = Script::new([Reply::Error(OwnSource.into())]);
            layer()
                .layer(script)
                .oneshot(request(Method::POST, "order"))
                .await
        });
        let _ = tell.send(answer.is_err());
    });
    assert_eq!(told.recv_timeout(Duration::from_secs(5)), Ok(true));
}

#[test]
fn many_attempts_that_time_out() {
    std::thread::spawn(|| {
        support::paused(async {
            let none = Backoff::exponential(Duration::ZERO, Duration::ZERO);
            let policy = StandardPolicy::builder()
                .retries(20_000)
                .backoff(none)
                .build()
                .unwrap();
            let below = service_fn(|_: Request<ReplayBody>| {
                std::future::pending::<Result<Response<TestBody>, BoxError>>()
            });
            let service = RetryLayer::new(policy)
                .without_budgets()
                .with_attempt_timeout(MS)
                .layer(below);
            let error = service
                .oneshot(request(Method::PUT, "order"))
                .await
                .unwrap_err();
            println!("{}", error.report().attempts().len());
        });
    })
    .join()
    .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_time_out_leads_to_the_transports_last_error_at_once() {
    use std::error::Error as _;
    let script = Script::new([
        Reply::fails(Failure::sent_no_response(FailureKind::Reset)),
        Reply::Hang,
        Reply::Hang,
        Reply::Hang,
    ]);
    let service = layer().with_attempt_timeout(100 * MS).layer(script);
    let error = service
        .oneshot(request(Method::PUT, "order"))
        .await
        .unwrap_err();
    let timed_out = error.source().unwrap();
    assert!(
        timed_out.source().unwrap().is::<EvidenceError>(),
        "{:?}",
        timed_out.source()
    );
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_that_says_not_executed_does_not_hide_an_earlier_unknown() {
    let policy = policy()
        .rule(|attempt: &Attempt<'_>| {
            (attempt.status() == Some(StatusCode::SERVICE_UNAVAILABLE)
                && attempt.number().get() == 1)
                .then_some(Rule::Retry)
        })
        .build()
        .unwrap();
    let seen = Arc::default();
    let script = Script::new([503, 429, 429, 429].map(Reply::status));
    let service = RetryLayer::new(policy)
        .with_reconcile(Outcomes(Arc::clone(&seen)))
        .layer(script);
    let answer = service.oneshot(request(Method::POST, "order")).await;
    assert!(answer.unwrap_err().is_ambiguous());
}

#[tokio::test(start_paused = true)]
async fn a_reconciled_503_that_is_not_retried_is_delivered_whole() {
    let script = Script::new([Reply::status(503).body(b"busy")]);
    let service = RetryLayer::new(StandardPolicy::none())
        .with_reconcile(NotExecuted)
        .layer(script);
    let response = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(
        response.extensions().get::<Report>().unwrap().execution(),
        Execution::NotExecuted
    );
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "busy"
    );
}

fn audited(
    fails: impl Fn(Error) -> BoxError + Clone + Send + 'static,
    executed: Arc<AtomicUsize>,
) -> impl Service<
    Request<ReplayBody>,
    Response = Response<tower_http_retry::ResponseBody<TestBody>>,
    Error = BoxError,
    Future = impl Future<Output = Result<Response<tower_http_retry::ResponseBody<TestBody>>, BoxError>>
             + Send,
> + Clone {
    let side = RetryLayer::new(StandardPolicy::none()).layer(Script::new(
        (0..10).map(|_| Reply::fails(Failure::not_sent(FailureKind::Connect))),
    ));
    service_fn(move |req: Request<ReplayBody>| {
        let (side, fails, executed) = (side.clone(), fails.clone(), Arc::clone(&executed));
        async move {
            req.into_body().collect().await?;
            executed.fetch_add(1, Ordering::SeqCst);
            side.oneshot(request(Method::GET, ())).await.map_err(fails)
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_statement_is_not_overruled_by_what_it_wraps() {
    let executed = Arc::default();
    let state = |error: Error| {
        EvidenceError::new(Failure::sent_no_response(FailureKind::Reset), error).into()
    };
    let below = audited(state, Arc::clone(&executed));
    let error = layer()
        .layer(below)
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert_eq!(executed.load(Ordering::SeqCst), 1, "a duplicate of a POST");
    assert!(error.is_ambiguous(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn classifiers_go_before_the_built_in_ones() {
    let executed = Arc::default();
    let below = audited(|error| Wrapped(error).into(), Arc::clone(&executed));
    let error = layer()
        .with_classifier(|_: &tower_http_retry::FailedAttempt<'_>| {
            Some(Failure::sent_no_response(FailureKind::Reset))
        })
        .layer(below)
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert_eq!(executed.load(Ordering::SeqCst), 1, "a duplicate of a POST");
    let Error::Ambiguous(doubt) = error else {
        panic!("{error}")
    };
    let kind = doubt.failure().map(Failure::kind);
    assert_eq!(kind, Some(FailureKind::Reset), "the classifier's word");
}

#[tokio::test(start_paused = true)]
async fn layers_do_not_multiply_through_an_io_error() {
    let script =
        Script::new((0..20).map(|_| Reply::fails(Failure::sent_no_response(FailureKind::Reset))));
    let service = ServiceBuilder::new()
        .layer(layer())
        .map_err(std::io::Error::other::<Error>)
        .layer(layer())
        .service(script.clone());
    service
        .oneshot(request(Method::PUT, "order"))
        .await
        .unwrap_err();
    assert_eq!(script.attempts(), 4);
}

/// Behind a layer that buffers requests: the one that timed out must not go out later.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_in_a_buffer_does_not_go_out_after_its_retry() {
    struct OneAtATime(Script, Arc<AtomicUsize>);
    impl Service<Request<ReplayBody>> for OneAtATime {
        type Response = Response<TestBody>;
        type Error = BoxError;
        type Future = <Script as Service<Request<ReplayBody>>>::Future;
        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            self.0.poll_ready(cx)
        }
        fn call(&mut self, req: Request<ReplayBody>) -> Self::Future {
            self.1.fetch_add(1, Ordering::SeqCst);
            self.0.call(req)
        }
    }
    let calls = Arc::new(AtomicUsize::new(0));
    let script = Script::new([
        Reply::status(200).after(300 * MS),
        Reply::status(200),
        Reply::status(200),
    ]);
    let buffer = tower::buffer::Buffer::new(OneAtATime(script.clone(), Arc::clone(&calls)), 4);
    let service = layer().with_attempt_timeout(100 * MS).layer(buffer);
    let response = service
        .oneshot(request(Method::PUT, "order"))
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_comes_back_whatever_ends_the_wait() {
    for end in 0..4 {
        let budget = Budget::builder()
            .floor_per_second(0.0)
            .ratio(0.0)
            .capacity(10)
            .build()
            .unwrap();
        let drain = Drain::new();
        let script = Script::new([Reply::status(503), Reply::status(200)]);
        let mut layer = layer()
            .with_budgets(budget.clone())
            .with_drain(drain.clone());
        if end == 1 {
            layer = layer.with_deadline(150 * MS).with_min_attempt(10 * MS);
        }
        let call = layer.layer(script).oneshot(request(Method::GET, ()));
        let call = tokio::spawn(call);
        tokio::time::sleep(50 * MS).await;
        assert_eq!(budget.balance(), 9.0);
        match end {
            0 => drain.start(),
            2 => call.abort(),
            _ => {}
        }
        let answered = call.await;
        let expected = if end == 0 || end == 2 { 10.0 } else { 9.0 };
        assert_eq!(budget.balance(), expected, "{end}: {}", answered.is_ok());
    }
}
