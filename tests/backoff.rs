//! Waits before a retry: what other systems do, and what went wrong in them.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests

mod support;

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;
use support::randoms;
use support::vectors::{self, Adopt, Case};
use tower_http_retry::{Backoff, StandardPolicy};

const ZERO: Duration = Duration::ZERO;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn millis(value: &Value) -> Duration {
    Duration::from_secs_f64(value.as_f64().unwrap() / 1_000.0)
}

fn all_millis(values: &Value) -> Vec<Duration> {
    values.as_array().unwrap().iter().map(millis).collect()
}

/// The tables count from 0, the first retry.
fn retry(index: &Value) -> u32 {
    u32::try_from(index.as_u64().unwrap()).unwrap() + 1
}

/// Without a maximum in the table there is none.
fn exponential(given: &Value) -> Backoff {
    assert!(
        given
            .get("multiplier")
            .is_none_or(|multiplier| *multiplier == 2)
    );
    let max = given.get("max_backoff_ms").filter(|max| !max.is_null());
    Backoff::exponential(millis(&given["base_ms"]), max.map_or(Duration::MAX, millis))
}

fn delay(backoff: Backoff, retry: u32, random: f64) -> Duration {
    backoff.delay(retry, ZERO, None, random)
}

fn series(backoff: Backoff, count: usize, random: f64) -> Vec<Duration> {
    (1..)
        .take(count)
        .map(|retry| delay(backoff, retry, random))
        .collect()
}

/// Each wait drawn with the one before as `previous`, as a call does.
fn walk(backoff: Backoff, randoms: impl IntoIterator<Item = f64>) -> Vec<Duration> {
    let mut previous = ZERO;
    let waits = (1..).zip(randoms).map(|(retry, random)| {
        previous = backoff.delay(retry, previous, None, random);
        previous
    });
    waits.collect()
}

#[test]
fn backoff_series() {
    let skipped = [
        ("finagle-backoff-03-linear", "no linear backoff is offered"),
        (
            "finagle-backoff-04-linear-capped",
            "no linear backoff is offered",
        ),
        (
            "finagle-backoff-05-take-until-total",
            "no linear backoff is offered; totals are the deadline's",
        ),
    ];
    vectors::check(
        "backoff_series",
        17,
        &skipped,
        |Case {
             given, expected, ..
         }| {
            match given["formula"].as_str().unwrap() {
                "exponential" => {
                    let backoff = exponential(given);
                    assert_eq!(given["rand"], 1);
                    match given.get("retry_index") {
                        Some(index) => {
                            assert_eq!(
                                delay(backoff, retry(index), 1.0),
                                millis(&expected["delay_ms"])
                            );
                        }
                        None => {
                            let count = given["count"].as_u64().unwrap() as usize;
                            assert_eq!(
                                series(backoff, count, 1.0),
                                all_millis(&expected["series_ms"])
                            );
                        }
                    }
                }
                // Differs: the first retry is not immediate. From the second on the ceilings are
                // the same.
                "urllib3" => {
                    let base = Duration::from_secs_f64(given["factor"].as_f64().unwrap());
                    let max = Duration::from_secs(given["max_s"].as_u64().unwrap());
                    let ours = series(Backoff::exponential(base, max), 5, 1.0);
                    let theirs = expected["series_s"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|seconds| seconds.as_f64().unwrap());
                    let theirs: Vec<_> = theirs.map(Duration::from_secs_f64).collect();
                    assert_eq!((ours[0], theirs[0]), (base, ZERO));
                    assert_eq!(ours[1..], theirs[1..]);
                }
                // Differs: plain decorrelated jitter. In the middle the next wait is (base + 3 ×
                // previous) / 2.
                "polly_decorrelated_v2" => {
                    let backoff = exponential(given).with_decorrelated_jitter();
                    let ours = walk(backoff, [0.5; 5])
                        .iter()
                        .map(Duration::as_micros)
                        .collect::<Vec<_>>();
                    assert_eq!(
                        ours,
                        [2_000_000, 3_500_000, 5_750_000, 9_125_000, 14_187_500]
                    );
                }
                other => panic!("unknown formula {other}"),
            }
        },
    );
}

