//! Bodies through the layer, in process: what every attempt carries, and when there is none.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // helpers of tests

mod support;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use support::body::{Step, TestBody};
use support::script::{Reply, Script};
use support::upload::{Chunks, Sink, Take, live};
use support::{layer, request};
use tower::{Layer, ServiceExt, service_fn};
use tower_http_retry::{
    BodyState, Error, Evidence, Failure, FailureKind, Idempotency, ReplayBody, Replayability,
    Report, RetryDenied,
};

type Answer = Result<http::Response<tower_http_retry::ResponseBody<Full<Bytes>>>, Error>;

async fn put(sink: &Sink, body: impl Into<ReplayBody>) -> Answer {
    layer()
        .layer(sink.clone())
        .oneshot(request(Method::PUT, body))
        .await
}

/// A POST that is declared idempotent, as one with a key that the upstream honours.
async fn post_with_key(sink: &Sink, body: impl Into<ReplayBody>) -> Answer {
    let mut request = request(Method::POST, body);
    request.extensions_mut().insert(Idempotency::Keyed);
    layer().layer(sink.clone()).oneshot(request).await
}

fn trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("checksum", "abc".parse().unwrap());
    trailers
}

fn refused() -> Failure {
    Failure::not_sent(FailureKind::Connect)
}

fn denied(answer: &Answer) -> Option<RetryDenied> {
    let report = match answer {
        Ok(response) => response.extensions().get::<Report>(),
        Err(error) => Some(error.report()),
    };
    report
        .and_then(Report::verdict)
        .and_then(|verdict| verdict.denied())
}

fn status(answer: &Answer) -> StatusCode {
    answer.as_ref().unwrap().status()
}

