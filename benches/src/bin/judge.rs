//! The peers before the judge of `tests/chaos`: the same servers, the same faults, the same ledger.
//!
//! `cargo run --release -p tower-http-retry-benches --features judge --bin judge` prints the table of
//! `docs/truth.md`. `CALLS` (default 10000) and `SEED` (default 1) change the run.
//!
//! A client with two answers says "failed" whenever it has no response: that is how its callers
//! read an error.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::wildcard_enum_match_arm, missing_docs, dead_code)]

#[path = "../../../tests/chaos/arena.rs"]
mod arena;
#[path = "../../../tests/chaos/body.rs"]
mod body;
#[path = "../../../tests/chaos/fault.rs"]
mod fault;
#[path = "../../../tests/chaos/h1.rs"]
mod h1;
#[path = "../../../tests/chaos/h2.rs"]
mod h2;
#[path = "../../../tests/chaos/judge.rs"]
mod judge;
#[path = "../../../tests/chaos/ledger.rs"]
mod ledger;
#[path = "../../../tests/chaos/op.rs"]
mod op;
#[path = "../../../tests/chaos/ours.rs"]
mod ours;
#[path = "../../../tests/chaos/serve.rs"]
mod serve;
#[path = "../../../tests/chaos/tls.rs"]
mod tls;

use std::future::{Ready, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client as HyperClient, Error as HyperError};
use hyper_util::rt::TokioExecutor;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;
use tower_http_retry::{Drain, IdempotentMethods};

use arena::{Arena, Client, Target};
use judge::{Answer, Verdicts};
use op::Op;
use tls::Trust;

type Bare = HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>;
type Boxed<E> = BoxCloneSyncService<Request<Full<Bytes>>, Response<Incoming>, E>;

fn bare(trust: &Trust, http2: bool) -> Bare {
    HyperClient::builder(TokioExecutor::new())
        .http2_only(http2)
        .build(trust.connector(http2))
}

fn request(op: &Op, target: Target) -> Request<Full<Bytes>> {
    let mut request = Request::builder()
        .method(op.method.clone())
        .uri(target.uri())
        .body(Full::from(op.body.clone()))
        .unwrap();
    request.headers_mut().extend(op.headers(&op.body));
    request
}

/// Any service over hyper.
struct OverHyper<E> {
    h1: Boxed<E>,
    h2: Boxed<E>,
}

impl<E> Clone for OverHyper<E> {
    fn clone(&self) -> Self {
        Self {
            h1: self.h1.clone(),
            h2: self.h2.clone(),
        }
    }
}

impl<E> OverHyper<E> {
    fn new(trust: &Trust, wrap: impl Fn(Bare) -> Boxed<E>) -> Self {
        Self {
            h1: wrap(bare(trust, false)),
            h2: wrap(bare(trust, true)),
        }
    }
}

impl<E: Send + 'static> Client for OverHyper<E> {
    async fn call(&self, op: &Op, target: Target) -> Answer {
        let service = if target.http2 {
            self.h2.clone()
        } else {
            self.h1.clone()
        };
        match service.oneshot(request(op, target)).await {
            Ok(response) => {
                let status = response.status().as_u16();
                let _ = response.into_body().collect().await;
                Answer::Status(status)
            }
            Err(_) => Answer::Failed {
                not_executed: false,
            },
        }
    }
}

/// The policy of tower's documentation: three attempts, every error is retried.
#[derive(Clone)]
struct Attempts(usize);

impl<E> tower::retry::Policy<Request<Full<Bytes>>, Response<Incoming>, E> for Attempts {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Full<Bytes>>,
        result: &mut Result<Response<Incoming>, E>,
    ) -> Option<Self::Future> {
        match result {
            Ok(_) => None,
            Err(_) if self.0 > 0 => {
                self.0 -= 1;
                Some(ready(()))
            }
            Err(_) => None,
        }
    }

    fn clone_request(&mut self, request: &Request<Full<Bytes>>) -> Option<Request<Full<Bytes>>> {
        Some(request.clone())
    }
}

/// reqwest, as it comes or with its middleware.
#[derive(Clone)]
struct Reqwest {
    h1: reqwest_middleware::ClientWithMiddleware,
    h2: reqwest_middleware::ClientWithMiddleware,
}

