//! The status and failure rules of `StandardPolicy`, row by row.

use std::num::NonZeroU32;

use http::{StatusCode, request};
use tower_http_retry::{
    Decision, Execution, Facts, Failure, FailureKind, Idempotency, IoFailures, RetryDenied, Rule,
    StandardPolicy, Upstream, Verdict,
};

use crate::{TRANSIENT, answered, get, judge, post};

/// The verdict of the default on the first attempt.
fn on(request: &request::Parts, status: u16) -> Verdict {
    judge(
        &StandardPolicy::default(),
        Facts::response(request, &answered(status)),
    )
}

const ALL: [Idempotency; 4] = [
    Idempotency::Safe,
    Idempotency::Idempotent,
    Idempotency::Keyed,
    Idempotency::NonIdempotent,
];

/// Every three-digit status, for an operation that may be repeated and for one that may not.
#[test]
fn every_status_has_its_row() {
    for status in 100..=999 {
        let [safe, unsafe_] = [get(), post()].map(|request| on(&request, status).decision());
        let code = StatusCode::from_u16(status).unwrap();
        let denied = Decision::Denied(RetryDenied::Status(code));
        let expected = match status {
            100..=399 => (Decision::Accept, Decision::Accept),
            408 | 425 | 429 => (Decision::Retry, Decision::Retry),
            502..=504 => (Decision::Retry, Decision::Ambiguous),
            401 => {
                let denied = Decision::Denied(RetryDenied::Unauthorized);
                (denied, denied)
            }
            _ => (denied, denied),
        };
        assert_eq!((safe, unsafe_), expected, "{status}");
    }
}

#[test]
fn a_425_is_replayed_after_the_first_attempt_alone() {
    let policy = StandardPolicy::default();
    let early = answered(425);
    for number in 1..3 {
        let number = NonZeroU32::new(number).unwrap();
        let request = post();
        let verdict = judge(
            &policy,
            Facts::response(&request, &early).attempt_number(number),
        );
        let expected = match number.get() {
            1 => Decision::Retry,
            _ => Decision::Denied(RetryDenied::TooEarly),
        };
        assert_eq!(verdict.decision(), expected, "attempt {number}");
    }
    // RFC 8470 §5.1: whatever its value, it counts as 1.
    for value in ["1", "0", "?1", ""] {
        let mut request = get();
        request.headers.insert("early-data", value.parse().unwrap());
        assert_eq!(
            on(&request, 425).denied(),
            Some(RetryDenied::TooEarly),
            "{value}"
        );
    }
}

#[test]
fn a_401_is_refreshed_where_the_operation_is_safe_and_a_credential_is_to_be_had() {
    let policy = StandardPolicy::default();
    let (request, refused) = (post(), answered(401));
    for idempotency in ALL {
        let facts = Facts::response(&request, &refused).idempotency(idempotency);
        let expected = match idempotency.is_safely_idempotent() {
            true => Decision::Refresh,
            false => Decision::Denied(RetryDenied::Unauthorized),
        };
        assert_eq!(
            judge(&policy, facts.refresh_available()).decision(),
            expected
        );
        assert_eq!(
            judge(&policy, facts).denied(),
            Some(RetryDenied::Unauthorized)
        );
        assert_eq!(judge(&policy, facts).execution(), Execution::NotExecuted);
    }
}

#[test]
fn a_409_is_retried_where_our_own_first_attempt_may_still_run_under_the_key() {
    let policy = StandardPolicy::default();
    let (request, conflict) = (post(), answered(409));
    for idempotency in ALL {
        let facts = Facts::response(&request, &conflict).idempotency(idempotency);
        let denied = Decision::Denied(RetryDenied::Status(StatusCode::CONFLICT));
        assert_eq!(judge(&policy, facts).decision(), denied);
        let expected = match idempotency {
            Idempotency::Keyed => Decision::Retry,
            Idempotency::Safe | Idempotency::Idempotent | Idempotency::NonIdempotent => denied,
        };
        assert_eq!(judge(&policy, facts.prior_unknown()).decision(), expected);
    }
}

