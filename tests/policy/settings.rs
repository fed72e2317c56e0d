//! `StandardPolicy` as it is set up: presets, every knob, wrong values.

use std::num::NonZeroU32;
use std::time::Duration;

use http::{Method, StatusCode, request};
use tower_http_retry::{
    AmbiguousResponses, Backoff, Decision, Facts, Failure, FailureKind, Idempotency,
    IdempotentMethods, IoFailures, Policy, RetryAfterHints, RetryDenied, StandardPolicy, decide,
};

use crate::answered;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn head(method: Method) -> request::Parts {
    crate::head(method, "/")
}

fn statuses(policy: &StandardPolicy) -> Vec<u16> {
    policy
        .retryable_statuses()
        .map(|status| status.as_u16())
        .collect()
}

/// The longest wait after an attempt.
fn longest(policy: &StandardPolicy, facts: Facts<'_>) -> Duration {
    let attempt = facts.attempt_for(policy);
    assert_eq!(
        policy.backoff(&attempt, Duration::ZERO, 0.0),
        attempt.retry_after().unwrap_or_default()
    );
    policy.backoff(&attempt, Duration::ZERO, 1.0)
}

#[test]
fn the_default_is_three_attempts_at_the_table() {
    let policy = StandardPolicy::default();
    assert_eq!(policy.retries(), 2);
    assert_eq!(policy.max_attempts(&head(Method::GET)).get(), 3);
    assert_eq!(
        (policy.base_delay(), policy.max_delay()),
        (ms(50), ms(20_000))
    );
    assert_eq!(Policy::max_retry_after(&policy), ms(20_000));
    assert_eq!(statuses(&policy), [408, 425, 429, 502, 503, 504]);
    assert_eq!(policy.io_failures(), IoFailures::Retry);
    assert_eq!(policy.retry_after_hints(), RetryAfterHints::Honour);
    assert_eq!(policy.idempotent_methods(), IdempotentMethods::Rfc9110);
    assert_eq!(
        policy.ambiguous_responses(&head(Method::POST)),
        AmbiguousResponses::Reject
    );
    assert_eq!(policy.generated_key(&head(Method::POST)), None);
}

#[test]
fn the_conventional_policy_is_the_one_of_the_sdks() {
    let policy = StandardPolicy::conventional();
    assert_eq!(policy.retries(), 3);
    assert_eq!(policy.max_attempts(&head(Method::GET)).get(), 4);
    assert_eq!(
        (policy.base_delay(), policy.max_delay()),
        (ms(500), ms(20_000))
    );
    assert_eq!(Policy::max_retry_after(&policy), ms(20_000));
    assert_eq!(statuses(&policy), [429, 500, 502, 503, 504]);
    assert_eq!(policy.io_failures(), IoFailures::Retry);
    assert_eq!(policy.retry_after_hints(), RetryAfterHints::Honour);
    assert_eq!(
        policy.idempotent_methods(),
        IdempotentMethods::AllButPostAndPatch
    );
    assert_eq!(
        policy.ambiguous_responses(&head(Method::POST)),
        AmbiguousResponses::Deliver
    );
    // One base for all answers, also where it is another one.
    let (get, busy) = (head(Method::GET), answered(503));
    let facts = Facts::response(&get, &busy);
    assert_eq!(longest(&policy, facts), ms(500));
    let faster = policy.to_builder().base_delay(ms(10)).build().unwrap();
    assert_eq!(longest(&faster, facts), ms(10));

    let retried = |method: Method, status| {
        let (request, response) = (head(method), answered(status));
        let facts = Facts::response(&request, &response);
        decide(&policy, &facts.attempt_for(&policy)).decision() == Decision::Retry
    };
    for status in 400..=599 {
        let listed = [429, 500, 502, 503, 504].contains(&status);
        assert_eq!(retried(Method::GET, status), listed, "{status}");
        assert_eq!(retried(Method::CONNECT, status), listed, "{status}");
        for method in [Method::POST, Method::PATCH] {
            assert_eq!(retried(method, status), status == 429, "{status}");
        }
    }
}