#[test]
fn backoff_range() {
    let skipped = [("aws21-43-partial-jitter", "no partial jitter is offered")];
    vectors::check(
        "backoff_range",
        10,
        &skipped,
        |Case {
             given, expected, ..
         }| {
            match given["formula"].as_str().unwrap() {
                "exponential_full_jitter" => {
                    let (backoff, retry) = (exponential(given), retry(&given["retry_index"]));
                    let range = (delay(backoff, retry, 0.0), delay(backoff, retry, 1.0));
                    assert_eq!(
                        range,
                        (millis(&expected["min_ms"]), millis(&expected["max_ms"]))
                    );
                }
                // Differs: full jitter, and never above the maximum.
                "exponential_plus_minus_20" => {
                    let (backoff, retry) = (exponential(given), retry(&given["retry_index"]));
                    let middle = (millis(&expected["min_ms"]) + millis(&expected["max_ms"])) / 2;
                    assert_eq!(
                        (delay(backoff, retry, 0.0), delay(backoff, retry, 1.0)),
                        (ZERO, middle)
                    );
                    assert!(middle <= backoff.max());
                }
                // Differs: from zero, or from the base, instead of half of it around the value.
                "r4j_randomized" => {
                    let value = millis(&given["value_ms"]);
                    let full = Backoff::exponential(value, Duration::MAX);
                    assert_eq!((delay(full, 1, 0.0), delay(full, 1, 1.0)), (ZERO, value));
                    let decorrelated = full.with_decorrelated_jitter();
                    let range = (delay(decorrelated, 1, 0.0), delay(decorrelated, 1, 1.0));
                    assert_eq!(range, (value, 3 * value));
                }
                other => panic!("unknown formula {other}"),
            }
        },
    );
}

/// The random number that falls into the middle of the nanosecond `wait`, of `ceiling`.
fn random_for(wait: Duration, ceiling: Duration) -> f64 {
    (wait.as_nanos() as f64 + 0.5) / ceiling.as_nanos() as f64
}

#[test]
fn backoff_raw_random() {
    vectors::check(
        "backoff_raw_random",
        2,
        &[],
        |Case {
             given, expected, ..
         }| {
            let backoff = Backoff::exponential(millis(&given["base_ms"]), millis(&given["max_ms"]));
            let raw = given["raw"]
                .as_array()
                .unwrap()
                .iter()
                .map(|raw| raw.as_u64().unwrap());
            let waits = (1..).zip(raw).map(|(retry, raw)| {
                // They take a large integer modulo the ceiling.
                let ceiling = delay(backoff, retry, 1.0);
                let wait = ms(raw % ceiling.as_millis() as u64);
                delay(backoff, retry, random_for(wait, ceiling))
            });
            assert_eq!(
                waits.collect::<Vec<_>>(),
                all_millis(&expected["series_ms"])
            );
        },
    );
}

#[test]
fn backoff_distribution() {
    vectors::check(
        "backoff_distribution",
        1,
        &[],
        |Case {
             given, expected, ..
         }| {
            assert_eq!(given["formula"], "exponential_full_jitter");
            let (backoff, retry) = (exponential(given), retry(&given["retry_index"]));
            let samples = given["samples"].as_u64().unwrap() as usize;
            let width = given["bucket_ms"].as_u64().unwrap() as usize;
            let mut buckets = vec![0_usize; expected["buckets"].as_u64().unwrap() as usize];
            for random in randoms(20).take(samples) {
                buckets[delay(backoff, retry, random).as_millis() as usize / width] += 1;
            }
            let even = samples as f64 / buckets.len() as f64;
            let tolerance = even * expected["tolerance_fraction"].as_f64().unwrap();
            for bucket in &buckets {
                assert!((*bucket as f64 - even).abs() <= tolerance, "{buckets:?}");
            }
        },
    );
}

