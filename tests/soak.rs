//! An hour's worth of calls, compressed: what is lent comes back, and nothing grows.
//!
//! In process under paused time, and over loopback. The long form:
//! `SOAK_CALLS=2000000 cargo test --release --all-features --test soak -- --nocapture`.
#![cfg(target_os = "linux")] // /proc
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // helpers of tests
#![allow(clippy::wildcard_enum_match_arm)]

mod support;

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request, Response, request, response};
use http_body_util::{BodyExt, Full};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use support::body::{Step, TestBody};
use support::measure::{known, resident_kib};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, ServiceExt};
use tower_http_retry::{
    Backoff, BoxError, Budgets, Deadline, Delivery, Drain, EvidenceError, Failure, FailureKind,
    Outcome, Reconcile, Reconciled, Refresh, ReplayBody, RetryLayer, StandardPolicy, Upstream,
    UpstreamKey,
};

/// What is measured belongs to the process: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// More of them by SOAK_CALLS.
fn calls(few: u64) -> u64 {
    std::env::var("SOAK_CALLS")
        .ok()
        .and_then(|calls| calls.parse().ok())
        .map_or(few, |calls: u64| calls * few / CALLS)
}

const CALLS: u64 = 60_000;
const HOUR: Duration = Duration::from_secs(3600);
/// Calls with one layer, until it drains.
const EPOCH: u64 = 3_000;

fn handles() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

// ------------------------------------------------------------------ in process

/// The upstreams: whether a credential is still good, and what is alive.
#[derive(Default)]
struct World {
    /// The number of the only credential that is good.
    credential: AtomicU64,
    refreshes: AtomicU32,
    reconciled: AtomicU32,
    sent: AtomicU64,
    /// Held by whatever belongs to one attempt.
    alive: Arc<()>,
}

#[derive(Clone)]
struct Hooks(Arc<World>);

impl Refresh for Hooks {
    async fn refresh(
        &self,
        _: &request::Parts,
        _: &response::Parts,
    ) -> Result<HeaderValue, BoxError> {
        let _alive = Arc::clone(&self.0.alive);
        sleep(Duration::from_millis(30)).await;
        let number = self.0.refreshes.fetch_add(1, Ordering::SeqCst);
        match number % 8 {
            0 => Err("no credential today".into()),
            _ => Ok(HeaderValue::from(self.0.credential.load(Ordering::SeqCst))),
        }
    }
}

impl Reconcile for Hooks {
    async fn reconcile(&self, _: &request::Parts, _: Outcome<'_>) -> Result<Reconciled, BoxError> {
        let _alive = Arc::clone(&self.0.alive);
        sleep(Duration::from_millis(20)).await;
        Ok(match self.0.reconciled.fetch_add(1, Ordering::SeqCst) % 3 {
            0 => Reconciled::NotExecuted,
            1 => Reconciled::Executed(Response::new(Bytes::from_static(b"done"))),
            _ => Reconciled::Unknown,
        })
    }
}

async fn upstream(
    world: Arc<World>,
    mut random: StdRng,
    request: Request<ReplayBody>,
) -> Result<Response<TestBody>, BoxError> {
    world.sent.fetch_add(1, Ordering::SeqCst);
    let _alive = Arc::clone(&world.alive);
    if random.random_bool(0.05) {
        drop(request);
        return Err(EvidenceError::new(Failure::not_sent(FailureKind::Connect), "soak").into());
    }
    let (head, body) = request.into_parts();
    body.collect().await?;
    if random.random_bool(0.5) {
        sleep(Duration::from_millis(random.random_range(1..200))).await;
    }
    let good = world.credential.load(Ordering::SeqCst);
    if head.headers.get(AUTHORIZATION) != Some(&HeaderValue::from(good)) {
        return Ok(status(401, &mut random));
    }
    let failure = match random.random_range(0..20) {
        0 => return Ok(status(503, &mut random)),
        1 => return Ok(status(429, &mut random)),
        2 => return Ok(status(404, &mut random)),
        3 => Failure::sent_no_response(FailureKind::Reset),
        4 => std::future::pending().await,
        _ => return Ok(status(200, &mut random)),
    };
    Err(EvidenceError::new(failure, "soak").into())
}

fn status(status: u16, random: &mut StdRng) -> Response<TestBody> {
    let steps = match random.random_range(0..10) {
        0..5 => vec![],
        5 => vec![Step::Data(b"x"), Step::Fail("broken")],
        6 => vec![Step::Pause(Duration::from_millis(50)), Step::Data(b"late")],
        7 => vec![Step::Data(b"x"), Step::Hang],
        _ => vec![Step::Data(b"some"), Step::Data(b"more")],
    };
    Response::builder()
        .status(status)
        .body(TestBody::new(steps))
        .unwrap()
}

