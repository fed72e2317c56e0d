//! Responses that are not delivered hold nothing while the call waits, and those that are belong to the caller.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // helpers of tests

mod support;

use std::collections::VecDeque;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use support::body::{Step, TestBody};
use support::{MS, layer, policy, request};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::PollSemaphore;
use tower::{Layer, Service, ServiceExt};
use tower_http_retry::{BoxError, ReplayBody, Report, RetryDenied, RetryLayer};

/// A pool of connections. One is taken in `poll_ready`, and comes back when the response's body is dropped.
struct Pool {
    connections: PollSemaphore,
    ready: Option<OwnedSemaphorePermit>,
    answers: Arc<Mutex<VecDeque<(u16, TestBody)>>>,
    log: Arc<Mutex<Log>>,
}

/// What happened, and how long after the start.
struct Log {
    start: Instant,
    asked_ready: Vec<Duration>,
    dropped: Vec<Duration>,
}

impl Pool {
    fn new(connections: usize, answers: impl IntoIterator<Item = (u16, TestBody)>) -> Self {
        let log = Log {
            start: Instant::now(),
            asked_ready: Vec::new(),
            dropped: Vec::new(),
        };
        Self {
            connections: PollSemaphore::new(Arc::new(Semaphore::new(connections))),
            ready: None,
            answers: Arc::new(Mutex::new(answers.into_iter().collect())),
            log: Arc::new(Mutex::new(log)),
        }
    }

    fn free(&self) -> usize {
        self.connections.available_permits()
    }

    fn asked_ready(&self) -> Vec<Duration> {
        self.log.lock().unwrap().asked_ready.clone()
    }

    fn dropped(&self) -> Vec<Duration> {
        self.log.lock().unwrap().dropped.clone()
    }
}

impl Clone for Pool {
    fn clone(&self) -> Self {
        Self {
            connections: self.connections.clone(),
            ready: None,
            answers: Arc::clone(&self.answers),
            log: Arc::clone(&self.log),
        }
    }
}

impl Service<Request<ReplayBody>> for Pool {
    type Response = Response<Held>;
    type Error = BoxError;
    type Future = Ready<Result<Response<Held>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.ready.is_none() {
            let mut log = self.log.lock().unwrap();
            let now = log.start.elapsed();
            log.asked_ready.push(now);
            drop(log);
            self.ready = std::task::ready!(self.connections.poll_acquire(cx));
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<ReplayBody>) -> Self::Future {
        let connection = self.ready.take().unwrap();
        let (status, body) = self.answers.lock().unwrap().pop_front().unwrap();
        let body = Held {
            body,
            _connection: connection,
            log: Arc::clone(&self.log),
        };
        ready(Ok(Response::builder().status(status).body(body).unwrap()))
    }
}

/// A body that holds its connection.
struct Held {
    body: TestBody,
    _connection: OwnedSemaphorePermit,
    log: Arc<Mutex<Log>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut log = self.log.lock().unwrap();
        let now = log.start.elapsed();
        log.dropped.push(now);
    }
}

impl Body for Held {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn whole(status: u16) -> (u16, TestBody) {
    (status, TestBody::from(&b"sixteen bytes..."[..]))
}

fn two_attempts() -> RetryLayer {
    RetryLayer::new(policy().retries(1).build().unwrap())
}

async fn get(layer: &RetryLayer, pool: &Pool) -> Response<tower_http_retry::ResponseBody<Held>> {
    layer
        .layer(pool.clone())
        .oneshot(request(Method::GET, ()))
        .await
        .unwrap()
}

fn denied<B>(response: &Response<B>) -> Option<RetryDenied> {
    response
        .extensions()
        .get::<Report>()
        .unwrap()
        .verdict()
        .unwrap()
        .denied()
}

#[tokio::test(start_paused = true)]
async fn rl_01_a_failed_response_gives_its_connection_back_before_the_wait() {
    let pool = Pool::new(1, [whole(503), whole(503), whole(200)]);
    let response = get(&layer(), &pool).await;
    assert_eq!(response.status(), 200);
    assert_eq!(
        pool.dropped(),
        [Duration::ZERO, 100 * MS],
        "each as its response came"
    );
    assert_eq!(pool.asked_ready(), [Duration::ZERO, 100 * MS, 300 * MS]);
}

#[tokio::test(start_paused = true)]
async fn rl_02_failed_responses_do_not_fill_a_pool() {
    let pool = Pool::new(2, [whole(503), whole(503), whole(503), whole(200)]);
    let response = get(&layer(), &pool).await;
    assert_eq!(response.status(), 200);
    assert_eq!(pool.free(), 1, "the delivered response has its own");
    drop(response);
    assert_eq!(pool.free(), 2);
}

#[tokio::test(start_paused = true)]
async fn rl_03_the_last_response_is_the_callers_alone() {
    let pool = Pool::new(1, [whole(503), whole(503)]);
    let response = get(&two_attempts(), &pool).await;
    assert_eq!(response.status(), 503);
    assert_eq!(denied(&response), Some(RetryDenied::MaxAttempts));
    assert_eq!(pool.dropped().len(), 1, "it was neither read nor dropped");
    drop(response);
    assert_eq!(pool.free(), 1);
}

#[tokio::test(start_paused = true)]
async fn rl_04_a_response_is_read_out_before_the_next_attempt_is_ready() {
    let slow = TestBody::new([
        Step::Data(b"busy"),
        Step::Pause(20 * MS),
        Step::Data(b"..."),
    ]);
    let pool = Pool::new(1, [(503, slow), whole(200)]);
    let response = get(&layer(), &pool).await;
    assert_eq!(response.status(), 200);
    assert_eq!(pool.dropped(), [20 * MS]);
    assert_eq!(pool.asked_ready(), [Duration::ZERO, 100 * MS]);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_stalls_is_let_go_and_not_waited_for() {
    let stalled = TestBody::new([Step::Data(b"busy"), Step::Hang]);
    let pool = Pool::new(1, [(503, stalled), whole(200)]);
    let response = get(&layer(), &pool).await;
    assert_eq!(response.status(), 200);
    assert_eq!(pool.dropped(), [25 * MS]);
    assert_eq!(pool.asked_ready(), [Duration::ZERO, 100 * MS]);
}

#[tokio::test(start_paused = true)]
async fn rl_08_the_last_response_is_not_read_within_the_layer() {
    let stalled = TestBody::new([Step::Data(b"busy"), Step::Hang]);
    let pool = Pool::new(1, [whole(503), (503, stalled)]);
    let start = Instant::now();
    let layer = two_attempts().with_deadline(Duration::from_secs(1));
    let response = get(&layer, &pool).await;
    assert_eq!(response.status(), 503);
    assert_eq!(denied(&response), Some(RetryDenied::MaxAttempts));
    assert_eq!(start.elapsed(), 100 * MS);
}
