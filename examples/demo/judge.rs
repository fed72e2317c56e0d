//! The judge: holds what the layer said against what the ledger says. Nothing here knows what was
//! scripted, so a wrong answer cannot be excused by the cue that provoked it.

use std::fmt;

use bytes::Bytes;
use http::StatusCode;
use tower_http_retry::{Evidence, Execution, Idempotency};

use super::client::Try;
use super::ledger::Entry;

/// One call, and the truth about it.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    /// What a second execution would do: the caller's own knowledge.
    pub(crate) nature: Idempotency,
    /// The request body as the caller made it.
    pub(crate) sent: &'a [u8],
    /// What was claimed about each attempt.
    pub(crate) claims: &'a [Claim],
    /// What was claimed about the call.
    pub(crate) answer: &'a Answer,
    /// The body of a successful answer.
    pub(crate) receipt: &'a [u8],
    pub(crate) truth: &'a Entry,
}

/// What the layer said about an attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    pub(crate) attempt: u32,
    pub(crate) evidence: Evidence,
}

impl From<&Try> for Claim {
    fn from(told: &Try) -> Self {
        Self {
            attempt: told.number,
            evidence: told.evidence,
        }
    }
}

/// What the caller got.
#[derive(Debug)]
pub(crate) enum Answer {
    /// `Ok`, and the whole body.
    Response(StatusCode, Execution, Bytes),
    /// `Ok`, and a body that failed in the middle, which the caller was told.
    Broken(StatusCode, Execution),
    /// `Err(Failed)`.
    Failed(Execution),
    /// `Err(Ambiguous)`, perhaps with a response.
    Ambiguous(Option<StatusCode>),
}

/// A claim that the ledger contradicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Untrue {
    /// A success, but nothing was executed.
    SuccessWithoutExecution,
    /// A success, but its body is not the one that the server makes.
    AnotherReceipt,
    /// The server executed other bytes than the caller's.
    AnotherRequest,
    /// The call was said not to have been executed, and it was.
    ExecutionDenied,
    /// This attempt was said not to have been sent, and it was executed.
    NotSentButExecuted(u32),
    /// A plain failure, but executed, and a repetition would execute it again.
    FailedButExecuted,
    /// "Perhaps once", but executed more often.
    AmbiguousButTwice,
    /// The third answer to an operation that anyone may repeat.
    AmbiguousButRepeatable,
}

/// The two numbers that must be zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// Executions beyond the first of operations that must not be executed twice.
    pub(crate) duplicates: usize,
    pub(crate) untrue: Vec<Untrue>,
}

impl Findings {
    pub(crate) fn add(&mut self, other: Self) {
        self.duplicates += other.duplicates;
        self.untrue.extend(other.untrue);
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.duplicates == 0 && self.untrue.is_empty()
    }
}

/// Compares what was said with what was done.
pub(crate) fn judge(case: &Case<'_>) -> Findings {
    let executions = case.truth.executions();
    let once = match case.nature {
        Idempotency::Safe | Idempotency::Idempotent => false,
        // The server knows its keys, so a second execution means that two keys were sent.
        Idempotency::Keyed | Idempotency::NonIdempotent => true,
    };
    let mut untrue = Vec::new();

    let success = |status: &StatusCode| status.is_success();
    let execution = match case.answer {
        Answer::Response(status, execution, body) => {
            if success(status) && executions == 0 {
                untrue.push(Untrue::SuccessWithoutExecution);
            }
            if success(status) && body != case.receipt {
                untrue.push(Untrue::AnotherReceipt);
            }
            *execution
        }
        Answer::Broken(status, execution) => {
            if success(status) && executions == 0 {
                untrue.push(Untrue::SuccessWithoutExecution);
            }
            *execution
        }
        Answer::Failed(execution) => {
            if case.nature == Idempotency::NonIdempotent && executions > 0 {
                untrue.push(Untrue::FailedButExecuted);
            }
            *execution
        }
        Answer::Ambiguous(_) => {
            if executions > 1 {
                untrue.push(Untrue::AmbiguousButTwice);
            }
            if case.nature.is_safely_idempotent() {
                untrue.push(Untrue::AmbiguousButRepeatable);
            }
            Execution::Unknown
        }
    };
    if execution == Execution::NotExecuted && executions > 0 {
        untrue.push(Untrue::ExecutionDenied);
    }
    for claim in case.claims {
        let mut executed = case.truth.executed();
        if claim.evidence == Evidence::NotSent
            && executed.any(|arrival| arrival.attempt == claim.attempt)
        {
            untrue.push(Untrue::NotSentButExecuted(claim.attempt));
        }
    }
    if case
        .truth
        .executed()
        .any(|arrival| arrival.body != case.sent)
    {
        untrue.push(Untrue::AnotherRequest);
    }

    Findings {
        duplicates: if once {
            executions.saturating_sub(1)
        } else {
            0
        },
        untrue,
    }
}

impl fmt::Display for Untrue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SuccessWithoutExecution => f.write_str("a success without an execution"),
            Self::AnotherReceipt => f.write_str("a success with another body than the server's"),
            Self::AnotherRequest => f.write_str("other bytes were executed than were sent"),
            Self::ExecutionDenied => f.write_str("\"not executed\", but it was"),
            Self::NotSentButExecuted(attempt) => {
                write!(f, "attempt {attempt} \"not sent\", but it was executed")
            }
            Self::FailedButExecuted => f.write_str("\"failed\", but it was executed"),
            Self::AmbiguousButTwice => f.write_str("\"perhaps once\", but executed more often"),
            Self::AmbiguousButRepeatable => {
                f.write_str("\"ambiguous\", but anyone may repeat the operation")
            }
        }
    }
}