/// All of them differ: full or decorrelated jitter instead of a quarter up and down.
#[test]
fn backoff_point() {
    vectors::check("backoff_point", 5, &[], |case| {
        assert_eq!(
            (&case.given["formula"], case.differs()),
            (&"polly_quarter_jitter".into(), true)
        );
        let base = millis(&case.given["base_ms"]);
        let random = case.given["rand"].as_f64().unwrap();
        let full = Backoff::exponential(base, Duration::MAX);
        let decorrelated = full.with_decorrelated_jitter();
        // To the next nanosecond: 0.6 is a little less than that.
        let is = |wait: Duration, exact: Duration| {
            wait <= exact && exact - wait <= Duration::from_nanos(1)
        };
        assert!(is(delay(full, 1, random), base.mul_f64(random)));
        assert!(is(
            delay(decorrelated, 1, random),
            base + (2 * base).mul_f64(random)
        ));
    });
}

/// Differs: theirs is not jittered.
#[test]
fn backoff_first() {
    vectors::check("backoff_first", 1, &[], |case| {
        assert_eq!(
            (&case.given["formula"], case.differs()),
            (&"decorrelated".into(), true)
        );
        let base = millis(&case.given["base_ms"]);
        let backoff = Backoff::exponential(base, Duration::MAX).with_decorrelated_jitter();
        let firsts: HashSet<_> = randoms(1)
            .take(100)
            .map(|random| delay(backoff, 1, random))
            .collect();
        assert!(firsts.len() > 90);
        assert!(firsts.iter().all(|first| (base..=3 * base).contains(first)));
    });
}

/// Ours is applied before the jitter, which promises what theirs does and more: see BO-10.
#[test]
fn backoff_cap_order() {
    vectors::check("backoff_cap_order", 1, &[], |case| {
        assert_eq!(case.expected["never_above_cap"], true);
        let backoff = Backoff::exponential(ms(300), ms(1_000));
        for backoff in [
            backoff,
            backoff.without_jitter(),
            backoff.with_decorrelated_jitter(),
        ] {
            let waits = walk(backoff, randoms(2).take(1_000).chain([1.0]));
            assert!(
                waits.iter().all(|wait| *wait <= backoff.max()),
                "{backoff:?}"
            );
        }
    });
}

#[test]
fn backoff_reset() {
    let skipped = [(
        "urllib3-backoff-04-reset-after-redirect",
        "the layer follows no redirects: a call has one series",
    )];
    vectors::check("backoff_reset", 0, &skipped, |_| unreachable!());
}

/// A hint is a floor with up to half of it on top.
#[test]
fn server_hint_range() {
    vectors::check(
        "server_hint_range",
        3,
        &[],
        |Case {
             given, expected, ..
         }| {
            let hint = Some(millis(&given["hint_ms"]));
            let backoff = Backoff::exponential(ms(25), ms(250));
            let below_one = 1.0_f64.next_down();
            let range =
                [0.0, below_one].map(|random| backoff.delay(1, ZERO, hint, random).as_millis());
            let expected =
                [&expected["min_ms"], &expected["max_ms"]].map(|ms| ms.as_u64().unwrap().into());
            assert_eq!(range, expected);
        },
    );
}

#[test]
fn defaults() {
    vectors::check("defaults", 1, &[], |case| {
        // Documentation of somebody else's defaults. Ours are in docs/budgets-and-backoff.md.
        assert_eq!(case.adopt, Adopt::Reference);
        let ours = Backoff::default();
        assert_eq!(
            (ours.base(), ours.throttled_base(), ours.max()),
            (ms(50), ms(1_000), ms(20_000))
        );
    });
}

#[test]
fn bo_01_two_thousand_attempts_stay_at_the_maximum() {
    let waits = walk(Backoff::exponential(ms(100), ms(1_000)), [1.0; 1_999]);
    assert_eq!(waits[..4], [ms(100), ms(200), ms(400), ms(800)]);
    assert!(waits[4..].iter().all(|wait| *wait == ms(1_000)));
}

#[test]
fn bo_02_no_integer_width_overflows() {
    let backoff = Backoff::exponential(ms(500), ms(45_000));
    for retry in [31, 32, 33, 63, 64, 65, 127, 128, 129, u32::MAX] {
        assert_eq!(delay(backoff, retry, 1.0), ms(45_000), "retry {retry}");
    }
}