fn layer(world: &Arc<World>, budgets: &Budgets, drain: &Drain, delivery: Delivery) -> RetryLayer {
    let backoff = Backoff::exponential(Duration::from_millis(100), Duration::from_secs(5));
    let policy = StandardPolicy::builder()
        .retries(3)
        .backoff(backoff)
        .default_upstream(Upstream::new().honours_idempotency_key())
        .build();
    RetryLayer::new(policy.unwrap())
        .with_budgets(budgets.clone())
        .with_drain(drain.clone())
        .with_attempt_timeout(Duration::from_millis(300))
        .with_delivery(delivery)
        .with_refresh(Hooks(Arc::clone(world)))
        .with_reconcile(Hooks(Arc::clone(world)))
}

const UPSTREAMS: usize = 64;

/// One of a few upstreams, or somebody new: hostile callers never stop to make them up.
fn a_request(number: u64, random: &mut StdRng) -> Request<ReplayBody> {
    let host = match random.random_range(0..8) {
        0 => format!("hostile-{number}.example"),
        few => format!("shop-{few}.example"),
    };
    let method = [Method::GET, Method::PUT, Method::POST][random.random_range(0..3)].clone();
    let body = match random.random_range(0..4) {
        0 => ReplayBody::empty(),
        1 => ReplayBody::from("an order"),
        2 => ReplayBody::one_shot(TestBody::from(&b"an order"[..])),
        _ => ReplayBody::buffered(TestBody::from(&b"an order"[..]), 1024),
    };
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://{host}/orders"))
        // Some credentials are old.
        .header(AUTHORIZATION, number / 500)
        .body(body)
        .unwrap();
    if random.random_bool(0.5) {
        let deadline = Duration::from_millis(random.random_range(50..2000));
        request.extensions_mut().insert(Deadline::after(deadline));
    }
    request
}

#[test]
fn an_hour_in_process_leaves_nothing_behind() {
    let _alone = alone();
    let calls = calls(CALLS);
    let parked = Arc::new(AtomicUsize::new(0));
    let parks = Arc::clone(&parked);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .on_thread_park(move || {
            parks.fetch_add(1, Ordering::SeqCst);
        })
        .build()
        .unwrap();
    runtime.block_on(async {
        let world = Arc::new(World::default());
        let budgets = Budgets::builder().max_upstreams(UPSTREAMS).build().unwrap();
        let mut random = StdRng::seed_from_u64(1);
        let start = Instant::now();
        let pause = HOUR / calls.min(u64::from(u32::MAX)) as u32;
        let mut memory = Vec::new();
        let mut most_parks = 0;
        let mut ends = [0_u64; 3];
        for epoch in 0..calls / EPOCH {
            let numbers = epoch * EPOCH..(epoch + 1) * EPOCH;
            let more = an_epoch(&world, &budgets, numbers, pause, &mut random).await;
            (0..3).for_each(|end| ends[end] += more[end]);
            // Nobody waits for anything: one long sleep is all there is. It parks a few times on
            // its way down the timer's wheels; timers that were left would add their own.
            let before = parked.load(Ordering::SeqCst);
            sleep(HOUR).await;
            let parks = parked.load(Ordering::SeqCst) - before;
            assert!(parks <= 16, "{parks} timers are left");
            most_parks = most_parks.max(parks);
            // What was lent is back, or was made up for by the trickle.
            for few in 1..8 {
                let key = a_key(&format!("shop-{few}.example"));
                assert_eq!(budgets.get(&key).unwrap().balance(), 100.0);
            }
            let known = known(&budgets);
            assert!(known <= UPSTREAMS, "{known} upstreams");
            memory.push(resident_kib());
        }
        println!(
            "{calls} calls in {:?}: {ends:?} answered, failed or ambiguous, dropped; {} sent, {} \
             refreshes, {} reconciled; {most_parks} parks; KiB: {memory:?}",
            start.elapsed(),
            world.sent.load(Ordering::SeqCst),
            world.refreshes.load(Ordering::SeqCst),
            world.reconciled.load(Ordering::SeqCst),
        );
        assert!(ends.iter().all(|count| *count > calls / 50), "{ends:?}");
        // Less than eight bytes a call.
        is_flat(&memory, 512 + (calls * 8 / 1024) as i64);
    });
}

fn a_key(host: &str) -> UpstreamKey {
    let uri = format!("http://{host}/");
    UpstreamKey::of(&Request::get(uri).body(()).unwrap().into_parts().0)
}

