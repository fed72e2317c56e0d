//! Raced hunts: many POSTs against servers that reset, refuse, go away, hang and close, their
//! ledger held against the answers.
//!
//! Never a duplicate, and never "failed" for a request that a server executed. A few seconds in the
//! normal run; `TOWER_HTTP_RETRY_HUNT_SECONDS=600` for each hunt to last so long. With
//! `--nocapture` they print how many ambiguous answers the servers' ledger could have settled.
#![cfg(all(feature = "hyper", feature = "reqwest"))]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "support/wire/mod.rs"]
mod wire;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower_http_retry::{Error, Evidence, FailureKind, ReplayBody};
use wire::row::{ask, layer, read, with_body};
use wire::via::Via;
use wire::{Peer, Server, h1, pause};

/// How often each request was executed, by its number.
#[derive(Clone, Default)]
struct Executions(Arc<Mutex<HashMap<u64, u32>>>);

impl Executions {
    fn note(&self, path: &str) {
        let number = path.trim_start_matches('/').parse().unwrap();
        *self.0.lock().unwrap().entry(number).or_default() += 1;
    }

    fn of(&self, number: u64) -> u32 {
        self.0.lock().unwrap().get(&number).copied().unwrap_or(0)
    }
}

fn chance(of: f64) -> bool {
    rand::random::<f64>() < of
}

fn up_to(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds).mul_f64(rand::random())
}

fn time() -> Duration {
    let seconds = std::env::var("TOWER_HTTP_RETRY_HUNT_SECONDS")
        .ok()
        .map(|seconds| seconds.parse().unwrap());
    Duration::from_secs_f64(seconds.unwrap_or(1.5))
}

/// What a call came to, in one word for the count.
#[derive(Default, Debug)]
struct Tally {
    calls: usize,
    answered: usize,
    failed: usize,
    ambiguous: usize,
    /// Ambiguous, and never executed.
    settled: usize,
    /// The failures behind these.
    unproven: HashMap<FailureKind, usize>,
    /// Attempts that were proven not sent, by kind.
    proven: HashMap<FailureKind, usize>,
}

async fn hunt(name: &str, via: Via, executions: Executions, server: Server) {
    const WORKERS: usize = 32;
    let below = via.service();
    let layer = layer(3).with_attempt_timeout(Duration::from_millis(60));
    let numbers = Arc::new(AtomicU64::new(0));
    let end = Instant::now() + time();
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let (below, layer, numbers) = (below.clone(), layer.clone(), Arc::clone(&numbers));
        let addr = server.addr;
        workers.spawn(async move {
            let mut answers = Vec::new();
            while Instant::now() < end {
                let number = numbers.fetch_add(1, Ordering::Relaxed);
                let url = format!("http://{addr}/{number}");
                let body = match worker % 4 {
                    0 => ReplayBody::empty(),
                    1 => ReplayBody::bytes(vec![7; 50_000]),
                    _ => ReplayBody::bytes("some bytes"),
                };
                let answer = ask(&layer, below.clone(), with_body(&Method::POST, &url, body)).await;
                let answer = match answer {
                    // Read, so that its connection is used again.
                    Ok(response) => Ok(read(response).await.is_ok()),
                    Err(error) => Err(error),
                };
                answers.push((number, answer));
                if chance(0.05) {
                    tokio::time::sleep(up_to(5)).await;
                }
            }
            answers
        });
    }
    let answers: Vec<_> = workers.join_all().await.into_iter().flatten().collect();
    // What a client held back may still go out.
    pause(300).await;

    let mut tally = Tally::default();
    for (number, answer) in answers {
        tally.calls += 1;
        let executed = executions.of(number);
        let told = |error: &Error| format!("{name} {via:?} {number}: {}", error.report());
        match answer {
            Ok(_) => {
                tally.answered += 1;
                assert_eq!(executed, 1, "{name} {via:?} {number}: answered");
            }
            Err(error) => {
                for attempt in error.report().attempts() {
                    if attempt.evidence() == Evidence::NotSent {
                        let kind = attempt.failure().unwrap().kind();
                        *tally.proven.entry(kind).or_default() += 1;
                    }
                }
                assert!(executed <= 1, "executed {executed} times: {}", told(&error));
                if error.is_ambiguous() {
                    tally.ambiguous += 1;
                    if executed == 0 {
                        tally.settled += 1;
                        let kind = error.failure().unwrap().kind();
                        *tally.unproven.entry(kind).or_default() += 1;
                    }
                } else {
                    tally.failed += 1;
                    assert_eq!(executed, 0, "failed, and executed: {}", told(&error));
                }
            }
        }
    }
    assert_eq!(layer.contradictions(), 0, "{name} {via:?}");
    println!("{name} {via:?}: {tally:?}");
    assert!(tally.answered > 0, "{name}: {tally:?}");
}

