//! The judgement on one attempt, and its reasons.

use std::fmt;
use std::time::Duration;

use http::StatusCode;

use super::Rule;
use crate::body::BodyState;
use crate::evidence::{Execution, FailureKind};

/// The judgement on one attempt: what follows, which step said so, and what is known about the
/// execution.
///
/// `Display` is one sentence for a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Verdict {
    pub(super) decision: Decision,
    pub(super) rule: Rule,
    pub(super) execution: Execution,
    pub(super) safely_idempotent: bool,
    pub(super) step: Option<Step>,
}

impl Verdict {
    /// What follows.
    pub const fn decision(&self) -> Decision {
        self.decision
    }

    /// What the policy's rule said, whichever step decided.
    pub const fn rule(&self) -> Rule {
        self.rule
    }

    /// Whether the operation was executed: by this attempt, or by an earlier one of which nobody
    /// knows.
    pub const fn execution(&self) -> Execution {
        self.execution
    }

    /// Whether no further attempt follows and the operation may have been executed without anyone
    /// knowing, whichever step said no. Wider than [`Decision::Ambiguous`].
    pub const fn is_ambiguous(&self) -> bool {
        match self.decision {
            Decision::Ambiguous => true,
            Decision::Denied(_) => {
                matches!(self.execution, Execution::Unknown) && !self.safely_idempotent
            }
            Decision::Accept | Decision::Retry | Decision::Refresh => false,
        }
    }

    /// Why there is no further attempt, if it was denied.
    pub const fn denied(&self) -> Option<RetryDenied> {
        match self.decision {
            Decision::Denied(reason) => Some(reason),
            Decision::Accept | Decision::Retry | Decision::Refresh | Decision::Ambiguous => None,
        }
    }

    /// The step that decided. `None`: accepted, before any step was asked.
    pub const fn step(&self) -> Option<Step> {
        self.step
    }

    /// What was decided, without the next move.
    pub(crate) const fn why(&self) -> Why {
        Why(self.decision, self.step)
    }

    /// The same judgement, ended by a fact that came up after it: while waiting, or in the race for
    /// the last token.
    pub(crate) const fn ended_by(self, reason: RetryDenied, step: Step) -> Self {
        Self {
            decision: Decision::Denied(reason),
            step: Some(step),
            ..self
        }
    }

    /// The same judgement of an attempt that was found out not to have been executed.
    pub(crate) const fn not_executed(self) -> Self {
        Self {
            execution: Execution::NotExecuted,
            ..self
        }
    }

    /// The same attempt, whose answer was found out.
    pub(crate) const fn accepted(self) -> Self {
        Self {
            decision: Decision::Accept,
            execution: Execution::Answered,
            step: None,
            ..self
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.why())?;
        let next = match (self.is_ambiguous(), self.execution) {
            (true, _) => AMBIGUOUS,
            (false, _) if self.denied().is_none() => return Ok(()),
            (false, Execution::NotExecuted) => NOT_EXECUTED,
            (false, Execution::Answered) => "the response is the answer",
            (false, Execution::Unknown) => IDEMPOTENT,
        };
        write!(f, "; {next}")
    }
}

// The next safe move, for whoever reads a log line at night.
pub(crate) const AMBIGUOUS: &str = "AMBIGUOUS, it may have been executed: ask the upstream or \
     replay under a key, never send it again blindly";
pub(crate) const NOT_EXECUTED: &str = "not executed, safe to send again";
pub(crate) const IDEMPOTENT: &str = "idempotent, safe to send again";

/// The decision and the step behind it.
pub(crate) struct Why(Decision, Option<Step>);

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(decision, step) = self;
        write!(f, "{decision}")?;
        match (decision, step) {
            (Decision::Denied(_) | Decision::Ambiguous, Some(step)) => {
                write!(f, " (step {})", *step as u8)
            }
            (
                Decision::Accept
                | Decision::Retry
                | Decision::Refresh
                | Decision::Denied(_)
                | Decision::Ambiguous,
                _,
            ) => Ok(()),
        }
    }
}

