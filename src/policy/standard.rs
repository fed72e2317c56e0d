//! The status and failure rules.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use http::{HeaderName, Method, StatusCode, request, response};

use super::precondition::fails_a_second_time;
use super::settings::{CONVENTIONAL_STATUSES, Settings};
use super::status::{is_error, is_gateway, is_refusal};
use super::{
    AmbiguousResponses, IdempotentMethods, IoFailures, Policy, Preconditions, RetryAfterHints,
    Rule, StandardPolicyBuilder, Upstream,
};
use crate::attempt::{Attempt, Outcome};
use crate::backoff::Backoff;
use crate::evidence::{Evidence, Execution, Failure};
use crate::idempotency::Idempotency;
use crate::upstream_key::UpstreamKey;

/// The standard policy: which statuses and failures are worth another attempt, for which
/// operations. Defaults: 3 attempts; 408, 425 (once), 429, 502, 503, 504 and transient failures;
/// full jitter from 50 ms (1 s after 429 and 503) up to 20 s; hints honoured up to 20 s.
///
/// | outcome | rule |
/// |---|---|
/// | 408, 429 | retry |
/// | 425 | retry once, after the first attempt, unless the request carries `Early-Data` |
/// | 401 | refresh and replay once, for safely idempotent operations |
/// | 409 | retry for keyed operations after an attempt of unknown execution |
/// | 500 | retry where registered as transient, for safely idempotent operations |
/// | 502, 503, 504 | retry for safely idempotent operations, otherwise ambiguous |
/// | other 4xx, 5xx | deny |
/// | 1xx, 2xx, 3xx | accept |
/// | failure, not sent | retry |
/// | failure, sent or partly answered | retry for safely idempotent operations |
#[derive(Clone, Default)]
pub struct StandardPolicy {
    pub(super) settings: Settings,
}

impl StandardPolicy {
    /// Never retries: one attempt. The layer still tells `Failed` from `Ambiguous`.
    pub fn none() -> Self {
        let mut policy = Self::default();
        policy.settings.retries = 0;
        policy
    }

    /// The policy that most SDKs share: 3 retries; 429, 500, 502, 503, 504 and transient I/O
    /// failures; 500 ms base, 20 s cap, full jitter; hints honoured; every method but POST and
    /// PATCH counts as idempotent, and 429 is retried for all. Responses that are not retried are
    /// delivered as they are.
    pub fn conventional() -> Self {
        let mut policy = Self::default();
        let base = Duration::from_millis(500);
        policy.settings.retries = 3;
        policy.settings.backoff =
            Backoff::exponential(base, Duration::from_secs(20)).with_throttled_base(base);
        policy.settings.statuses = CONVENTIONAL_STATUSES.to_vec();
        policy.settings.methods = IdempotentMethods::AllButPostAndPatch;
        policy.settings.ambiguous_responses = AmbiguousResponses::Deliver;
        policy
    }

    /// Starts from the standard table.
    pub fn builder() -> StandardPolicyBuilder {
        Self::default().to_builder()
    }

    /// Starts from nothing: one attempt, no statuses, no failures.
    pub fn blank_builder() -> StandardPolicyBuilder {
        let mut policy = Self::none();
        policy.settings.statuses = Vec::new();
        policy.settings.io_failures = IoFailures::Deny;
        policy.to_builder()
    }

    /// Starts from this policy.
    pub fn to_builder(&self) -> StandardPolicyBuilder {
        StandardPolicyBuilder::from(self.settings.clone())
    }

    /// Whether `status` may be retried for `method`. Without a method: as for one that may.
    pub fn is_retryable(&self, status: StatusCode, method: Option<&Method>) -> bool {
        self.is_retryable_status(status) && (is_refusal(status) || self.is_retryable_method(method))
    }

    /// Whether the method alone permits a retry. Without a method: `true`.
    pub fn is_retryable_method(&self, method: Option<&Method>) -> bool {
        method.is_none_or(|method| self.promise_of(method).is_safely_idempotent())
    }

    /// Whether `status` is in the set of retryable statuses.
    pub fn is_retryable_status(&self, status: StatusCode) -> bool {
        self.settings.statuses.binary_search(&status).is_ok()
    }

    /// The retries after the first attempt. Default 2.
    pub fn retries(&self) -> u32 {
        self.settings.retries
    }

    /// The first retry's longest wait. Default 50 ms.
    pub fn base_delay(&self) -> Duration {
        self.settings.backoff.base()
    }

