//! A call from its start to its answer, in process and under paused time.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests

mod support;

use std::time::Duration;

use http::{Method, StatusCode};
use support::body::TestBody;
use support::script::{Reply, Script};
use support::{MS, layer, request};
use tower::{Layer, ServiceExt};
use tower_http_retry::{
    Decision, Error, Evidence, Execution, Failure, FailureKind, Report, RetryDenied, RetryLayer,
    Rule,
};

#[tokio::test(start_paused = true)]
async fn a_success_is_delivered_as_it_is() {
    let script = Script::new([Reply::status(201).body(b"created")]);
    let response = layer()
        .layer(script.clone())
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap();
    assert_eq!(response.status(), 201);
    assert!(response.extensions().get::<Report>().is_none());
    assert_eq!(script.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_get_is_retried_after_503_with_the_backoff() {
    let script = Script::new([Reply::status(503), Reply::status(503), Reply::status(200)]);
    let response = layer()
        .layer(script.clone())
        .oneshot(request(Method::GET, ()))
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(script.waits(), [100 * MS, 200 * MS]);
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!(report.attempts().len(), 3);
    assert_eq!(report.verdict().unwrap().decision(), Decision::Accept);
}

#[tokio::test(start_paused = true)]
async fn a_post_that_was_reset_is_ambiguous() {
    let script = Script::new([Reply::fails(Failure::sent_no_response(FailureKind::Reset))]);
    let error = layer()
        .layer(script.clone())
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert!(error.is_ambiguous());
    assert_eq!(error.evidence(), Evidence::SentNoResponse);
    assert_eq!(script.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_post_that_was_not_sent_is_sent_again_with_the_same_bytes() {
    let script = Script::new([
        Reply::DropUnread(
            tower_http_retry::EvidenceError::new(
                Failure::not_sent(FailureKind::Connect),
                "refused",
            )
            .into(),
        ),
        Reply::status(201),
    ]);
    let response = layer()
        .layer(script.clone())
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap();
    assert_eq!(response.status(), 201);
    script.seen(|seen| assert_eq!(seen[1].body.as_deref(), Some(&b"order"[..])));
}

#[tokio::test(start_paused = true)]
async fn a_503_to_a_post_is_ambiguous_and_carries_the_response() {
    let script = Script::new([Reply::status(503).body(b"busy")]);
    let error = layer()
        .layer(script.clone())
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::SERVICE_UNAVAILABLE));
    let Error::Ambiguous(failure) = error else {
        panic!("not ambiguous")
    };
    let response = failure.into_response::<TestBody>().unwrap();
    assert_eq!(response.status(), 503);
}

#[tokio::test(start_paused = true)]
async fn where_a_rule_says_ambiguous_the_execution_is_unknown_whatever_the_status() {
    let policy = support::policy().rule(|_| Some(Rule::Ambiguous));
    let service = RetryLayer::new(policy.build().unwrap());
    let error = service
        .layer(Script::new([Reply::status(200)]))
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert!(error.is_ambiguous());
    assert_eq!(error.execution(), Execution::Unknown);
    assert_eq!(error.report().execution(), Execution::Unknown);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_exact_and_ends_an_attempt_in_flight() {
    let script = Script::new([Reply::Hang]);
    let start = tokio::time::Instant::now();
    let error = layer()
        .with_deadline(Duration::from_secs(1))
        .layer(script)
        .oneshot(request(Method::GET, ()))
        .await
        .unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_secs(1));
    assert!(matches!(error, Error::Failed(_)));
    assert_eq!(error.denied(), Some(RetryDenied::Deadline));
    assert_eq!(
        error.failure().unwrap().kind(),
        FailureKind::DeadlineReached
    );
}
