//! Judgement: values in, a verdict out. No clock, no random number, no lock, no I/O.

mod builder;
mod decide;
mod facts;
mod plan;
mod precondition;
mod settings;
mod standard;
mod status;
mod upstream;
mod verdict;

use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::{HeaderName, StatusCode, request};

pub use builder::StandardPolicyBuilder;
pub use decide::decide;
pub(crate) use decide::{fits, honoured_hint, own_execution};
pub use facts::Facts;
pub(crate) use plan::plan;
pub use settings::{IdempotentMethods, IoFailures, Preconditions, RetryAfterHints};
pub use standard::StandardPolicy;
pub use upstream::Upstream;
pub(crate) use verdict::{AMBIGUOUS, IDEMPOTENT, NOT_EXECUTED};
pub use verdict::{Decision, RetryDenied, Step, Verdict};

use crate::attempt::Attempt;
use crate::evidence::Execution;
use crate::idempotency::Idempotency;

/// What should happen after an attempt. Only [`rule`](Self::rule) is required; the rest is answered
/// by [`defaults`](Self::defaults), the standard policy.
///
/// A policy is asked for step 9 alone. Whatever it says, the eight steps before it hold, so that no
/// policy can retry past the attempts, the budget, the deadline, or an attempt that was sent and never
/// answered, and none
/// loses them by forgetting.
///
/// ```
/// use http::StatusCode;
/// use tower_http_retry::{Attempt, Policy, Rule, StandardPolicy};
///
/// /// The standard table, and one status more that this upstream uses for "try again".
/// struct Stock(StandardPolicy);
///
/// impl Policy for Stock {
///     fn rule(&self, attempt: &Attempt<'_>) -> Rule {
///         match attempt.status() {
///             Some(StatusCode::LOCKED) if attempt.idempotency().is_safely_idempotent() => Rule::Retry,
///             _ => self.0.rule(attempt),
///         }
///     }
///     fn defaults(&self) -> &StandardPolicy {
///         &self.0
///     }
/// }
/// # let _ = Stock(StandardPolicy::default());
/// ```
pub trait Policy: Send + Sync + 'static {
    /// Step 9: what the status, the headers or the failure call for. Asked about every attempt,
    /// successes included.
    fn rule(&self, attempt: &Attempt<'_>) -> Rule;

    /// Answers everything below. Default: [`StandardPolicy::default`]; return the policy that you
    /// wrap, where you wrap one.
    fn defaults(&self) -> &StandardPolicy {
        static DEFAULTS: LazyLock<StandardPolicy> = LazyLock::new(StandardPolicy::default);
        &DEFAULTS
    }

    /// The attempts that a call may make, the first included. Asked once a call.
    fn max_attempts(&self, request: &request::Parts) -> NonZeroU32 {
        self.defaults().max_attempts(request)
    }

    /// What a second execution would do. Asked once a call, if the request declares nothing.
    fn idempotency(&self, request: &request::Parts) -> Idempotency {
        self.defaults().idempotency(request)
    }

    /// Whether a response says that the operation was executed. Asked for responses only: for
    /// failures the evidence tells.
    fn execution(&self, attempt: &Attempt<'_>) -> Execution {
        self.defaults().execution(attempt)
    }

    /// How long to wait before the retry. `previous` is the wait before this attempt (zero for the
    /// first), `random` is uniform in `0.0..=1.0`. The layer raises it to the server's hint.
    fn backoff(&self, attempt: &Attempt<'_>, previous: Duration, random: f64) -> Duration {
        self.defaults().backoff(attempt, previous, random)
    }

    /// The longest hint of a server that a call waits for; a longer one ends the call at once.
    fn max_retry_after(&self) -> Duration {
        self.defaults().max_retry_after()
    }

    /// Whether a server's hint how long to wait counts.
    fn retry_after_hints(&self) -> RetryAfterHints {
        self.defaults().retry_after_hints()
    }

    /// What to do with a response that leaves the execution of a non-idempotent operation unknown.
    fn ambiguous_responses(&self, request: &request::Parts) -> AmbiguousResponses {
        self.defaults().ambiguous_responses(request)
    }

    /// The header in which the layer sends an idempotency key of its own, one for all attempts of
    /// the call. Only for an upstream that honours it.
    fn generated_key(&self, request: &request::Parts) -> Option<HeaderName> {
        self.defaults().generated_key(request)
    }

    /// The standard policy that answers [`max_attempts`](Self::max_attempts),
    /// [`idempotency`](Self::idempotency) and [`generated_key`](Self::generated_key) for this one, if
    /// none of them has an answer of its own. Default `None`: they are asked.
    ///
    /// A policy that says so saves the layer from taking each request apart to ask, and from the
    /// idempotency of requests that are answered at once.
    fn standard(&self) -> Option<&StandardPolicy> {
        None
    }

    /// Whether [`rule`](Self::rule) accepts any response with this status, whatever else is known
    /// of the attempt. Default `false`: the rule is asked.
    ///
    /// Almost every response of a healthy upstream is one of these. A policy that says so saves the
    /// layer from gathering the facts of the attempt.
    fn accepts(&self, status: StatusCode) -> bool {
        let _ = status;
        false
    }
}