impl Reqwest {
    fn new(trust: &Trust, retry: bool) -> Self {
        let wrap = |client: reqwest::ClientBuilder, protocol: &[u8]| {
            let mut config = trust.config();
            config.alpn_protocols = vec![protocol.to_vec()];
            let client = client.tls_backend_preconfigured(config).build().unwrap();
            let builder = reqwest_middleware::ClientBuilder::new(client);
            if !retry {
                return builder.build();
            }
            let backoff = reqwest_retry::policies::ExponentialBackoff::builder()
                .retry_bounds(Duration::from_millis(1), Duration::from_millis(20))
                .build_with_max_retries(3);
            builder
                .with(reqwest_retry::RetryTransientMiddleware::new_with_policy(
                    backoff,
                ))
                .build()
        };
        Self {
            h1: wrap(reqwest::Client::builder().http1_only(), b"http/1.1"),
            h2: wrap(reqwest::Client::builder().http2_prior_knowledge(), b"h2"),
        }
    }
}

impl Client for Reqwest {
    async fn call(&self, op: &Op, target: Target) -> Answer {
        let client = if target.http2 { &self.h2 } else { &self.h1 };
        let request = request(op, target);
        let (head, _) = request.into_parts();
        let request = reqwest::Request::try_from(Request::from_parts(head, op.body.clone()));
        match client.execute(request.unwrap()).await {
            Ok(response) => {
                let status = response.status().as_u16();
                let _ = response.bytes().await;
                Answer::Status(status)
            }
            Err(_) => Answer::Failed {
                not_executed: false,
            },
        }
    }
}

fn run(client: impl FnOnce(&Trust) -> Candidate, calls: u64, seed: u64) -> Verdicts {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut arena = Arena::open(seed);
        let trust = tls::add_to(&mut arena);
        match client(&trust) {
            Candidate::Hyper(client) => arena.run(client, calls, 300, seed).await,
            Candidate::Resilience(client) => arena.run(client, calls, 300, seed).await,
            Candidate::Reqwest(client) => arena.run(client, calls, 300, seed).await,
            Candidate::Ours(client) => arena.run(*client, calls, 300, seed).await,
        }
    })
}

enum Candidate {
    Hyper(OverHyper<HyperError>),
    Resilience(OverHyper<Box<dyn std::error::Error + Send + Sync>>),
    Reqwest(Reqwest),
    Ours(Box<ours::Ours>),
}

/// A name, and how its client is made.
type Named = (&'static str, fn(&Trust) -> Candidate);

fn candidates() -> Vec<Named> {
    vec![
        ("hyper alone", |trust| {
            Candidate::Hyper(OverHyper::new(trust, BoxCloneSyncService::new))
        }),
        ("tower::retry, documented policy", |trust| {
            Candidate::Hyper(OverHyper::new(trust, |client| {
                BoxCloneSyncService::new(tower::retry::Retry::new(Attempts(3), client))
            }))
        }),
        ("reqwest, default retry", |trust| {
            Candidate::Reqwest(Reqwest::new(trust, false))
        }),
        ("reqwest-retry, default strategy", |trust| {
            Candidate::Reqwest(Reqwest::new(trust, true))
        }),
        ("tower-resilience-retry", |trust| {
            Candidate::Resilience(OverHyper::new(trust, |client| {
                let layer = tower_resilience_retry::RetryLayer::<
                    Request<Full<Bytes>>,
                    Response<Incoming>,
                    HyperError,
                >::builder()
                .max_attempts(4)
                .fixed_backoff(Duration::from_millis(1))
                .build();
                BoxCloneSyncService::new(
                    tower::ServiceBuilder::new()
                        .layer(layer)
                        .service(client)
                        .map_err(Into::into),
                )
            }))
        }),
        ("tower-http-retry", |trust| {
            let connector = |http2| trust.connector(http2);
            let ours = ours::ours(IdempotentMethods::Rfc9110, Drain::new(), connector);
            Candidate::Ours(Box::new(ours))
        }),
    ]
}

fn main() {
    let setting = |name: &str, default| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse().ok())
            .unwrap_or(default)
    };
    let (calls, seed) = (setting("CALLS", 10_000), setting("SEED", 1));
    println!("{calls} calls each, seed {seed}\n");
    println!(
        "| client | succeeded | never executed | duplicates | untrue answers | never ended | ambiguous | of which not executed |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    let mut ours = 0;
    for (name, client) in candidates() {
        let verdicts = run(client, calls, seed);
        println!(
            "| {name} | {:.1} % | {:.1} % | {} | {} | {} | {} | {} |",
            verdicts.succeeded as f64 * 100.0 / verdicts.calls as f64,
            verdicts.lost as f64 * 100.0 / verdicts.calls as f64,
            verdicts.duplicates,
            verdicts.untrue,
            verdicts.hung,
            verdicts.ambiguous,
            verdicts.imprecise.values().sum::<u64>(),
        );
        assert_eq!(
            verdicts.at.len(),
            4,
            "{name} cannot reach all of the servers"
        );
        ours = verdicts.violations();
    }
    assert_eq!(ours, 0, "the last line has to be without a fault");
}
