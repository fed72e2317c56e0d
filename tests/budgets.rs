//! Budgets per upstream: bounded, and safe from hostile authorities.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)] // helpers of tests

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::uri::{Authority, Scheme};
use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::time::advance;
use tower_http_retry::{Budget, Budgets, BudgetsBuilder, Token, UpstreamKey};

use support::measure::known;

fn paused() -> Runtime {
    Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
}

fn key(name: &str) -> UpstreamKey {
    UpstreamKey::new(name)
}

fn hostile(number: usize) -> UpstreamKey {
    let authority: Authority = format!("h{number}.example").parse().unwrap();
    UpstreamKey::origin(Some(&Scheme::HTTP), &authority)
}

fn dry(capacity: u32) -> BudgetsBuilder {
    Budgets::builder()
        .ratio(0.0)
        .floor_per_second(0.0)
        .capacity(capacity)
}

fn retry(budget: &Budget) -> bool {
    budget.try_withdraw().map(Token::spend).is_some()
}

fn retries(budget: &Budget) -> usize {
    (0..1_000).take_while(|_| retry(budget)).count()
}

#[test]
fn each_upstream_has_its_own_tokens() {
    let budgets = dry(2).build().unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(retries(&budgets.get(&key(name)).unwrap()), 2);
        assert_eq!(retries(&budgets.get(&key(name)).unwrap()), 0);
    }
}

#[test]
fn clones_share() {
    let budgets = dry(2).build().unwrap();
    assert_eq!(retries(&budgets.clone().get(&key("a")).unwrap()), 2);
    assert!(budgets.get(&key("a")).unwrap().is_empty());
}

#[test]
fn one_budget_for_all() {
    let budget = Budget::default();
    for budgets in [Budgets::shared(budget.clone()), budget.clone().into()] {
        assert!(retry(&budgets.get(&key("a")).unwrap()));
        assert!(retry(&budgets.get(&UpstreamKey::default()).unwrap()));
    }
    assert!(budget.balance() < 96.1);
}

#[test]
fn wrong_settings_are_refused_with_their_value() {
    for (builder, setting, value) in [
        (Budgets::builder().ratio(f64::NAN), "ratio", "NaN"),
        (
            Budgets::builder().floor_per_second(-1.0),
            "floor_per_second",
            "-1",
        ),
        (Budgets::builder().capacity(0), "capacity", "0"),
        (Budgets::builder().max_upstreams(0), "max_upstreams", "0"),
    ] {
        let error = builder.build().unwrap_err();
        assert_eq!((error.setting(), error.value()), (setting, value));
    }
    for max in [1, 2, 3, usize::MAX] {
        let budgets = dry(1).max_upstreams(max).build().unwrap();
        assert!(retry(&budgets.get(&key("a")).unwrap()));
    }
}

#[test]
fn newcomers_share_the_overflow_while_nobody_is_idle() {
    let budgets = dry(2).ratio(1.0).max_upstreams(2).build().unwrap();
    let first = budgets.get(&key("a")).unwrap();
    assert!(retry(&first));
    assert!(retry(&budgets.get(&key("b")).unwrap()));
    // No room: these two share two tokens, and the others keep theirs.
    assert!(retry(&budgets.get(&key("c")).unwrap()));
    assert!(retry(&budgets.get(&key("d")).unwrap()));
    assert!(!retry(&budgets.get(&key("e")).unwrap()));
    assert_eq!(first.balance(), 1.0);
    // Full again, so its place is to be had.
    first.deposit();
    assert_eq!(retries(&budgets.get(&key("e")).unwrap()), 2);
}

#[test]
fn a_trickle_makes_room_as_well() {
    paused().block_on(async {
        let budgets = dry(2)
            .floor_per_second(1.0)
            .max_upstreams(1)
            .build()
            .unwrap();
        assert!(retry(&budgets.get(&key("a")).unwrap()));
        advance(Duration::from_millis(999)).await;
        let overflow = budgets.get(&key("b")).unwrap();
        assert_eq!(retries(&overflow), 2);
        advance(Duration::from_millis(1)).await;
        assert_eq!(retries(&budgets.get(&key("b")).unwrap()), 2);
        // And back to the first: its new bucket finds no room now.
        assert_eq!(retries(&budgets.get(&key("a")).unwrap()), 0);
    });
}

