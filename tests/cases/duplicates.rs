//! What may have been executed is not sent again: kinds duplicate-side-effects, keep-alive.

use bytes::Bytes;
use http::{HeaderValue, Method};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_http_retry::{
    BoxError, Evidence, Execution, Failure, FailureKind, Idempotency, ReplayBody, RetryDenied,
    RetryLayer, Upstream,
};

use super::support::script::Script;
use super::support::{MS, layer, policy, request};
use super::{Reply, get, ok, post, refused, reset, run};

/// The judgement rests on the request that the layer kept: a failure has no response to ask.
#[tokio::test(start_paused = true)]
async fn dup_03_an_unsafe_method_is_known_without_a_response() {
    let mut marked = post();
    marked.extensions_mut().insert(Idempotency::NonIdempotent);
    let timeout = Reply::fails(Failure::sent_no_response(FailureKind::ResponseTimeout));
    let ran = run(&layer(), marked, [timeout]).await;
    ran.waited([]);
    ran.is_ambiguous();
    // The same by the layer's own timeout.
    let ran = run(
        &layer().with_attempt_timeout(50 * MS),
        post(),
        [Reply::Hang],
    )
    .await;
    ran.waited([]);
    ran.is_ambiguous();
}

#[tokio::test(start_paused = true)]
async fn dup_04_no_answer_is_no_proof_that_nothing_was_done() {
    let closed = Reply::fails(Failure::sent_no_response(FailureKind::Closed));
    let ran = run(&layer(), request(Method::PATCH, "change"), [closed]).await;
    ran.waited([]);
    ran.is_ambiguous();
    assert_eq!(ran.error().evidence(), Evidence::SentNoResponse);
}

/// The contract differs: a 504 to a POST is the third answer, which carries the response.
#[tokio::test(start_paused = true)]
async fn dup_05_evidence_decides_not_a_number_of_two_origins() {
    let ran = run(&layer(), post(), [Reply::status(504)]).await;
    ran.waited([]);
    ran.is_ambiguous();
    assert_eq!(ran.error().status().unwrap(), 504);

    let ran = run(&layer(), post(), [refused(), Reply::status(201)]).await;
    ran.waited([100]);
    assert_eq!(ran.status(), 201);
}

/// The contract differs as in DUP-05.
#[tokio::test(start_paused = true)]
async fn dup_07_a_refusal_is_retried_and_a_gateway_timeout_of_a_post_is_not() {
    let six = RetryLayer::new(policy().retries(5).build().unwrap());
    let ran = run(&six, post(), [Reply::status(504)]).await;
    ran.waited([]);
    ran.is_ambiguous();

    let refusal = Reply::status(429).header("retry-after", "1");
    let ran = run(&six, post(), [refusal, Reply::status(201)]).await;
    ran.waited([1000]);
    assert_eq!(ran.status(), 201);
}

#[tokio::test(start_paused = true)]
async fn dup_08_another_upstream_does_not_make_it_safe() {
    // The script's second answer is the other upstream's: it is never asked.
    let ran = run(&layer(), post(), [reset(), ok()]).await;
    ran.waited([]);
    ran.is_ambiguous();
}

#[tokio::test(start_paused = true)]
async fn dup_09_probably_not_sent_is_not_proven() {
    let dropped = Reply::fails(Failure::sent_no_response(FailureKind::Closed));
    let ran = run(&layer(), post(), [dropped]).await;
    ran.waited([]);
    ran.is_ambiguous();
}

/// The contract's word for the reason is the status.
#[tokio::test(start_paused = true)]
async fn dup_10_a_500_to_an_append_is_handed_over() {
    let ran = run(&layer(), post(), [Reply::status(500)]).await;
    ran.waited([]);
    assert_eq!(ran.status(), 500);
    let status = http::StatusCode::INTERNAL_SERVER_ERROR;
    assert_eq!(ran.denied(), Some(RetryDenied::Status(status)));
}

