//! Every interleaving, by loom: `RUSTFLAGS="--cfg loom_models" cargo test --lib --release loom_`

use std::sync::Arc;

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::bucket::{Bucket, Change, Rates};

const SECOND: u64 = 1_000_000_000;

/// A bucket and a clock that goes on with every reading, so that each has a time of its own.
struct World {
    bucket: Bucket,
    clock: AtomicU64,
    step: u64,
    /// When a retry was granted: the last reading before it was.
    retries: Mutex<Vec<u64>>,
}

impl World {
    fn new(rates: Rates, step: u64) -> Arc<Self> {
        Arc::new(Self {
            bucket: Bucket::new(rates),
            clock: AtomicU64::new(step),
            step,
            retries: Mutex::new(Vec::new()),
        })
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(self.step, Ordering::SeqCst)
    }

    /// Like a call that retries.
    fn retry(&self) -> bool {
        let read = std::cell::Cell::new(0);
        let granted = self.bucket.withdraw(|| {
            read.set(self.now());
            read.get()
        });
        if granted == Change::Done {
            self.retries.lock().unwrap().push(read.get());
        }
        granted == Change::Done
    }

    /// Like a call that withdraws and is dropped in its wait.
    fn withdraw_and_refund(&self) {
        if self.bucket.withdraw(|| self.now()) == Change::Done {
            self.bucket.refund();
        }
    }

    fn balance(&self) -> f64 {
        self.bucket.balance(|| self.clock.load(Ordering::SeqCst))
    }

    /// For every span: retries ≤ capacity + ratio × deposits + floor × span.
    fn check(&self, capacity: f64, deposited: f64, floor: f64) {
        let mut retries = self.retries.lock().unwrap().clone();
        retries.sort_unstable();
        for (first, from) in retries.iter().enumerate() {
            for (last, to) in retries.iter().enumerate().skip(first) {
                let span = (to - from) as f64 / SECOND as f64;
                let count = (last - first + 1) as f64;
                assert!(count <= capacity + deposited + floor * span, "{retries:?}");
            }
        }
        assert!((0.0..=capacity).contains(&self.balance()));
    }
}

fn model(test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

/// Runs them in threads of their own, all at once.
fn race(world: &Arc<World>, threads: &[fn(&World)]) {
    let threads: Vec<_> = threads
        .iter()
        .map(|run| {
            let (world, run) = (Arc::clone(world), *run);
            thread::spawn(move || run(&world))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

fn retry(world: &World) {
    world.retry();
}

fn deposit(world: &World) {
    world.bucket.deposit();
}

#[test]
fn one_token_is_granted_once() {
    model(|| {
        let world = World::new(Rates::new(0.0, 0.0, 1), 1);
        race(&world, &[retry, retry, retry]);
        assert_eq!(world.retries.lock().unwrap().len(), 1);
        world.check(1.0, 0.0, 0.0);
    });
}

#[test]
fn no_deposit_is_lost_or_doubled() {
    model(|| {
        let world = World::new(Rates::new(0.75, 0.0, 4), 1);
        (0..4).for_each(|_| retry(&world));
        race(
            &world,
            &[deposit, deposit, |world| {
                deposit(world);
                world.retry();
            }],
        );
        let retries = world.retries.lock().unwrap().len();
        assert_eq!(world.balance(), 2.25 - (retries - 4) as f64);
        world.check(4.0, 2.25, 0.0);
    });
}

#[test]
fn a_refund_gives_back_what_was_withdrawn_and_no_more() {
    model(|| {
        let world = World::new(Rates::new(0.5, 0.0, 2), 1);
        retry(&world);
        race(
            &world,
            &[
                World::withdraw_and_refund,
                World::withdraw_and_refund,
                deposit,
            ],
        );
        assert_eq!(world.balance(), 1.5);
    });
    model(|| {
        let world = World::new(Rates::new(1.0, 0.0, 2), 1);
        race(&world, &[World::withdraw_and_refund, retry, deposit]);
        world.check(2.0, 1.0, 0.0);
        let retries = world.retries.lock().unwrap().len() as f64;
        // The deposit came while there was room, or into a full bucket.
        assert!([2.0 - retries, 3.0 - retries].contains(&world.balance()));
    });
}

#[test]
fn the_trickle_is_granted_once() {
    // A third of a token per reading.
    model(|| {
        let world = World::new(Rates::new(0.0, 1.0, 1), SECOND / 3);
        race(
            &world,
            &[retry, |world| {
                world.retry();
                world.retry();
            }],
        );
        retry(&world);
        world.check(1.0, 0.0, 1.0);
    });
}

#[test]
fn the_bound_holds_for_trickle_deposits_and_refunds_together() {
    model(|| {
        let world = World::new(Rates::new(0.5, 1.0, 1), SECOND / 2);
        retry(&world);
        race(
            &world,
            &[
                retry,
                |world| {
                    world.bucket.deposit();
                    world.bucket.deposit();
                },
                World::withdraw_and_refund,
            ],
        );
        retry(&world);
        world.check(1.0, 1.0, 1.0);
    });
}

/// 3000 a second for nine months: in the units of the bucket more than 2^63, which would read as
/// less than nothing.
#[test]
fn after_a_very_long_time_it_is_full_once() {
    model(|| {
        let world = World::new(Rates::new(0.5, 3000.0, 2), 0);
        retry(&world);
        retry(&world);
        world.clock.store(270 * 86_400 * SECOND, Ordering::SeqCst);
        race(&world, &[retry, deposit]);
        retry(&world);
        retry(&world);
        let retries = world.retries.lock().unwrap().len();
        // The deposit came before, into a full bucket; or after a retry, for half a token.
        assert_eq!(retries, 4);
        assert!([0.0, 0.5].contains(&world.balance()));
    });
}

#[test]
fn an_evicted_bucket_is_full_and_stays_unused() {
    model(|| {
        let world = World::new(Rates::new(1.0, 0.0, 1), 1);
        let evictor = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.bucket.retire(|| world.now()))
        };
        let used = world.retry();
        let refilled = used && world.bucket.deposit() == Change::Done;
        let evicted = evictor.join().unwrap();
        assert_eq!(world.bucket.is_retired(), evicted);
        // Before it was used, or when it was full again.
        assert!(!evicted || used == refilled);
        assert!(!evicted || !world.retry());
        assert_eq!(world.balance(), if evicted || refilled { 1.0 } else { 0.0 });
    });
}

#[test]
fn a_token_that_is_out_keeps_its_bucket_from_eviction() {
    model(|| {
        let world = World::new(Rates::new(1.0, 0.0, 1), 1);
        let evictor = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.bucket.retire(|| world.now()))
        };
        if world.bucket.withdraw(|| world.now()) == Change::Done {
            assert!(!world.bucket.is_retired());
            world.bucket.refund();
        }
        let evicted = evictor.join().unwrap();
        assert_eq!(world.retry(), !evicted);
    });
}