/// So many calls through one layer, which then drains.
async fn an_epoch(
    world: &Arc<World>,
    budgets: &Budgets,
    numbers: std::ops::Range<u64>,
    pause: Duration,
    random: &mut StdRng,
) -> [u64; 3] {
    let drain = Drain::new();
    let delivery = match numbers.start / EPOCH % 3 {
        0 => Delivery::AtHeaders,
        1 => Delivery::AtFirstByte,
        _ => Delivery::Whole { limit: 1024 },
    };
    let layer = layer(world, budgets, &drain, delivery);
    let permits = Arc::new(tokio::sync::Semaphore::new(1000));
    let seeds = Arc::new(Mutex::new(StdRng::seed_from_u64(random.random())));
    let inner = {
        let world = Arc::clone(world);
        tower::service_fn(move |request| {
            let random = StdRng::seed_from_u64(seeds.lock().unwrap().random());
            upstream(Arc::clone(&world), random, request)
        })
    };
    let stack = layer.layer(ConcurrencyLimit::with_semaphore(inner, permits.clone()));
    let mut running = JoinSet::new();
    let mut ends = [0; 3];
    for number in numbers {
        world.credential.store(number / 500, Ordering::SeqCst);
        let request = a_request(number, random);
        let patience = match random.random_range(0..10) {
            0 => Duration::from_millis(random.random_range(0..500)),
            _ => Duration::from_secs(60),
        };
        let stack = stack.clone();
        running.spawn(timeout(patience, async move {
            match stack.oneshot(request).await {
                // A caller that gives up on a body that hangs.
                Ok(response) => {
                    let read = response.into_body().collect();
                    let _ = timeout(Duration::from_secs(1), read).await;
                    0
                }
                Err(_) => 1,
            }
        }));
        while let Some(done) = running.try_join_next() {
            ends[done.unwrap().unwrap_or(2)] += 1;
        }
        sleep(pause).await;
    }
    drain.start();
    while let Some(done) = running.join_next().await {
        ends[done.unwrap().unwrap_or(2)] += 1;
    }
    assert_eq!(permits.available_permits(), 1000);
    drop(stack);
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
    assert_eq!(Arc::strong_count(&world.alive), 1);
    // The layer has two hooks.
    assert_eq!(Arc::strong_count(world), 3);
    ends
}

/// The first third is for whatever is made once.
fn is_flat(memory: &[i64], most: i64) {
    let warm = memory[memory.len() / 3];
    let more = memory[memory.len() - 1] - warm;
    assert!(more <= most, "{more} KiB more, of {most}: {memory:?}");
}

// ------------------------------------------------------------------ over loopback

#[test]
fn thousands_of_calls_over_loopback_leave_nothing_behind() {
    use support::upstream::{PROTOCOLS, at_once, client, listen};

    let _alone = alone();
    let calls = calls(3_000);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let tasks = || Handle::current().metrics().num_alive_tasks();
        for protocol in PROTOCOLS {
            let count = Arc::new(AtomicU64::new(0));
            let address = listen(protocol, move |request| {
                let count = Arc::clone(&count);
                async move {
                    let _ = request.into_body().collect().await;
                    let status = match count.fetch_add(1, Ordering::SeqCst) % 7 {
                        0 => 503,
                        1 => 429,
                        2 => 404,
                        _ => 200,
                    };
                    let body = Full::from(vec![7; 2000]);
                    Response::builder().status(status).body(body).unwrap()
                }
            })
            .await;
            let before = (handles(), tasks());
            let mut memory = Vec::new();
            let mut open = Vec::new();
            let stack = at_once().without_budgets().layer(client(protocol));
            let mut random = StdRng::seed_from_u64(2);
            for round in 0..30 {
                let mut running = JoinSet::new();
                for number in 0..calls / 30 {
                    let stack = stack.clone();
                    let hangs_up = random.random_bool(0.05);
                    let method = [Method::PUT, Method::POST][random.random_range(0..2)].clone();
                    let request = Request::builder()
                        .method(method)
                        .uri(format!("http://{address}/{round}/{number}"))
                        .body(ReplayBody::from(vec![7; 3000]))
                        .unwrap();
                    let call = async move {
                        if let Ok(response) = stack.oneshot(request).await {
                            response.into_body().collect().await.unwrap();
                        }
                    };
                    running.spawn(async move {
                        if hangs_up {
                            let _ = timeout(Duration::from_micros(200), call).await;
                        } else {
                            call.await;
                        }
                        Ok::<_, Infallible>(())
                    });
                    // A few at once.
                    if number % 16 == 0 {
                        while running.join_next().await.is_some() {}
                    }
                }
                while running.join_next().await.is_some() {}
                memory.push(resident_kib());
                open.push(handles());
            }
            println!("{protocol:?}: {calls} calls; KiB {memory:?}; handles {open:?}");
            // Two for each connection that is kept; never more than there were calls at once.
            let most = open.iter().max().unwrap() - before.0;
            assert!(most <= 2 * 2 * 16, "{open:?}");
            // Several threads have heaps of their own, which settle late.
            is_flat(&memory, 3 * 1024);
            drop(stack);
            let mut patience = 1000;
            while (handles(), tasks()) != before && patience > 0 {
                patience -= 1;
                sleep(Duration::from_millis(20)).await;
            }
            assert_eq!((handles(), tasks()), before, "before the client, and after");
        }
    });
}