/// What follows an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The response is the answer.
    Accept,
    /// Another attempt.
    Retry,
    /// A new credential, then another attempt.
    Refresh,
    /// No further attempt, for this reason.
    Denied(RetryDenied),
    /// No further attempt: it may have been executed and must not be sent again blindly.
    Ambiguous,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accepted"),
            Self::Retry => f.write_str("retry"),
            Self::Refresh => f.write_str("retry with a new credential"),
            Self::Denied(reason) => write!(f, "no retry: {reason}"),
            Self::Ambiguous => f.write_str("no retry: execution unknown"),
        }
    }
}

/// The nine steps, in their order. `step as u8` is the number in `docs/decision-order.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Step {
    /// The attempts are exhausted.
    Attempts = 1,
    /// The retry budget is empty.
    Budget,
    /// The request body cannot be sent again.
    Body,
    /// The caller already holds a part of the response.
    Delivered,
    /// The process is draining.
    Draining,
    /// The deadline leaves too little.
    Deadline,
    /// The failure is permanent.
    Permanent,
    /// It may have been executed, and is not safely idempotent.
    Ambiguous,
    /// The policy's rule.
    Rule,
}

/// Why there is no further attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryDenied {
    /// The attempts are exhausted (step 1).
    MaxAttempts,
    /// The retry budget is empty (step 2).
    BudgetExhausted,
    /// The request body cannot be sent again (step 3).
    BodyNotReplayable(BodyState),
    /// The caller already holds a part of the response (step 4).
    ResponseAlreadyDelivered,
    /// The process is draining (step 5).
    RuntimeDraining,
    /// The deadline leaves too little for the wait and another attempt (step 6).
    Deadline,
    /// Trying again cannot help, or must not (step 7).
    PermanentFailure(FailureKind),
    /// The server asked for a longer wait than the policy agrees to (step 9).
    RetryAfter(Duration),
    /// A part of the answer arrived, and the operation is not safely idempotent (step 9).
    NotIdempotent,
    /// The status is not retried (step 9).
    Status(StatusCode),
    /// 425, and no attempt outside early data is left to make (step 9).
    TooEarly,
    /// 401, and no new credential is to be had (step 9).
    Unauthorized,
    /// The failure is not retried (step 9).
    Failure(FailureKind),
}

impl fmt::Display for RetryDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxAttempts => f.write_str("attempts exhausted"),
            Self::BudgetExhausted => f.write_str("retry budget empty"),
            Self::BodyNotReplayable(state) => {
                write!(f, "request body cannot be sent again [{state}]")
            }
            Self::ResponseAlreadyDelivered => {
                f.write_str("caller already holds a part of the response")
            }
            Self::RuntimeDraining => f.write_str("process is draining"),
            Self::Deadline => f.write_str("deadline leaves too little time"),
            Self::PermanentFailure(kind) => write!(f, "permanent failure: {kind}"),
            Self::RetryAfter(Duration::MAX) => {
                f.write_str("server asks for a longer wait than agreed to")
            }
            Self::RetryAfter(hint) => {
                write!(f, "server asks to wait {hint:?}, longer than agreed to")
            }
            Self::NotIdempotent => f.write_str("answer broke off, and not idempotent"),
            Self::Status(status) => write!(f, "status {} is not retried", status.as_u16()),
            Self::TooEarly => f.write_str("425 that no replay outside early data can help"),
            Self::Unauthorized => f.write_str("401 without a new credential"),
            Self::Failure(kind) => write!(f, "failure is not retried: {kind}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOUBT: Verdict = Verdict {
        decision: Decision::Ambiguous,
        rule: Rule::Ambiguous,
        execution: Execution::Unknown,
        safely_idempotent: false,
        step: Some(Step::Rule),
    };

    #[test]
    fn what_comes_up_later_takes_the_place_of_what_was_decided() {
        let ended = DOUBT.ended_by(RetryDenied::Deadline, Step::Deadline);
        assert_eq!(ended.denied(), Some(RetryDenied::Deadline));
        assert_eq!(ended.step(), Some(Step::Deadline));
        assert_eq!(ended.execution(), Execution::Unknown);
        assert_eq!(DOUBT.not_executed().execution(), Execution::NotExecuted);
        let accepted = DOUBT.accepted();
        assert_eq!(accepted.decision(), Decision::Accept);
        assert_eq!(
            (accepted.execution(), accepted.step()),
            (Execution::Answered, None)
        );
    }
}
