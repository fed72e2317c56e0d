//! Telling others what happened: [`Observer`], and two that come with the crate.
//!
#![doc = include_str!("../../docs/operations.md")]

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(any(feature = "metrics", feature = "tracing"))]
#[cfg_attr(
    not(feature = "tracing"),
    allow(dead_code, reason = "metrics use a part of the words")
)]
mod names;
#[cfg(feature = "tracing")]
mod tracing;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{request, response};

use crate::attempt::Attempt;
use crate::error::Error;
use crate::evidence::Execution;
use crate::head::Head;
use crate::policy::Verdict;
use crate::report::Report;

#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
#[cfg(feature = "tracing")]
pub use self::tracing::Tracing;

/// Told of every finished attempt, and of the end of every call.
///
/// Runs inside the call, on its task: be quick, and do not block. A closure over
/// [`AttemptEnded`] is an observer too; name its argument's type.
///
/// A panic of an observer is a panic of the call, like one of a policy: it unwinds through the
/// caller's task. Nothing is sent again, an unspent token goes back, and other calls do not notice.
///
/// ```
/// use tower_http_retry::{AttemptEnded, RetryLayer, StandardPolicy};
///
/// let layer = RetryLayer::new(StandardPolicy::default())
///     .with_observer(|ended: &AttemptEnded<'_>| println!("{}", ended.verdict()));
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Told once for each finished attempt, when its verdict stands.
    fn attempt_ended(&self, ended: &AttemptEnded<'_>);

    /// Told once when the call ends, with what the caller gets. A wait that was cut short (by
    /// [`Drain`](crate::Drain), say) shows here. Not told of a call whose future was dropped.
    fn call_ended(&self, ended: &CallEnded<'_>) {
        let _ = ended;
    }
}

impl<F> Observer for F
where
    F: Fn(&AttemptEnded<'_>) + Send + Sync + 'static,
{
    fn attempt_ended(&self, ended: &AttemptEnded<'_>) {
        self(ended);
    }
}

impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn attempt_ended(&self, ended: &AttemptEnded<'_>) {
        (**self).attempt_ended(ended);
    }

    fn call_ended(&self, ended: &CallEnded<'_>) {
        (**self).call_ended(ended);
    }
}

/// A finished attempt and what follows it.
#[derive(Clone, Copy)]
pub struct AttemptEnded<'a> {
    pub(crate) attempt: &'a Attempt<'a>,
    pub(crate) verdict: &'a Verdict,
    pub(crate) duration: Duration,
    pub(crate) waited_before: Duration,
    pub(crate) next_wait: Option<Duration>,
    pub(crate) budget_balance: Option<f64>,
    pub(crate) reconciled: Option<Execution>,
    pub(crate) contradicted: bool,
}

impl<'a> AttemptEnded<'a> {
    /// The facts that were judged.
    pub fn attempt(&self) -> &'a Attempt<'a> {
        self.attempt
    }

    /// The judgement.
    pub fn verdict(&self) -> &'a Verdict {
        self.verdict
    }

    /// From the attempt's start to its response head or failure.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// The wait before it. Zero for the first.
    pub fn waited_before(&self) -> Duration {
        self.waited_before
    }

    /// The wait that follows. `None`: no attempt follows.
    pub fn next_wait(&self) -> Option<Duration> {
        self.next_wait
    }

    /// The tokens in the upstream's retry budget, this verdict's withdrawal included. `None`
    /// without a budget.
    pub fn budget_balance(&self) -> Option<f64> {
        self.budget_balance
    }

    /// What a [`Reconcile`](crate::Reconcile) found out, if one was asked: then the verdict rests on
    /// its word, not on the outcome alone.
    pub fn reconciled(&self) -> Option<Execution> {
        self.reconciled
    }

    /// Whether the error type said "not sent" while the body witness had seen the client consult
    /// the body: see [`RetryLayer::contradictions`](crate::RetryLayer::contradictions).
    pub fn is_contradicted(&self) -> bool {
        self.contradicted
    }
}

impl fmt::Debug for AttemptEnded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptEnded")
            .field("attempt", self.attempt)
            .field("verdict", self.verdict)
            .field("duration", &self.duration)
            .field("waited_before", &self.waited_before)
            .field("next_wait", &self.next_wait)
            .field("budget_balance", &self.budget_balance)
            .field("reconciled", &self.reconciled)
            .field("contradicted", &self.contradicted)
            .finish()
    }
}

/// The end of a call.
#[derive(Clone, Copy)]
pub struct CallEnded<'a> {
    pub(crate) request: Head<'a>,
    pub(crate) answer: Result<&'a response::Parts, &'a Error>,
    pub(crate) attempts: u32,
    pub(crate) duration: Duration,
    pub(crate) report: Option<&'a Report>,
    pub(crate) cut_short: bool,
}

impl<'a> CallEnded<'a> {
    /// The head of the caller's request.
    pub fn request(&self) -> &'a request::Parts {
        self.request.parts()
    }

    /// What the caller gets.
    pub fn answer(&self) -> Result<&'a response::Parts, &'a Error> {
        self.answer
    }

    /// The attempts made.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// From the call to its answer.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// Every attempt. `None`: a first-attempt success.
    pub fn report(&self) -> Option<&'a Report> {
        self.report
    }

    /// Whether another attempt was permitted and never made: draining, the deadline, a failed
    /// refresh or the inner service's readiness ended the call before it. The report's last verdict
    /// says which; the last [`AttemptEnded`] still said "retry".
    pub fn is_cut_short(&self) -> bool {
        self.cut_short
    }
}

impl fmt::Debug for CallEnded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallEnded")
            .field("answer", &self.answer.map(|head| head.status))
            .field("attempts", &self.attempts)
            .field("duration", &self.duration)
            .field("report", &self.report)
            .field("cut_short", &self.cut_short)
            .finish_non_exhaustive()
    }
}