fn causes(error: &Error) -> Vec<String> {
    let first: Option<&(dyn std::error::Error + 'static)> = Some(error);
    std::iter::successors(first, |error| error.source())
        .map(ToString::to_string)
        .collect()
}

/// Every kind of body that can be sent again, the bytes it sends, and whether it knows their number.
fn replayable() -> Vec<(&'static str, ReplayBody, &'static str, Option<u64>)> {
    let chunks = || Chunks::new(["ab", "", "cd"]);
    vec![
        ("empty", ReplayBody::empty(), "", Some(0)),
        ("bytes", "abcd".into(), "abcd", Some(4)),
        (
            "encoded",
            ReplayBody::encoded(7, |n| Ok::<_, Infallible>(n.to_string())),
            "7",
            Some(1),
        ),
        (
            "made",
            ReplayBody::factory(Replayability::Replayable, move || chunks().exact(4)),
            "abcd",
            Some(4),
        ),
        (
            "opened",
            ReplayBody::reopenable(move || async move { Ok::<_, Infallible>(chunks()) }),
            "abcd",
            None,
        ),
        ("buffered", ReplayBody::buffered(chunks(), 4), "abcd", None),
        (
            "buffered with length",
            ReplayBody::buffered(chunks().exact(4), 4),
            "abcd",
            Some(4),
        ),
        (
            "chain",
            ReplayBody::chain(["x".into(), ReplayBody::buffered(chunks(), 4), "y".into()]),
            "xabcdy",
            None,
        ),
        (
            "opened chain",
            ReplayBody::chain([
                "x".into(),
                ReplayBody::reopenable(async || Ok::<_, Infallible>(Full::<Bytes>::from("z"))),
            ]),
            "xz",
            Some(2),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn every_attempt_carries_the_same() {
    for (name, body, bytes, exact) in replayable() {
        let sink = Sink::new([503, 503, 503, 200].map(Take::all));
        let answer = put(&sink, body).await;
        assert_eq!(status(&answer), 200, "{name}");
        let got = sink.got();
        assert_eq!(got.len(), 4, "{name}");
        assert_eq!(
            (&*got[0].data, got[0].exact),
            (bytes.as_bytes(), exact),
            "{name}"
        );
        assert!(got[0].whole, "{name}");
        for later in &got[1..] {
            assert_eq!(*later, got[0], "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_read_nothing_or_a_part_does_not_matter() {
    for frames in 0..3 {
        for (name, body, bytes, _) in replayable() {
            let sink = Sink::new([
                Take::some(frames, 503),
                Take::fails(frames, refused()),
                Take::some(frames, 503).keeps(),
                Take::all(200),
            ]);
            let answer = put(&sink, body).await;
            assert_eq!(status(&answer), 200, "{name}");
            assert_eq!(sink.got()[3].data, bytes.as_bytes(), "{name}");
            if bytes.len() > 1 && frames < 2 {
                let late = sink.kept().collect().await.unwrap_err();
                assert!(late.to_string().contains("cut off"), "{name}: {late}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_of_trailers_only_goes_out_again() {
    let sink = Sink::new([Take::all(503), Take::some(0, 503), Take::all(200)]);
    let body = ReplayBody::buffered(Chunks::default().trailers(trailers()), 0);
    assert_eq!(status(&put(&sink, body).await), 200);
    let got = sink.got();
    assert_eq!(
        (&got[0].trailers, got[0].at_end),
        (&Some(trailers()), false)
    );
    assert_eq!(got[2], got[0]);
}

#[tokio::test(start_paused = true)]
async fn br_02_a_stream_that_cannot_be_repeated_is_sent_once_and_not_refused() {
    let sink = Sink::new([Take::all(200)]);
    let answer = put(&sink, ReplayBody::one_shot(Chunks::new(["a", "b", "c"]))).await;
    assert_eq!(status(&answer), 200);
    assert!(answer.unwrap().extensions().get::<Report>().is_none());
    assert_eq!(sink.got()[0].data, b"abc");
}

#[tokio::test(start_paused = true)]
async fn br_04_a_consumed_stream_is_never_sent_empty() {
    let sink = Sink::new([Take::all(503)]);
    let answer = post_with_key(&sink, ReplayBody::one_shot(Chunks::new(["a"]))).await;
    assert_eq!(status(&answer), 503);
    assert_eq!(
        denied(&answer),
        Some(RetryDenied::BodyNotReplayable(BodyState::Consumed))
    );
    assert_eq!(sink.got().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn br_05_a_replay_has_the_size_of_the_first_attempt() {
    let sink = Sink::new([Take::all(500), Take::all(200)]);
    let mut request = request(Method::PUT, "nineteen bytes here");
    request
        .headers_mut()
        .insert("content-length", "19".parse().unwrap());
    let answer = layer().layer(sink.clone()).oneshot(request).await;
    assert_eq!(status(&answer), 200);
    assert_eq!(sink.got()[1].exact, Some(19));
}

#[tokio::test(start_paused = true)]
async fn br_06_an_untouched_body_is_replayed_from_its_start() {
    let sink = Sink::new([Take::fails(0, refused()), Take::all(200)]);
    let bytes = "x".repeat(628);
    let answer = layer()
        .layer(sink.clone())
        .oneshot(request(Method::POST, bytes.clone()))
        .await;
    assert_eq!(status(&answer), 200);
    assert_eq!(sink.got()[1].data, bytes.as_bytes());
}

#[tokio::test(start_paused = true)]
async fn br_07_a_transport_that_drops_a_request_unread_does_not_destroy_the_stream() {
    let sink = Sink::new([Take::fails(0, refused()), Take::all(200)]);
    let body = ReplayBody::one_shot(Chunks::new(["a", "b"]));
    let answer = layer()
        .layer(sink.clone())
        .oneshot(request(Method::POST, body))
        .await;
    assert_eq!(status(&answer), 200);
    assert_eq!(sink.got()[1].data, b"ab");
}

#[tokio::test(start_paused = true)]
async fn br_09_stacked_layers_do_not_multiply_bytes() {
    for body in [
        ReplayBody::bytes("abc"),
        ReplayBody::buffered(Chunks::new(["a", "bc"]), 9),
    ] {
        let sink = Sink::new([Take::all(200)]);
        let stack = layer().layer(layer().layer(sink.clone()));
        assert_eq!(
            status_of_stack(stack.oneshot(request(Method::POST, body)).await),
            200
        );
        assert_eq!(sink.got().len(), 1);
        assert_eq!(sink.got()[0].data, b"abc");
    }
}

fn status_of_stack<B: std::fmt::Debug>(answer: Result<http::Response<B>, Error>) -> StatusCode {
    answer.unwrap().status()
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_replayed_through_stacked_layers_too() {
    let sink = Sink::new([Take::some(1, 503), Take::all(503), Take::all(200)]);
    let stack = layer().layer(layer().layer(sink.clone()));
    let body = ReplayBody::buffered(Chunks::new(["a", "bc"]), 9);
    assert_eq!(
        status_of_stack(stack.oneshot(request(Method::PUT, body)).await),
        200
    );
    assert_eq!(sink.got()[1].data, b"abc");
    assert_eq!(sink.got()[2].data, b"abc");
}

#[tokio::test(start_paused = true)]
async fn br_11_a_partly_polled_body_starts_from_zero() {
    for body in [
        ReplayBody::bytes("abcd"),
        ReplayBody::buffered(Chunks::new(["ab", "cd"]), 9),
    ] {
        let goaway = Failure::not_sent(FailureKind::GoAway);
        let sink = Sink::new([Take::fails(1, goaway), Take::all(200)]);
        let answer = layer()
            .layer(sink.clone())
            .oneshot(request(Method::POST, body))
            .await;
        assert_eq!(status(&answer), 200);
        assert_eq!(sink.got()[1].data, b"abcd");
    }
}

#[tokio::test(start_paused = true)]
async fn br_13_one_polled_frame_of_a_stream_ends_its_retries() {
    let sink = Sink::new([Take::some(1, 503)]);
    let answer = put(&sink, ReplayBody::one_shot(Chunks::new(["a", "b"]))).await;
    assert_eq!(status(&answer), 503);
    assert_eq!(
        denied(&answer),
        Some(RetryDenied::BodyNotReplayable(BodyState::Consumed))
    );
}

#[tokio::test(start_paused = true)]
async fn br_14_each_attempt_starts_from_the_pristine_request() {
    let sink = Sink::new([Take::all(503), Take::all(200)]);
    // Edits the body in place, as an encoding layer between the retries and the wire does.
    let encoding = tower::ServiceBuilder::new()
        .map_request(|request: http::Request<ReplayBody>| {
            request.map(|body| ReplayBody::chain(["<".into(), body, ">".into()]))
        })
        .service(sink.clone());
    let mut request = request(Method::POST, r#"{"a":1}"#);
    request.extensions_mut().insert(Idempotency::Keyed);
    let answer = layer().layer(encoding).oneshot(request).await;
    assert_eq!(status(&answer), 200);
    for got in sink.got() {
        assert_eq!(got.data, br#"<{"a":1}>"#);
    }
}

#[tokio::test(start_paused = true)]
async fn br_15_a_body_nobody_read_is_not_taken_for_an_empty_one() {
    let sink = Sink::new([Take::fails(0, refused()), Take::all(503), Take::all(200)]);
    let answer = put(&sink, ReplayBody::buffered(Chunks::new(["a", "b"]), 9)).await;
    assert_eq!(status(&answer), 200);
    let got = sink.got();
    assert_eq!((&*got[1].data, &*got[2].data), (&b"ab"[..], &b"ab"[..]));
}

#[tokio::test(start_paused = true)]
async fn br_16_the_fourth_attempt_is_as_whole_as_the_second() {
    let sink = Sink::new([503, 503, 503, 200].map(Take::all));
    assert_eq!(status(&put(&sink, "abc").await), 200);
    assert!(sink.got().iter().all(|got| got.data == b"abc" && got.whole));
}

#[tokio::test(start_paused = true)]
async fn br_19_an_incoming_body_is_forwarded_again_if_buffered_and_else_sent_once() {
    let sink = Sink::new([Take::all(503), Take::all(200)]);
    let body = ReplayBody::buffered(Chunks::new(["abc"]), ReplayBody::DEFAULT_BUFFER_LIMIT);
    assert_eq!(status(&put(&sink, body).await), 200);
    assert_eq!(sink.got()[1].data, b"abc");
    let sink = Sink::new([Take::all(503)]);
    assert_eq!(
        status(&put(&sink, ReplayBody::one_shot(Chunks::new(["abc"]))).await),
        503
    );
}

#[tokio::test(start_paused = true)]
async fn ex_01_a_stream_that_waited_for_100_continue_in_vain_goes_out_again() {
    let closed = Failure::sent_no_response(FailureKind::Closed);
    let sink = Sink::new([Take::fails(0, closed), Take::all(200)]);
    let mut request = request(Method::PUT, ReplayBody::one_shot(Chunks::new(["a", "b"])));
    request
        .headers_mut()
        .insert("expect", "100-continue".parse().unwrap());
    let answer = layer().layer(sink.clone()).oneshot(request).await;
    assert_eq!(status(&answer), 200);
    assert_eq!(sink.got()[1].data, b"ab");
}

#[tokio::test(start_paused = true)]
async fn ex_03_an_expectation_that_failed_is_not_retried() {
    let sink = Sink::new([Take::none(417)]);
    let mut request = request(Method::PUT, "abc");
    request
        .headers_mut()
        .insert("expect", "100-continue".parse().unwrap());
    let answer = layer().layer(sink.clone()).oneshot(request).await;
    assert_eq!(status(&answer), 417);
    assert_eq!(
        denied(&answer),
        Some(RetryDenied::Status(StatusCode::EXPECTATION_FAILED))
    );
}

#[tokio::test(start_paused = true)]
async fn tr_02_neither_request_nor_response_ends_before_its_trailers() {
    use http_body::Body;
    let sink = Sink::new([Take::all(503), Take::all(200)]);
    let body = ReplayBody::buffered(Chunks::new(["abcde"]).exact(5).trailers(trailers()), 9);
    assert_eq!(status(&put(&sink, body).await), 200);
    for got in sink.got() {
        assert_eq!((got.exact, got.at_end, got.whole), (Some(5), false, true));
        assert_eq!(
            (&*got.data, got.trailers),
            (&b"abcde"[..], Some(trailers()))
        );
    }
    let inner = tower::service_fn(|_: http::Request<ReplayBody>| async {
        let body = Chunks::new(["abcde"]).trailers(trailers());
        Ok::<_, Infallible>(http::Response::new(body))
    });
    let response = layer()
        .layer(inner)
        .oneshot(request(Method::GET, ()))
        .await
        .unwrap();
    let mut body = response.into_body();
    assert!(!body.is_end_stream());
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "abcde"
    );
    assert!(!body.is_end_stream());
    assert_eq!(
        body.frame()
            .await
            .unwrap()
            .unwrap()
            .into_trailers()
            .unwrap(),
        trailers()
    );
}

#[tokio::test(start_paused = true)]
async fn tr_03_a_status_in_response_trailers_is_not_a_reason_to_retry() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let inner = tower::service_fn({
        let attempts = Arc::clone(&attempts);
        move |request: http::Request<ReplayBody>| {
            attempts.fetch_add(1, Ordering::SeqCst);
            async move {
                let sent = request.into_body().collect().await.unwrap();
                assert_eq!(sent.trailers(), Some(&trailers()));
                let mut status = HeaderMap::new();
                status.insert("grpc-status", "14".parse().unwrap());
                Ok::<_, Infallible>(http::Response::new(Chunks::default().trailers(status)))
            }
        }
    });
    let body = ReplayBody::buffered(Chunks::new(["call"]).trailers(trailers()), 9);
    let mut request = request(Method::POST, body);
    request
        .headers_mut()
        .insert("content-type", "application/grpc".parse().unwrap());
    let response = layer().layer(inner).oneshot(request).await.unwrap();
    let got = response.into_body().collect().await.unwrap();
    assert_eq!(got.trailers().unwrap()["grpc-status"], "14");
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn over_the_limit_the_running_attempt_goes_on_and_no_other_follows() {
    for (limit, attempts) in [(7, 2), (6, 2), (5, 1)] {
        let sink = Sink::new([Take::all(503), Take::all(200)]);
        let answer = put(
            &sink,
            ReplayBody::buffered(Chunks::new(["ab", "cd", "ef"]), limit),
        )
        .await;
        let got = sink.got();
        assert_eq!(got.len(), attempts);
        assert!(got.iter().all(|got| got.data == b"abcdef"), "limit {limit}");
        if attempts == 1 {
            assert_eq!(status(&answer), 503);
            let overflowed = RetryDenied::BodyNotReplayable(BodyState::Overflowed);
            assert_eq!(denied(&answer), Some(overflowed));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_delivered_answer_leaves_the_upload_alone() {
    let (sender, body) = live();
    sender.send("a".into()).unwrap();
    let sink = Sink::new([Take::some(1, 200).keeps()]);
    let answer = put(&sink, ReplayBody::buffered(body, 100)).await;
    assert_eq!(status(&answer), 200);
    sender.send("b".into()).unwrap();
    drop(sender);
    assert_eq!(sink.kept().collect().await.unwrap().to_bytes(), "b");
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_outlives_a_denied_answer_goes_on_too() {
    let (sender, body) = live();
    sender.send("a".into()).unwrap();
    let sink = Sink::new([Take::some(1, 503).keeps()]);
    let answer = put(&sink, ReplayBody::one_shot(body)).await;
    assert_eq!(status(&answer), 503);
    assert_eq!(
        denied(&answer),
        Some(RetryDenied::BodyNotReplayable(BodyState::Consumed))
    );
    sender.send("b".into()).unwrap();
    drop(sender);
    assert_eq!(sink.kept().collect().await.unwrap().to_bytes(), "b");
}

#[tokio::test(start_paused = true)]
async fn an_upload_behind_an_early_503_is_cut_off_before_the_wait() {
    let (sender, body) = live();
    sender.send("a".into()).unwrap();
    let sink = Sink::new([Take::some(1, 503).keeps(), Take::all(200)]);
    let call = put(&sink, ReplayBody::buffered(body, 100));
    let older = async {
        // The first answer is there at once, the wait is 100 ms.
        tokio::time::sleep(support::MS).await;
        let began = tokio::time::Instant::now();
        let error = sink.kept().collect().await.unwrap_err();
        assert_eq!(began.elapsed(), std::time::Duration::ZERO);
        assert!(error.to_string().contains("cut off"), "{error}");
        sender.send("b".into()).unwrap();
        drop(sender);
    };
    let (answer, ()) = tokio::join!(call, older);
    assert_eq!(status(&answer), 200);
    assert_eq!(sink.got()[1].data, b"ab");
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_source_is_told_once_whatever_the_method() {
    for method in [Method::PUT, Method::POST] {
        let sink = Sink::new([Take::all(200)]);
        let body = ReplayBody::buffered(Chunks::new(["a"]).fails("the disk is gone"), 9);
        let answer = layer()
            .layer(sink.clone())
            .oneshot(request(method, body))
            .await;
        let error = answer.unwrap_err();
        assert_eq!(error.failure().unwrap().kind(), FailureKind::RequestBody);
        assert_eq!(error.evidence(), Evidence::SentNoResponse);
        let told = causes(&error);
        let told = told
            .iter()
            .filter(|cause| *cause == "the disk is gone")
            .count();
        assert_eq!(told, 1, "{error:?}");
        assert_eq!(sink.got().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_ends_short_is_its_own_fault() {
    let sink = Sink::new([Take::all(200)]);
    let error = put(&sink, ReplayBody::one_shot(Chunks::new(["abc"]).exact(5)))
        .await
        .unwrap_err();
    assert_eq!(error.failure().unwrap().kind(), FailureKind::RequestBody);
    let mut request = request(Method::PUT, ReplayBody::one_shot(Chunks::new(["abc"])));
    request
        .headers_mut()
        .insert("content-length", "2".parse().unwrap());
    let sink = Sink::new([Take::all(200)]);
    let error = layer().layer(sink).oneshot(request).await.unwrap_err();
    assert_eq!(error.failure().unwrap().kind(), FailureKind::RequestBody);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_not_as_long_as_declared_is_never_sent() {
    let sink = Sink::new([]);
    let mut request = request(Method::PUT, "abc");
    request
        .headers_mut()
        .insert("content-length", "4".parse().unwrap());
    let error = layer().layer(sink).oneshot(request).await.unwrap_err();
    assert_eq!(error.evidence(), Evidence::NotSent);
    assert_eq!(error.failure().unwrap().kind(), FailureKind::RequestBody);
    assert!(!error.is_ambiguous());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_opened_or_encoded_is_never_sent() {
    let bodies = [
        ReplayBody::reopenable(async || Err::<Full<Bytes>, _>("it is gone")),
        ReplayBody::encoded((), |()| Err::<Bytes, _>("it is gone")),
        ReplayBody::chain([
            "a".into(),
            ReplayBody::reopenable(async || Err::<Full<Bytes>, _>("it is gone")),
        ]),
    ];
    for body in bodies {
        let sink = Sink::new([]);
        let post = request(Method::POST, body);
        let error = layer().layer(sink).oneshot(post).await.unwrap_err();
        assert_eq!(error.evidence(), Evidence::NotSent);
        assert_eq!(error.failure().unwrap().kind(), FailureKind::RequestBody);
        assert!(!error.is_ambiguous());
        assert!(causes(&error).contains(&"it is gone".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn another_payload_is_never_sent_as_a_replay() {
    let made = AtomicUsize::new(3);
    let body = ReplayBody::factory(Replayability::Replayable, move || {
        Full::<Bytes>::from("x".repeat(made.fetch_add(1, Ordering::SeqCst)))
    });
    let sink = Sink::new([Take::all(503)]);
    let answer = put(&sink, body).await;
    assert_eq!(sink.got().len(), 1);
    changed(&answer);
}

/// The call ended because its body changed; the caller has the outcome before that.
fn changed(answer: &Answer) {
    let permanent = RetryDenied::PermanentFailure(FailureKind::BodyChanged);
    assert_eq!(denied(answer), Some(permanent));
    let report = match answer {
        Ok(response) => response.extensions().get::<Report>().unwrap(),
        Err(error) => error.report(),
    };
    let attempts = report.attempts();
    assert_eq!(attempts[0].status(), Some(StatusCode::SERVICE_UNAVAILABLE));
    let last = attempts.last().unwrap();
    assert_eq!(last.failure().unwrap().kind(), FailureKind::BodyChanged);
    assert_eq!(last.evidence(), Evidence::NotSent);
}

#[cfg(feature = "fs")]
mod file {
    use std::path::PathBuf;

    use super::*;

    struct Temporary(PathBuf);

    impl Temporary {
        fn new(name: &str, content: &str) -> Self {
            let name = format!("tower-http-retry-bodies-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, content).unwrap();
            Self(path)
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_goes_out_again() {
        let file = Temporary::new("again", "0123456789");
        for (body, sent) in [
            (ReplayBody::file(&file.0), "0123456789"),
            (ReplayBody::file(&file.0).range(2, 3), "234"),
        ] {
            let sink = Sink::new([Take::all(503), Take::none(503), Take::all(200)]);
            assert_eq!(status(&put(&sink, body).await), 200);
            let got = sink.got();
            assert_eq!(
                (&*got[0].data, got[0].exact),
                (sent.as_bytes(), Some(sent.len() as u64))
            );
            assert_eq!(got[2], got[0]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_changed_ends_the_call_with_the_outcome_before() {
        let file = Temporary::new("changed", "0123456789");
        let path = file.0.clone();
        let sink = Sink::new([Take::all(503)]);
        let inner = tower::ServiceBuilder::new()
            .map_response(move |response| {
                std::fs::write(&path, "another").unwrap();
                response
            })
            .service(sink.clone());
        let put = request(Method::PUT, ReplayBody::file(&file.0));
        changed(&layer().layer(inner).oneshot(put).await);
        assert_eq!(sink.got().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_file_is_never_sent() {
        let missing = std::env::temp_dir().join("tower-http-retry-there-is-no-such-file");
        let error = put(&Sink::new([]), ReplayBody::file(missing))
            .await
            .unwrap_err();
        assert_eq!(error.evidence(), Evidence::NotSent);
        assert_eq!(error.failure().unwrap().kind(), FailureKind::RequestBody);
    }
}

#[cfg(feature = "multipart")]
#[tokio::test(start_paused = true)]
async fn a_form_keeps_its_boundary_and_bytes() {
    use tower_http_retry::{Multipart, Part};
    let stream = ReplayBody::buffered(Chunks::new(["stream"]), 9);
    let form = Multipart::new()
        .text("a", "b")
        .part("c", Part::new(stream).file_name("d"));
    let content_type = form.content_type();
    let sink = Sink::new([Take::all(503), Take::some(2, 503).keeps(), Take::all(200)]);
    assert_eq!(status(&put(&sink, form).await), 200);
    let got = sink.got();
    assert_eq!(got[2], got[0]);
    let boundary = content_type
        .to_str()
        .unwrap()
        .split_once("boundary=")
        .unwrap()
        .1;
    let sent = String::from_utf8(got[2].data.clone()).unwrap();
    assert!(sent.starts_with(&format!("--{boundary}\r\n")));
    assert!(sent.ends_with(&format!("\r\n\r\nstream\r\n--{boundary}--\r\n")));
}

/// What an attempt of a property does: frames to read, whether the body stays alive, and the answer.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Answers(u16),
    Refused,
    Reset,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_the_attempts_took_the_last_one_carries_all(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 0..6),
        with_trailers in any::<bool>(),
        limit in 0_usize..30,
        attempts in prop::collection::vec(
            (0_usize..9, any::<bool>(), prop_oneof![Just(Fate::Answers(503)), Just(Fate::Refused), Just(Fate::Reset)]),
            0..4,
        ),
    ) {
        let whole = chunks.concat();
        let stream = Chunks::new(chunks.clone());
        let stream = if with_trailers { stream.trailers(trailers()) } else { stream };
        let mut most = 0;
        let takes: Vec<Take> = attempts.iter().map(|&(frames, keeps, fate)| {
            let take = match fate {
                Fate::Answers(status) => Take::some(frames, status),
                Fate::Refused => Take::fails(frames, refused()),
                Fate::Reset => Take::fails(frames, Failure::sent_no_response(FailureKind::Reset)),
            };
            most = most.max(chunks.iter().take(frames).map(Vec::len).sum());
            if keeps { take.keeps() } else { take }
        }).chain([Take::all(200)]).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let sink = Sink::new(takes);
        let answer = runtime.block_on(put(&sink, ReplayBody::buffered(stream, limit)));
        let got = sink.got();
        if most <= limit {
            prop_assert_eq!(status(&answer), 200);
            prop_assert_eq!(got.len(), attempts.len() + 1);
            let last = got.last().unwrap();
            prop_assert_eq!(&last.data, &whole);
            prop_assert_eq!(last.trailers.is_some(), with_trailers);
            prop_assert!(last.whole);
        } else {
            let overflowed = RetryDenied::BodyNotReplayable(BodyState::Overflowed);
            prop_assert_eq!(denied(&answer), Some(overflowed));
        }
        for got in &got {
            prop_assert!(whole.starts_with(&got.data));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_body_that_was_peeked_at_is_the_same_in_every_attempt_of_a_call_within() {
    static LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
    let text: Vec<u8> = LETTERS.iter().copied().cycle().take(1000).collect();
    let script = Script::new([Reply::status(503), Reply::status(200)]);
    let inner = layer().layer(script.clone());
    let peek = service_fn(move |mut request: Request<ReplayBody>| {
        let inner = inner.clone();
        async move {
            for _ in 0..3 {
                request.body_mut().frame().await.unwrap().unwrap();
            }
            inner.oneshot(request).await
        }
    });
    let steps = (0..text.len()).map(|at| Step::Data(LETTERS.chunks(1).cycle().nth(at).unwrap()));
    let body = ReplayBody::buffered(TestBody::new(steps), 64 * 1024);
    let service = layer().layer(peek);
    service.oneshot(request(Method::PUT, body)).await.unwrap();
    script.seen(|seen| {
        assert_eq!(seen.len(), 2);
        for seen in seen {
            assert_eq!(seen.body.as_deref(), Some(&text[3..]));
        }
    });
}