/// A request is executed when all of it was read.
async fn h1_chaos(mut peer: Peer, executions: Executions) {
    // A fresh connection, dropped before anything.
    if chance(0.02) {
        return if chance(0.5) {
            peer.rst()
        } else {
            peer.fin().await
        };
    }
    loop {
        if chance(0.03) {
            // Idle for a moment, and gone: with luck while a request is on its way.
            tokio::time::sleep(up_to(3)).await;
            return if chance(0.5) {
                peer.rst()
            } else {
                peer.fin().await
            };
        }
        if chance(0.02) {
            // Reads some of it.
            let _ = peer.head().await;
            return peer.rst();
        }
        let Some(request) = peer.request().await else {
            return;
        };
        let path = request.text.split(' ').nth(1).unwrap();
        executions.note(path);
        if chance(0.03) {
            return if chance(0.5) {
                peer.rst()
            } else {
                peer.fin().await
            };
        }
        if chance(0.02) {
            // Too late for the attempt.
            pause(80).await;
        }
        peer.write(h1::OK).await;
    }
}

async fn h1_hunt(via: Via) {
    let executions = Executions::default();
    let server = Server::start({
        let executions = executions.clone();
        move |peer, _| h1_chaos(peer, executions.clone())
    });
    hunt("chaos", via, executions, server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_hunt_over_hyper_http1() {
    h1_hunt(Via::HyperH1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_hunt_over_reqwest_http1() {
    h1_hunt(Via::ReqwestH1).await;
}

/// How a server that speaks HTTP/2 behaves. It keeps the rules: what it refuses, or goes away
/// before, it has not executed.
#[derive(Clone, Copy)]
struct Manners {
    /// Most streams at once.
    streams: u32,
    /// How long a connection lives before it shuts down in order.
    graceful: u64,
    /// How often a stream is refused, reset after its execution, answered too late.
    refused: f64,
    reset: f64,
    late: f64,
    /// How often a connection dies instead of going away.
    dies: f64,
}

async fn h2_chaos(peer: Peer, executions: Executions, manners: Manners) {
    let Ok(mut connection) = ::h2::server::Builder::new()
        .max_concurrent_streams(manners.streams)
        .handshake::<_, Bytes>(peer.io)
        .await
    else {
        return;
    };
    let mut end = Box::pin(tokio::time::sleep(up_to(manners.graceful)));
    let mut ending = false;
    let mut serving = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept() => accepted,
            () = &mut end, if !ending => {
                ending = true;
                if chance(manners.dies) {
                    return;
                }
                connection.graceful_shutdown();
                continue;
            }
            Some(_) = serving.join_next() => continue,
        };
        let Some(Ok((request, mut respond))) = accepted else {
            return;
        };
        if chance(manners.refused) {
            respond.send_reset(::h2::Reason::REFUSED_STREAM);
            continue;
        }
        executions.note(request.uri().path());
        serving.spawn(async move {
            let mut body = request.into_body();
            while let Some(Ok(data)) = body.data().await {
                let _ = body.flow_control().release_capacity(data.len());
            }
            if chance(manners.reset) {
                return respond.send_reset(::h2::Reason::INTERNAL_ERROR);
            }
            if chance(manners.late) {
                pause(80).await;
            }
            if let Ok(mut sending) = respond.send_response(Response::new(()), false) {
                let _ = sending.send_data(Bytes::from_static(b"ok"), true);
            }
        });
    }
}

async fn h2_hunt(name: &str, via: Via, manners: Manners) {
    let executions = Executions::default();
    let server = Server::start({
        let executions = executions.clone();
        move |peer, _| h2_chaos(peer, executions.clone(), manners)
    });
    hunt(name, via, executions, server).await;
}

/// Nothing but connections that shut down in order, all the time: hyper hands the GOAWAY to
/// requests that the server then executes.
const LEAVING: Manners = Manners {
    streams: 100,
    graceful: 10,
    refused: 0.0,
    reset: 0.0,
    late: 0.0,
    dies: 0.0,
};

const CHAOS: Manners = Manners {
    streams: 8,
    graceful: 100,
    refused: 0.05,
    reset: 0.03,
    late: 0.02,
    dies: 0.3,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f4_hunt_over_hyper_http2() {
    h2_hunt("leaving", Via::HyperH2, LEAVING).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f4_hunt_over_reqwest_http2() {
    h2_hunt("leaving", Via::ReqwestH2, LEAVING).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d7_hunt_over_hyper_http2() {
    h2_hunt("chaos", Via::HyperH2, CHAOS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d7_hunt_over_reqwest_http2() {
    h2_hunt("chaos", Via::ReqwestH2, CHAOS).await;
}