    /// The longest wait of the backoff. Default 20 s.
    pub fn max_delay(&self) -> Duration {
        self.settings.backoff.max()
    }

    /// The retryable statuses, ascending.
    pub fn retryable_statuses(&self) -> impl Iterator<Item = StatusCode> {
        self.settings.statuses.iter().copied()
    }

    /// Whether failures are retried.
    pub fn io_failures(&self) -> IoFailures {
        self.settings.io_failures
    }

    /// Whether hints of the server count.
    pub fn retry_after_hints(&self) -> RetryAfterHints {
        self.settings.hints
    }

    /// What the method alone promises.
    pub fn idempotent_methods(&self) -> IdempotentMethods {
        self.settings.methods
    }

    fn upstream(&self, request: &request::Parts) -> &Upstream {
        self.registered(|| request)
    }

    fn upstream_of(&self, attempt: &Attempt<'_>) -> &Upstream {
        self.registered(|| attempt.request())
    }

    /// The request is looked at only where upstreams are registered by key.
    #[inline]
    fn registered<'a>(&self, request: impl FnOnce() -> &'a request::Parts) -> &Upstream {
        let Settings {
            upstreams,
            default_upstream,
            ..
        } = &self.settings;
        if upstreams.is_empty() {
            return default_upstream;
        }
        upstreams
            .get(&UpstreamKey::of(request()))
            .unwrap_or(default_upstream)
    }

    pub(super) fn attempts(&self) -> NonZeroU32 {
        NonZeroU32::MIN.saturating_add(self.settings.retries)
    }

    /// Whether nobody has to be asked about a request before it is sent: neither the caller's own
    /// rule nor a registered upstream has a say in it, and it gets no key.
    #[inline]
    pub(super) fn needs_no_parts(&self) -> bool {
        let Settings {
            idempotency,
            upstreams,
            default_upstream,
            ..
        } = &self.settings;
        idempotency.is_none() && upstreams.is_empty() && default_upstream.generated_key().is_none()
    }

    fn promise_of(&self, method: &Method) -> Idempotency {
        match (Idempotency::of_method(method), self.settings.methods) {
            (Idempotency::NonIdempotent, IdempotentMethods::AllButPostAndPatch)
                if *method == Method::POST || *method == Method::PATCH =>
            {
                Idempotency::NonIdempotent
            }
            (
                Idempotency::NonIdempotent,
                IdempotentMethods::AllButPostAndPatch | IdempotentMethods::All,
            ) => Idempotency::Idempotent,
            (promise, _) => promise,
        }
    }

    /// Whether the upstream forbids retries on this response.
    fn stops(&self, attempt: &Attempt<'_>, head: &response::Parts) -> bool {
        self.upstream_of(attempt).stops(&head.headers)
    }

    fn status_rule(&self, attempt: &Attempt<'_>, head: &response::Parts) -> Rule {
        let status = head.status;
        if self.upstream_of(attempt).refused(&head.headers) {
            return Rule::Retry;
        }
        let listed = self.is_retryable_status(status);
        let safe = attempt.idempotency().is_safely_idempotent();
        match status {
            StatusCode::UNAUTHORIZED if safe && attempt.can_refresh() => Rule::Refresh,
            // The first application is still running under the same key.
            StatusCode::CONFLICT
                if attempt.prior_unknown() && attempt.idempotency() == Idempotency::Keyed =>
            {
                Rule::Retry
            }
            StatusCode::TOO_EARLY if listed && may_leave_early_data(attempt) => Rule::Retry,
            StatusCode::TOO_EARLY => Rule::Deny,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS if listed => Rule::Retry,
            StatusCode::INTERNAL_SERVER_ERROR
                if safe && self.upstream_of(attempt).transient_500 =>
            {
                Rule::Retry
            }
            _ if is_gateway(status) && !safe => Rule::Ambiguous,
            _ if listed && safe => Rule::Retry,
            _ => Rule::Deny,
        }
    }

    fn failure_rule(&self, attempt: &Attempt<'_>, failure: &Failure) -> Rule {
        let safe = attempt.idempotency().is_safely_idempotent();
        if attempt.evidence() == Evidence::SentNoResponse && !safe {
            return Rule::Ambiguous;
        }
        if self.settings.io_failures == IoFailures::Deny || failure.kind().is_permanent() {
            return Rule::Deny;
        }
        match attempt.evidence() {
            Evidence::NotSent => Rule::Retry,
            Evidence::SentNoResponse | Evidence::ResponseReceived | Evidence::PartialResponse => {
                if safe {
                    Rule::Retry
                } else {
                    Rule::Deny
                }
            }
        }
    }
}

