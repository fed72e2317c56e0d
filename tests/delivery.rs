//! When a response is handed over, and what becomes of bodies that break (behaviour §10).
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests

mod support;

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use http_body::Body;
use http_body_util::BodyExt;
use support::body::Step;
use support::script::{Reply, Script};
use support::{MS, layer, request};
use tokio::time::Instant;
use tower::{Layer, ServiceExt};
use tower_http_retry::{
    Attempt, BodyError, Delivery, Error, Evidence, FailureKind, Policy, Report, ResponseBody,
    RetryDenied, RetryLayer, Rule, StandardPolicy,
};

const WHOLE: Delivery = Delivery::Whole { limit: 1024 };

fn cut(status: u16) -> Reply {
    Reply::status(status).steps([Step::Data(b"half "), Step::Fail("reset")])
}

async fn read<B>(response: Response<ResponseBody<B>>) -> (Vec<u8>, Option<BodyError>)
where
    B: Body,
    B::Error: Into<tower_http_retry::BoxError>,
{
    let mut body = Box::pin(response.into_body());
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
            Err(error) => return (bytes, Some(error)),
        }
    }
    (bytes, None)
}

#[tokio::test(start_paused = true)]
async fn at_headers_a_response_is_not_waited_for_and_its_break_is_an_error_with_evidence() {
    let script = Script::new([Reply::status(200).steps([
        Step::Pause(500 * MS),
        Step::Data(b"half "),
        Step::Fail("reset"),
    ])]);
    let start = Instant::now();
    let response = layer()
        .layer(script.clone())
        .oneshot(request(Method::GET, ()))
        .await
        .unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    let (bytes, error) = read(response).await;
    let error = error.unwrap();
    assert_eq!(bytes, b"half ");
    assert_eq!(error.delivered_bytes(), 5);
    assert_eq!(error.evidence(), Evidence::PartialResponse);
    assert_eq!(error.denied(), RetryDenied::ResponseAlreadyDelivered);
    assert_eq!(
        std::error::Error::source(&error).unwrap().to_string(),
        "reset"
    );
    assert_eq!(script.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_break_before_the_first_byte_is_no_partial_response() {
    let script = Script::new([Reply::status(200).steps([Step::Fail("reset")])]);
    let response = layer()
        .layer(script)
        .oneshot(request(Method::GET, ()))
        .await
        .unwrap();
    let (_, error) = read(response).await;
    assert_eq!(error.unwrap().evidence(), Evidence::ResponseReceived);
}

#[tokio::test(start_paused = true)]
async fn a_clean_end_short_of_the_content_length_is_truncation() {
    let reply = || {
        Reply::status(200)
            .header("content-length", "10")
            .body(b"half")
    };
    let response = layer()
        .layer(Script::new([reply()]))
        .oneshot(request(Method::GET, ()))
        .await
        .unwrap();
    assert!(!response.body().is_end_stream());
    let (bytes, error) = read(response).await;
    assert_eq!(bytes, b"half");
    let error = error.unwrap();
    assert_eq!(error.failure().kind(), FailureKind::Truncated);
    assert_eq!(error.evidence(), Evidence::PartialResponse);

    let script = Script::new([reply(), Reply::status(200).body(b"whole")]);
    let service = layer().with_delivery(WHOLE).layer(script);
    let (bytes, error) = read(service.oneshot(request(Method::GET, ())).await.unwrap()).await;
    assert!(error.is_none());
    assert_eq!(bytes, b"whole");
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_head_and_204_and_304_has_no_length_to_fall_short_of() {
    for (method, status) in [(Method::HEAD, 200), (Method::GET, 204), (Method::GET, 304)] {
        for delivery in [Delivery::AtHeaders, Delivery::AtFirstByte, WHOLE] {
            let script = Script::new([Reply::status(status).header("content-length", "10")]);
            let service = layer().with_delivery(delivery).layer(script);
            let response = service.oneshot(request(method.clone(), ())).await.unwrap();
            assert!(response.body().is_end_stream());
            assert!(read(response).await.1.is_none(), "{method} {status}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn bodiless_answers_never_wait() {
    // A service that, against the rules, keeps such a body open.
    for (method, status) in [(Method::HEAD, 200), (Method::GET, 204), (Method::GET, 304)] {
        let script = Script::new([Reply::status(status).steps([Step::Hang])]);
        let service = layer().with_delivery(WHOLE).layer(script);
        let start = Instant::now();
        service.oneshot(request(method, ())).await.unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn at_first_byte_a_body_that_dies_before_is_retried_and_one_that_dies_later_is_not() {
    let script = Script::new([
        Reply::status(200).steps([Step::Pause(10 * MS), Step::Fail("reset")]),
        Reply::status(200).steps([
            Step::Data(b"half "),
            Step::Pause(10 * MS),
            Step::Fail("reset"),
        ]),
    ]);
    let service = layer()
        .with_delivery(Delivery::AtFirstByte)
        .layer(script.clone());
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!(script.attempts(), 2);
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!(report.attempts()[0].evidence(), Evidence::ResponseReceived);
    let (bytes, error) = read(response).await;
    assert_eq!(bytes, b"half ");
    assert_eq!(
        error.unwrap().denied(),
        RetryDenied::ResponseAlreadyDelivered
    );
}

#[tokio::test(start_paused = true)]
async fn whole_a_body_that_dies_anywhere_within_the_limit_is_retried() {
    let script = Script::new([cut(200), Reply::status(200).body(b"whole")]);
    let service = layer().with_delivery(WHOLE).layer(script.clone());
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!(response.body().size_hint().exact(), Some(5));
    assert_eq!(read(response).await.0, b"whole");
    assert_eq!(script.waits(), [100 * MS]);
}

#[tokio::test(start_paused = true)]
async fn a_broken_answer_to_a_post_gives_head_received_bytes_and_then_the_error() {
    let script = Script::new([cut(201)]);
    let service = layer().with_delivery(WHOLE).layer(script.clone());
    let response = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap();
    assert_eq!(response.status(), 201);
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!(
        report.verdict().unwrap().denied(),
        Some(RetryDenied::NotIdempotent)
    );
    assert!(!report.verdict().unwrap().is_ambiguous(), "a head tells");
    let (bytes, error) = read(response).await;
    assert_eq!(bytes, b"half ");
    let error = error.unwrap();
    assert_eq!(error.denied(), RetryDenied::NotIdempotent);
    assert_eq!(error.evidence(), Evidence::PartialResponse);
    assert_eq!(error.delivered_bytes(), 5);
    assert_eq!(script.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_broken_answer_after_the_last_attempt_gives_head_bytes_and_error() {
    let policy = support::policy().retries(1).build().unwrap();
    let script = Script::new([cut(200), cut(200)]);
    let service = RetryLayer::new(policy).with_delivery(WHOLE).layer(script);
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    let (bytes, error) = read(response).await;
    assert_eq!(bytes, b"half ");
    assert_eq!(error.unwrap().denied(), RetryDenied::MaxAttempts);
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_broken_error_rules_not_the_break() {
    let script = Script::new([cut(404)]);
    let service = layer().with_delivery(WHOLE).layer(script);
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!(response.status(), 404);
    assert!(read(response).await.1.is_some());

    let script = Script::new([cut(503)]);
    let service = layer().with_delivery(WHOLE).layer(script);
    let error = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    let Error::Ambiguous(failure) = error else {
        panic!("not ambiguous")
    };
    let response = failure.into_boxed_response().unwrap();
    assert_eq!(response.status(), 503);
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn above_the_limit_the_body_is_streamed_and_nothing_is_lost() {
    static CHUNK: [u8; 100] = [b'x'; 100];
    let steps = (0..20).map(|_| Step::Data(&CHUNK)).chain([
        Step::Pause(1000 * MS),
        Step::Data(b"end"),
        Step::Trailers("x-checksum"),
    ]);
    let script = Script::new([Reply::status(200).steps(steps)]);
    let service = layer().with_delivery(WHOLE).layer(script);
    let start = Instant::now();
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO, "delivered at the limit");
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-checksum"], "1");
    assert_eq!(collected.to_bytes().len(), 2003);
}

#[tokio::test(start_paused = true)]
async fn exactly_the_limit_is_whole() {
    static BYTES: [u8; 1024] = [b'x'; 1024];
    let script = Script::new([
        Reply::status(200).steps([Step::Data(&BYTES), Step::Fail("reset")]),
        Reply::status(200).body(b"whole"),
    ]);
    let service = layer().with_delivery(WHOLE).layer(script);
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!(read(response).await.0, b"whole");
}

/// GraphQL over HTTP answers 200 to everything; the error is in the body.
struct GraphQl(StandardPolicy);

impl Policy for GraphQl {
    fn rule(&self, attempt: &Attempt<'_>) -> Rule {
        match attempt.body() {
            Some(body) if body.windows(11).any(|part| part == b"UNAVAILABLE") => Rule::Retry,
            _ => self.0.rule(attempt),
        }
    }

    fn defaults(&self) -> &StandardPolicy {
        &self.0
    }
}

#[tokio::test(start_paused = true)]
async fn the_policy_sees_the_bytes_of_a_whole_body() {
    let script = Script::new([
        Reply::status(200).steps([
            Step::Data(b"{\"errors\":[\"UNAV"),
            Step::Data(b"AILABLE\"]}"),
        ]),
        Reply::status(200).steps([
            Step::Data(b"{\"data\""),
            Step::Data(b":1}"),
            Step::Trailers("x-checksum"),
        ]),
    ]);
    let policy = GraphQl(support::policy().build().unwrap());
    let service = RetryLayer::new(policy)
        .with_delivery(WHOLE)
        .layer(script.clone());
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!(script.attempts(), 2);
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-checksum"], "1");
    assert_eq!(collected.to_bytes(), Bytes::from_static(b"{\"data\":1}"));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_holds_while_a_body_is_collected() {
    let script = Script::new([Reply::status(200).steps([Step::Data(b"half "), Step::Hang])]);
    let service = layer()
        .with_delivery(WHOLE)
        .with_deadline(300 * MS)
        .layer(script);
    let start = Instant::now();
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!(start.elapsed(), 300 * MS);
    let (bytes, error) = read(response).await;
    assert_eq!(bytes, b"half ");
    let error = error.unwrap();
    assert_eq!(error.failure().kind(), FailureKind::DeadlineReached);
    assert_eq!(error.denied(), RetryDenied::Deadline);
}

#[tokio::test(start_paused = true)]
async fn the_attempt_timeout_is_disarmed_at_the_headers() {
    // TO-05
    for delivery in [Delivery::AtHeaders, WHOLE] {
        let reply = Reply::status(200)
            .steps([Step::Pause(40 * MS), Step::Data(b"slow")])
            .after(40 * MS);
        let service = layer()
            .with_attempt_timeout(50 * MS)
            .with_delivery(delivery)
            .layer(Script::new([reply]));
        let response = service.oneshot(request(Method::GET, ())).await.unwrap();
        assert_eq!(read(response).await.0, b"slow");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrapper_claims_no_end_before_the_trailers() {
    // TR-02
    let script =
        Script::new([Reply::status(200).steps([Step::Data(b"12345"), Step::Trailers("x-t")])]);
    let response = layer()
        .layer(script)
        .oneshot(request(Method::GET, ()))
        .await
        .unwrap();
    let mut body = response.into_body();
    assert_eq!(body.size_hint().exact(), Some(5));
    assert!(!body.is_end_stream());
    body.frame().await.unwrap().unwrap();
    assert!(!body.is_end_stream());
    assert!(body.frame().await.unwrap().unwrap().is_trailers());
    assert!(body.frame().await.is_none());
}
