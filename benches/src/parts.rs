//! The layer's parts, each alone.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::Barrier;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tower::Service;
use tower_http_retry::{Budget, Facts, ReplayBody, StandardPolicy, Upstream as Known, decide};

use crate::cases::retrying;
use crate::inner::{Answer, Failed};
use crate::rounds::median;

const RUNS: usize = 15;

/// Nanoseconds of one operation on each of so many threads, which all use the same object.
pub(crate) fn each(threads: usize, operation: impl Fn() + Sync) -> f64 {
    let count = 100_000;
    let runs = (0..RUNS).map(|_| {
        let barrier = Barrier::new(threads);
        let times: Vec<f64> = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|_| {
                    scope.spawn(|| {
                        (0..count / 10).for_each(|_| operation());
                        barrier.wait();
                        let start = Instant::now();
                        (0..count).for_each(|_| operation());
                        start.elapsed().as_nanos() as f64 / f64::from(count)
                    })
                })
                .collect();
            workers
                .into_iter()
                .map(|worker| worker.join().expect("no panic"))
                .collect()
        });
        times.iter().sum::<f64>() / threads as f64
    });
    median(runs.collect())
}

/// `decide` for a success and for a 503 to a GET.
pub fn decide_alone() -> (f64, f64) {
    let policy = StandardPolicy::default();
    let (request, ()) = Request::get("http://a/")
        .body(())
        .expect("valid")
        .into_parts();
    let judged = |status| {
        let (mut response, ()) = Response::new(()).into_parts();
        response.status = status;
        let attempt = Facts::response(&request, &response).attempt_for(&policy);
        each(1, || {
            let _ = black_box(decide(black_box(&policy), black_box(&attempt)));
        })
    };
    (
        judged(StatusCode::OK),
        judged(StatusCode::SERVICE_UNAVAILABLE),
    )
}

/// A deposit into a full bucket.
pub fn deposit(threads: usize) -> f64 {
    let budget = Budget::default();
    each(threads, || black_box(&budget).deposit())
}

/// Microseconds of a call that sends 64 KiB in frames of 16 KiB through the layer, to an inner
/// service that reads them: as a one-shot body, and buffered.
pub fn buffered() -> (f64, f64) {
    let frame = Bytes::from(vec![b'x'; 16 * 1024]);
    let body = || Frames((0..4).map(|_| frame.clone()).collect());
    let mut service = retrying(Reads, 2, Known::new());
    let mut time = |make: &dyn Fn() -> ReplayBody| {
        let count = 200;
        let bodies: Vec<ReplayBody> = (0..count).map(|_| make()).collect();
        let start = Instant::now();
        for body in bodies {
            let mut cx = Context::from_waker(Waker::noop());
            assert!(service.poll_ready(&mut cx).is_ready());
            let request = Request::post("http://a/").body(body).expect("valid");
            assert!(pin!(service.call(request)).poll(&mut cx).is_ready());
        }
        start.elapsed().as_nanos() as f64 / 1e3 / f64::from(count)
    };
    let (mut raw, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        raw.push(time(&|| ReplayBody::one_shot(body())));
        kept.push(time(&|| ReplayBody::buffered(body(), 128 * 1024)));
    }
    (median(raw), median(kept))
}

/// A body of several frames.
struct Frames(VecDeque<Bytes>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|bytes| bytes.len() as u64).sum())
    }
}

/// Reads the request as a transport would: every byte is copied out.
#[derive(Clone)]
struct Reads;

impl Service<Request<ReplayBody>> for Reads {
    type Response = Answer;
    type Error = Failed;
    type Future = std::future::Ready<Result<Answer, Failed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReplayBody>) -> Self::Future {
        let mut body = request.into_body();
        let mut wire = Vec::with_capacity(64 * 1024);
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut cx) {
            if let Some(data) = frame.data_ref() {
                wire.extend_from_slice(data);
            }
        }
        black_box(&wire);
        std::future::ready(Ok(Response::new(Default::default())))
    }
}
