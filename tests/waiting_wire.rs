//! Between two attempts nothing is held, over real sockets: the servers say what became of the
//! connection of the failed attempt.
//!
//! Time is stopped, and each call is driven by hand: which stage it is in is known, and nothing here
//! depends on how fast the machine is.
#![cfg(all(feature = "hyper", feature = "reqwest"))]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)] // helpers of tests

#[path = "support/wire/mod.rs"]
mod wire;

use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::advance;
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt};
use tower_http_retry::{
    Backoff, Discard, Drain, Error, ReplayBody, ResponseBody, Retry, RetryDenied, RetryLayer,
    StandardPolicy,
};
use wire::clock::{StoppedClock, settle};
use wire::h2::{CANCEL, END_STREAM, H2};
use wire::row::request;
use wire::via::{Below, Down, Via};
use wire::{PATIENCE, Peer, Server, h1};

const WAIT: Duration = Duration::from_millis(100);
const READING: &str = "reading out a failed response";
const WAITING: &str = "\"waiting\"";

/// The first answer: a 503 whose body has `len` bytes, of which `now` come at once.
#[derive(Debug, Clone, Copy)]
struct Busy {
    len: usize,
    now: usize,
    then: Then,
}

#[derive(Debug, Clone, Copy)]
enum Then {
    /// The rest comes when the test says so.
    Rest,
    /// Not another byte.
    Hang,
}

const WHOLE: Busy = Busy {
    len: 4,
    now: 4,
    then: Then::Rest,
};

/// What a server saw, on the connection of this number.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Request(usize),
    Reset(usize, u32),
    Closed(usize),
}

/// A server and what it saw. The first request gets `Busy`, each other one 200.
struct Upstream {
    server: Server,
    seen: UnboundedReceiver<Seen>,
    script: Arc<Script>,
}

struct Script {
    busy: Busy,
    answered: AtomicBool,
    rest: Notify,
    seen: UnboundedSender<Seen>,
}

impl Upstream {
    fn start(via: Via, busy: Busy) -> Self {
        let (sender, seen) = unbounded_channel();
        let script = Arc::new(Script {
            busy,
            answered: AtomicBool::new(false),
            rest: Notify::new(),
            seen: sender,
        });
        let scripted = Arc::clone(&script);
        let server = Server::start(move |peer, number| {
            let script = Arc::clone(&scripted);
            async move {
                match via {
                    Via::HyperH1 | Via::ReqwestH1 => script.h1(peer, number).await,
                    Via::HyperH2 | Via::ReqwestH2 => script.h2(peer, number).await,
                }
                script.saw(Seen::Closed(number));
            }
        });
        Self {
            server,
            seen,
            script,
        }
    }

    async fn next(&mut self) -> Seen {
        patiently(self.seen.recv()).await.unwrap()
    }

    fn connections(&self) -> usize {
        self.server.ledger.now().connections
    }
}

impl Script {
    fn saw(&self, seen: Seen) {
        self.seen.send(seen).ok();
    }

    fn is_first(&self) -> bool {
        !self.answered.swap(true, Ordering::SeqCst)
    }

    async fn h1(&self, mut peer: Peer, number: usize) {
        let Busy { len, now, then } = self.busy;
        while peer.request().await.is_some() {
            self.saw(Seen::Request(number));
            if !self.is_first() {
                peer.write(h1::OK).await;
                continue;
            }
            let head = format!("HTTP/1.1 503 Busy\r\nx-head: yes\r\ncontent-length: {len}\r\n\r\n");
            peer.write(head).await;
            peer.write(vec![b'x'; now]).await;
            if now < len
                && let Then::Rest = then
            {
                self.rest.notified().await;
                peer.write(vec![b'x'; len - now]).await;
            }
        }
    }

