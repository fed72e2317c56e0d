//! What the peer says about its own work: kinds h2-pushback, retryable-not-retried. The error types
//! of the transports are read in the tests of the adapters; here stands what follows from them.

use http::header::{HeaderName, HeaderValue};
use tower_http_retry::{
    Evidence, Execution, Failure, FailureKind, RetryDenied, RetryLayer, Upstream,
};

use super::support::{layer, policy, request};
use super::{Reply, busy, get, ok, post, reset, run, times};

fn stream_refused() -> Reply {
    Reply::fails(Failure::not_sent(FailureKind::StreamRefused))
}

#[tokio::test(start_paused = true)]
async fn h2_01_a_refused_stream_is_safe_for_any_method() {
    let ran = run(&layer(), post(), [stream_refused(), Reply::status(201)]).await;
    ran.waited([100]);
    assert_eq!(ran.status(), 201);
}

/// The contract gives refusals no limit of their own.
#[tokio::test(start_paused = true)]
async fn h2_02_refusals_count_as_attempts() {
    let ran = run(&layer(), post(), times(4, stream_refused)).await;
    ran.waited([100, 200, 400]);
    ran.failed(FailureKind::StreamRefused);
    assert_eq!(ran.error().execution(), Execution::NotExecuted);
    assert_eq!(ran.denied(), Some(RetryDenied::MaxAttempts));
}

#[tokio::test(start_paused = true)]
async fn h2_03_what_a_reset_or_a_goaway_proves_decides() {
    for (failure, retried) in [
        (Failure::sent_no_response(FailureKind::Reset), false), // CANCEL
        (Failure::not_sent(FailureKind::StreamRefused), true),
        (Failure::not_sent(FailureKind::GoAway), true), // above the last stream
        (Failure::sent_no_response(FailureKind::GoAway), false),
    ] {
        let replies = [Reply::fails(failure), Reply::status(201)];
        let ran = run(&layer(), post(), replies).await;
        if retried {
            ran.waited([100]);
            assert_eq!(ran.status(), 201);
        } else {
            ran.waited([]);
            ran.is_ambiguous();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn h2_06_not_sent_does_not_bypass_the_limit() {
    let ran = run(&layer(), get(), times(4, super::refused)).await;
    ran.waited([100, 200, 400]);
    ran.failed(FailureKind::Connect);
    assert_eq!(ran.denied(), Some(RetryDenied::MaxAttempts));
}

/// The crate has no pushback of its own: a header that stops retries is registered.
#[tokio::test(start_paused = true)]
async fn h2_07_a_registered_header_stops() {
    let name = HeaderName::from_static("x-no-retry");
    let upstream = Upstream::new().stop_header(name, HeaderValue::from_static("1"));
    let layer = RetryLayer::new(policy().default_upstream(upstream).build().unwrap());
    let ran = run(&layer, get(), [busy().header("x-no-retry", "1")]).await;
    ran.waited([]);
    assert_eq!(ran.status(), 503);
    let status = http::StatusCode::SERVICE_UNAVAILABLE;
    assert_eq!(ran.denied(), Some(RetryDenied::Status(status)));
}

#[tokio::test(start_paused = true)]
async fn h2_08_an_unknown_error_is_the_worst_case_and_idempotent_calls_go_on() {
    let unclear = || Reply::Error("protocol error: not a result of an error".into());
    let shared = layer();
    let (a, b) = tokio::join!(
        run(&shared, get(), [unclear(), ok()]),
        run(&shared, get(), [unclear(), ok()]),
    );
    for ran in [a, b] {
        ran.waited([100]);
        assert_eq!(ran.status(), 200);
        let first = &ran.report().unwrap().attempts()[0];
        assert_eq!(first.evidence(), Evidence::SentNoResponse);
    }
}

/// A table over all evidence, so that a branch that is "cleaned up" is missed.
#[tokio::test(start_paused = true)]
async fn nr_04_a_reset_before_the_response_is_retried() {
    for failure in [
        Failure::not_sent(FailureKind::Reset),
        Failure::sent_no_response(FailureKind::Reset),
        Failure::response_received(FailureKind::Reset),
        Failure::partial_response(FailureKind::Reset),
    ] {
        let ran = run(&layer(), get(), [Reply::fails(failure), ok()]).await;
        ran.waited([100]);
        assert_eq!(ran.status(), 200, "{failure}");
    }
    run(&layer(), get(), [reset(), ok()]).await.waited([100]);
}

#[tokio::test(start_paused = true)]
async fn nr_05_a_refusal_is_retried_whatever_the_method() {
    for method in ["POST", "PATCH", "REPORT"] {
        let method = http::Method::from_bytes(method.as_bytes()).unwrap();
        let refusal = Reply::status(429).header("retry-after", "1");
        let replies = [refusal, Reply::status(201)];
        let ran = run(&layer(), request(method, "order"), replies).await;
        ran.waited([1000]);
        assert_eq!(ran.status(), 201);
    }
}

#[tokio::test(start_paused = true)]
async fn nr_07_a_handshake_that_was_cut_off_is_no_refused_certificate() {
    let cut = Reply::fails(Failure::not_sent(FailureKind::Tls));
    let ran = run(&layer(), get(), [cut, ok()]).await;
    ran.waited([100]);
    assert_eq!(ran.status(), 200);
}
