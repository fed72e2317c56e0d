//! Calls from within a call: whatever the layer runs of its caller's, that may call through the layer
//! itself, on the same thread.

use std::cell::Cell;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderName, Method, Request, Response, StatusCode, request};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty};
use tower::{Layer, ServiceExt, service_fn};
use tower_http_retry::{
    Attempt, AttemptEnded, BoxError, Idempotency, Observer, Policy, ReplayBody, RetryLayer, Rule,
    StandardPolicy,
};

use crate::support::{layer, policy, request};

/// Makes a call wherever it is run, that is answered at once.
#[derive(Debug)]
struct Calls(Arc<AtomicUsize>);

impl Calls {
    fn call(&self) {
        call();
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn call() {
    let service = layer().layer(service_fn(|request: Request<ReplayBody>| async move {
        let sent = request.into_body().collect().await?.to_bytes();
        assert_eq!(sent, "within");
        Ok::<_, BoxError>(Response::new(Empty::<Bytes>::new()))
    }));
    let mut put = request(Method::PUT, "within");
    put.headers_mut().insert("x-a", "within".parse().unwrap());
    let answer = pin!(service.oneshot(put)).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(answer, Poll::Ready(Ok(answer)) if answer.status() == StatusCode::OK));
}

impl Clone for Calls {
    fn clone(&self) -> Self {
        self.call();
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.call();
    }
}

impl AsRef<[u8]> for Calls {
    fn as_ref(&self) -> &[u8] {
        b"bytes"
    }
}

/// One frame, and a call at every turn.
struct Stream(Calls, bool);

impl Body for Stream {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.call();
        let ended = std::mem::replace(&mut self.1, true);
        Poll::Ready((!ended).then(|| Ok(Frame::data(Bytes::from_static(b"bytes")))))
    }
}

struct Asks(StandardPolicy, Calls);

impl Policy for Asks {
    fn rule(&self, attempt: &Attempt<'_>) -> Rule {
        self.1.call();
        self.0.rule(attempt)
    }

    fn defaults(&self) -> &StandardPolicy {
        &self.0
    }

    fn idempotency(&self, request: &request::Parts) -> Idempotency {
        self.1.call();
        self.0.idempotency(request)
    }

    fn generated_key(&self, _: &request::Parts) -> Option<HeaderName> {
        self.1.call();
        None
    }

    fn accepts(&self, status: StatusCode) -> bool {
        self.1.call();
        self.0.accepts(status)
    }
}

impl Observer for Calls {
    fn attempt_ended(&self, _: &AttemptEnded<'_>) {
        self.call();
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_the_layer_runs_may_make_calls_of_its_own() {
    let made = Arc::new(AtomicUsize::new(0));
    let calls = || Calls(Arc::clone(&made));
    let bodies: [fn(Calls) -> ReplayBody; 5] = [
        |calls| ReplayBody::bytes(Bytes::from_owner(calls)),
        |calls| ReplayBody::bytes([&[b'm'; 2000], calls.as_ref()].concat()),
        |calls| ReplayBody::buffered(Stream(calls, false), 10),
        |calls| ReplayBody::one_shot(Stream(calls, false)),
        |calls| {
            let make = move || Stream(Calls(Arc::clone(&calls.0)), false);
            ReplayBody::factory(tower_http_retry::Replayability::Replayable, make)
        },
    ];
    for body in bodies {
        for statuses in [&[200][..], &[503, 200], &[503, 503, 503, 503]] {
            for observed in [None, Some(calls())] {
                let sent = Mutex::new(Vec::new());
                let mut layer = RetryLayer::new(Asks(policy().build().unwrap(), calls()));
                if let Some(observer) = observed {
                    layer = layer.with_observer(observer);
                }
                let service = layer.layer(service_fn(|request: Request<ReplayBody>| async {
                    assert_eq!(request.headers()["x-a"], "outside");
                    assert!(request.extensions().get::<Calls>().is_some());
                    let bytes = request.into_body().collect().await?.to_bytes();
                    let mut sent = sent.lock().unwrap();
                    let answer = Response::builder().status(statuses[sent.len()]);
                    sent.push(bytes);
                    Ok::<_, BoxError>(answer.body(Empty::<Bytes>::new())?)
                }));
                let mut put = request(Method::PUT, body(calls()));
                put.headers_mut().insert("x-a", "outside".parse().unwrap());
                put.extensions_mut().insert(calls());
                let answer = service.clone().oneshot(put).await.unwrap();
                drop(service);
                let sent = sent.into_inner().unwrap();
                assert_eq!(answer.status().as_u16(), statuses[sent.len() - 1]);
                assert!(sent.iter().all(|bytes| bytes.ends_with(b"bytes")));
            }
        }
    }
    assert!(made.load(Ordering::Relaxed) > 300, "{made:?}");
}

/// The memory that calls leave on a thread is gone before, or after, what makes calls at its end.
#[test]
fn a_thread_that_ends_may_make_calls() {
    struct Last(Cell<bool>);
    impl Drop for Last {
        fn drop(&mut self) {
            if self.0.get() {
                call();
                call();
            }
        }
    }
    thread_local! {
        static BEFORE: Last = const { Last(Cell::new(false)) };
        static AFTER: Last = const { Last(Cell::new(false)) };
    }
    std::thread::spawn(|| {
        BEFORE.with(|last| last.0.set(true));
        call();
        AFTER.with(|last| last.0.set(true));
    })
    .join()
    .unwrap();
}