    async fn h2(&self, peer: Peer, number: usize) {
        let Busy { len, now, then } = self.busy;
        let Some(mut peer) = H2::accept(peer).await else {
            return;
        };
        while let Some(frame) = peer.frame().await {
            if let Some(code) = frame.reset() {
                self.saw(Seen::Reset(number, code));
            }
            if !frame.ends_stream() {
                continue;
            }
            self.saw(Seen::Request(number));
            if !self.is_first() {
                peer.ok(frame.id).await;
                continue;
            }
            let last = if now < len { 0 } else { END_STREAM };
            peer.respond_with(frame.id, b"503", &len.to_string()).await;
            peer.data(frame.id, &vec![b'x'; now], last).await;
            if now < len
                && let Then::Rest = then
            {
                self.rest.notified().await;
                peer.data(frame.id, &vec![b'x'; len - now], END_STREAM)
                    .await;
            }
        }
    }
}

type Answer = Result<Response<ResponseBody<Down>>, Error>;

/// All calls through one client, one at a time.
fn service(via: Via, layer: RetryLayer) -> Retry<ConcurrencyLimit<Below>> {
    layer.layer(ConcurrencyLimit::new(via.service(), 1))
}

/// One retry, after `WAIT`.
fn layer() -> RetryLayer {
    let backoff = Backoff::exponential(WAIT, WAIT).without_jitter();
    let policy = StandardPolicy::builder()
        .retries(1)
        .backoff(backoff.with_throttled_base(WAIT));
    RetryLayer::new(policy.build().unwrap())
}

async fn patiently<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("in time")
}

/// A call that nobody polls but the test.
async fn call<S>(service: &S, url: &str) -> Pin<Box<S::Future>>
where
    S: Service<Request<ReplayBody>, Error = Error> + Clone,
{
    let mut service = service.clone();
    Box::pin(
        service
            .ready()
            .await
            .unwrap()
            .call(request(&Method::GET, url)),
    )
}

/// Drives a call until it is in this stage, and lets the client's tasks do all they can.
async fn drive<F>(call: &mut Pin<Box<F>>, stage: &str)
where
    F: Future + Debug,
    F::Output: Debug,
{
    let reached = poll_fn(|cx| match call.as_mut().poll(cx) {
        Poll::Ready(answer) => panic!("over before it was {stage}: {answer:?}"),
        Poll::Pending if format!("{call:?}").contains(stage) => Poll::Ready(()),
        Poll::Pending => Poll::Pending,
    });
    patiently(reached).await;
    settle().await;
}