#[test]
fn who_holds_an_evicted_budget_has_the_one_in_its_place() {
    let budgets = dry(3).ratio(1.0).max_upstreams(1).build().unwrap();
    let old = budgets.get(&key("a")).unwrap();
    budgets.get(&key("b")).unwrap();
    assert!(!old.is_empty());
    assert_eq!(old.balance(), 3.0);
    // "a" comes back, through the old handle.
    assert!(retry(&old));
    let new = budgets.get(&key("a")).unwrap();
    assert_eq!((old.balance(), new.balance()), (2.0, 2.0));
    let token = old.try_withdraw().unwrap();
    assert_eq!(new.balance(), 1.0);
    drop(token);
    assert_eq!(new.balance(), 2.0);
    old.deposit();
    assert_eq!((old.balance(), new.balance()), (3.0, 3.0));
    assert_eq!(retries(&old) + retries(&new), 3);
    assert!(old.is_empty());
}

#[test]
fn a_budget_outlives_its_map() {
    let budgets = dry(3).max_upstreams(1).build().unwrap();
    let (evicted, last) = (
        budgets.get(&key("a")).unwrap(),
        budgets.get(&key("b")).unwrap(),
    );
    drop(budgets);
    assert_eq!(retries(&last), 3);
    // Nobody knows who has its place: no tokens rather than too many.
    assert_eq!(retries(&evicted), 0);
    evicted.deposit();
    assert!(format!("{evicted:?}").contains("\"a\""));
}

/// Every call to a new authority; none retries. What they take together is measured in `hostile.rs`,
/// alone in its process.
#[test]
fn a_million_quiet_authorities_take_a_few_places_and_nobodys_tokens() {
    let budgets = Budgets::default();
    let good = budgets.get(&key("good")).unwrap();
    let runtime = paused();
    let _clock = runtime.enter();
    for _ in 0..10 {
        assert!(retry(&good));
    }
    for number in 0..1_000_000 {
        budgets.get(&hostile(number)).unwrap().deposit();
    }
    assert_eq!(known(&budgets), 1_024);
    assert_eq!(good.balance(), 90.0);
    assert_eq!(budgets.get(&key("good")).unwrap().balance(), 90.0);
}

/// Every call to a new authority, and every one takes a token.
#[test]
fn a_million_greedy_authorities_share_the_overflow() {
    let budgets = dry(100).build().unwrap();
    let good = budgets.get(&key("good")).unwrap();
    assert!(retry(&good));
    let mut granted = 0;
    for number in 0..1_000_000 {
        granted += usize::from(retry(&budgets.get(&hostile(number)).unwrap()));
    }
    assert_eq!(known(&budgets), 1_024);
    // One each for those who found a place, and the overflow.
    assert_eq!(granted, 1_023 + 100);
    assert_eq!(budgets.get(&key("good")).unwrap().balance(), 99.0);
    assert_eq!(good.balance(), 99.0);
}

#[derive(Debug, Clone)]
enum Step {
    /// Gets a handle and keeps it.
    Get(usize),
    /// The same through a handle that is kept, or a new one.
    Retry(usize, Handle),
    Wait(usize, Handle),
    GiveUp,
    Send,
    Deposit(usize, Handle),
    Hostile,
    Advance(u64),
}

#[derive(Debug, Clone, Copy)]
enum Handle {
    Kept,
    New,
}

fn steps(keys: usize) -> impl Strategy<Value = Vec<Step>> {
    let handle = || prop_oneof![Just(Handle::Kept), Just(Handle::New)];
    let step = prop_oneof![
        2 => (0..keys).prop_map(Step::Get),
        4 => (0..keys, handle()).prop_map(|(key, handle)| Step::Retry(key, handle)),
        2 => (0..keys, handle()).prop_map(|(key, handle)| Step::Wait(key, handle)),
        2 => Just(Step::GiveUp),
        1 => Just(Step::Send),
        3 => (0..keys, handle()).prop_map(|(key, handle)| Step::Deposit(key, handle)),
        4 => Just(Step::Hostile),
        1 => (0..2_000_u64).prop_map(Step::Advance),
    ];
    proptest::collection::vec(step, 1..200)
}

