//! What an attempt carries: the caller's own request, pristine, and what changes from one attempt to
//! the next.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests

mod support;

use std::collections::HashSet;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, Request, Version};
use support::script::{Reply, Script};
use support::{MS, layer, request};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_http_retry::{
    AttemptNumber, Deadline, Error, Failure, FailureKind, Idempotency, NoEarlyData, Preconditions,
    ReplayBody, Report, RetryDenied, RetryLayer, Upstream,
};

const KEY: HeaderName = HeaderName::from_static("idempotency-key");

#[tokio::test(start_paused = true)]
async fn a_retry_carries_the_callers_head_not_what_layers_below_made_of_it() {
    // RS-01, RS-02, RS-03, RS-04, SA-04
    #[derive(Clone, PartialEq, Debug)]
    struct RequestId(u32);
    let script = Script::new([Reply::status(503), Reply::status(503), Reply::status(200)]);
    let service = ServiceBuilder::new()
        .layer(layer())
        .map_request(|mut request: Request<ReplayBody>| {
            request
                .headers_mut()
                .append("authorization", HeaderValue::from_static("signed"));
            request
                .headers_mut()
                .append("x-a", HeaderValue::from_static("3"));
            request
        })
        .service(script.clone());
    let mut put = request(Method::PUT, "order");
    *put.version_mut() = Version::HTTP_2;
    put.extensions_mut().insert(RequestId(7));
    let mut secret = HeaderValue::from_static("s");
    secret.set_sensitive(true);
    put.headers_mut().append("x-secret", secret);
    for value in ["1", "2"] {
        put.headers_mut()
            .append("x-a", HeaderValue::from_static(value));
    }
    service.oneshot(put).await.unwrap();
    script.seen(|seen| {
        assert_eq!(seen.len(), 3);
        for seen in seen {
            let all = |name| seen.head.headers.get_all(name).iter().collect::<Vec<_>>();
            assert_eq!(all("authorization"), ["signed"]);
            assert_eq!(all("x-a"), ["1", "2", "3"]);
            assert!(seen.head.headers["x-secret"].is_sensitive());
            assert_eq!(seen.head.version, Version::HTTP_2);
            assert_eq!(seen.head.extensions.get(), Some(&RequestId(7)));
            assert_eq!(seen.body.as_deref(), Some(&b"order"[..]));
        }
    });
}

#[tokio::test(start_paused = true)]
async fn retries_know_their_number_and_tell_it_in_a_header_where_asked_to() {
    let header = HeaderName::from_static("x-attempt");
    let script = Script::new([Reply::status(503), Reply::status(503), Reply::status(200)]);
    let mut get = request(Method::GET, ());
    get.headers_mut()
        .insert("x-attempt", HeaderValue::from_static("forged"));
    layer()
        .with_attempt_header(header)
        .layer(script.clone())
        .oneshot(get)
        .await
        .unwrap();
    script.seen(|seen| {
        let numbers: Vec<_> = seen
            .iter()
            .map(|seen| {
                seen.head
                    .extensions
                    .get::<AttemptNumber>()
                    .map(|n| n.number().get())
            })
            .collect();
        assert_eq!(numbers, [None, Some(2), Some(3)]);
        assert_eq!(
            seen[2]
                .head
                .extensions
                .get::<AttemptNumber>()
                .unwrap()
                .max_attempts()
                .get(),
            4
        );
        let told: Vec<_> = seen
            .iter()
            .map(|seen| seen.head.headers["x-attempt"].to_str().unwrap())
            .collect();
        assert_eq!(told, ["forged", "2", "3"]);
    });
}

#[tokio::test(start_paused = true)]
async fn a_425_is_replayed_once_outside_early_data() {
    // TE-01, AC-06
    let script = Script::new([Reply::status(425), Reply::status(425)]);
    let response = layer()
        .layer(script.clone())
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap();
    assert_eq!(response.status(), 425);
    assert_eq!(denied(&response), RetryDenied::TooEarly);
    assert_eq!(script.waits(), [Duration::ZERO]);
    script.seen(|seen| {
        assert!(seen[0].head.extensions.get::<NoEarlyData>().is_none());
        assert!(seen[1].head.extensions.get::<NoEarlyData>().is_some());
    });
}

