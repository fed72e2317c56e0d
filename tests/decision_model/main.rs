//! Every input of the decision, against a model that was written from the rules
//! (docs/decision-order.md) and not from the code.

#![allow(clippy::indexing_slicing, clippy::unwrap_used)] // helpers of tests

mod facts;
mod input;
mod model;

use std::time::Duration;

use facts::{Heads, REFUSED, SHORT, STOP, TIGHT, YES};
use http::{Request, Response, StatusCode};
use input::{Input, ORDERED, SIZES};
use model::{Expected, Model, TABLE};
use proptest::prelude::*;
use tower_http_retry::{
    Attempt, BodyState, Facts, IoFailures, Policy, RetryAfterHints, RetryDenied, Rule,
    StandardPolicy, Step, Upstream, decide,
};

/// Compares every input, but those of the dimensions that the policy does not look at. Then walks
/// from every no one step towards what forbids more: there must be no yes.
fn enumerate(policy: &impl Policy, model: Model, left_out: &[usize]) {
    let mut sizes = SIZES;
    for dimension in left_out {
        sizes[*dimension] = 1;
    }
    let heads = Heads::new();
    let total: usize = sizes.iter().product();
    let mut again = vec![false; total];
    for (index, again) in again.iter_mut().enumerate() {
        let input = Input::of(digits(index, &sizes));
        let verdict = heads.decide(policy, model.attempts, &input);
        let expected = model.decide(&input);
        assert_eq!(Expected::of(verdict), expected, "{input:?}");
        *again = expected.is_again();
        assert!(!*again || model.stopped(&input).is_none(), "{input:?}");
    }
    let mut stride = 1;
    for (dimension, size) in sizes.iter().enumerate().take(ORDERED) {
        for (index, here) in again.iter().enumerate() {
            let last = index / stride % size == size - 1;
            assert!(
                last || *here || !again[index + stride],
                "dimension {dimension} turns a no into a yes at {:?}",
                Input::of(digits(index, &sizes))
            );
        }
        stride *= size;
    }
    // What was sent without an answer forbids more than what was not sent.
    let ended: usize = sizes[..14].iter().product();
    for index in 0..ended {
        assert!(again[index] || !again[index + ended]);
    }
}

fn digits(mut index: usize, sizes: &[usize; 15]) -> [usize; 15] {
    sizes.map(|size| {
        let digit = index % size;
        index /= size;
        digit
    })
}

const EARLY_DATA: usize = 10;
const STOP_HEADER: usize = 11;
const REFUSAL_HEADER: usize = 12;

#[test]
fn the_default_follows_the_table() {
    enumerate(
        &StandardPolicy::default(),
        TABLE,
        &[STOP_HEADER, REFUSAL_HEADER],
    );
}

#[test]
fn the_conventional_policy_has_its_own_statuses() {
    let model = Model {
        attempts: 4,
        statuses: &[429, 500, 502, 503, 504],
        ..TABLE
    };
    let left_out = [EARLY_DATA, STOP_HEADER, REFUSAL_HEADER];
    enumerate(&StandardPolicy::conventional(), model, &left_out);
}

#[test]
fn the_policy_that_never_retries_stops_at_step_1() {
    let model = Model {
        attempts: 1,
        ..TABLE
    };
    let left_out = [EARLY_DATA, STOP_HEADER, REFUSAL_HEADER];
    enumerate(&StandardPolicy::none(), model, &left_out);
}

#[test]
fn registered_headers_and_statuses_narrow_and_prove() {
    let upstream = Upstream::new()
        .transient_500()
        .refusal_header(REFUSED.clone(), YES)
        .stop_header(STOP.clone(), YES);
    let policy = StandardPolicy::builder()
        .default_upstream(upstream)
        .build()
        .unwrap();
    let model = Model {
        transient_500: true,
        headers: true,
        ..TABLE
    };
    enumerate(&policy, model, &[EARLY_DATA]);
}

#[test]
fn every_setting_does_what_it_says() {
    let statuses: &[u16] = &[401, 404, 409, 425, 500, 503];
    let policy = StandardPolicy::builder()
        .retryable_statuses(
            statuses
                .iter()
                .map(|status| StatusCode::from_u16(*status).unwrap()),
        )
        .io_failures(IoFailures::Deny)
        .retry_after_hints(RetryAfterHints::Ignore)
        .build()
        .unwrap();
    let model = Model {
        statuses,
        io_failures: false,
        hints: false,
        ..TABLE
    };
    enumerate(&policy, model, &[STOP_HEADER, REFUSAL_HEADER]);
}

/// One rule for all attempts, and all else by default.
struct Always(Rule);

impl Policy for Always {
    fn rule(&self, _: &Attempt<'_>) -> Rule {
        self.0
    }
}

#[test]
fn no_policy_gets_past_the_first_eight_steps() {
    for rule in [
        Rule::Accept,
        Rule::Retry,
        Rule::Refresh,
        Rule::Deny,
        Rule::Ambiguous,
    ] {
        let model = Model {
            constant: Some(rule),
            ..TABLE
        };
        let left_out = [EARLY_DATA, STOP_HEADER, REFUSAL_HEADER];
        enumerate(&Always(rule), model, &left_out);
    }
}