async fn is_ok(answer: impl Future<Output = Answer>) {
    let response = patiently(answer).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = patiently(response.into_body().collect()).await.unwrap();
    assert_eq!(body.to_bytes(), "ok");
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn another_call_takes_the_permit_and_the_connection_during_the_wait() {
    let _clock = StoppedClock::new();
    for via in Via::ALL {
        let mut upstream = Upstream::start(via, WHOLE);
        let service = service(via, layer());
        let url = upstream.server.url();
        let mut first = call(&service, &url).await;
        drive(&mut first, WAITING).await;
        assert_eq!(upstream.next().await, Seen::Request(0));

        is_ok(service.clone().oneshot(request(&Method::POST, &url))).await;
        assert_eq!(upstream.next().await, Seen::Request(0), "{via:?}");

        advance(WAIT).await;
        is_ok(first).await;
        assert_eq!(upstream.next().await, Seen::Request(0), "{via:?}");
        assert_eq!(upstream.connections(), 1, "{via:?}");
    }
}

/// Also where it comes in parts, and has as many bytes as the limit says.
#[tokio::test(start_paused = true)]
async fn a_failed_response_within_the_limits_is_read_out_and_its_connection_used_again() {
    let _clock = StoppedClock::new();
    let busy = Busy {
        len: 4096,
        now: 4000,
        then: Then::Rest,
    };
    for via in Via::ALL {
        let mut upstream = Upstream::start(via, busy);
        let service = service(via, layer().with_discard(Discard::default().up_to(4096)));
        let mut only = call(&service, &upstream.server.url()).await;
        drive(&mut only, READING).await;
        upstream.script.rest.notify_one();
        drive(&mut only, WAITING).await;
        advance(WAIT).await;
        is_ok(only).await;
        for _ in 0..2 {
            assert_eq!(upstream.next().await, Seen::Request(0), "{via:?}");
        }
        assert_eq!(upstream.connections(), 1, "{via:?}");
    }
}

/// Ways to lose patience with a failed response. More of it never comes: whoever went on reading
/// would hold its connection for good.
#[derive(Debug, Clone, Copy)]
enum Cut {
    Bytes,
    Time,
    Unread,
}

impl Cut {
    const ALL: [Self; 3] = [Self::Bytes, Self::Time, Self::Unread];

    fn discard(self) -> Discard {
        match self {
            Self::Bytes => Discard::default().up_to(4095),
            Self::Time => Discard::default(),
            Self::Unread => Discard::none(),
        }
    }

    /// A call that waits, and whose failed response was cut off.
    async fn waits(
        self,
        via: Via,
        layer: RetryLayer,
    ) -> (Upstream, Pin<Box<impl Future<Output = Answer> + Debug>>) {
        let busy = Busy {
            len: 8192,
            now: 4096,
            then: Then::Hang,
        };
        let mut upstream = Upstream::start(via, busy);
        let service = service(via, layer.with_discard(self.discard()));
        let mut only = call(&service, &upstream.server.url()).await;
        if let Self::Time = self {
            drive(&mut only, READING).await;
            advance(Duration::from_millis(24)).await;
            drive(&mut only, READING).await;
            advance(Duration::from_millis(1)).await;
        }
        drive(&mut only, WAITING).await;
        assert_eq!(upstream.next().await, Seen::Request(0));
        // The server is told at once, not when the wait is over.
        let expected = match via {
            Via::HyperH1 | Via::ReqwestH1 => Seen::Closed(0),
            Via::HyperH2 | Via::ReqwestH2 => Seen::Reset(0, CANCEL),
        };
        assert_eq!(upstream.next().await, expected, "{self:?} {via:?}");
        (upstream, only)
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_response_beyond_the_limits_is_dropped_with_no_more_than_its_connection() {
    let _clock = StoppedClock::new();
    for cut in Cut::ALL {
        for via in Via::ALL {
            let (mut upstream, only) = cut.waits(via, layer()).await;
            advance(WAIT).await;
            is_ok(only).await;
            // Over HTTP/2 only the stream is gone.
            let connection = usize::from(Via::H1.contains(&via));
            let expected = Seen::Request(connection);
            assert_eq!(upstream.next().await, expected, "{cut:?} {via:?}");
            assert_eq!(upstream.connections(), connection + 1, "{cut:?} {via:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_response_that_was_cut_off_is_never_delivered_as_a_whole_one() {
    let _clock = StoppedClock::new();
    for cut in Cut::ALL {
        for via in Via::ALL {
            let drain = Drain::new();
            let (_upstream, only) = cut.waits(via, layer().with_drain(drain.clone())).await;
            drain.start();
            let error = patiently(only).await.unwrap_err();
            assert!(matches!(error, Error::Failed(_)), "{cut:?} {via:?}");
            assert_eq!(error.status().unwrap(), 503);
            let head = error.response_parts().unwrap();
            assert_eq!(head.headers["content-length"], "8192");
            assert_eq!(error.denied(), Some(RetryDenied::RuntimeDraining));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_response_that_was_read_out_is_delivered_whole_though_its_connection_is_gone() {
    let _clock = StoppedClock::new();
    for via in Via::ALL {
        let drain = Drain::new();
        let upstream = Upstream::start(via, WHOLE);
        let service = service(via, layer().with_drain(drain.clone()));
        let mut only = call(&service, &upstream.server.url()).await;
        drive(&mut only, WAITING).await;
        // The pool goes with the client.
        drop((service, upstream));
        drain.start();
        let response = patiently(only).await.unwrap();
        assert_eq!(response.status(), 503);
        let body = patiently(response.into_body().collect()).await.unwrap();
        assert_eq!(body.to_bytes(), "xxxx", "{via:?}");
    }
}
