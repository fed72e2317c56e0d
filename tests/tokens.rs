//! A retry's token through the layer: spent by an attempt that goes out, and only by that.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // helpers of tests

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use support::body::TestBody;
use support::probe::Probe;
use support::script::{Reply, Script};
use support::{MS, layer, request};
use tokio::sync::SemaphorePermit;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tower::{Layer, Service, ServiceExt};
use tower_http_retry::{
    BoxError, Budget, Drain, Error, EvidenceError, Failure, FailureKind, ReplayBody, ResponseBody,
    RetryLayer,
};

type Answer = Result<Response<ResponseBody<TestBody>>, Error>;

/// Five tokens, and no more than come back.
fn budget() -> Budget {
    let builder = Budget::builder().ratio(0.0).floor_per_second(0.0);
    builder.capacity(5).build().unwrap()
}

/// A call 50 ms after it began: it failed once, and waits for 50 ms more.
struct Waiting {
    budget: Budget,
    call: JoinHandle<Answer>,
}

impl Waiting {
    async fn begin<S>(layer: RetryLayer, inner: S, body: ReplayBody) -> Self
    where
        S: Service<Request<ReplayBody>, Response = Response<TestBody>, Error = BoxError>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
    {
        let budget = budget();
        let service = layer.with_budgets(budget.clone()).layer(inner);
        let call = tokio::spawn(service.oneshot(request(Method::GET, body)));
        sleep(50 * MS).await;
        assert_eq!(budget.balance(), 4.0, "withdrawn before the wait");
        Self { budget, call }
    }

    /// Waits no longer for its time, but for a permit.
    async fn for_a_permit(&self, probe: &tokio::sync::Semaphore) {
        let permit: SemaphorePermit<'_> = probe.acquire().await.unwrap();
        permit.forget();
        sleep(100 * MS).await;
        assert_eq!(self.budget.balance(), 4.0, "not sent yet");
    }

    /// The tokens when the call has ended.
    async fn answered(self) -> f64 {
        let answer = self.call.await.unwrap();
        assert_eq!(answer.unwrap().status(), 503, "the last real outcome");
        self.budget.balance()
    }

    /// The tokens when the caller has left.
    async fn left(self) -> f64 {
        self.call.abort();
        assert!(self.call.await.unwrap_err().is_cancelled());
        self.budget.balance()
    }
}

fn empty() -> ReplayBody {
    ReplayBody::empty()
}

