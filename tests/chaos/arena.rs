//! The servers, and the calls that are sent to them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::judge::{Answer, Verdicts};
use crate::ledger::Ledger;
use crate::op::Op;
use crate::serve::{HANG, Link, Port, Reset, serve};
use crate::{h1, h2};

/// Where a call goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    scheme: &'static str,
    address: SocketAddr,
    pub(crate) http2: bool,
}

impl Target {
    pub(crate) fn name(&self) -> &'static str {
        match (self.scheme, self.http2) {
            ("https", false) => "HTTP/1.1, TLS",
            ("https", true) => "HTTP/2, TLS",
            (_, false) => "HTTP/1.1",
            (_, true) => "HTTP/2",
        }
    }

    pub(crate) fn uri(&self) -> String {
        format!("{}://{}/op", self.scheme, self.address)
    }
}

/// No server takes this long, however often it is asked.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whoever stands before the judge.
pub(crate) trait Client: Clone + Send + Sync + 'static {
    fn call(&self, op: &Op, target: Target) -> impl Future<Output = Answer> + Send;
}

pub(crate) struct Arena {
    pub(crate) ledger: Arc<Ledger>,
    seed: u64,
    targets: Vec<Target>,
    open: Arc<AtomicUsize>,
    /// Nobody listens here.
    dead: Port,
}

impl Arena {
    /// Two servers of each protocol.
    pub(crate) fn open(seed: u64) -> Self {
        let mut arena = Self {
            ledger: Arc::default(),
            seed,
            targets: Vec::new(),
            open: Arc::default(),
            dead: Port::new().unwrap(),
        };
        for _ in 0..2 {
            let ledger = Arc::clone(&arena.ledger);
            arena.add("http", false, move |link, reset, random| {
                h1::connection(link, reset, Arc::clone(&ledger), random)
            });
            let ledger = Arc::clone(&arena.ledger);
            arena.add("http", true, move |link, reset, random| {
                h2::connection(link, reset, Arc::clone(&ledger), random)
            });
        }
        arena
    }

    /// One more server, by what it does with a connection.
    pub(crate) fn add<F, Fut>(&mut self, scheme: &'static str, http2: bool, connection: F)
    where
        F: Fn(Link, Reset, StdRng) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let port = Port::new().unwrap();
        self.targets.push(Target {
            scheme,
            address: port.address,
            http2,
        });
        let seed = self.seed.wrapping_mul(31) ^ self.targets.len() as u64;
        tokio::spawn(serve(port, seed, Arc::clone(&self.open), connection));
    }

    pub(crate) fn servers(&self) -> usize {
        self.targets.len()
    }

    /// Sends `calls` operations, so many at once, and judges them when everything is over: also
    /// what a server does after its client gave up.
    pub(crate) async fn run(
        &self,
        client: impl Client,
        calls: u64,
        at_once: usize,
        seed: u64,
    ) -> Verdicts {
        let mut random = StdRng::seed_from_u64(seed);
        let places = Arc::new(Semaphore::new(at_once));
        let mut running = tokio::task::JoinSet::new();
        let mut answered = Vec::new();
        for number in 0..calls {
            let op = Op::random(number, &mut random);
            let target = self.target(&mut random);
            let place = Arc::clone(&places).acquire_owned().await.unwrap();
            let client = client.clone();
            running.spawn(async move {
                let _place = place;
                let start = Instant::now();
                let call = client.call(&op, target);
                let (patience, gone) = match op.drop_ms {
                    Some(ms) => (Duration::from_millis(ms), Answer::Dropped),
                    None => (PATIENCE, Answer::Hung),
                };
                let answer = timeout(patience, call).await.unwrap_or(gone);
                let took = start.elapsed();
                // A million bodies are too many to keep.
                let op = Op {
                    body: Vec::new(),
                    ..op
                };
                (op, target, answer, took)
            });
            while let Some(done) = running.try_join_next() {
                answered.push(done.unwrap());
            }
        }
        while let Some(done) = running.join_next().await {
            answered.push(done.unwrap());
        }
        drop(client);
        // The servers' last words, and the connections' ends.
        tokio::time::sleep(HANG + Duration::from_millis(300)).await;
        let mut verdicts = Verdicts::default();
        for (op, target, answer, took) in &answered {
            verdicts.judge(op, *target, *answer, &self.ledger.entry(op.number));
            if let Some(deadline) = op.deadline_ms {
                // Exactness is tested under paused time. This is for calls that hang.
                assert!(
                    *took < Duration::from_millis(deadline) + Duration::from_secs(10),
                    "operation {} outlived its deadline: {took:?}",
                    op.number
                );
            }
        }
        verdicts
    }

    fn target(&self, random: &mut StdRng) -> Target {
        // The dead one gets few.
        if random.random_bool(0.04) {
            return Target {
                scheme: "http",
                address: self.dead.address,
                http2: false,
            };
        }
        self.targets[random.random_range(0..self.targets.len())]
    }

    /// Connections that the servers still have.
    pub(crate) fn open_connections(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}
