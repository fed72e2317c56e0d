//! Evidence B17 and D9: a call whose caller lets go of it. There is no answer; the server sees the end
//! of the connection or of the stream, and what the call had not spent goes back.
#![cfg(all(feature = "hyper", feature = "reqwest"))]
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "support/wire/mod.rs"]
mod wire;

use std::time::Duration;

use http::Method;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::advance;
use tower::{Layer, ServiceExt};
use tower_http_retry::{
    AttemptEnded, Backoff, Budget, CallEnded, Observer, ReplayBody, RetryLayer, StandardPolicy,
};
use wire::clock::{StoppedClock, settle};
use wire::h2::{CANCEL, END_STREAM, H2};
use wire::row::with_body;
use wire::via::Via;
use wire::{Entry, PATIENCE, Server};

/// Where the call is when its caller lets go.
#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    FirstAttempt,
    Wait,
    SecondAttempt,
}

impl At {
    /// Requests that the server has read by then.
    fn requests(self) -> usize {
        match self {
            Self::FirstAttempt | Self::Wait => 1,
            Self::SecondAttempt => 2,
        }
    }

    /// A token is spent by a retry that went out.
    fn spent(self) -> f64 {
        match self {
            Self::FirstAttempt | Self::Wait => 0.0,
            Self::SecondAttempt => 1.0,
        }
    }
}

/// Answers 503 to as many requests as fail before the caller lets go, and the next one not at all.
fn server(via: Via, at: At) -> Server {
    let failing = usize::from(at != At::FirstAttempt);
    Server::start(move |mut peer, _| async move {
        if Via::H1.contains(&via) {
            for _ in 0..failing {
                peer.request().await;
                peer.write("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")
                    .await;
            }
            if at != At::Wait {
                peer.request().await;
            }
            return peer.drain().await;
        }
        let mut peer = H2::accept(peer).await.unwrap();
        for _ in 0..failing {
            let id = peer.request().await.unwrap();
            peer.respond_with(id, b"503", "0").await;
            peer.data(id, b"", END_STREAM).await;
        }
        peer.drain().await;
    })
}

/// What the observer was told.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    AttemptEnded,
    CallEnded,
}

struct Telling(UnboundedSender<Told>);

impl Observer for Telling {
    fn attempt_ended(&self, _: &AttemptEnded<'_>) {
        self.0.send(Told::AttemptEnded).ok();
    }

    fn call_ended(&self, _: &CallEnded<'_>) {
        self.0.send(Told::CallEnded).ok();
    }
}

const WAIT: Duration = Duration::from_secs(1);

fn layer(budget: &Budget, telling: Telling) -> RetryLayer {
    let backoff = Backoff::exponential(WAIT, WAIT).without_jitter();
    let policy = StandardPolicy::builder().backoff(backoff.with_throttled_base(WAIT));
    RetryLayer::new(policy.build().unwrap())
        .with_budgets(budget.clone())
        .with_observer(telling)
}

/// Lets go of a PUT, and gives what the server had seen by then, or saw next.
async fn drops(via: Via, at: At) -> Entry {
    let budget = Budget::builder().capacity(5).ratio(0.0);
    let budget = budget.floor_per_second(0.0).build().unwrap();
    let (sender, mut told) = unbounded_channel();
    let layer = layer(&budget, Telling(sender));
    let server = server(via, at);
    let service = layer.layer(via.service());
    let body = ReplayBody::bytes("ten bytes.");
    let put = with_body(&Method::PUT, &server.url(), body);
    let call = tokio::spawn(service.clone().oneshot(put));
    if at != At::FirstAttempt {
        let told = tokio::time::timeout(PATIENCE, told.recv()).await;
        assert_eq!(told.unwrap(), Some(Told::AttemptEnded));
        settle().await;
        assert_eq!(budget.balance(), 4.0, "withdrawn before the wait");
    }
    if at == At::SecondAttempt {
        advance(WAIT).await;
    }
    let read = |entry: &Entry| entry.whole >= at.requests();
    server.ledger.until(read).await;

    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let place = format!("{via:?} {at:?}");
    assert_eq!(budget.balance(), 5.0 - at.spent(), "{place}");
    assert!(told.try_recv().is_err(), "nobody ended it: {place}");
    assert_eq!(layer.contradictions(), 0, "{place}");
    settle().await;
    match at {
        // Of a call that waits nothing is on the wire: there is nothing to see.
        At::Wait => server.ledger.now(),
        At::FirstAttempt | At::SecondAttempt => {
            let gone = |entry: &Entry| entry.ended + entry.resets.len() > 0;
            server.ledger.until(gone).await
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b17_a_call_that_is_dropped_ends_its_connection_and_nothing_more_is_sent() {
    let _clock = StoppedClock::new();
    for via in Via::H1 {
        for at in [At::FirstAttempt, At::SecondAttempt] {
            let entry = drops(via, at).await;
            let told = format!("{via:?} {at:?} {entry:?}");
            assert_eq!(
                (entry.heads, entry.whole),
                (at.requests(), at.requests()),
                "{told}"
            );
            assert_eq!(entry.ended, 1, "{told}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn d9_a_call_that_is_dropped_resets_its_stream_and_nothing_more_is_sent() {
    let _clock = StoppedClock::new();
    for via in Via::H2 {
        for at in [At::FirstAttempt, At::SecondAttempt] {
            let entry = drops(via, at).await;
            let told = format!("{via:?} {at:?} {entry:?}");
            assert_eq!(
                (entry.heads, entry.whole),
                (at.requests(), at.requests()),
                "{told}"
            );
            assert_eq!(
                (entry.connections, entry.resets),
                (1, vec![CANCEL]),
                "{told}"
            );
        }
    }
}

/// What is dropped then has nothing on the wire; its token goes back.
#[tokio::test(start_paused = true)]
async fn b17_and_d9_a_call_that_is_dropped_while_it_waits_leaves_the_connection_alone() {
    let _clock = StoppedClock::new();
    for via in Via::ALL {
        let entry = drops(via, At::Wait).await;
        assert_eq!((entry.heads, entry.whole), (1, 1), "{via:?}");
        assert_eq!((entry.ended, entry.resets), (0, vec![]), "{via:?}");
    }
}