/// The nine steps stand in front of it as of any policy.
#[test]
fn the_conventional_policy_cannot_repeat_what_may_have_been_executed() {
    let policy = StandardPolicy::conventional();
    let post = head(Method::POST);
    let reset = Failure::sent_no_response(FailureKind::Reset);
    let attempt = Facts::failure(&post, &reset).attempt_for(&policy);
    assert_eq!(decide(&policy, &attempt).decision(), Decision::Ambiguous);
    let refused = Failure::not_sent(FailureKind::Connect);
    let attempt = Facts::failure(&post, &refused).attempt_for(&policy);
    assert_eq!(decide(&policy, &attempt).decision(), Decision::Retry);
}

#[test]
fn all_methods_is_a_promise_that_leaves_nothing_ambiguous() {
    let policy = StandardPolicy::conventional()
        .to_builder()
        .idempotent_methods(IdempotentMethods::All)
        .build()
        .unwrap();
    let post = head(Method::POST);
    let reset = Failure::sent_no_response(FailureKind::Reset);
    let facts = Facts::failure(&post, &reset);
    assert_eq!(
        decide(&policy, &facts.attempt_for(&policy)).decision(),
        Decision::Retry
    );
    let last = facts.attempt_number(NonZeroU32::new(4).unwrap());
    let verdict = decide(&policy, &last.attempt_for(&policy));
    assert_eq!(verdict.denied(), Some(RetryDenied::MaxAttempts));
    assert!(!verdict.is_ambiguous());
    // What is declared is not promised away.
    let declared = facts.idempotency(Idempotency::NonIdempotent);
    let verdict = decide(&policy, &declared.attempt_for(&policy));
    assert_eq!(verdict.decision(), Decision::Ambiguous);
}

#[test]
fn none_never_retries_and_still_tells_what_is_ambiguous() {
    let policy = StandardPolicy::none();
    assert_eq!(policy.max_attempts(&head(Method::GET)).get(), 1);
    let (get, post) = (head(Method::GET), head(Method::POST));
    let refused = Failure::not_sent(FailureKind::Connect);
    let verdict = decide(
        &policy,
        &Facts::failure(&get, &refused).attempt_for(&policy),
    );
    assert_eq!(verdict.denied(), Some(RetryDenied::MaxAttempts));
    let busy = answered(503);
    let verdict = decide(&policy, &Facts::response(&post, &busy).attempt_for(&policy));
    assert!(verdict.is_ambiguous());
}

#[test]
fn the_blank_builder_sets_nothing() {
    let blank = StandardPolicy::blank_builder().build().unwrap();
    assert_eq!(blank.retries(), 0);
    assert_eq!(statuses(&blank), [0; 0]);
    assert_eq!(blank.io_failures(), IoFailures::Deny);

    // Step by step it becomes a policy.
    let policy = StandardPolicy::blank_builder()
        .retries(1)
        .retryable_statuses([StatusCode::SERVICE_UNAVAILABLE])
        .build()
        .unwrap();
    let get = head(Method::GET);
    let decision = |facts: Facts<'_>| decide(&policy, &facts.attempt_for(&policy)).decision();
    let [busy, throttled] = [503, 429].map(answered);
    assert_eq!(decision(Facts::response(&get, &busy)), Decision::Retry);
    let denied = Decision::Denied(RetryDenied::Status(StatusCode::TOO_MANY_REQUESTS));
    assert_eq!(decision(Facts::response(&get, &throttled)), denied);
    let refused = Failure::not_sent(FailureKind::Connect);
    let denied = Decision::Denied(RetryDenied::Failure(FailureKind::Connect));
    assert_eq!(decision(Facts::failure(&get, &refused)), denied);
}