/// Runs the steps; says what each key was granted, net of refunds, and how often it deposited.
async fn run(budgets: &Budgets, keys: usize, steps: Vec<Step>) -> Vec<(i64, i64)> {
    let mut kept: Vec<Vec<Budget>> = vec![Vec::new(); keys];
    let mut waiting: Vec<(usize, Token)> = Vec::new();
    let mut books = vec![(0, 0); keys];
    for (number, step) in steps.into_iter().enumerate() {
        let new = |key: usize| budgets.get(&self::key(&key.to_string())).unwrap();
        let handle = |key: usize, handle| match (handle, kept[key].first()) {
            (Handle::Kept, Some(budget)) => budget.clone(),
            (Handle::Kept | Handle::New, _) => new(key),
        };
        match step {
            Step::Get(key) => {
                let (at, budget) = (number % (kept[key].len() + 1), new(key));
                kept[key].insert(at, budget);
            }
            Step::Retry(key, which) => books[key].0 += i64::from(retry(&handle(key, which))),
            Step::Wait(key, which) => {
                if let Some(token) = handle(key, which).try_withdraw() {
                    books[key].0 += 1;
                    waiting.push((key, token));
                }
            }
            Step::GiveUp => {
                if let Some((key, _token)) = waiting.pop() {
                    books[key].0 -= 1;
                }
            }
            Step::Send => {
                if let Some((_, token)) = waiting.pop() {
                    token.spend();
                }
            }
            Step::Deposit(key, which) => {
                handle(key, which).deposit();
                books[key].1 += 1;
            }
            Step::Hostile => drop(budgets.get(&hostile(number))),
            Step::Advance(millis) => advance(Duration::from_millis(millis)).await,
        }
    }
    books
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Without refill a bucket that was used keeps its place for good: whatever handles are kept
    /// and whatever comes in between, there are so many buckets and no more.
    #[test]
    fn eviction_mints_nothing(max in 1..5_usize, capacity in 1..4_u32, steps in steps(6)) {
        paused().block_on(async {
            let budgets = dry(capacity).max_upstreams(max).build().unwrap();
            let granted: i64 = run(&budgets, 6, steps).await.iter().map(|(granted, _)| granted).sum();
            prop_assert!(granted <= (max as i64 + 1) * i64::from(capacity));
            Ok(())
        })?;
    }

    /// Two upstreams that come and go among others: each has its bound, by whatever handle.
    #[test]
    fn the_bound_holds_for_an_upstream_across_evictions(steps in steps(2)) {
        paused().block_on(async {
            let budgets = Budgets::builder()
                .ratio(0.5)
                .floor_per_second(1.0)
                .capacity(2)
                .max_upstreams(3)
                .build()
                .unwrap();
            let start = tokio::time::Instant::now();
            for (granted, deposits) in run(&budgets, 2, steps).await {
                let bound = 2.0 + 0.5 * deposits as f64 + start.elapsed().as_secs_f64();
                prop_assert!(granted as f64 <= bound, "{} {}", granted, bound);
            }
            Ok(())
        })?;
    }
}

/// Four threads retry for one upstream through old and new handles, four push it out.
#[test]
fn eviction_mints_nothing_from_eight_threads() {
    for _ in 0..50 {
        let budgets = dry(64).max_upstreams(2).build().unwrap();
        let done = AtomicBool::new(false);
        let granted: usize = std::thread::scope(|scope| {
            for thread in 0..4 {
                let (budgets, done) = (&budgets, &done);
                scope.spawn(move || {
                    let mut number = thread * 1_000_000;
                    while !done.load(Ordering::Relaxed) {
                        budgets.get(&hostile(number)).unwrap();
                        number += 1;
                    }
                });
            }
            let good: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let old = budgets.get(&key("good")).unwrap();
                        let mut granted = 0;
                        for _ in 0..64 {
                            drop(budgets.get(&key("good")).unwrap().try_withdraw());
                            granted += usize::from(retry(&old));
                            granted += usize::from(retry(&budgets.get(&key("good")).unwrap()));
                        }
                        granted
                    })
                })
                .collect();
            let granted = good.into_iter().map(|thread| thread.join().unwrap()).sum();
            done.store(true, Ordering::Relaxed);
            granted
        });
        // Its own bucket, once: the quiet ones are always full and make room.
        assert_eq!(granted, 64);
    }
}