impl Policy for StandardPolicy {
    fn rule(&self, attempt: &Attempt<'_>) -> Rule {
        if let Some(rule) = self.settings.rule.as_ref().and_then(|rule| rule(attempt)) {
            return rule;
        }
        match attempt.outcome() {
            Outcome::Response(head) if !is_error(head.status) => Rule::Accept,
            Outcome::Response(head) | Outcome::Broken(head, _) if self.stops(attempt, head) => {
                Rule::Deny
            }
            Outcome::Response(head) => self.status_rule(attempt, head),
            // The status speaks, not the break.
            Outcome::Broken(head, _) if is_error(head.status) => self.status_rule(attempt, head),
            Outcome::Broken(_, failure) | Outcome::Failure(failure) => {
                self.failure_rule(attempt, failure)
            }
        }
    }

    fn defaults(&self) -> &StandardPolicy {
        self
    }

    fn max_attempts(&self, _: &request::Parts) -> NonZeroU32 {
        self.attempts()
    }

    fn idempotency(&self, request: &request::Parts) -> Idempotency {
        if let Some(own) = self
            .settings
            .idempotency
            .as_ref()
            .and_then(|own| own(request))
        {
            return own;
        }
        if self.upstream(request).honours_key_of(&request.headers) {
            return Idempotency::Keyed;
        }
        let promise = self.promise_of(&request.method);
        if promise == Idempotency::NonIdempotent
            && self.settings.preconditions == Preconditions::Trust
            && fails_a_second_time(&request.headers)
        {
            return Idempotency::Idempotent;
        }
        promise
    }

    fn execution(&self, attempt: &Attempt<'_>) -> Execution {
        let Some(head) = attempt.response() else {
            return Execution::Unknown;
        };
        if is_error(head.status) && self.upstream_of(attempt).refused(&head.headers) {
            return Execution::NotExecuted;
        }
        match head.status {
            status if is_gateway(status) => Execution::Unknown,
            StatusCode::UNAUTHORIZED => Execution::NotExecuted,
            status if is_refusal(status) => Execution::NotExecuted,
            _ => Execution::Answered,
        }
    }

    fn backoff(&self, attempt: &Attempt<'_>, previous: Duration, random: f64) -> Duration {
        let hint = attempt
            .retry_after()
            .filter(|_| self.settings.hints == RetryAfterHints::Honour);
        let backoff = self.settings.backoff;
        let backoff = match attempt.status() {
            // A replay with a new credential, or outside early data, waits for nothing but a hint.
            Some(StatusCode::UNAUTHORIZED | StatusCode::TOO_EARLY) => {
                backoff.with_base(Duration::ZERO).with_max(Duration::ZERO)
            }
            Some(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
                if hint.is_none() =>
            {
                backoff.throttled()
            }
            _ => backoff,
        };
        backoff.delay(attempt.number().get(), previous, hint, random)
    }

    fn max_retry_after(&self) -> Duration {
        self.settings
            .max_retry_after
            .unwrap_or(self.settings.backoff.max())
    }

    fn retry_after_hints(&self) -> RetryAfterHints {
        self.settings.hints
    }

    fn ambiguous_responses(&self, _: &request::Parts) -> AmbiguousResponses {
        self.settings.ambiguous_responses
    }

    fn generated_key(&self, request: &request::Parts) -> Option<HeaderName> {
        if Idempotency::of_method(&request.method).is_safely_idempotent() {
            return None;
        }
        self.upstream(request).generated_key().cloned()
    }

    fn standard(&self) -> Option<&StandardPolicy> {
        Some(self)
    }

    fn accepts(&self, status: StatusCode) -> bool {
        self.settings.rule.is_none() && !is_error(status)
    }
}

impl fmt::Debug for StandardPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.debug(&mut f.debug_struct("StandardPolicy"))
    }
}

/// RFC 8470 §5.2: an intermediary forwards a 425 to the client that used early data; and outside
/// early data a second 425 means that waiting for the handshake does not help. Whatever its value,
/// `Early-Data` counts as `1` (§5.1).
fn may_leave_early_data(attempt: &Attempt<'_>) -> bool {
    attempt.number() == NonZeroU32::MIN && !attempt.request().headers.contains_key("early-data")
}
