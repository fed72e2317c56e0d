//! Deadlines, timeouts, drains and refreshes at awkward moments.

use std::convert::Infallible;
use std::error::Error as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, request, response};
use http_body_util::Full;
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_http_retry::{
    Backoff, BoxError, Delivery, Discard, Drain, Failure, FailureKind, Refresh, ReplayBody,
    RetryLayer, StandardPolicy,
};

use crate::support::body::{Step, TestBody};
use crate::support::script::{Reply, Script};
use crate::support::{MS, layer, request};
use crate::{ten_tokens, text};

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

#[tokio::test(start_paused = true)]
async fn no_sleep_to_the_very_deadline() {
    let script = Script::new([Reply::status(503), Reply::status(200)]);
    let start = tokio::time::Instant::now();
    let service = layer().with_deadline(100 * MS).layer(script.clone());
    service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!((script.attempts(), start.elapsed()), (1, Duration::ZERO));
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

/// A body that is opened for each attempt, `later` from the second on.
fn opened<Fut: Future<Output = ()> + Send + 'static>(
    later: impl Fn(usize) -> Fut + Send + Sync + 'static,
) -> ReplayBody {
    let opens = AtomicUsize::new(0);
    ReplayBody::reopenable(move || {
        let opening = later(opens.fetch_add(1, Ordering::SeqCst));
        async move {
            opening.await;
            Ok::<_, Infallible>(Full::new(Bytes::from_static(b"order")))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn no_new_retry_once_draining_though_the_body_was_being_opened() {
    let drain = Drain::new();
    let handle = drain.clone();
    let body = opened(move |before| {
        let handle = handle.clone();
        async move {
            if before > 0 {
                tokio::time::sleep(10 * MS).await;
                handle.start();
            }
        }
    });
    let script = Script::new([Reply::status(503), Reply::status(200)]);
    let service = layer().with_drain(drain).layer(script.clone());
    let response = service.oneshot(request(Method::PUT, body)).await.unwrap();
    assert_eq!((script.attempts(), response.status().as_u16()), (1, 503));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_after_the_deadline_though_the_body_was_opened_in_time() {
    let body = opened(|_| tokio::time::sleep(500 * MS));
    let script = Script::new([Reply::status(200).after(100 * MS)]);
    let service = layer().with_deadline(1000 * MS).layer(script.clone());
    let mut call = Box::pin(service.oneshot(request(Method::POST, body)));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut call).poll(&mut cx).is_pending());
    // The executor is busy for a while.
    tokio::time::advance(2000 * MS).await;
    let error = call.await.unwrap_err();
    assert_eq!(script.attempts(), 0, "{error}");
    assert!(!error.is_ambiguous(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_late_open_keeps_the_last_real_outcome() {
    let body = opened(|before| async move {
        if before > 0 {
            std::future::pending().await
        }
    });
    let budget = ten_tokens();
    let script = Script::new([Reply::status(429).body(b"busy")]);
    let service = layer()
        .with_budgets(budget.clone())
        .with_attempt_timeout(1000 * MS)
        .layer(script);
    let response = service.oneshot(request(Method::POST, body)).await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(budget.balance(), 10.0);
    assert_eq!(text(response).await, "busy");
}

/// Each keeps the transport's last error, none the time-outs before it.
/// As far as a clock goes; a timer's rounding must not go further.
#[tokio::test(start_paused = true)]
async fn a_failed_response_may_be_read_out_until_the_end_of_time() {
    let longest = (0..94).rev().fold(Duration::ZERO, |longest, bit| {
        let step = 1_u128 << bit;
        let (seconds, nanos) = (step / 1_000_000_000, (step % 1_000_000_000) as u32);
        u64::try_from(seconds)
            .ok()
            .and_then(|seconds| longest.checked_add(Duration::new(seconds, nanos)))
            .filter(|longest| Instant::now().checked_add(*longest).is_some())
            .unwrap_or(longest)
    });
    for time in [longest, longest - MS, Duration::MAX] {
        let slow = Reply::status(503).steps([Step::Pause(5 * MS), Step::Data(b"busy")]);
        let script = Script::new([slow, Reply::status(200)]);
        let service = layer()
            .with_discard(Discard::default().within(time))
            .layer(script.clone());
        service.oneshot(request(Method::GET, ())).await.unwrap();
        assert_eq!(script.waits(), [100 * MS]);
    }
}

#[tokio::test(start_paused = true)]
async fn many_attempts_may_time_out() {
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
    let call = service.oneshot(request(Method::PUT, "order"));
    let error = call.await.unwrap_err();
    assert_eq!(error.report().attempts().len(), 20_001);
    let time_out = error.source().unwrap();
    assert!(time_out.source().is_none(), "no transport ever failed");
}

/// The transport's error, behind the time-out of the last attempt.
async fn behind_the_time_out(first: Reply) -> BoxError {
    let script = Script::new([first, Reply::Hang, Reply::Hang, Reply::Hang]);
    let service = layer()
        .with_attempt_timeout(100 * MS)
        .with_delivery(Delivery::Whole { limit: 100 })
        .layer(script);
    let call = service.oneshot(request(Method::PUT, "order"));
    let error = call.await.unwrap_err();
    assert_eq!(error.report().attempts().len(), 4);
    let earlier = error.source().and_then(|time_out| time_out.source());
    format!("{:?}", earlier.expect("an earlier error")).into()
}

#[tokio::test(start_paused = true)]
async fn a_time_out_leads_to_the_transports_last_error_at_once() {
    let failed = Reply::fails(Failure::sent_no_response(FailureKind::Reset));
    let earlier = behind_the_time_out(failed).await.to_string();
    assert!(earlier.starts_with("EvidenceError"), "{earlier}");
    let broken = Reply::status(200).steps([Step::Data(b"a"), Step::Fail("the wire broke")]);
    let earlier = behind_the_time_out(broken).await.to_string();
    assert!(earlier.contains("the wire broke"), "{earlier}");
}

/// Takes a while, and counts.
pub(crate) struct Slow(pub(crate) Arc<AtomicUsize>);

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

/// A resource that this user may not have is refused whatever the credential: that says nothing
/// about the replacement for long.
#[tokio::test(start_paused = true)]
async fn a_replacement_that_was_refused_is_fetched_anew_by_one_straggler_and_then_shared() {
    let fetched = Arc::new(AtomicUsize::new(0));
    let script = Script::new([401, 200, 401, 401, 401, 200, 401, 200].map(Reply::status));
    let service = layer()
        .with_refresh(Slow(Arc::clone(&fetched)))
        .layer(script.clone());
    let mut counts = Vec::new();
    for _ in 0..4 {
        let mut req = request(Method::GET, ());
        req.headers_mut()
            .insert("authorization", HeaderValue::from_static("old"));
        service.clone().oneshot(req).await.unwrap();
        counts.push(fetched.load(Ordering::SeqCst));
    }
    // Refused "old", refused both, refused "old" twice.
    assert_eq!(counts, [1, 1, 2, 2]);
    assert_eq!(script.attempts(), 8);
}

/// What ends a wait.
#[derive(Debug, Clone, Copy)]
enum End {
    Drained,
    AttemptMade,
    Cancelled,
}

#[tokio::test(start_paused = true)]
async fn a_token_comes_back_unless_an_attempt_went_out() {
    for (end, left) in [
        (End::Drained, 10.0),
        (End::AttemptMade, 9.0),
        (End::Cancelled, 10.0),
    ] {
        let (budget, drain) = (ten_tokens(), Drain::new());
        let script = Script::new([Reply::status(503), Reply::status(200)]);
        let service = layer()
            .with_budgets(budget.clone())
            .with_drain(drain.clone())
            .layer(script);
        let call = tokio::spawn(service.oneshot(request(Method::GET, ())));
        tokio::time::sleep(50 * MS).await;
        assert_eq!(budget.balance(), 9.0);
        match end {
            End::Drained => drain.start(),
            End::AttemptMade => {}
            End::Cancelled => call.abort(),
        }
        let _ = call.await;
        assert_eq!(budget.balance(), left, "{end:?}");
    }
}