#[test]
fn a_500_is_retried_where_it_is_registered_and_the_operation_is_safe() {
    let transient = Upstream::new().transient_500();
    let registered = StandardPolicy::builder()
        .default_upstream(transient)
        .build()
        .unwrap();
    let (request, broken) = (post(), answered(500));
    for idempotency in ALL {
        let facts = Facts::response(&request, &broken).idempotency(idempotency);
        let denied = Decision::Denied(RetryDenied::Status(StatusCode::INTERNAL_SERVER_ERROR));
        assert_eq!(judge(&StandardPolicy::default(), facts).decision(), denied);
        let verdict = judge(&registered, facts);
        let expected = match idempotency.is_safely_idempotent() {
            true => Decision::Retry,
            false => denied,
        };
        assert_eq!(verdict.decision(), expected);
        assert_eq!(verdict.execution(), Execution::Answered);
        assert!(!verdict.is_ambiguous());
    }
}

#[test]
fn what_a_status_says_about_the_execution() {
    for status in 100..=999 {
        let expected = match status {
            502..=504 => Execution::Unknown,
            401 | 408 | 425 | 429 => Execution::NotExecuted,
            _ => Execution::Answered,
        };
        assert_eq!(on(&post(), status).execution(), expected, "{status}");
    }
}

/// By evidence and kind, for an operation that may be repeated and for one that may not.
#[test]
fn every_failure_has_its_row() {
    let again = Decision::Retry;
    let permanent = FailureKind::InvalidRequest;
    let denied = |kind| Decision::Denied(RetryDenied::Failure(kind));
    let stopped = Decision::Denied(RetryDenied::PermanentFailure(permanent));
    let policy = StandardPolicy::default();
    for (failure, safe, unsafe_) in [
        (Failure::not_sent(TRANSIENT), again, again),
        (
            Failure::sent_no_response(TRANSIENT),
            again,
            Decision::Ambiguous,
        ),
        (
            Failure::response_received(TRANSIENT),
            again,
            denied(TRANSIENT),
        ),
        (
            Failure::partial_response(TRANSIENT),
            again,
            Decision::Denied(RetryDenied::NotIdempotent),
        ),
        (Failure::not_sent(permanent), stopped, stopped),
        (Failure::sent_no_response(permanent), stopped, stopped),
    ] {
        let requests = [get(), post()];
        let [of_get, of_post] = requests
            .each_ref()
            .map(|request| judge(&policy, Facts::failure(request, &failure)));
        assert_eq!(
            (of_get.decision(), of_post.decision()),
            (safe, unsafe_),
            "{failure}"
        );
        // Nobody saw an answer: it is ambiguous for whoever may not repeat it.
        let unknown = failure.evidence() != tower_http_retry::Evidence::NotSent;
        assert!(!of_get.is_ambiguous());
        assert_eq!(of_post.is_ambiguous(), unknown, "{failure}");
    }
}

#[test]
fn a_broken_answer_is_repeated_where_the_operation_is_safe() {
    let policy = StandardPolicy::default();
    for head in [&answered(200), &answered(206)] {
        for (failure, reason) in [
            (
                Failure::response_received(TRANSIENT),
                RetryDenied::Failure(TRANSIENT),
            ),
            (
                Failure::partial_response(TRANSIENT),
                RetryDenied::NotIdempotent,
            ),
        ] {
            let (get, post) = (get(), post());
            let safe = judge(&policy, Facts::response(&get, head).partial(&failure));
            assert_eq!(safe.decision(), Decision::Retry);
            let unsafe_ = judge(&policy, Facts::response(&post, head).partial(&failure));
            assert_eq!(unsafe_.denied(), Some(reason));
            // The status tells that it was executed.
            assert_eq!(unsafe_.execution(), Execution::Answered);
        }
    }
}