/// To the nanosecond: what remains must hold the wait and a minimum attempt.
#[test]
fn the_deadline_is_exact() {
    const NS: Duration = Duration::from_nanos(1);
    let policy = StandardPolicy::default();
    let (request, ()) = Request::get("/").body(()).unwrap().into_parts();
    let (busy, ()) = Response::builder()
        .status(503)
        .body(())
        .unwrap()
        .into_parts();
    let step = |remaining: Duration, min_attempt: Duration, hint: Option<Duration>| {
        let mut facts = Facts::response(&request, &busy)
            .remaining(remaining)
            .min_attempt(min_attempt);
        if let Some(hint) = hint {
            facts = facts.retry_after(hint);
        }
        decide(&policy, &facts.attempt()).step()
    };
    let (fits, late) = (Some(Step::Rule), Some(Step::Deadline));
    assert_eq!(step(TIGHT, TIGHT, None), fits);
    assert_eq!(step(TIGHT - NS, TIGHT, None), late);
    assert_eq!(step(TIGHT + SHORT, TIGHT, Some(SHORT)), fits);
    assert_eq!(step(TIGHT + SHORT - NS, TIGHT, Some(SHORT)), late);
    // At the deadline nothing fits: it would be dropped at once, and leave a doubt behind.
    assert_eq!(step(Duration::ZERO, Duration::ZERO, None), late);
    assert_eq!(step(NS, Duration::ZERO, None), fits);
    assert_eq!(step(Duration::MAX, Duration::MAX, None), fits);

    // A hint to the limit is waited for. One that overflowed is longer than any limit.
    let limit = policy.max_retry_after();
    assert_eq!(step(Duration::MAX, Duration::ZERO, Some(limit)), fits);
    let denied = |policy: &StandardPolicy, hint| {
        decide(
            policy,
            &Facts::response(&request, &busy).retry_after(hint).attempt(),
        )
        .denied()
    };
    assert_eq!(denied(&policy, limit), None);
    let longer = limit + NS;
    assert_eq!(
        denied(&policy, longer),
        Some(RetryDenied::RetryAfter(longer))
    );
    let patient = StandardPolicy::builder()
        .max_retry_after(Duration::MAX)
        .build()
        .unwrap();
    assert_eq!(denied(&patient, longer), None);
    assert_eq!(
        denied(&patient, Duration::MAX),
        Some(RetryDenied::RetryAfter(Duration::MAX))
    );
}

/// Times from nothing to the longest, and those around a boundary.
fn durations() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0_u64..20).prop_map(Duration::from_nanos),
        any::<Duration>(),
        Just(Duration::MAX),
    ]
}

proptest! {
    /// No combination of times panics or wraps, and the arithmetic is that of whole numbers.
    #[test]
    fn any_times_are_compared_exactly(
        remaining in proptest::option::of(durations()),
        hint in proptest::option::of(durations()),
        min_attempt in durations(),
        limit in durations(),
    ) {
        let policy = StandardPolicy::builder().max_retry_after(limit).build().unwrap();
        let (request, ()) = Request::get("/").body(()).unwrap().into_parts();
        let (busy, ()) = Response::builder().status(503).body(()).unwrap().into_parts();
        let mut facts = Facts::response(&request, &busy).min_attempt(min_attempt);
        if let Some(remaining) = remaining {
            facts = facts.remaining(remaining);
        }
        if let Some(hint) = hint {
            facts = facts.retry_after(hint);
        }
        // The longest `Duration` is no time but the end of all: sums stop there.
        let fits = |wait: Duration| remaining.is_none_or(|remaining| {
            let sum = (wait.as_nanos() + min_attempt.as_nanos()).min(Duration::MAX.as_nanos());
            !remaining.is_zero() && sum <= remaining.as_nanos()
        });
        let denied = match hint {
            _ if !fits(Duration::ZERO) => Some(RetryDenied::Deadline),
            Some(hint) if hint > limit || hint == Duration::MAX => {
                Some(RetryDenied::RetryAfter(hint))
            }
            Some(hint) if !fits(hint) => Some(RetryDenied::Deadline),
            Some(_) | None => None,
        };
        prop_assert_eq!(decide(&policy, &facts.attempt()).denied(), denied);
    }
}

#[test]
fn only_two_states_of_a_body_deny() {
    let (request, ()) = Request::get("/").body(()).unwrap().into_parts();
    let (busy, ()) = Response::builder()
        .status(503)
        .body(())
        .unwrap()
        .into_parts();
    for (state, denied) in [
        (BodyState::Empty, false),
        (BodyState::Replayable, false),
        (BodyState::Reopenable, false),
        (BodyState::Untouched, false),
        (BodyState::Consumed, true),
        (BodyState::Overflowed, true),
    ] {
        let facts = Facts::response(&request, &busy).body_state(state);
        let verdict = decide(&StandardPolicy::default(), &facts.attempt());
        let reason = denied.then_some(RetryDenied::BodyNotReplayable(state));
        assert_eq!(verdict.denied(), reason);
    }
}