/// Fails once; nothing else may reach it.
fn once() -> Script {
    Script::new([Reply::status(503)])
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_goes_out_spends_it() {
    let script = Script::new([Reply::status(503), Reply::status(200)]);
    let waiting = Waiting::begin(layer(), script, empty()).await;
    assert_eq!(waiting.call.await.unwrap().unwrap().status(), 200);
    assert_eq!(waiting.budget.balance(), 4.0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_during_the_wait_gives_it_back() {
    let waiting = Waiting::begin(layer(), once(), empty()).await;
    assert_eq!(waiting.left().await, 5.0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_while_the_retry_is_out_has_spent_it() {
    let script = Script::new([Reply::status(503), Reply::Hang]);
    let waiting = Waiting::begin(layer(), script.clone(), empty()).await;
    sleep(100 * MS).await;
    assert_eq!(script.attempts(), 2);
    assert_eq!(waiting.left().await, 4.0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_before_the_retry_is_ready_gives_it_back() {
    let probe = Probe::new(once(), 1);
    let permits = probe.semaphore();
    let waiting = Waiting::begin(layer(), probe, empty()).await;
    waiting.for_a_permit(&permits).await;
    assert_eq!(waiting.left().await, 5.0);
}

#[tokio::test(start_paused = true)]
async fn draining_during_the_wait_gives_it_back() {
    let drain = Drain::new();
    let waiting = Waiting::begin(layer().with_drain(drain.clone()), once(), empty()).await;
    drain.start();
    assert_eq!(waiting.answered().await, 5.0);
}

#[tokio::test(start_paused = true)]
async fn draining_before_the_retry_is_ready_gives_it_back() {
    let (drain, probe) = (Drain::new(), Probe::new(once(), 1));
    let permits = probe.semaphore();
    let waiting = Waiting::begin(layer().with_drain(drain.clone()), probe, empty()).await;
    waiting.for_a_permit(&permits).await;
    drain.start();
    assert_eq!(waiting.answered().await, 5.0);
}

#[tokio::test(start_paused = true)]
async fn draining_while_the_retry_is_out_leaves_it_spent() {
    let drain = Drain::new();
    let script = Script::new([Reply::status(503), Reply::status(200).after(100 * MS)]);
    let waiting = Waiting::begin(layer().with_drain(drain.clone()), script, empty()).await;
    sleep(100 * MS).await;
    drain.start();
    assert_eq!(waiting.call.await.unwrap().unwrap().status(), 200);
    assert_eq!(waiting.budget.balance(), 4.0);
}

/// The wait fitted, but nobody looked in time.
#[tokio::test(start_paused = true)]
async fn a_deadline_that_the_wait_overran_gives_it_back() {
    let waiting = Waiting::begin(layer().with_deadline(150 * MS), once(), empty()).await;
    tokio::time::advance(200 * MS).await;
    assert_eq!(waiting.answered().await, 5.0);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_before_the_retry_is_ready_gives_it_back() {
    let probe = Probe::new(once(), 1);
    let permits = probe.semaphore();
    let waiting = Waiting::begin(layer().with_deadline(500 * MS), probe, empty()).await;
    waiting.for_a_permit(&permits).await;
    assert_eq!(waiting.answered().await, 5.0);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_while_the_retry_is_out_leaves_it_spent() {
    let script = Script::new([Reply::status(503), Reply::Hang]);
    let waiting = Waiting::begin(layer().with_deadline(500 * MS), script, empty()).await;
    let error = waiting.call.await.unwrap().unwrap_err();
    assert_eq!(
        error.failure().unwrap().kind(),
        FailureKind::DeadlineReached
    );
    assert_eq!(waiting.budget.balance(), 4.0);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_timeout_before_the_retry_is_ready_gives_it_back() {
    let policy = support::policy().retries(1).build().unwrap();
    let probe = Probe::new(once(), 1);
    let permits = probe.semaphore();
    let layer = RetryLayer::new(policy).with_attempt_timeout(200 * MS);
    let waiting = Waiting::begin(layer, probe, empty()).await;
    waiting.for_a_permit(&permits).await;
    assert_eq!(waiting.answered().await, 5.0);
}

#[tokio::test(start_paused = true)]
async fn readiness_that_is_lost_gives_it_back() {
    let probe = Probe::new(once(), 1);
    let permits = probe.semaphore();
    let waiting = Waiting::begin(layer(), probe, empty()).await;
    permits.close();
    assert_eq!(waiting.answered().await, 5.0);
}

#[tokio::test(start_paused = true)]
async fn readiness_that_is_lost_after_it_was_waited_for_gives_it_back() {
    let probe = Probe::new(once(), 1);
    let permits = probe.semaphore();
    let waiting = Waiting::begin(layer(), probe, empty()).await;
    waiting.for_a_permit(&permits).await;
    permits.close();
    assert_eq!(waiting.answered().await, 5.0);
}

/// It goes out as far as the client is concerned, which looked for a connection.
#[tokio::test(start_paused = true)]
async fn a_refused_connection_spends_one_for_each_retry_and_none_for_the_first_attempt() {
    let refused = || {
        let failure = Failure::not_sent(FailureKind::Connect);
        Reply::DropUnread(EvidenceError::new(failure, "refused").into())
    };
    let script = Script::new([refused(), refused(), refused(), refused()]);
    let waiting = Waiting::begin(layer(), script.clone(), empty()).await;
    assert!(waiting.call.await.unwrap().is_err());
    assert_eq!((script.attempts(), waiting.budget.balance()), (4, 2.0));

    let first = budget();
    let service = RetryLayer::new(support::policy().retries(0).build().unwrap())
        .with_budgets(first.clone())
        .layer(Script::new([refused()]));
    assert!(service.oneshot(request(Method::GET, ())).await.is_err());
    assert_eq!(first.balance(), 5.0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_opened_again_gives_it_back() {
    let opened = Arc::new(AtomicU32::new(0));
    let body = ReplayBody::reopenable(move || {
        let number = opened.fetch_add(1, Ordering::Relaxed);
        async move {
            match number {
                0 => Ok(Full::new(Bytes::from_static(b"order"))),
                _ => Err("it is gone"),
            }
        }
    });
    let waiting = Waiting::begin(layer(), once(), body).await;
    let _ = waiting.call.await.unwrap();
    assert_eq!(waiting.budget.balance(), 5.0);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_does_not_fit_takes_none() {
    let budget = budget();
    let service = layer()
        .with_deadline(99 * MS)
        .with_budgets(budget.clone())
        .layer(once());
    let answer = service.oneshot(request(Method::GET, ())).await;
    assert_eq!(answer.unwrap().status(), 503);
    assert_eq!(budget.balance(), 5.0);
}
