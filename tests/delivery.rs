//! When a response is handed over, and what becomes of bodies that break.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests

mod support;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use support::body::Step;
use support::script::{Reply, Script};
use support::{MS, layer, request};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_http_retry::{
    AmbiguousResponses, Attempt, BodyError, BoxError, Delivery, Error, Evidence, FailureKind,
    Policy, ReplayBody, Report, ResponseBody, RetryDenied, RetryLayer, Rule, StandardPolicy,
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
    assert_eq!(failure.evidence(), Evidence::PartialResponse);
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

/// The lengths of the bodies that the policy sees.
async fn seen_by_the_policy(limit: usize, reply: Reply) -> Vec<Option<usize>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let look = Arc::clone(&seen);
    let policy = support::policy()
        .rule(move |attempt: &Attempt<'_>| {
            look.lock().unwrap().push(attempt.body().map(<[u8]>::len));
            None
        })
        .build()
        .unwrap();
    let service = RetryLayer::new(policy)
        .with_delivery(Delivery::Whole { limit })
        .layer(Script::new([reply]));
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    drop(response);
    let seen = seen.lock().unwrap();
    seen.clone()
}

#[tokio::test(start_paused = true)]
async fn the_policy_sees_an_empty_body_as_empty_however_its_end_is_told() {
    let at_once = Reply::status(200);
    assert_eq!(seen_by_the_policy(16, at_once).await, [Some(0)]);
    let later = Reply::status(200).steps([Step::Pause(MS)]);
    assert_eq!(seen_by_the_policy(16, later).await, [Some(0)]);
    let a_frame = Reply::status(200).steps([Step::Data(b"")]);
    assert_eq!(seen_by_the_policy(16, a_frame).await, [Some(0)]);
    let none = Reply::status(204);
    assert_eq!(seen_by_the_policy(16, none).await, [Some(0)]);
}

#[tokio::test(start_paused = true)]
async fn the_policy_sees_no_more_than_the_limit_even_of_a_body_that_is_all_here() {
    let reply = || Reply::status(200).body(b"12345");
    assert_eq!(seen_by_the_policy(5, reply()).await, [Some(5)]);
    assert_eq!(seen_by_the_policy(4, reply()).await, [None]);
}

#[tokio::test(start_paused = true)]
async fn a_body_of_many_small_frames_within_the_limit_is_whole() {
    let steps = || (0..5000).map(|_| Step::Data(b"x"));
    let broken = Reply::status(200).steps(steps().chain([Step::Fail("reset")]));
    let whole = Reply::status(200).steps(steps().chain([Step::Trailers("x-checksum")]));
    let script = Script::new([broken, whole]);
    let service = layer()
        .with_delivery(Delivery::Whole { limit: 5000 })
        .layer(script.clone());
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!(script.attempts(), 2);
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-checksum"], "1");
    assert_eq!(collected.to_bytes(), vec![b'x'; 5000]);
}