#[tokio::test(start_paused = true)]
async fn a_425_for_somebody_elses_early_data_is_passed_on() {
    let script = Script::new([Reply::status(425)]);
    let mut get = request(Method::GET, ());
    get.headers_mut()
        .insert("early-data", HeaderValue::from_static("1"));
    let response = layer().layer(script.clone()).oneshot(get).await.unwrap();
    assert_eq!(denied(&response), RetryDenied::TooEarly);
    assert_eq!(script.attempts(), 1);
}

fn keyed() -> RetryLayer {
    let upstream = Upstream::new().generates_key(KEY);
    RetryLayer::new(
        support::policy()
            .default_upstream(upstream)
            .build()
            .unwrap(),
    )
}

#[tokio::test(start_paused = true)]
async fn a_generated_key_is_new_for_each_call_and_the_same_on_its_attempts() {
    let reset = || Reply::fails(Failure::sent_no_response(FailureKind::Reset));
    let script = Script::new([reset(), Reply::status(201), reset(), Reply::status(201)]);
    let service = keyed().layer(script.clone());
    for _ in 0..2 {
        service
            .clone()
            .oneshot(request(Method::POST, "order"))
            .await
            .unwrap();
    }
    script.seen(|seen| {
        let keys: Vec<_> = seen
            .iter()
            .map(|seen| seen.head.headers[KEY].clone())
            .collect();
        assert_eq!(keys[0], keys[1]);
        assert_eq!(keys[2], keys[3]);
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 2);
    });
}

#[tokio::test(start_paused = true)]
async fn the_callers_own_key_stays_and_idempotent_methods_get_none() {
    let script = Script::new([Reply::status(201), Reply::status(200)]);
    let service = keyed().layer(script.clone());
    let mut post = request(Method::POST, "order");
    post.headers_mut()
        .insert(KEY, HeaderValue::from_static("mine"));
    service.clone().oneshot(post).await.unwrap();
    service
        .oneshot(request(Method::PUT, "order"))
        .await
        .unwrap();
    script.seen(|seen| {
        assert_eq!(
            seen[0].head.headers.get_all(KEY).iter().collect::<Vec<_>>(),
            ["mine"]
        );
        assert!(seen[1].head.headers.get(KEY).is_none());
    });
}

