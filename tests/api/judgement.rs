//! Policies, verdicts, backoff.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, request};
use tower_http_retry::*;

/// Only `rule` is required.
struct Least;

impl Policy for Least {
    fn rule(&self, _: &Attempt<'_>) -> Rule {
        Rule::Accept
    }
}

/// All of it.
struct Most(StandardPolicy);

impl Policy for Most {
    fn rule(&self, attempt: &Attempt<'_>) -> Rule {
        // Exhaustive.
        match self.0.rule(attempt) {
            Rule::Accept | Rule::Retry | Rule::Refresh | Rule::Deny => Rule::Deny,
            Rule::Ambiguous => Rule::Ambiguous,
        }
    }
    fn defaults(&self) -> &StandardPolicy {
        &self.0
    }
    fn max_attempts(&self, request: &request::Parts) -> NonZeroU32 {
        self.0.max_attempts(request)
    }
    fn idempotency(&self, request: &request::Parts) -> Idempotency {
        self.0.idempotency(request)
    }
    fn execution(&self, attempt: &Attempt<'_>) -> Execution {
        self.0.execution(attempt)
    }
    fn backoff(&self, attempt: &Attempt<'_>, previous: Duration, random: f64) -> Duration {
        self.0.backoff(attempt, previous, random)
    }
    fn max_retry_after(&self) -> Duration {
        self.0.max_retry_after()
    }
    fn ambiguous_responses(&self, _: &request::Parts) -> AmbiguousResponses {
        AmbiguousResponses::Reject
    }
    fn generated_key(&self, request: &request::Parts) -> Option<HeaderName> {
        self.0.generated_key(request)
    }
}

fn judged<P: Policy + ?Sized>(policy: &P, attempt: &Attempt<'_>) -> String {
    let verdict: Verdict = decide(policy, attempt);
    let _: Rule = verdict.rule();
    let _: Execution = verdict.execution();
    let _: bool = verdict.is_ambiguous();
    let _: Option<RetryDenied> = verdict.denied();
    let _: Option<Step> = verdict.step();
    // Exhaustive.
    match verdict.decision() {
        Decision::Accept | Decision::Retry | Decision::Refresh | Decision::Ambiguous => {
            verdict.to_string()
        }
        Decision::Denied(reason) => reason.to_string(),
    }
}

#[test]
fn the_steps_are_numbered() {
    let steps = [
        Step::Attempts,
        Step::Budget,
        Step::Body,
        Step::Delivered,
        Step::Draining,
        Step::Deadline,
        Step::Permanent,
        Step::Ambiguous,
        Step::Rule,
    ];
    assert!(steps.is_sorted());
    assert_eq!(steps.map(|step| step as u8), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

fn reasons() -> [RetryDenied; 13] {
    [
        RetryDenied::MaxAttempts,
        RetryDenied::BudgetExhausted,
        RetryDenied::BodyNotReplayable(BodyState::Consumed),
        RetryDenied::ResponseAlreadyDelivered,
        RetryDenied::RuntimeDraining,
        RetryDenied::Deadline,
        RetryDenied::PermanentFailure(FailureKind::Protocol),
        RetryDenied::RetryAfter(Duration::MAX),
        RetryDenied::NotIdempotent,
        RetryDenied::Status(StatusCode::NOT_FOUND),
        RetryDenied::TooEarly,
        RetryDenied::Unauthorized,
        RetryDenied::Failure(FailureKind::Reset),
    ]
}

fn built() -> Result<StandardPolicy, ConfigError> {
    let _ = [
        StandardPolicy::none(),
        StandardPolicy::conventional(),
        StandardPolicy::default(),
    ];
    let _ = StandardPolicy::blank_builder().clone();
    let upstream = Upstream::new()
        .transient_500()
        .honours_idempotency_key()
        .generates_key(HeaderName::from_static("idempotency-key"))
        .refusal_header(
            HeaderName::from_static("x-refused"),
            HeaderValue::from_static("1"),
        )
        .stop_header(
            HeaderName::from_static("x-stop"),
            HeaderValue::from_static("1"),
        );
    StandardPolicy::builder()
        .retries(2)
        .backoff(Backoff::default())
        .base_delay(Duration::from_millis(50))
        .max_delay(Duration::from_secs(20))
        .max_retry_after(Duration::from_secs(20))
        .retryable_statuses([StatusCode::BAD_GATEWAY])
        .io_failures(IoFailures::Deny)
        .retry_after_hints(RetryAfterHints::Ignore)
        .idempotent_methods(IdempotentMethods::AllButPostAndPatch)
        .idempotent_methods(IdempotentMethods::All)
        .preconditions(Preconditions::Trust)
        .ambiguous_responses(AmbiguousResponses::Deliver)
        .upstream(UpstreamKey::new("stock"), upstream.clone())
        .default_upstream(upstream)
        // The arguments' types are inferred here.
        .rule(|attempt| attempt.failure().map(|_| Rule::Deny))
        .idempotency(|request| (request.method == Method::GET).then_some(Idempotency::Safe))
        .build()
}

fn asked(policy: &StandardPolicy) -> StandardPolicyBuilder {
    let _: [bool; 3] = [
        policy.is_retryable(StatusCode::BAD_GATEWAY, None),
        policy.is_retryable_method(Some(&Method::GET)),
        policy.is_retryable_status(StatusCode::BAD_GATEWAY),
    ];
    let _: u32 = policy.retries();
    let _: [Duration; 2] = [policy.base_delay(), policy.max_delay()];
    let _: Vec<StatusCode> = policy.retryable_statuses().collect();
    let _: IoFailures = policy.io_failures();
    let _: RetryAfterHints = policy.retry_after_hints();
    let _: IdempotentMethods = policy.idempotent_methods();
    policy.to_builder()
}

fn first_variants_are_defaults() -> (
    IoFailures,
    RetryAfterHints,
    IdempotentMethods,
    Preconditions,
) {
    (
        IoFailures::Retry,
        RetryAfterHints::Honour,
        IdempotentMethods::Rfc9110,
        Preconditions::Ignore,
    )
}

const BACKOFF: Backoff = Backoff::exponential(Duration::from_millis(50), Duration::from_secs(20));

fn waits(headers: &HeaderMap, now: SystemTime) -> Duration {
    let hint: Option<Duration> = retry_after::parse(headers, now);
    BACKOFF
        .with_full_jitter()
        .with_decorrelated_jitter()
        .without_jitter()
        .without_hint_jitter()
        .with_throttled_base(Duration::from_secs(1))
        .throttled()
        .delay(u32::MAX, Duration::MAX, hint, 0.5)
}

fn configured_wrong(error: &ConfigError) -> (&'static str, &str, ConfigError) {
    (error.setting(), error.value(), error.clone())
}
