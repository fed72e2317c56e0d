//! Attempts by hand.

use std::num::NonZeroU32;
use std::time::Duration;

use http::{HeaderValue, request, response};

use super::{Policy, idempotency_for};
use crate::attempt::{Attempt, Outcome};
use crate::body::{BodyState, Replayability};
use crate::evidence::Failure;
use crate::head::Head;
use crate::idempotency::Idempotency;

/// An [`Attempt`] by hand, so that a policy can be tested as a table.
///
/// Starts as attempt 1 of 3, with the idempotency of the method, an empty body, and nothing that
/// forbids a retry.
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower_http_retry::{Decision, Facts, StandardPolicy, decide};
///
/// let (request, ()) = Request::post("/orders").body(()).unwrap().into_parts();
/// let (response, ()) =
///     Response::builder().status(StatusCode::SERVICE_UNAVAILABLE).body(()).unwrap().into_parts();
///
/// let policy = StandardPolicy::default();
/// let verdict = decide(&policy, &Facts::response(&request, &response).attempt_for(&policy));
/// assert_eq!(verdict.decision(), Decision::Ambiguous);
/// ```
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Facts<'a> {
    attempt: Attempt<'a>,
    max_attempts: Option<NonZeroU32>,
    idempotency: Option<Idempotency>,
}

impl<'a> Facts<'a> {
    /// An attempt that a response answered.
    pub fn response(request: &'a request::Parts, response: &'a response::Parts) -> Self {
        Self::new(request, Outcome::Response(response))
    }

    /// An attempt that failed without a response.
    pub fn failure(request: &'a request::Parts, failure: &'a Failure) -> Self {
        Self::new(request, Outcome::Failure(failure))
    }

    fn new(request: &'a request::Parts, outcome: Outcome<'a>) -> Self {
        let attempt = Attempt {
            number: NonZeroU32::MIN,
            max_attempts: NonZeroU32::MIN.saturating_add(2),
            head: Head::Given(request),
            outcome,
            idempotency: Idempotency::of_method(&request.method),
            replayability: Replayability::Replayable,
            body_state: BodyState::Empty,
            budget_empty: false,
            delivered: false,
            draining: false,
            can_refresh: false,
            prior_unknown: false,
            remaining: None,
            min_attempt: Duration::ZERO,
            retry_after: None,
            body: None,
        };
        Self {
            attempt,
            max_attempts: None,
            idempotency: None,
        }
    }

    /// Which attempt it was, from 1. Default 1.
    pub fn attempt_number(mut self, number: NonZeroU32) -> Self {
        self.attempt.number = number;
        self
    }

    /// The attempts permitted, the first included. Default 3, or the policy's with
    /// [`attempt_for`](Self::attempt_for).
    pub fn max_attempts(mut self, max_attempts: NonZeroU32) -> Self {
        self.max_attempts = Some(max_attempts);
        self
    }

    /// What a second execution would do. Default: the method's, or what
    /// [`attempt_for`](Self::attempt_for) finds.
    pub fn idempotency(mut self, idempotency: Idempotency) -> Self {
        self.idempotency = Some(idempotency);
        self
    }

    /// The mark of the request body. Default [`Replayability::Replayable`].
    pub fn replayability(mut self, replayability: Replayability) -> Self {
        self.attempt.replayability = replayability;
        self
    }

    /// The state of the request body. Default [`BodyState::Empty`].
    pub fn body_state(mut self, state: BodyState) -> Self {
        self.attempt.body_state = state;
        self
    }

    /// The retry budget has no token.
    pub fn budget_empty(mut self) -> Self {
        self.attempt.budget_empty = true;
        self
    }

    /// The caller already holds a part of the response.
    pub fn delivered(mut self) -> Self {
        self.attempt.delivered = true;
        self
    }

    /// The process is draining.
    pub fn draining(mut self) -> Self {
        self.attempt.draining = true;
        self
    }

    /// A refresh is configured and not yet used by this call.
    pub fn refresh_available(mut self) -> Self {
        self.attempt.can_refresh = true;
        self
    }

    /// An earlier attempt of the call may have been executed.
    pub fn prior_unknown(mut self) -> Self {
        self.attempt.prior_unknown = true;
        self
    }

    /// What is left until the deadline. Default: no deadline.
    pub fn remaining(mut self, remaining: Duration) -> Self {
        self.attempt.remaining = Some(remaining);
        self
    }

    /// The least time that a further attempt is worth. Default zero.
    pub fn min_attempt(mut self, min_attempt: Duration) -> Self {
        self.attempt.min_attempt = min_attempt;
        self
    }

    /// How long the server asked to wait. Default: it did not.
    pub fn retry_after(mut self, hint: Duration) -> Self {
        self.attempt.retry_after = Some(hint);
        self
    }

    /// The whole response body, as under [`Delivery::Whole`](crate::Delivery::Whole).
    pub fn response_body(mut self, body: &'a [u8]) -> Self {
        self.attempt.body = Some(body);
        self
    }

    /// The response body then broke. Without a response this replaces the failure.
    pub fn partial(mut self, failure: &'a Failure) -> Self {
        self.attempt.outcome = match self.attempt.outcome {
            Outcome::Response(head) | Outcome::Broken(head, _) => Outcome::Broken(head, failure),
            Outcome::Failure(_) => Outcome::Failure(failure),
        };
        self
    }

    /// The attempt, without asking a policy.
    pub fn attempt(mut self) -> Attempt<'a> {
        if let Some(max_attempts) = self.max_attempts {
            self.attempt.max_attempts = max_attempts;
        }
        if let Some(idempotency) = self.idempotency {
            self.attempt.idempotency = idempotency;
        }
        self.attempt
    }

    /// The attempt as the layer would build it for `policy`: its `max_attempts`, and for the
    /// idempotency the request's declaration or else the policy's answer, where the policy names a
    /// header for it with a generated key. What was set by hand stands.
    pub fn attempt_for<P: Policy + ?Sized>(mut self, policy: &P) -> Attempt<'a> {
        let request = self.attempt.request();
        self.max_attempts
            .get_or_insert_with(|| policy.max_attempts(request));
        self.idempotency
            .get_or_insert_with(|| match policy.generated_key(request) {
                Some(name) if !request.headers.contains_key(&name) => {
                    let mut keyed = request.clone();
                    keyed.headers.insert(name, HeaderValue::from_static("key"));
                    idempotency_for(policy, &keyed)
                }
                Some(_) | None => idempotency_for(policy, request),
            });
        self.attempt()
    }
}