#[tokio::test(start_paused = true)]
async fn a_409_under_a_key_after_an_unknown_attempt_means_that_the_first_still_runs() {
    let reset = || Reply::fails(Failure::sent_no_response(FailureKind::Reset));
    let script = Script::new([reset(), Reply::status(409), Reply::status(201)]);
    let response = keyed()
        .layer(script.clone())
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap();
    assert_eq!(response.status(), 201);
    assert!(
        response
            .extensions()
            .get::<Report>()
            .unwrap()
            .prior_unknown()
    );

    let script = Script::new([Reply::status(409)]);
    let response = keyed()
        .layer(script)
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap();
    assert_eq!(response.status(), 409);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_may_be_an_echo_says_so() {
    let reset = Reply::fails(Failure::sent_no_response(FailureKind::Reset));
    let script = Script::new([reset, Reply::status(404)]);
    let response = layer()
        .layer(script)
        .oneshot(request(Method::DELETE, ()))
        .await
        .unwrap();
    assert_eq!(response.status(), 404);
    assert!(
        response
            .extensions()
            .get::<Report>()
            .unwrap()
            .prior_unknown()
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_request_declares_wins_over_everything() {
    let reset = || Reply::fails(Failure::sent_no_response(FailureKind::Reset));
    let mut post = request(Method::POST, "order");
    post.extensions_mut().insert(Idempotency::Idempotent);
    let script = Script::new([reset(), Reply::status(201)]);
    assert_eq!(
        layer().layer(script).oneshot(post).await.unwrap().status(),
        201
    );

    let mut put = request(Method::PUT, "order");
    put.extensions_mut().insert(Idempotency::NonIdempotent);
    let error = layer()
        .layer(Script::new([reset()]))
        .oneshot(put)
        .await
        .unwrap_err();
    assert!(error.is_ambiguous());
}

#[tokio::test(start_paused = true)]
async fn a_precondition_counts_only_where_it_is_trusted() {
    let reset = || Reply::fails(Failure::sent_no_response(FailureKind::Reset));
    let trusting = RetryLayer::new(
        support::policy()
            .preconditions(Preconditions::Trust)
            .build()
            .unwrap(),
    );
    for (name, value, counts) in [
        ("if-none-match", "*", true),
        ("if-match", "\"v1\"", true),
        ("if-match", "W/\"v1\"", false),
        ("if-match", "*", false),
        ("if-match", "\"v1\", \"v2\"", false),
        ("if-none-match", "\"v1\"", false),
    ] {
        let patch = || {
            let mut patch = request(Method::PATCH, "change");
            patch
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
            patch
        };
        let script = Script::new([reset(), Reply::status(200)]);
        let answer = trusting.layer(script).oneshot(patch()).await;
        assert_eq!(answer.is_ok(), counts, "{name}: {value}");
        let answer = layer().layer(Script::new([reset()])).oneshot(patch()).await;
        assert!(answer.unwrap_err().is_ambiguous());
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_in_the_past_sends_nothing() {
    let script = Script::new([]);
    let mut post = request(Method::POST, "order");
    post.extensions_mut()
        .insert(Deadline::after(Duration::ZERO));
    let error = layer()
        .layer(script.clone())
        .oneshot(post)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Failed(_)));
    assert_eq!(
        error.failure(),
        Some(&Failure::not_sent(FailureKind::DeadlineReached))
    );
    assert_eq!(script.attempts(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_earlier_deadline_wins() {
    for (own, layers, at) in [(200, 500, 200), (500, 200, 200)] {
        let mut get = request(Method::GET, ());
        get.extensions_mut().insert(Deadline::after(own * MS));
        let start = tokio::time::Instant::now();
        let service = layer()
            .with_deadline(layers * MS)
            .layer(Script::new([Reply::Hang]));
        service.oneshot(get).await.unwrap_err();
        assert_eq!(start.elapsed(), at * MS);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_lies_about_its_length_is_not_sent() {
    let script = Script::new([]);
    let mut put = request(Method::PUT, "four");
    put.headers_mut()
        .insert("content-length", HeaderValue::from_static("10"));
    let error = layer()
        .layer(script.clone())
        .oneshot(put)
        .await
        .unwrap_err();
    assert_eq!(
        error.failure(),
        Some(&Failure::not_sent(FailureKind::RequestBody))
    );
    assert_eq!(script.attempts(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_seed_reproduces_the_waits_and_no_two_calls_share_them() {
    let waits = |layer: RetryLayer| async move {
        let mut all = Vec::new();
        for _ in 0..3 {
            let script = Script::new([Reply::status(502), Reply::status(502), Reply::status(200)]);
            layer
                .layer(script.clone())
                .oneshot(request(Method::GET, ()))
                .await
                .unwrap();
            all.push(script.waits());
        }
        all
    };
    let layer = || RetryLayer::new(tower_http_retry::StandardPolicy::conventional());
    let first = waits(layer().with_seed(7)).await;
    assert_eq!(first, waits(layer().with_seed(7)).await);
    assert_ne!(first, waits(layer().with_seed(8)).await);
    assert_ne!(waits(layer()).await, waits(layer()).await);
    assert_eq!(first.iter().collect::<HashSet<_>>().len(), 3);
}

fn denied<B>(response: &http::Response<B>) -> RetryDenied {
    response
        .extensions()
        .get::<Report>()
        .unwrap()
        .verdict()
        .unwrap()
        .denied()
        .unwrap()
}