/// How many frames wait to be read.
fn kept<B>(response: &Response<ResponseBody<B>>) -> usize {
    let shown = format!("{:?}", response.body());
    let (_, kept) = shown.split_once("read_ahead: ").unwrap();
    kept.split_once(',').unwrap().0.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn frames_are_kept_by_their_bytes_not_by_their_number() {
    for (frame, limit) in [(&b""[..], 16), (b"x", 16 * 1024)] {
        let steps = (0..16 * 1024).map(|_| Step::Data(frame));
        let more = [Step::Data(&[b'y'; 17]), Step::Hang];
        let script = Script::new([Reply::status(200).steps(steps.chain(more))]);
        let service = layer()
            .with_delivery(Delivery::Whole { limit })
            .layer(script);
        let response = service.oneshot(request(Method::GET, ())).await.unwrap();
        assert!(kept(&response) < 600, "{} frames", kept(&response));
        assert_eq!(
            response.body().size_hint().lower(),
            17 + 16 * 1024 * frame.len() as u64
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_frame_is_no_first_byte() {
    let script = Script::new([
        Reply::status(200).steps([Step::Data(b""), Step::Pause(MS), Step::Fail("reset")]),
        Reply::status(200).steps([Step::Data(b""), Step::Data(b"whole")]),
    ]);
    let service = layer()
        .with_delivery(Delivery::AtFirstByte)
        .layer(script.clone());
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!(script.attempts(), 2);
    assert_eq!(read(response).await.0, b"whole");
}

/// Always has an empty frame, until then.
struct Busy(Instant);

impl Body for Busy {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let more = Instant::now() < self.0;
        Poll::Ready(more.then(|| Ok(Frame::data(Bytes::new()))))
    }
}

// Its time cannot be paused: a task that is always ready stops the paused clock. Only a test that
// fails takes so long.
const LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_body_that_never_pauses_does_not_outrun_the_deadline() {
    for delivery in [WHOLE, Delivery::AtFirstByte] {
        let end = Instant::now() + LONG;
        let below = service_fn(move |_: Request<ReplayBody>| async move {
            Ok::<_, BoxError>(Response::new(Busy(end)))
        });
        let service = layer()
            .with_deadline(50 * MS)
            .with_delivery(delivery)
            .layer(below);
        let response = service.oneshot(request(Method::GET, ())).await.unwrap();
        assert!(Instant::now() < end);
        let error = read(response).await.1.unwrap();
        assert_eq!(error.failure().kind(), FailureKind::DeadlineReached);
    }
}

#[tokio::test]
async fn a_body_that_never_pauses_is_not_read_out_for_longer_than_agreed_to() {
    let end = Instant::now() + LONG;
    let attempts = Arc::new(Mutex::new([503, 200].into_iter()));
    let below = service_fn(move |_: Request<ReplayBody>| {
        let status = attempts.lock().unwrap().next().unwrap();
        let response = Response::builder().status(status).body(Busy(end)).unwrap();
        async { Ok::<_, BoxError>(response) }
    });
    let response = layer()
        .layer(below)
        .oneshot(request(Method::GET, ()))
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert!(Instant::now() < end);
}

/// Whether an answer of two bytes with these `content-length`s falls short.
async fn falls_short(lengths: &[&str]) -> bool {
    let reply = Reply::status(200).steps([Step::Data(b"ab"), Step::Pause(MS)]);
    let reply = lengths.iter().fold(reply, |reply, length| {
        reply.header("content-length", length)
    });
    let service = layer().layer(Script::new([reply]));
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    read(response).await.1.is_some()
}

#[tokio::test(start_paused = true)]
async fn a_length_said_several_times_is_that_length() {
    for lengths in [&["5"][..], &["5", "5"], &["5, 5"], &["5 ,5", "5"]] {
        assert!(falls_short(lengths).await, "{lengths:?}");
    }
    assert!(!falls_short(&["2", "2"]).await);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_length_promises_none() {
    let overflow = "99999999999999999999";
    for lengths in [
        &["+5"][..],
        &["-5"],
        &["5 5"],
        &["5", "6"],
        &["5,"],
        &[""],
        &[overflow],
    ] {
        assert!(!falls_short(lengths).await, "{lengths:?}");
    }
}

/// RFC 9112 §6.3. hyper reads the chunks, and leaves both headers in the head.
#[tokio::test(start_paused = true)]
async fn a_transfer_coding_overrides_the_length() {
    let reply = Reply::status(200)
        .header("content-length", "10")
        .header("transfer-encoding", "chunked")
        .body(b"half");
    let service = layer().layer(Script::new([reply]));
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    let (bytes, error) = read(response).await;
    assert_eq!(bytes, b"half");
    assert!(error.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_broken_body_that_nobody_got_before_does_not_say_that_somebody_did() {
    let deliver = support::policy()
        .ambiguous_responses(AmbiguousResponses::Deliver)
        .build()
        .unwrap();
    let service = RetryLayer::new(deliver)
        .with_delivery(WHOLE)
        .layer(Script::new([cut(503)]));
    let response = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap();
    let (bytes, error) = read(response).await;
    assert_eq!(bytes, b"half ");
    assert_eq!(error.unwrap().denied(), RetryDenied::NotIdempotent);
}
