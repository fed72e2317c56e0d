//! The facts of one attempt: all that a policy may see.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use http::{StatusCode, request, response};

use crate::body::{BodyState, Replayability};
use crate::evidence::{Evidence, Failure};
use crate::head::Head;
use crate::idempotency::Idempotency;

/// How an attempt ended.
#[derive(Clone, Copy)]
pub enum Outcome<'a> {
    /// A response head, and nothing wrong with it so far.
    Response(&'a response::Parts),
    /// No response head.
    Failure(&'a Failure),
    /// A response head, and then a body that broke.
    Broken(&'a response::Parts, &'a Failure),
}

impl<'a> Outcome<'a> {
    /// The response head, if one arrived.
    pub const fn response(&self) -> Option<&'a response::Parts> {
        match *self {
            Self::Response(head) | Self::Broken(head, _) => Some(head),
            Self::Failure(_) => None,
        }
    }

    /// The failure, if there was one.
    pub const fn failure(&self) -> Option<&'a Failure> {
        match *self {
            Self::Failure(failure) | Self::Broken(_, failure) => Some(failure),
            Self::Response(_) => None,
        }
    }

    /// What the outcome proves about the server. A head in hand is never less than
    /// [`Evidence::ResponseReceived`].
    pub fn evidence(&self) -> Evidence {
        match *self {
            Self::Response(_) => Evidence::ResponseReceived,
            Self::Failure(failure) => failure.evidence(),
            Self::Broken(_, failure) => failure.evidence().max(Evidence::ResponseReceived),
        }
    }
}

/// A finished attempt, as [`decide`](crate::decide) and every [`Policy`](crate::Policy) see it. Values only.
#[derive(Clone, Copy)]
pub struct Attempt<'a> {
    pub(crate) number: NonZeroU32,
    pub(crate) max_attempts: NonZeroU32,
    pub(crate) head: Head<'a>,
    pub(crate) outcome: Outcome<'a>,
    pub(crate) idempotency: Idempotency,
    pub(crate) replayability: Replayability,
    pub(crate) body_state: BodyState,
    pub(crate) budget_empty: bool,
    pub(crate) delivered: bool,
    pub(crate) draining: bool,
    pub(crate) can_refresh: bool,
    pub(crate) prior_unknown: bool,
    pub(crate) remaining: Option<Duration>,
    pub(crate) min_attempt: Duration,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Option<&'a [u8]>,
}

impl<'a> Attempt<'a> {
    /// Which attempt this was, from 1.
    pub const fn number(&self) -> NonZeroU32 {
        self.number
    }

    /// The attempts that the call may make, the first included.
    pub const fn max_attempts(&self) -> NonZeroU32 {
        self.max_attempts
    }

    /// The head of the caller's request, as it was before any layer below changed it.
    pub fn request(&self) -> &'a request::Parts {
        self.head.parts()
    }

    /// How the attempt ended.
    pub const fn outcome(&self) -> Outcome<'a> {
        self.outcome
    }

    /// The response head, if one arrived (also where its body then broke).
    pub const fn response(&self) -> Option<&'a response::Parts> {
        self.outcome.response()
    }

    /// The status, if a response head arrived.
    pub fn status(&self) -> Option<StatusCode> {
        self.response().map(|head| head.status)
    }

    /// The failure, if there was one.
    pub const fn failure(&self) -> Option<&'a Failure> {
        self.outcome.failure()
    }

    /// What the attempt proves about the server.
    pub fn evidence(&self) -> Evidence {
        self.outcome.evidence()
    }

    /// What a second execution would do.
    pub const fn idempotency(&self) -> Idempotency {
        self.idempotency
    }

    /// The mark that the request body declares.
    pub const fn replayability(&self) -> Replayability {
        self.replayability
    }

    /// Whether the request body can be sent once more, now.
    pub const fn body_state(&self) -> BodyState {
        self.body_state
    }

    /// Whether the retry budget has no token.
    pub const fn is_budget_empty(&self) -> bool {
        self.budget_empty
    }

    /// Whether the caller already holds a part of the response.
    pub const fn is_delivered(&self) -> bool {
        self.delivered
    }

    /// Whether [`Drain`](crate::Drain) has started.
    pub const fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether a [`Refresh`](crate::Refresh) is configured and this call has not used it.
    pub const fn can_refresh(&self) -> bool {
        self.can_refresh
    }

    /// Whether an earlier attempt of the call may have been executed.
    pub const fn prior_unknown(&self) -> bool {
        self.prior_unknown
    }

    /// What is left until the deadline; `None` without one.
    pub const fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// The least time that a further attempt is worth.
    pub const fn min_attempt(&self) -> Duration {
        self.min_attempt
    }

    /// How long the server asked to wait, if it did.
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The whole response body. Only under
    /// [`Delivery::Whole`](crate::Delivery::Whole), and within its limit.
    pub const fn body(&self) -> Option<&'a [u8]> {
        self.body
    }
}

// Heads print header values and URIs, so `Debug` shows what an outcome is, not what it holds.
impl fmt::Debug for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Response(head) => f.debug_tuple("Response").field(&head.status).finish(),
            Self::Failure(failure) => f.debug_tuple("Failure").field(failure).finish(),
            Self::Broken(head, failure) => f
                .debug_tuple("Broken")
                .field(&head.status)
                .field(failure)
                .finish(),
        }
    }
}

impl fmt::Debug for Attempt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("number", &self.number)
            .field("max_attempts", &self.max_attempts)
            .field("outcome", &self.outcome)
            .field("idempotency", &self.idempotency)
            .field("replayability", &self.replayability)
            .field("body_state", &self.body_state)
            .field("budget_empty", &self.budget_empty)
            .field("delivered", &self.delivered)
            .field("draining", &self.draining)
            .field("can_refresh", &self.can_refresh)
            .field("prior_unknown", &self.prior_unknown)
            .field("remaining", &self.remaining)
            .field("min_attempt", &self.min_attempt)
            .field("retry_after", &self.retry_after)
            .finish_non_exhaustive()
    }
}

/// Which attempt a request belongs to: in its extensions from attempt 2 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttemptNumber {
    number: NonZeroU32,
    max_attempts: NonZeroU32,
}

impl AttemptNumber {
    pub(crate) const fn new(number: NonZeroU32, max_attempts: NonZeroU32) -> Self {
        Self {
            number,
            max_attempts,
        }
    }

    /// Which attempt this is, from 1.
    pub const fn number(&self) -> NonZeroU32 {
        self.number
    }

    /// The attempts that the call may make, the first included.
    pub const fn max_attempts(&self) -> NonZeroU32 {
        self.max_attempts
    }
}

/// A request extension: this attempt must not go out in TLS early data (RFC 8470 §5.2: a 425 is
/// answered by a request outside early data). Set on the attempt that follows a 425.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct NoEarlyData;

/// A response extension: a retry layer that may make more than one attempt has said its last word
/// on this response. A layer further out stops (step 7), so that layers never multiply.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retried;