#[test]
fn every_knob_is_read_back() {
    let listed = [503, 429, 503].map(|status| StatusCode::from_u16(status).unwrap());
    let policy = StandardPolicy::builder()
        .retries(7)
        .backoff(Backoff::exponential(ms(5), ms(400)))
        .max_retry_after(ms(90_000))
        .retryable_statuses(listed)
        .io_failures(IoFailures::Deny)
        .retry_after_hints(RetryAfterHints::Ignore)
        .idempotent_methods(IdempotentMethods::All)
        .ambiguous_responses(AmbiguousResponses::Deliver)
        .build()
        .unwrap();
    let read = |policy: &StandardPolicy| {
        assert_eq!(policy.retries(), 7);
        assert_eq!((policy.base_delay(), policy.max_delay()), (ms(5), ms(400)));
        assert_eq!(Policy::max_retry_after(policy), ms(90_000));
        assert_eq!(statuses(policy), [429, 503], "in order, each once");
        assert_eq!(policy.io_failures(), IoFailures::Deny);
        assert_eq!(policy.retry_after_hints(), RetryAfterHints::Ignore);
        assert_eq!(policy.idempotent_methods(), IdempotentMethods::All);
        assert_eq!(
            policy.ambiguous_responses(&head(Method::POST)),
            AmbiguousResponses::Deliver
        );
    };
    read(&policy);
    read(&policy.to_builder().build().unwrap());
    // Without its own limit, the longest hint is the longest wait.
    let policy = StandardPolicy::builder()
        .max_delay(ms(300))
        .build()
        .unwrap();
    assert_eq!(Policy::max_retry_after(&policy), ms(300));
    assert_eq!(
        StandardPolicy::builder()
            .retries(u32::MAX)
            .build()
            .unwrap()
            .max_attempts(&head(Method::GET)),
        NonZeroU32::MAX
    );
}

#[test]
fn the_two_delays_change_the_backoff_whichever_comes_first() {
    let backoff = Backoff::exponential(ms(5), ms(400)).without_jitter();
    for builder in [
        StandardPolicy::builder()
            .backoff(backoff)
            .base_delay(ms(7))
            .max_delay(ms(20)),
        StandardPolicy::builder()
            .max_delay(ms(20))
            .base_delay(ms(7))
            .backoff(backoff),
    ] {
        let policy = builder.build().unwrap();
        assert_eq!((policy.base_delay(), policy.max_delay()), (ms(7), ms(20)));
        let (get, bad) = (head(Method::GET), answered(502));
        let waits = [1, 2, 3].map(|number| {
            let facts =
                Facts::response(&get, &bad).attempt_number(NonZeroU32::new(number).unwrap());
            policy.backoff(&facts.attempt(), Duration::ZERO, 0.0)
        });
        assert_eq!(waits, [ms(7), ms(14), ms(20)]);
    }
}

#[test]
fn what_a_wait_depends_on() {
    let policy = StandardPolicy::default();
    let get = head(Method::GET);
    let reset = Failure::sent_no_response(FailureKind::Reset);
    assert_eq!(longest(&policy, Facts::failure(&get, &reset)), ms(50));
    for (status, without, with) in [
        // A hint of 2 s, and half of it on top.
        (408, ms(50), ms(3_000)),
        (502, ms(50), ms(3_000)),
        // Throttled: from 1 s, where the server names no time.
        (429, ms(1_000), ms(3_000)),
        (503, ms(1_000), ms(3_000)),
        // A replay waits for nothing but a hint.
        (401, Duration::ZERO, ms(3_000)),
        (425, Duration::ZERO, ms(3_000)),
    ] {
        let response = answered(status);
        let facts = Facts::response(&get, &response);
        assert_eq!(longest(&policy, facts), without, "{status}");
        assert_eq!(
            longest(&policy, facts.retry_after(ms(2_000))),
            with,
            "{status}"
        );
        // Now: the ordinary wait, where there is one.
        let now = longest(&policy, facts.retry_after(Duration::ZERO));
        assert_eq!(now, without.min(ms(50)), "{status}");
    }
    let deaf = StandardPolicy::builder()
        .retry_after_hints(RetryAfterHints::Ignore)
        .build()
        .unwrap();
    let busy = answered(503);
    let attempt = Facts::response(&get, &busy)
        .retry_after(ms(60_000))
        .attempt();
    assert_eq!(deaf.backoff(&attempt, Duration::ZERO, 1.0), ms(1_000));
    assert_eq!(decide(&deaf, &attempt).decision(), Decision::Retry);
}