#[test]
fn bo_04_neither_extreme_of_the_draw_wraps() {
    let backoff = Backoff::exponential(ms(1), ms(5_000));
    for retry in 64..=70 {
        assert_eq!(
            (delay(backoff, retry, 0.0), delay(backoff, retry, 1.0)),
            (ZERO, ms(5_000))
        );
        assert_eq!(delay(backoff.without_jitter(), retry, 0.0), ms(5_000));
    }
}

#[test]
fn bo_05_waits_do_not_start_again_after_a_word_of_doublings() {
    let backoff = Backoff::exponential(ms(100), ms(10_000));
    for retry in (63..=67).chain(127..=131) {
        assert_eq!(delay(backoff, retry, 1.0), ms(10_000), "retry {retry}");
    }
}

#[test]
fn bo_06_an_unlimited_maximum_saturates_too() {
    let max = ms(u64::MAX);
    let backoff = Backoff::exponential(ms(1), max);
    for retry in (31..=40).chain([64, 65, 66, u32::MAX]) {
        let waits = [0.0, 0.5, 1.0].map(|random| delay(backoff, retry, random));
        let ceiling = 1_u64.checked_shl(retry - 1).map_or(max, ms);
        assert_eq!(waits, [ZERO, ceiling / 2, ceiling], "retry {retry}");
    }
}

/// The case wants a previous wait of zero to leave at most 1002 ms as well. Here zero,
/// which is that there was none, counts as the base.
#[test]
fn bo_07_a_previous_wait_below_the_base_leaves_no_empty_range() {
    let backoff = Backoff::exponential(ms(1_000), ms(10_000)).with_decorrelated_jitter();
    for (previous, longest) in [
        (0, 3_000),
        (1, 1_000),
        (300, 1_000),
        (333, 1_000),
        (334, 1_002),
    ] {
        let range = [0.0, 1.0].map(|random| backoff.delay(2, ms(previous), None, random));
        assert_eq!(range, [ms(1_000), ms(longest)], "{previous} ms");
    }
}

#[test]
fn bo_08_a_thousand_decorrelated_waits_stay_in_bounds() {
    let (base, max) = (ms(1_000), ms(3_600_000));
    let backoff = Backoff::exponential(base, max).with_decorrelated_jitter();
    let longest = walk(backoff, [1.0; 1_000]);
    assert_eq!(longest[..3], [ms(3_000), ms(9_000), ms(27_000)]);
    assert!(longest[8..].iter().all(|wait| *wait == max));
    let drawn = walk(backoff, randoms(8).take(1_000));
    assert!(drawn.iter().all(|wait| (base..=max).contains(wait)));
}

#[test]
fn bo_10_waits_at_the_maximum_are_spread_below_it() {
    let backoff = Backoff::exponential(ms(100), ms(10_000));
    let waits: Vec<_> = randoms(10)
        .take(10_000)
        .map(|random| delay(backoff, 20, random))
        .collect();
    let at_max = waits.iter().filter(|wait| **wait == backoff.max()).count();
    assert!(at_max < 100, "{at_max} of 10 000");
    let upper_half = waits
        .iter()
        .filter(|wait| **wait > backoff.max() / 2)
        .count();
    assert!(
        (4_500..=5_500).contains(&upper_half),
        "{upper_half} of 10 000"
    );
}

/// Alone, the maximum wins; a policy refuses the pair (BO-12).
#[test]
fn bo_11_a_maximum_below_the_base_is_the_wait() {
    assert_eq!(delay(Backoff::exponential(ms(500), ms(50)), 1, 1.0), ms(50));
}

#[test]
fn bo_12_a_policy_refuses_a_maximum_below_the_base() {
    let swapped = StandardPolicy::builder()
        .base_delay(ms(100))
        .max_delay(ms(30))
        .build();
    assert!(swapped.is_err());
    let swapped = StandardPolicy::builder()
        .backoff(Backoff::exponential(ms(100), ms(30)))
        .build();
    assert!(swapped.is_err());
}