/// What a policy says of an attempt (step 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The answer: deliver it.
    Accept,
    /// Try again, if everything else permits it.
    Retry,
    /// Get a new credential, then try again.
    Refresh,
    /// Deliver it as what it is; no retry.
    Deny,
    /// The operation may have been executed and must not be sent again blindly.
    Ambiguous,
}

/// What to do with a response that leaves the execution of a non-idempotent operation unknown, such
/// as a 503 to a POST.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AmbiguousResponses {
    /// [`Error::Ambiguous`](crate::Error::Ambiguous), which carries the response. The default.
    Reject,
    /// `Ok` with the response, the [`Verdict`] and the [`Report`](crate::Report) in its extensions:
    /// for proxies.
    Deliver,
}

/// The idempotency of a request: what it declares, else what the policy says.
pub(crate) fn idempotency_for<P: Policy + ?Sized>(
    policy: &P,
    request: &request::Parts,
) -> Idempotency {
    match request.extensions.get::<Idempotency>() {
        Some(declared) => *declared,
        None => policy.idempotency(request),
    }
}

macro_rules! forward {
    ($pointer:ident) => {
        impl<P: Policy + ?Sized> Policy for $pointer<P> {
            fn rule(&self, attempt: &Attempt<'_>) -> Rule {
                (**self).rule(attempt)
            }
            fn defaults(&self) -> &StandardPolicy {
                (**self).defaults()
            }
            fn max_attempts(&self, request: &request::Parts) -> NonZeroU32 {
                (**self).max_attempts(request)
            }
            fn idempotency(&self, request: &request::Parts) -> Idempotency {
                (**self).idempotency(request)
            }
            fn execution(&self, attempt: &Attempt<'_>) -> Execution {
                (**self).execution(attempt)
            }
            fn backoff(&self, attempt: &Attempt<'_>, previous: Duration, random: f64) -> Duration {
                (**self).backoff(attempt, previous, random)
            }
            fn max_retry_after(&self) -> Duration {
                (**self).max_retry_after()
            }
            fn retry_after_hints(&self) -> RetryAfterHints {
                (**self).retry_after_hints()
            }
            fn ambiguous_responses(&self, request: &request::Parts) -> AmbiguousResponses {
                (**self).ambiguous_responses(request)
            }
            fn generated_key(&self, request: &request::Parts) -> Option<HeaderName> {
                (**self).generated_key(request)
            }
            fn standard(&self) -> Option<&StandardPolicy> {
                (**self).standard()
            }
            fn accepts(&self, status: StatusCode) -> bool {
                (**self).accepts(status)
            }
        }
    };
}
forward!(Box);
forward!(Arc);
