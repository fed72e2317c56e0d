//! Evidence, failures, attempts.

use std::num::NonZeroU32;
use std::time::Duration;

use http::{StatusCode, request, response};
use tower_http_retry::*;

/// Exhaustive, as are the next two.
fn evidence(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::NotSent => "NOT_SENT",
        Evidence::SentNoResponse => "SENT_NO_RESPONSE",
        Evidence::ResponseReceived => "RESPONSE_RECEIVED",
        Evidence::PartialResponse => "PARTIAL_RESPONSE",
    }
}

fn execution(execution: Execution) {
    match execution {
        Execution::NotExecuted | Execution::Answered | Execution::Unknown => {}
    }
}

fn idempotency(idempotency: Idempotency) -> bool {
    let _: fn(&http::Method) -> Idempotency = Idempotency::of_method;
    match idempotency {
        Idempotency::Safe | Idempotency::Idempotent | Idempotency::Keyed => true,
        Idempotency::NonIdempotent => idempotency.is_safely_idempotent(),
    }
}

fn failures(kind: FailureKind) -> [Failure; 4] {
    [
        Failure::not_sent(kind),
        Failure::sent_no_response(kind),
        Failure::response_received(kind),
        Failure::partial_response(kind),
    ]
}

const KINDS: [FailureKind; 23] = [
    FailureKind::Dns,
    FailureKind::Connect,
    FailureKind::ConnectTimeout,
    FailureKind::PoolTimeout,
    FailureKind::Tls,
    FailureKind::Certificate,
    FailureKind::StreamRefused,
    FailureKind::GoAway,
    FailureKind::Closed,
    FailureKind::Reset,
    FailureKind::Truncated,
    FailureKind::ResponseTimeout,
    FailureKind::DeadlineReached,
    FailureKind::Protocol,
    FailureKind::Rejected,
    FailureKind::InvalidRequest,
    FailureKind::RequestBody,
    FailureKind::BodyChanged,
    FailureKind::RedirectLoop,
    FailureKind::LocalOverload,
    FailureKind::AlreadyRetried,
    FailureKind::Readiness,
    FailureKind::Unknown,
];

#[test]
fn what_is_permanent_is_part_of_the_contract() {
    let permanent: Vec<_> = KINDS
        .into_iter()
        .filter(|kind| kind.is_permanent())
        .collect();
    assert_eq!(
        permanent,
        [
            FailureKind::Certificate,
            FailureKind::Protocol,
            FailureKind::Rejected,
            FailureKind::InvalidRequest,
            FailureKind::RequestBody,
            FailureKind::BodyChanged,
            FailureKind::RedirectLoop,
            FailureKind::LocalOverload,
            FailureKind::AlreadyRetried,
        ]
    );
}

#[test]
fn evidence_prints_as_named() {
    for failure in failures(FailureKind::Reset) {
        assert_eq!(failure.evidence().to_string(), evidence(failure.evidence()));
    }
}

/// A classifier by hand, and its argument.
struct Mine;

impl Classify for Mine {
    fn classify(&self, failed: &FailedAttempt<'_>) -> Option<Failure> {
        let _: Option<&(dyn std::error::Error + 'static)> = failed.error();
        let _: BodyTrace = failed.body();
        match failed.phase() {
            Phase::Ready => Some(Failure::not_sent(FailureKind::PoolTimeout)),
            Phase::Call | Phase::Body => None,
            _ => None,
        }
    }
}

fn failed(error: Option<&(dyn std::error::Error + 'static)>) -> bool {
    let trace = BodyTrace::default()
        .with_reached_client()
        .with_consulted()
        .with_polled()
        .with_ended()
        .with_failed()
        .with_dropped();
    let attempt = FailedAttempt::new(Phase::Call, error, trace);
    let copy = attempt;
    let body = (copy, attempt).1.body();
    body.reached_client()
        && body.consulted()
        && body.polled()
        && body.ended()
        && body.failed()
        && body.dropped()
}

fn stated(failure: Failure) -> Failure {
    let error = EvidenceError::new(failure, "pool timeout");
    let _: &dyn std::error::Error = &error;
    let failure: &Failure = &error.failure().clone();
    let _: FailureKind = failure.kind();
    *failure
}

/// Exhaustive.
fn outcome<'a>(outcome: Outcome<'a>) -> Option<&'a response::Parts> {
    match outcome {
        Outcome::Response(head) | Outcome::Broken(head, _) => Some(head),
        Outcome::Failure(_) => None,
    }
}

fn asked<'a>(attempt: Attempt<'a>) {
    let _: NonZeroU32 = attempt.number();
    let _: NonZeroU32 = attempt.max_attempts();
    let _: &'a request::Parts = attempt.request();
    let _: Outcome<'a> = attempt.outcome();
    let _: Option<&'a response::Parts> = attempt.response();
    let _: Option<StatusCode> = attempt.status();
    let _: Option<&'a Failure> = attempt.failure();
    let _: Evidence = attempt.evidence();
    let _: Idempotency = attempt.idempotency();
    let _: Replayability = attempt.replayability();
    let _: BodyState = attempt.body_state();
    let _: [bool; 5] = [
        attempt.is_budget_empty(),
        attempt.is_delivered(),
        attempt.is_draining(),
        attempt.can_refresh(),
        attempt.prior_unknown(),
    ];
    let _: Option<Duration> = attempt.remaining();
    let _: Duration = attempt.min_attempt();
    let _: Option<Duration> = attempt.retry_after();
    let _: Option<&'a [u8]> = attempt.body();
}

fn by_hand<'a, P: Policy + ?Sized>(
    request: &'a request::Parts,
    response: &'a response::Parts,
    failure: &'a Failure,
    policy: &P,
) -> [Attempt<'a>; 2] {
    let facts = Facts::response(request, response)
        .attempt_number(NonZeroU32::MIN)
        .max_attempts(NonZeroU32::MIN)
        .idempotency(Idempotency::Keyed)
        .replayability(Replayability::OneShot)
        .body_state(BodyState::Untouched)
        .budget_empty()
        .delivered()
        .draining()
        .refresh_available()
        .prior_unknown()
        .remaining(Duration::ZERO)
        .min_attempt(Duration::ZERO)
        .retry_after(Duration::ZERO)
        .response_body(b"body")
        .partial(failure);
    [
        facts.attempt(),
        Facts::failure(request, failure).attempt_for(policy),
    ]
}
