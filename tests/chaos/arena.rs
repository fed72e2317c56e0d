//! The servers, and the calls that are sent to them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::judge::{Answer, Verdicts};
use crate::ledger::Ledger;
use crate::op::Op;
use crate::{h1, h2};

/// Where a call goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) http2: bool,
}

/// Whoever stands before the judge.
pub(crate) trait Client: Clone + Send + Sync + 'static {
    fn call(&self, op: &Op, target: Target) -> impl Future<Output = Answer> + Send;
}

pub(crate) struct Arena {
    pub(crate) ledger: Arc<Ledger>,
    targets: Vec<Target>,
    open: Arc<AtomicUsize>,
}

impl Arena {
    pub(crate) async fn open(seed: u64) -> Self {
        let ledger = Arc::new(Ledger::default());
        let open = Arc::new(AtomicUsize::new(0));
        let mut targets = Vec::new();
        for http2 in [false, false, true, true] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            let seed = seed ^ targets.len() as u64;
            let (ledger, open) = (Arc::clone(&ledger), Arc::clone(&open));
            if http2 {
                tokio::spawn(h2::serve(listener, ledger, seed, open));
            } else {
                tokio::spawn(h1::serve(listener, ledger, seed, open));
            }
            targets.push(Target { address, http2 });
        }
        // And one where nobody listens.
        let dead = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        targets.push(Target {
            address: dead.local_addr().unwrap(),
            http2: false,
        });
        drop(dead);
        Self {
            ledger,
            targets,
            open,
        }
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
            let index = random.random_range(0..self.targets.len() * 4) % (self.targets.len() * 4);
            // The dead one gets few.
            let target = *self.targets.get(index / 4).unwrap_or(&self.targets[0]);
            let place = Arc::clone(&places).acquire_owned().await.unwrap();
            let client = client.clone();
            running.spawn(async move {
                let _place = place;
                let start = Instant::now();
                let call = client.call(&op, target);
                let answer = match op.drop_ms {
                    Some(ms) => timeout(Duration::from_millis(ms), call)
                        .await
                        .unwrap_or(Answer::Dropped),
                    None => call.await,
                };
                (op, answer, start.elapsed())
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
        tokio::time::sleep(h1::HANG + Duration::from_millis(300)).await;
        let mut verdicts = Verdicts::default();
        for (op, answer, took) in &answered {
            verdicts.judge(op, *answer, &self.ledger.entry(op.number));
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

    /// Connections that the servers still have.
    pub(crate) fn open_connections(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}
