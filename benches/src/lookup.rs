//! Finding the budget of an upstream among many.

use std::hint::black_box;
use std::pin::pin;
use std::sync::Barrier;
use std::task::{Context, Waker};
use std::thread;
use std::time::Instant;

use http::Request;
use tower::Service;
use tower_http_retry::{Budgets, ReplayBody, Retry, Token, Upstream as Known, UpstreamKey};

use crate::cases::retrying;
use crate::inner::{Inner, Upstream};
use crate::parts::each;

const UPSTREAMS: usize = 1000;

fn request(index: usize) -> Request<ReplayBody> {
    let uri = format!("http://upstream-{index:04}.internal:8443/");
    let request = Request::get(uri).body(ReplayBody::empty());
    request.expect("valid")
}

fn key(index: usize) -> UpstreamKey {
    UpstreamKey::of(&request(index).into_parts().0)
}

/// The budget of one of 1000 upstreams, by its key.
pub fn by_key(threads: usize) -> f64 {
    let budgets = Budgets::default();
    for index in 0..UPSTREAMS {
        budgets.get(&key(index));
    }
    let hot = key(500);
    each(threads, || {
        black_box(budgets.get(black_box(&hot)));
    })
}

/// The same on one thread, before and after a million others passed through, half of which took a
/// token.
pub fn before_and_after_a_million() -> (f64, f64) {
    let (budgets, hot) = (Budgets::default(), key(500));
    let budget = budgets.get(&hot).expect("they are on");
    // Not idle for ten seconds: it keeps its place.
    while let Some(token) = budget.try_withdraw() {
        token.spend();
    }
    let time = || {
        each(1, || {
            black_box(budgets.get(black_box(&hot)));
        })
    };
    let before = time();
    for index in UPSTREAMS..UPSTREAMS + 1_000_000 {
        let other = budgets.get(&key(index)).expect("they are on");
        if index % 2 == 0 {
            let _ = other.try_withdraw().map(Token::spend);
        }
    }
    (before, time())
}

/// What a call pays for its budget if the thread's calls go to so many of 1000 upstreams in turn,
/// over calls that all go to one: the shortest of many rounds each, on each thread.
pub fn in_turn(threads: usize, hot: usize) -> f64 {
    let service = retrying(Inner(Upstream::Well), 2, Known::new());
    (0..UPSTREAMS).for_each(|index| send(&mut service.clone(), vec![request(index)]));
    let barrier = Barrier::new(threads);
    let costs: Vec<f64> = thread::scope(|scope| {
        let run = || {
            let mut service = service.clone();
            let mut shortest = [f64::MAX; 2];
            for _ in 0..2_000 {
                for (time, upstreams) in shortest.iter_mut().zip([1, hot]) {
                    let requests = (0..BATCH).map(|call| request(7 * (call % upstreams)));
                    let requests = requests.collect();
                    barrier.wait();
                    let start = Instant::now();
                    send(&mut service, requests);
                    *time = time.min(start.elapsed().as_nanos() as f64 / BATCH as f64);
                }
            }
            shortest[1] - shortest[0]
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined.map(|cost| cost.expect("no panic")).collect()
    });
    costs.iter().sum::<f64>() / threads as f64
}

const BATCH: usize = 64;

fn send(service: &mut Retry<Inner>, requests: Vec<Request<ReplayBody>>) {
    let mut cx = Context::from_waker(Waker::noop());
    for request in requests {
        assert!(service.poll_ready(&mut cx).is_ready());
        assert!(pin!(service.call(request)).poll(&mut cx).is_ready());
    }
}
