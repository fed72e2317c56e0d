//! What a [`StandardPolicy`](super::StandardPolicy) can be set to.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{StatusCode, request};

use super::{AmbiguousResponses, Rule, Upstream};
use crate::attempt::Attempt;
use crate::backoff::Backoff;
use crate::idempotency::Idempotency;
use crate::upstream_key::UpstreamKey;

/// Whether failures without a whole response are retried at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IoFailures {
    /// Where their evidence permits it. The default.
    Retry,
    /// Never.
    Deny,
}

/// Whether a server's hint how long to wait counts (`Retry-After` and its relatives).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetryAfterHints {
    /// As a floor of the wait. The default.
    Honour,
    /// Not at all: the backoff alone decides.
    Ignore,
}

/// Whether a precondition that makes a second application fail makes an operation idempotent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preconditions {
    /// No. The default: not every upstream evaluates them.
    Ignore,
    /// `If-Match` with one strong tag, and `If-None-Match: *`, do (RFC 9110 §13.1).
    Trust,
}

/// What the method alone promises, where nothing else says anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IdempotentMethods {
    /// What RFC 9110 §9.2 says. The default.
    Rfc9110,
    /// Every method but POST and PATCH: the habit of many SDKs.
    AllButPostAndPatch,
    /// Every method: the caller's promise that the upstream recognises repetitions.
    All,
}

pub(super) type RuleFn = dyn Fn(&Attempt<'_>) -> Option<Rule> + Send + Sync;
pub(super) type IdempotencyFn = dyn Fn(&request::Parts) -> Option<Idempotency> + Send + Sync;

/// What the builder sets and the policy reads.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) retries: u32,
    pub(super) backoff: Backoff,
    /// `None`: the backoff's maximum.
    pub(super) max_retry_after: Option<Duration>,
    /// Sorted, without repetitions.
    pub(super) statuses: Vec<StatusCode>,
    pub(super) io_failures: IoFailures,
    pub(super) hints: RetryAfterHints,
    pub(super) methods: IdempotentMethods,
    pub(super) preconditions: Preconditions,
    pub(super) ambiguous_responses: AmbiguousResponses,
    pub(super) upstreams: HashMap<UpstreamKey, Upstream>,
    pub(super) default_upstream: Upstream,
    pub(super) rule: Option<Arc<RuleFn>>,
    pub(super) idempotency: Option<Arc<IdempotencyFn>>,
}

impl Settings {
    pub(super) fn debug(&self, f: &mut fmt::DebugStruct<'_, '_>) -> fmt::Result {
        f.field("retries", &self.retries)
            .field("backoff", &self.backoff)
            .field("max_retry_after", &self.max_retry_after)
            .field("retryable_statuses", &self.statuses)
            .field("io_failures", &self.io_failures)
            .field("retry_after_hints", &self.hints)
            .field("idempotent_methods", &self.methods)
            .field("preconditions", &self.preconditions)
            .field("ambiguous_responses", &self.ambiguous_responses)
            .field("upstreams", &self.upstreams)
            .field("default_upstream", &self.default_upstream)
            .field("rule", &self.rule.is_some())
            .field("idempotency", &self.idempotency.is_some())
            .finish()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            retries: 2,
            backoff: Backoff::default(),
            max_retry_after: None,
            statuses: STANDARD_STATUSES.to_vec(),
            io_failures: IoFailures::Retry,
            hints: RetryAfterHints::Honour,
            methods: IdempotentMethods::Rfc9110,
            preconditions: Preconditions::Ignore,
            ambiguous_responses: AmbiguousResponses::Reject,
            upstreams: HashMap::new(),
            default_upstream: Upstream::new(),
            rule: None,
            idempotency: None,
        }
    }
}

const STANDARD_STATUSES: [StatusCode; 6] = [
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::TOO_EARLY,
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
];

pub(super) const CONVENTIONAL_STATUSES: [StatusCode; 5] = [
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::INTERNAL_SERVER_ERROR,
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
];
