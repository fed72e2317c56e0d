//! Readiness, and what is held while a call waits: kinds poll-ready, permits-held.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use tokio::time::Instant;
use tower::buffer::BufferLayer;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_http_retry::{Report, RetryLayer, Upstream};

use super::support::probe::Probe;
use super::support::script::Script;
use super::support::{MS, layer, policy, request};
use super::{busy, get, ok, run};

/// A probe panics when it is called without being ready, and its clones are not.
#[tokio::test(start_paused = true)]
async fn po_01_po_02_every_attempt_calls_the_instance_that_was_made_ready() {
    let script = Script::new([busy(), busy(), ok()]);
    let probe = Probe::new(script.clone(), 1);
    let (polls, semaphore) = (probe.ready_polls.clone(), probe.semaphore());
    let response = layer().layer(probe).oneshot(get()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(script.waits(), [100 * MS, 200 * MS]);
    assert_eq!(polls.load(Ordering::SeqCst), 3);
    assert_eq!(semaphore.available_permits(), 1);
}

#[tokio::test(start_paused = true)]
async fn po_03_a_full_buffer_is_waited_for() {
    let slow = |status| super::Reply::status(status).after(10 * MS);
    let script = Script::new([
        slow(503),
        slow(503),
        slow(503),
        slow(200),
        slow(200),
        slow(200),
    ]);
    let service = ServiceBuilder::new()
        .layer(layer())
        .layer(BufferLayer::new(1))
        .layer(ConcurrencyLimitLayer::new(1))
        .service(script.clone());
    let calls: Vec<_> = (0..3)
        .map(|_| tokio::spawn(service.clone().oneshot(get())))
        .collect();
    for call in calls {
        let response = call.await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        let report = response.extensions().get::<Report>().unwrap();
        assert_eq!(report.attempts().len(), 2);
    }
    assert_eq!(script.attempts(), 6);
}

/// A header that marks overload is only what it is registered for: nothing.
#[tokio::test(start_paused = true)]
async fn po_07_a_marker_of_overload_stops_nobody() {
    let stop = HeaderName::from_static("x-no-retry");
    let upstream = Upstream::new().stop_header(stop, HeaderValue::from_static("1"));
    let layer = RetryLayer::new(policy().default_upstream(upstream).build().unwrap());
    let ran = run(&layer, get(), [busy().header("x-overloaded", "1"), ok()]).await;
    ran.waited([100]);
    assert_eq!(ran.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn ph_01_a_call_that_waits_holds_no_permit() {
    let script = Script::new([busy(), ok(), busy(), ok()]);
    let service = ServiceBuilder::new()
        .layer(layer())
        .layer(ConcurrencyLimitLayer::new(1))
        .service(script.clone());
    let start = Instant::now();
    let a = tokio::spawn(service.clone().oneshot(get()));
    tokio::time::sleep(50 * MS).await;
    service.oneshot(get()).await.unwrap();
    assert_eq!(start.elapsed(), 50 * MS, "B waited for nothing");
    let a = a.await.unwrap().unwrap();
    assert_eq!(a.status(), 200);
    assert_eq!(a.extensions().get::<Report>().unwrap().attempts().len(), 3);
}

/// Per-attempt times belong inside: outside, one call is one long round trip.
#[tokio::test(start_paused = true)]
async fn ph_03_what_a_layer_sees_depends_on_its_place() {
    let times = || Arc::new(Mutex::new(Vec::new()));
    let (inside, outside) = (times(), times());
    let script = Script::new([busy(), busy(), ok()].map(|reply| reply.after(5 * MS)));
    let service = ServiceBuilder::new()
        .layer(ConcurrencyLimitLayer::new(2))
        .layer(timed(&outside))
        .layer(layer())
        .layer(timed(&inside))
        .service(script);
    service.oneshot(get()).await.unwrap();
    assert_eq!(*inside.lock().unwrap(), [5 * MS; 3]);
    assert_eq!(*outside.lock().unwrap(), [315 * MS]);
}

/// Notes how long each call takes.
fn timed<S>(times: &Arc<Mutex<Vec<Duration>>>) -> impl Layer<S, Service = Timed<S>> + use<S> {
    let times = Arc::clone(times);
    tower::layer::layer_fn(move |inner| Timed {
        inner,
        times: Arc::clone(&times),
    })
}

#[derive(Clone)]
struct Timed<S> {
    inner: S,
    times: Arc<Mutex<Vec<Duration>>>,
}

impl<S, R> Service<R> for Timed<S>
where
    S: Service<R>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future =
        std::pin::Pin<Box<dyn std::future::Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (start, times) = (Instant::now(), Arc::clone(&self.times));
        let call = self.inner.call(request);
        Box::pin(async move {
            let result = call.await;
            times.lock().unwrap().push(start.elapsed());
            result
        })
    }
}

#[tokio::test(start_paused = true)]
async fn ph_04_a_caller_that_goes_away_frees_everything_at_once() {
    let slow = policy()
        .backoff(tower_http_retry::Backoff::exponential(5000 * MS, 10_000 * MS).without_jitter())
        .build()
        .unwrap();
    let script = Script::new([super::Reply::status(502), ok()]);
    let service = ServiceBuilder::new()
        .layer(ConcurrencyLimitLayer::new(1))
        .layer(RetryLayer::new(slow))
        .service(script.clone());
    let a = service.clone().oneshot(request(Method::GET, ()));
    tokio::time::timeout(50 * MS, a).await.unwrap_err();
    let start = Instant::now();
    service.oneshot(get()).await.unwrap();
    assert!(start.elapsed().is_zero(), "B was admitted at once");
    assert_eq!(script.attempts(), 2);
}
