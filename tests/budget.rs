//! The retry budget: what other systems do, what went wrong in them, and the bound.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)] // helpers of tests

mod support;

use std::time::Duration;

use http::Request;
use proptest::prelude::*;
use serde_json::Value;
use support::script::{Reply, Script};
use support::vectors::{self, Case};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, advance};
use tower::{Layer, ServiceExt};
use tower_http_retry::{
    Budget, BudgetBuilder, Budgets, ConfigError, ReplayBody, RetryLayer, StandardPolicy, Token,
    UpstreamKey,
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn paused() -> Runtime {
    Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
}

fn budget(ratio: f64, floor: f64, capacity: u32) -> Budget {
    builder(ratio, floor, capacity).build().unwrap()
}

fn builder(ratio: f64, floor: f64, capacity: u32) -> BudgetBuilder {
    Budget::builder()
        .ratio(ratio)
        .floor_per_second(floor)
        .capacity(capacity)
}

fn retry(budget: &Budget) -> bool {
    budget.try_withdraw().map(Token::spend).is_some()
}

/// Retries until the budget denies one, or this many.
fn retries(budget: &Budget, at_most: usize) -> usize {
    (0..at_most).take_while(|_| retry(budget)).count()
}

fn uint(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

fn float(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

// The tables

/// A retry at cost n is n tokens of ours: all of them, or none.
fn acquire(budget: &Budget, cost: u32) -> bool {
    let tokens: Option<Vec<_>> = (0..cost).map(|_| budget.try_withdraw()).collect();
    tokens.is_some_and(|tokens| {
        tokens.into_iter().for_each(Token::spend);
        true
    })
}

/// A reward of n is n deposits, of one token each.
fn release(budget: &Budget, reward: u32) {
    (0..reward).for_each(|_| budget.deposit());
}

/// `None`: a quota of 0 is not a budget of ours (`StandardPolicy::none()` never retries).
fn quota(given: &Value) -> Option<Budget> {
    let built = builder(1.0, 0.0, uint(&given["capacity"])).build();
    assert_eq!(built.is_err(), given["capacity"] == 0);
    built.ok()
}

#[test]
fn bucket_ops() {
    vectors::check("bucket_ops", 8, &[], |case| {
        let Some(budget) = quota(&case.given) else {
            return;
        };
        let operations = case.given["ops"].as_array().unwrap();
        let results = case.expected["results"].as_array().unwrap();
        assert_eq!(operations.len(), results.len());
        for (operation, result) in operations.iter().zip(results) {
            match operation[0].as_str().unwrap() {
                "acquire" => assert_eq!(acquire(&budget, uint(&operation[1])), result[0]),
                "release" => release(&budget, uint(&operation[1])),
                other => panic!("{other}"),
            }
            assert_eq!(budget.balance(), float(&result[1]));
        }
    });
}

/// What the steps of one caller do to the quota. The waits are tested with the backoff.
fn walk(budget: &Budget, given: &Value, steps: &Value) {
    let mut cost = None;
    for step in steps.as_array().unwrap() {
        let dear = step.get("error").is_some();
        let next = uint(&given[if dear { "throttle_cost" } else { "retry_cost" }]);
        match step["action"].as_str().unwrap() {
            "retry" => {
                assert!(acquire(budget, next));
                cost = Some(next);
            }
            "give_up_quota" => assert!(!acquire(budget, next)),
            "give_up_attempts" | "give_up_not_retryable" => {}
            "success" => {
                release(
                    budget,
                    cost.take().unwrap_or(uint(&given["first_try_reward"])),
                );
            }
            other => panic!("{other}"),
        }
        if let Some(after) = step.get("quota_after") {
            assert_eq!(budget.balance(), float(after));
        }
    }
}

#[test]
fn budget_sequence() {
    vectors::check("budget_sequence", 20, &[], |case| {
        // The one intentional difference is about a wait after a denial.
        let steps = &case.expected["steps"];
        match quota(&case.given) {
            Some(budget) => walk(&budget, &case.given, steps),
            None => assert_eq!(steps[0]["action"], "give_up_quota"),
        }
    });
}

#[test]
fn budget_concurrent() {
    vectors::check("budget_concurrent", 1, &[], |case| {
        let budget = quota(&case.given).unwrap();
        std::thread::scope(|scope| {
            for steps in case.expected["threads"].as_array().unwrap() {
                scope.spawn(|| walk(&budget, &case.given, steps));
            }
        });
        assert_eq!(budget.balance(), float(&case.expected["final_quota"]));
    });
}

#[test]
fn budget_ratio() {
    vectors::check("budget_ratio", 11, &[], |case| {
        let budget = budget(float(&case.given["percent"]), 0.0, 100);
        let initial = uint(&case.expected["initial_balance"]);
        assert!(acquire(&budget, 100 - initial));
        let granted = (0..uint(&case.given["requests"]))
            .filter(|_| {
                budget.deposit();
                retry(&budget)
            })
            .count();
        // Finagle's may be off by one; ours is exact.
        assert_eq!(granted as u64, case.expected["retries"].as_u64().unwrap());
    });
}

#[test]
fn budget_constant() {
    vectors::check("budget_constant", 1, &[], |case| {
        assert!(case.differs());
        assert!(builder(f64::INFINITY, 0.0, 100).build().is_err());
        assert!(builder(0.0, f64::INFINITY, 100).build().is_err());
    });
}

#[test]
fn budget_limit() {
    vectors::check("budget_limit", 10, &[], |case| {
        assert!(case.differs());
        let percent = uint(&case.given["percent"]);
        let active = uint(&case.given["active"]);
        let budget = budget(f64::from(percent) / 100.0, 0.0, 1_000);
        retries(&budget, 1_000);
        // Calls in flight allow no retry; calls that ended well allow their share.
        assert!(!retry(&budget));
        release(&budget, active);
        assert_eq!(retries(&budget, 1_000), (active * percent / 100) as usize);
    });
}

#[test]
fn budget_walk() {
    let skipped = [(
        "envoy-budget-20-walk",
        "a share of what is in flight: the contract has none",
    )];
    vectors::check("budget_walk", 0, &skipped, |_| {});
}

#[test]
fn throttle_tokens() {
    vectors::check("throttle_tokens", 9, &[], |case| {
        let (max, ratio) = (
            uint(&case.given["max_tokens"]),
            float(&case.given["token_ratio"]),
        );
        let tokens = float(&case.given["tokens"]);
        let budget = budget(ratio, 0.0, max);
        assert!(acquire(&budget, max - tokens as u32));
        release(&budget, (tokens.fract() / ratio).round() as u32);
        assert_eq!(budget.balance(), tokens);
        for event in case.given["events"].as_array().unwrap() {
            match event.as_str().unwrap() {
                "success" => budget.deposit(),
                "fail" | "fail_transparent" => assert!(retry(&budget)),
                "fail_non_retryable" => {}
                other => panic!("{other}"),
            }
        }
        if case.differs() {
            // A retry of what was not sent counts here.
            assert_eq!(
                budget.balance(),
                float(&case.expected["tokens_after"]) - 1.0
            );
            return;
        }
        assert_eq!(budget.balance(), float(&case.expected["tokens_after"]));
        // gRPC stops at half of its tokens, ours at none: the threshold is the table's.
        if case.given["events"][0] != "fail_non_retryable"
            && let Some(allowed) = case.expected["retry_allowed_after_last_failure"].as_bool()
        {
            assert_eq!(budget.balance() > f64::from(max) / 2.0, allowed);
        }
    });
}

#[test]
fn per_request_cap() {
    let skipped = [(
        "finagle-requeue-03-sequence",
        "no call is held to a share of the balance; max_attempts bounds a call",
    )];
    vectors::check("per_request_cap", 2, &skipped, |case| {
        let attempts = case.given.get("policy_max_attempts").map_or(100, uint);
        let policy = StandardPolicy::builder()
            .retries(attempts - 1)
            .build()
            .unwrap();
        let script = Script::new((0..100).map(|_| Reply::status(503)));
        let service = RetryLayer::new(policy)
            .with_budgets(budget(0.2, 0.0, uint(&case.given["balance"])))
            .layer(script.clone());
        let request = Request::get("http://a/").body(ReplayBody::empty()).unwrap();
        let answer = paused().block_on(service.oneshot(request)).unwrap();
        let report = answer
            .extensions()
            .get::<tower_http_retry::Report>()
            .unwrap();
        assert_eq!(
            script.attempts() as u64,
            1 + case.expected["retries"].as_u64().unwrap()
        );
        assert_eq!(case.expected["budget_exhausted"], 1);
        assert_eq!(
            report.verdict().unwrap().denied(),
            Some(tower_http_retry::RetryDenied::BudgetExhausted)
        );
    });
}

#[test]
fn config_validation() {
    let skipped = [
        (
            "finagle-budget-11-bounds",
            "a ttl: the bucket has no window",
        ),
        (
            "finagle-budget-12-bounds",
            "a ttl: the bucket has no window",
        ),
        ("grpc-config-02", "gRPC's limit of 1000 tokens is not ours"),
        ("grpc-config-04", "a ratio of 0 is legal here"),
        (
            "failsafe-jitter-over-delay",
            "no jitter in milliseconds is offered",
        ),
    ];
    vectors::check("config_validation", 5, &skipped, |case| {
        let built = settings(case).build();
        assert_eq!(built.is_ok(), case.expected["valid"]);
        match built {
            Ok(budget) if case.expected.get("equals").is_some() => {
                // Once the burst at the start is gone.
                assert_eq!(retries(&budget, 1_000), 100);
                release(&budget, 1_000);
                assert!(budget.is_empty());
            }
            Ok(budget) => {
                retries(&budget, 1);
                budget.deposit();
                // gRPC cuts after three decimals.
                let capacity = case.given["max_tokens"].as_f64().unwrap();
                let ratio = float(&case.given["token_ratio"]);
                assert_eq!(budget.balance(), capacity - 1.0 + ratio);
            }
            Err(error) => assert_eq!(error.setting(), "ratio"),
        }
    });
}

fn settings(case: &Case) -> BudgetBuilder {
    let given = &case.given;
    match given.get("max_tokens") {
        Some(tokens) => builder(float(&given["token_ratio"]), 0.0, uint(tokens)),
        None => builder(float(&given["percent"]), float(&given["min_per_sec"]), 100),
    }
}

// The settings

#[test]
fn the_defaults_are_those_of_the_contract() {
    paused().block_on(async {
        let budget = Budget::default();
        assert_eq!(retries(&budget, 1_000), 100);
        budget.deposit();
        assert_eq!(budget.balance(), 0.2);
        advance(ms(100)).await;
        assert_eq!(budget.balance(), 1.2);
    });
}

#[test]
fn wrong_settings_are_refused_with_their_value() {
    fn refused(builder: BudgetBuilder) -> (&'static str, String) {
        let error: ConfigError = builder.build().unwrap_err();
        assert!(error.to_string().starts_with(error.setting()));
        (error.setting(), error.value().to_owned())
    }
    for ratio in [
        -0.001,
        -1.0,
        1000.001,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e38,
    ] {
        assert_eq!(
            refused(builder(ratio, 1.0, 1)),
            ("ratio", ratio.to_string())
        );
    }
    for floor in [-0.001, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(
            refused(builder(1.0, floor, 1)),
            ("floor_per_second", floor.to_string())
        );
    }
    assert_eq!(refused(builder(1.0, 1.0, 0)), ("capacity", "0".to_owned()));
}

#[test]
fn the_ends_of_every_range_are_legal() {
    for ratio in [0.0, -0.0, f64::MIN_POSITIVE, 0.001, 1000.0] {
        for floor in [0.0, -0.0, f64::MIN_POSITIVE, 0.001, 1e9, f64::MAX] {
            for capacity in [1, 100, u32::MAX] {
                let budget = budget(ratio, floor, capacity);
                assert_eq!(budget.balance(), f64::from(capacity));
                assert!(retry(&budget));
                budget.deposit();
                assert!((0.0..=f64::from(capacity)).contains(&budget.balance()));
            }
        }
    }
}

// Tokens

#[test]
fn a_token_goes_back_unless_it_is_spent() {
    let budget = budget(0.0, 0.0, 2);
    let token = budget.try_withdraw().unwrap();
    assert_eq!(budget.balance(), 1.0);
    drop(token);
    assert_eq!(budget.balance(), 2.0);
    budget.try_withdraw().unwrap().spend();
    assert_eq!(budget.balance(), 1.0);
}

#[test]
fn a_refund_never_exceeds_the_capacity() {
    let budget = budget(1.0, 0.0, 2);
    let token = budget.try_withdraw().unwrap();
    budget.deposit();
    assert_eq!(budget.balance(), 2.0);
    drop(token);
    assert_eq!(budget.balance(), 2.0);
    assert_eq!(retries(&budget, 10), 2);
}

#[test]
fn clones_are_one_bucket() {
    let (one, other) = {
        let budget = budget(0.0, 0.0, 1);
        (budget.clone(), budget)
    };
    assert!(retry(&one));
    assert!(other.is_empty() && !retry(&other));
}

/// One call through two layers, which share the budget.
#[test]
fn nested_layers_deposit_once_for_a_call() {
    let budget = budget(0.25, 0.0, 10);
    assert!(retry(&budget) && retry(&budget));
    let layer = || RetryLayer::new(StandardPolicy::default()).with_budgets(budget.clone());
    let answers = [200, 404].map(Reply::status);
    let service = layer().layer(layer().layer(Script::new(answers)));
    for calls in 1..=2 {
        let request = Request::get("http://a/").body(ReplayBody::empty()).unwrap();
        paused().block_on(service.clone().oneshot(request)).unwrap();
        assert_eq!(budget.balance(), 8.0 + 0.25 * f64::from(calls));
    }
}

// Reports from other systems

/// BU-01: the reciprocal of the ratio was cut to an integer, so 0.6 acted as 1.0.
#[test]
fn a_ratio_of_six_tenths_is_six_tenths() {
    let budget = budget(0.6, 0.0, 100);
    retries(&budget, 100);
    release(&budget, 10);
    assert_eq!(retries(&budget, 10), 6);
    assert!(budget.balance() == 0.0);
}

/// BU-03: good first attempts deposited nothing, so a dry bucket stayed dry.
#[test]
fn good_calls_fill_a_dry_bucket() {
    let budget = budget(0.1, 0.0, 1);
    assert!(retry(&budget) && !retry(&budget));
    release(&budget, 10);
    assert!(retry(&budget));
}

/// BU-05: after a pause the budget was not computed any more.
#[test]
fn a_pause_does_no_harm() {
    paused().block_on(async {
        for (ratio, floor) in [(0.2, 0.0), (0.0, 0.1), (0.2, 10.0)] {
            let budget = budget(ratio, floor, 10);
            assert_eq!(retries(&budget, 100), 10);
            release(&budget, 100);
            advance(Duration::from_secs(600)).await;
            release(&budget, 100);
            assert_eq!(retries(&budget, 100), 10);
        }
    });
}

/// BU-10: a refill rate that was never used, and lost updates: load, then store.
#[test]
fn sixty_four_threads_share_ten_tokens_and_the_trickle() {
    let runtime = paused();
    let budget = budget(0.0, 1.0, 10);
    let storm = |granted: usize| {
        let _clock = runtime.enter();
        let counts: Vec<usize> = std::thread::scope(|scope| {
            let run = || {
                let _clock = runtime.enter();
                (0..1_000).filter(|_| retry(&budget)).count()
            };
            let threads: Vec<_> = (0..64).map(|_| scope.spawn(run)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert_eq!(counts.iter().sum::<usize>(), granted);
    };
    storm(10);
    runtime.block_on(advance(ms(2_500)));
    storm(2);
    let _clock = runtime.enter();
    assert_eq!(budget.balance(), 0.5);
}

/// BU-08, BU-09: tokens are shared where that is asked for, and nowhere else.
#[test]
fn upstreams_share_tokens_only_where_that_is_asked_for() {
    let (one, other) = (UpstreamKey::new("a"), UpstreamKey::new("b"));
    let own = Budgets::builder()
        .floor_per_second(0.0)
        .capacity(2)
        .build()
        .unwrap();
    assert_eq!(retries(&own.get(&one).unwrap(), 10), 2);
    assert_eq!(retries(&own.get(&other).unwrap(), 10), 2);

    let shared = Budgets::shared(budget(0.2, 0.0, 2));
    assert_eq!(retries(&shared.get(&one).unwrap(), 10), 2);
    assert!(shared.get(&other).unwrap().is_empty());
}

// Time

#[test]
fn the_trickle_is_exact_to_the_nanosecond() {
    paused().block_on(async {
        let budget = budget(0.0, 10.0, 1);
        assert!(retry(&budget));
        for _ in 0..1_000 {
            advance(Duration::from_nanos(99_999_999)).await;
            assert!(!retry(&budget));
            advance(Duration::from_nanos(1)).await;
            assert!(retry(&budget));
        }
    });
}

#[test]
fn looking_often_does_not_lose_the_trickle() {
    paused().block_on(async {
        let budget = budget(0.0, 0.001, 1);
        assert!(retry(&budget));
        for second in 1..=1_000 {
            advance(ms(1_000)).await;
            assert_eq!(budget.is_empty(), second < 1_000);
        }
        assert!(retry(&budget));
    });
}

#[test]
fn no_idle_time_is_too_long() {
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    paused().block_on(async {
        for floor in [1.0, 10.0, 1e3, 1e6, 1e9, 1e12, f64::MAX] {
            for capacity in [1, 100, u32::MAX] {
                let budget = budget(0.2, floor, capacity);
                for years in [1, 7, 30, 100] {
                    let burst = 200.min(capacity as usize);
                    assert_eq!(retries(&budget, burst), burst);
                    advance(YEAR * years).await;
                    assert_eq!(budget.balance(), f64::from(capacity), "{floor} {years}");
                }
            }
        }
        let without = budget(0.2, 0.0, 1);
        assert!(retry(&without));
        advance(YEAR * 100).await;
        assert!(!retry(&without));
    });
}

// Properties

/// Exact numbers: tokens in hundred-millionths, and what trickles in a nanosecond in 10^-17.
#[derive(Debug, Clone, Copy)]
struct Rates {
    ratio: u64,
    floor: u64,
    capacity: u32,
}

const STEPS: u64 = 100_000_000;
const TOKEN: i128 = 100_000_000_000_000_000;

impl Rates {
    fn budget(self) -> Budget {
        let decimal = |steps: u64| steps as f64 / STEPS as f64;
        budget(decimal(self.ratio), decimal(self.floor), self.capacity)
    }

    fn deposit(self) -> i128 {
        i128::from(self.ratio) * 1_000_000_000
    }

    fn trickle(self, time: Duration) -> i128 {
        i128::from(self.floor) * i128::try_from(time.as_nanos()).unwrap()
    }

    fn capacity(self) -> i128 {
        i128::from(self.capacity) * TOKEN
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Retry,
    /// Withdraws, and is still waiting.
    Wait,
    /// The oldest that waits is sent, or gives up.
    Send,
    GiveUp,
    Deposit,
    Advance(Duration),
}

/// The bucket of the book: real numbers, one thread.
struct Ideal {
    rates: Rates,
    level: i128,
    at: Instant,
}

impl Ideal {
    fn new(rates: Rates) -> Self {
        Self {
            rates,
            level: rates.capacity(),
            at: Instant::now(),
        }
    }

    fn add(&mut self, amount: i128) {
        self.level = self.rates.capacity().min(self.level + amount);
    }

    fn withdraw(&mut self) -> bool {
        self.trickle();
        let granted = self.level >= TOKEN;
        self.level -= if granted { TOKEN } else { 0 };
        granted
    }

    fn trickle(&mut self) {
        let now = Instant::now();
        self.add(self.rates.trickle(now - self.at));
        self.at = now;
    }
}

fn steps(advance: impl Strategy<Value = Duration> + 'static) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Retry),
        2 => Just(Step::Wait),
        1 => Just(Step::Send),
        1 => Just(Step::GiveUp),
        4 => Just(Step::Deposit),
        2 => advance.prop_map(Step::Advance),
    ];
    proptest::collection::vec(step, 1..120)
}

/// In hundred-millionths of a token.
fn ratio() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(STEPS * 6 / 10),
        Just(STEPS * 1_000),
        STEPS / 1_000..=STEPS,
        STEPS..=STEPS * 1_000,
    ]
}

fn capacity() -> impl Strategy<Value = u32> {
    prop_oneof![Just(1), 1..8_u32, 1..200_u32, Just(u32::MAX)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Decimal settings and whole milliseconds: no difference at all, whatever happens.
    #[test]
    fn it_is_the_ideal_bucket(
        ratio in ratio(),
        floor in prop_oneof![Just(0), Just(10_000), 1..=1_000_000_u64],
        capacity in capacity(),
        steps in steps((0..3_000_u64).prop_map(ms)),
    ) {
        let rates = Rates { ratio, floor: floor * (STEPS / 1_000), capacity };
        paused().block_on(async {
            let (budget, mut ideal) = (rates.budget(), Ideal::new(rates));
            let mut waiting = Vec::new();
            for step in steps {
                match step {
                    Step::Retry => prop_assert_eq!(retry(&budget), ideal.withdraw()),
                    Step::Wait => {
                        let token = budget.try_withdraw();
                        prop_assert_eq!(token.is_some(), ideal.withdraw());
                        waiting.extend(token);
                    }
                    Step::Send => waiting.pop().into_iter().for_each(Token::spend),
                    Step::GiveUp => {
                        if waiting.pop().is_some() {
                            ideal.add(TOKEN);
                        }
                    }
                    Step::Deposit => {
                        budget.deposit();
                        ideal.add(rates.deposit());
                    }
                    Step::Advance(time) => advance(time).await,
                }
                ideal.trickle();
                prop_assert_eq!(budget.is_empty(), ideal.level < TOKEN);
                let steps = (ideal.level / 1_000_000_000) as f64;
                prop_assert_eq!(budget.balance(), steps / STEPS as f64);
            }
            Ok(())
        })?;
    }

    /// Any settings, any times: for every span, retries ≤ capacity + ratio × deposits + floor × t.
    #[test]
    fn the_bound_holds_for_every_span(
        ratio in ratio(),
        floor in prop_oneof![Just(0), 1..STEPS, 1..=STEPS * 1_000_000, Just(u64::MAX >> 11)],
        capacity in capacity(),
        steps in steps(prop_oneof![
            (0..2_000_000_000_u64).prop_map(Duration::from_nanos),
            (0..100_u64).prop_map(Duration::from_nanos),
            (0..4_000_000_000_u64).prop_map(Duration::from_secs),
        ]),
    ) {
        let rates = Rates { ratio, floor, capacity };
        paused().block_on(async {
            let start = Instant::now();
            let budget = rates.budget();
            let mut waiting = Vec::new();
            // When, and what: a retry +1, a refund -1; a deposit.
            let mut events: Vec<(Duration, i128, i128)> = Vec::new();
            for step in steps {
                let (retries, deposits) = match step {
                    Step::Retry => (i128::from(retry(&budget)), 0),
                    Step::Wait => {
                        let token = budget.try_withdraw();
                        let granted = token.is_some();
                        waiting.extend(token);
                        (i128::from(granted), 0)
                    }
                    Step::Send => {
                        waiting.pop().into_iter().for_each(Token::spend);
                        (0, 0)
                    }
                    Step::GiveUp => (-i128::from(waiting.pop().is_some()), 0),
                    Step::Deposit => {
                        budget.deposit();
                        (0, 1)
                    }
                    Step::Advance(time) => {
                        advance(time).await;
                        (0, 0)
                    }
                };
                events.push((start.elapsed(), retries, deposits));
                let balance = budget.balance();
                prop_assert!((0.0..=f64::from(capacity)).contains(&balance), "{}", balance);
            }
            for (first, &(from, ..)) in events.iter().enumerate() {
                let (mut retries, mut deposits) = (0, 0);
                for &(to, more_retries, more_deposits) in &events[first..] {
                    retries += more_retries;
                    deposits += more_deposits;
                    let bound = rates.capacity()
                        + deposits * rates.deposit()
                        + rates.trickle(to - from);
                    prop_assert!(retries * TOKEN <= bound);
                }
            }
            Ok(())
        })?;
    }

    /// However many decimals a setting has: never more than it says, and at most a step less.
    #[test]
    fn a_ratio_is_never_rounded_up(ratio in 0.0..1000.0_f64) {
        let budget = budget(ratio, 0.0, 1_000);
        retries(&budget, 1_000);
        budget.deposit();
        let worth = budget.balance();
        prop_assert!(worth <= ratio && worth > ratio - 1.01 / STEPS as f64, "{} {}", worth, ratio);
    }
}

// Threads

/// Eight tasks at once, no trickle: nothing is lost, nothing comes from nowhere.
#[test]
fn eight_tasks_keep_the_books_in_order() {
    const CALLS: u32 = 20_000;
    let budget = budget(0.0001, 0.0, 1_000);
    let runtime = Builder::new_multi_thread()
        .worker_threads(8)
        .build()
        .unwrap();
    let (granted, deposits) = runtime.block_on(async {
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let budget = budget.clone();
                tokio::spawn(async move {
                    let (mut granted, mut deposits) = (0, 0);
                    for call in 0..CALLS {
                        match budget.try_withdraw() {
                            // Some give up in their wait.
                            Some(token) if (call + task) % 3 == 0 => drop(token),
                            Some(token) => {
                                token.spend();
                                granted += 1;
                            }
                            None => {}
                        }
                        // By now there is more room than all deposits can fill.
                        if granted > 20 {
                            budget.deposit();
                            deposits += 1;
                        }
                        assert!((0.0..=1_000.0).contains(&budget.balance()));
                    }
                    (granted, deposits)
                })
            })
            .collect();
        totals(tasks).await
    });
    let in_steps = |tokens: f64| (tokens * STEPS as f64).round() as u64;
    assert_eq!(
        in_steps(f64::from(granted)) + in_steps(budget.balance()),
        in_steps(1_000.0) + u64::from(deposits) * (STEPS / 10_000)
    );
}

/// Eight tasks at once on a real clock: the bound, and no starvation.
#[test]
fn eight_tasks_stay_within_the_bound() {
    let budget = budget(0.01, 5_000.0, 50);
    let runtime = Builder::new_multi_thread()
        .worker_threads(8)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let start = Instant::now();
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let budget = budget.clone();
                tokio::spawn(async move {
                    let (mut granted, mut deposits) = (0_u32, 0_u32);
                    while start.elapsed() < ms(300) {
                        for _ in 0..50 {
                            budget.deposit();
                            granted += u32::from(retry(&budget));
                        }
                        deposits += 50;
                        drop(budget.try_withdraw());
                    }
                    (granted, deposits)
                })
            })
            .collect();
        let (granted, deposits) = totals(tasks).await;
        let seconds = start.elapsed().as_secs_f64();
        let bound = 50.0 + 0.01 * f64::from(deposits) + 5_000.0 * seconds;
        assert!(f64::from(granted) <= bound, "{granted} {bound}");
        assert!(
            f64::from(granted) >= 50.0 + 0.01 * f64::from(deposits),
            "{granted}"
        );
    });
}

async fn totals(tasks: Vec<tokio::task::JoinHandle<(u32, u32)>>) -> (u32, u32) {
    let (mut granted, mut deposits) = (0, 0);
    for task in tasks {
        let (more_granted, more_deposits) = task.await.unwrap();
        granted += more_granted;
        deposits += more_deposits;
    }
    (granted, deposits)
}