/// Whether or not the body of an error arrives, its status says the same.
#[test]
fn where_the_answer_to_an_error_breaks_the_status_rules() {
    let policy = StandardPolicy::default();
    let cut = Failure::partial_response(TRANSIENT);
    for status in 400..=999 {
        let response = answered(status);
        for request in [get(), post()] {
            let whole = Facts::response(&request, &response);
            assert_eq!(
                judge(&policy, whole),
                judge(&policy, whole.partial(&cut)),
                "{status}"
            );
        }
    }
}

#[test]
fn failures_are_not_retried_where_that_is_turned_off() {
    let policy = StandardPolicy::builder()
        .io_failures(IoFailures::Deny)
        .build()
        .unwrap();
    let (get, post) = (get(), post());
    let refused = Failure::not_sent(FailureKind::Connect);
    let reset = Failure::sent_no_response(TRANSIENT);
    let denied = |request, failure| judge(&policy, Facts::failure(request, failure)).denied();
    assert_eq!(
        denied(&post, &refused),
        Some(RetryDenied::Failure(FailureKind::Connect))
    );
    assert_eq!(denied(&get, &reset), Some(RetryDenied::Failure(TRANSIENT)));
    // What is not known stays unknown.
    let verdict = judge(&policy, Facts::failure(&post, &reset));
    assert_eq!(verdict.decision(), Decision::Ambiguous);
    // Statuses are another matter.
    let busy = answered(503);
    let verdict = judge(&policy, Facts::response(&get, &busy));
    assert_eq!(verdict.decision(), Decision::Retry);
}

#[test]
fn retryable_statuses_keep_the_conditions_of_the_table() {
    let listed = [404, 409, 425, 500, 503].map(|status| StatusCode::from_u16(status).unwrap());
    let policy = StandardPolicy::builder()
        .retryable_statuses(listed)
        .build()
        .unwrap();
    let (get, post) = (get(), post());
    let again = |request, status| {
        let decision = judge(&policy, Facts::response(request, &answered(status))).decision();
        decision == Decision::Retry
    };
    for status in 400..=599 {
        let listed = [404, 409, 425, 500, 503].contains(&status);
        assert_eq!(again(&get, status), listed, "{status}");
        assert_eq!(again(&post, status), status == 425, "{status}");
    }
    // A gateway's answer to a POST stays ambiguous, listed or not.
    for status in 502..=504 {
        let verdict = judge(&policy, Facts::response(&post, &answered(status)));
        assert_eq!(verdict.decision(), Decision::Ambiguous);
    }
    let early = answered(425);
    let second = Facts::response(&get, &early).attempt_number(NonZeroU32::new(2).unwrap());
    assert_eq!(judge(&policy, second).denied(), Some(RetryDenied::TooEarly));
}

/// Asked before the table, about answers too, and with the bytes of the body where they are there.
#[test]
fn a_rule_of_the_callers_comes_first() {
    let policy = StandardPolicy::builder()
        .rule(|attempt| match attempt.status()?.as_u16() {
            200 if attempt.body()?.starts_with(b"{\"errors\"") => Some(Rule::Retry),
            404 => Some(Rule::Accept),
            _ => None,
        })
        .build()
        .unwrap();
    let request = get();
    let [ok, missing, busy] = [200, 404, 503].map(answered);
    let decision = |facts| judge(&policy, facts).decision();
    let facts = Facts::response(&request, &ok);
    assert_eq!(decision(facts), Decision::Accept);
    assert_eq!(
        decision(facts.response_body(b"{\"errors\":[]}")),
        Decision::Retry
    );
    assert_eq!(
        decision(facts.response_body(b"{\"data\":{}}")),
        Decision::Accept
    );
    assert_eq!(
        decision(Facts::response(&request, &missing)),
        Decision::Accept
    );
    assert_eq!(decision(Facts::response(&request, &busy)), Decision::Retry);
}