#[tokio::test(start_paused = true)]
async fn dup_12_a_404_after_an_unknown_attempt_may_be_its_echo_and_says_so() {
    let delete = request(Method::DELETE, ());
    let ran = run(&layer(), delete, [reset(), Reply::status(404)]).await;
    ran.waited([100]);
    assert_eq!(ran.status(), 404);
    let report = ran.report().unwrap();
    assert!(report.prior_unknown());
    assert_eq!(report.execution(), Execution::Unknown);
}

/// A layer below that makes up a new key for each attempt cannot change what the next one gets.
#[tokio::test(start_paused = true)]
async fn dup_13_one_call_has_one_key_and_the_same_bytes() {
    let upstream = Upstream::new().honours_idempotency_key();
    let keyed = RetryLayer::new(policy().default_upstream(upstream).build().unwrap());
    let arrived = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = arrived.clone();
    let script = Script::new([reset(), ok()]);
    let service = ServiceBuilder::new()
        .layer(keyed)
        .map_request(move |mut request: http::Request<ReplayBody>| {
            let fresh = HeaderValue::from_static("made-up-below");
            let key = request.headers_mut().insert("idempotency-key", fresh);
            seen.lock().unwrap().push(key.unwrap());
            request
        })
        .service(script.clone());
    let mut payment = post();
    let key = HeaderValue::from_static("k1");
    payment.headers_mut().insert("idempotency-key", key);
    assert_eq!(service.oneshot(payment).await.unwrap().status(), 200);
    assert_eq!(*arrived.lock().unwrap(), ["k1", "k1"]);
    script.seen(|seen| {
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[0].body.as_deref(), Some(&b"order"[..]));
        assert_eq!(seen[0].body, seen[1].body);
    });
}

#[tokio::test(start_paused = true)]
async fn dup_15_a_repeated_part_has_the_same_bytes_and_the_same_target() {
    let part: Bytes = (0..1024 * 1024_u32).map(|byte| byte as u8).collect();
    let mut put = request(Method::PUT, part.clone());
    *put.uri_mut() = "http://store.example/upload?part=3".parse().unwrap();
    let closed = Reply::fails(Failure::sent_no_response(FailureKind::Closed));
    let ran = run(&layer(), put, [closed, ok()]).await;
    ran.waited([100]);
    ran.script.seen(|seen| {
        for attempt in seen {
            assert_eq!(attempt.head.uri.query(), Some("part=3"));
            assert!(attempt.body.as_ref() == Some(&part));
        }
    });
}

#[tokio::test(start_paused = true)]
async fn ka_01_an_incomplete_message_is_retried_for_get_and_ambiguous_for_post() {
    let incomplete = || Reply::fails(Failure::sent_no_response(FailureKind::Closed));
    let ran = run(&layer(), get(), [incomplete(), ok()]).await;
    ran.waited([100]);
    assert_eq!(ran.status(), 200);
    let ran = run(&layer(), post(), [incomplete()]).await;
    ran.waited([]);
    ran.is_ambiguous();
}

#[tokio::test(start_paused = true)]
async fn ka_03_canceled_before_the_request_was_taken_is_not_sent() {
    let canceled: BoxError = tower_http_retry::EvidenceError::new(
        Failure::not_sent(FailureKind::Closed),
        "connection closed before the request was taken",
    )
    .into();
    let replies = [Reply::DropUnread(canceled), Reply::status(201)];
    let ran = run(&layer(), post(), replies).await;
    ran.waited([100]);
    assert_eq!(ran.status(), 201);
}

/// An error that nobody knows is no better than one that is known to prove nothing.
#[tokio::test(start_paused = true)]
async fn ka_05_an_incomplete_answer_says_nothing_about_the_request() {
    let service = layer().layer(Script::new([Reply::Error("incomplete message".into())]));
    let error = service.oneshot(post()).await.unwrap_err();
    assert!(error.is_ambiguous());
    assert_eq!(error.evidence(), Evidence::SentNoResponse);
}