#[test]
fn a_table_can_be_asked_without_an_attempt() {
    let policy = StandardPolicy::default();
    let [get, put, post] = [Method::GET, Method::PUT, Method::POST];
    for status in 100..=999 {
        let status = StatusCode::from_u16(status).unwrap();
        let listed = matches!(status.as_u16(), 408 | 425 | 429 | 502 | 503 | 504);
        let refused = matches!(status.as_u16(), 408 | 425 | 429);
        assert_eq!(policy.is_retryable_status(status), listed, "{status}");
        assert_eq!(policy.is_retryable(status, None), listed, "{status}");
        assert_eq!(policy.is_retryable(status, Some(&get)), listed, "{status}");
        assert_eq!(policy.is_retryable(status, Some(&put)), listed, "{status}");
        assert_eq!(
            policy.is_retryable(status, Some(&post)),
            refused,
            "{status}"
        );
    }
    assert!(policy.is_retryable_method(None));
    assert!(policy.is_retryable_method(Some(&put)));
    assert!(!policy.is_retryable_method(Some(&post)));
    assert!(!policy.is_retryable_method(Some(&Method::CONNECT)));
    assert!(StandardPolicy::conventional().is_retryable_method(Some(&Method::CONNECT)));
    assert!(!StandardPolicy::conventional().is_retryable_method(Some(&Method::PATCH)));
}

#[test]
fn wrong_settings_are_named_with_their_value() {
    for (builder, setting, value) in [
        (
            StandardPolicy::builder().base_delay(ms(20_001)),
            "base_delay",
            "20.001s",
        ),
        (
            StandardPolicy::builder().max_delay(ms(49)),
            "base_delay",
            "50ms",
        ),
        (
            StandardPolicy::builder().backoff(Backoff::exponential(ms(2), ms(1))),
            "base_delay",
            "2ms",
        ),
        (
            StandardPolicy::builder().retryable_statuses([StatusCode::BAD_GATEWAY, StatusCode::OK]),
            "retryable_statuses",
            "200",
        ),
        (
            StandardPolicy::builder()
                .retryable_statuses([StatusCode::from_u16(399).unwrap(), StatusCode::BAD_REQUEST]),
            "retryable_statuses",
            "399",
        ),
    ] {
        let error = builder.build().unwrap_err();
        assert_eq!((error.setting(), error.value()), (setting, value));
        assert!(error.to_string().contains(setting) && error.to_string().contains(value));
    }
    // Equal is not above, and every time has a meaning.
    let builder = StandardPolicy::builder;
    for builder in [
        builder().base_delay(ms(20_000)),
        builder()
            .base_delay(Duration::ZERO)
            .max_delay(Duration::ZERO),
        builder().max_delay(Duration::MAX).base_delay(Duration::MAX),
        builder().max_retry_after(Duration::ZERO),
        builder().retryable_statuses([StatusCode::BAD_REQUEST]),
        builder().retryable_statuses([]),
    ] {
        builder.build().unwrap();
    }
}

/// Enough to see in a log how a layer was set up.
#[test]
fn a_policy_prints_its_settings() {
    let builder = StandardPolicy::builder().retries(7).rule(|_| None);
    let settings = "max_retry_after: None, retryable_statuses: [408, 425, 429, 502, 503, 504], \
                    io_failures: Retry, retry_after_hints: Honour, idempotent_methods: Rfc9110, \
                    preconditions: Ignore, ambiguous_responses: Reject, upstreams: {}, \
                    default_upstream: Upstream { transient_500: false, honours_idempotency_key: \
                    false, generates_key: None, refusal_headers: [], stop_headers: [] }, rule: \
                    true, idempotency: false }";
    let printed = format!("{builder:?}");
    assert!(
        printed
            .starts_with("StandardPolicyBuilder { base_delay: None, max_delay: None, retries: 7, ")
    );
    assert!(printed.ends_with(settings), "{printed}");
    let printed = format!("{:?}", builder.build().unwrap());
    assert!(
        printed.starts_with("StandardPolicy { retries: 7, backoff: Backoff {"),
        "{printed}"
    );
    assert!(printed.ends_with(settings), "{printed}");
}
