//! The words for verdicts that logs and metrics share. Part of the interface: dashboards and alerts
//! hold on to them, and `docs/operations.md` explains each.

use super::CallEnded;
use crate::error::Error;
use crate::evidence::{Evidence, Execution, FailureKind};
use crate::policy::{Decision, RetryDenied, Verdict};

/// The words of one enum. For the tests also all of them, in order.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident($type:ty), $all:ident: $($pattern:pat => $word:literal,)*) => {
        $(#[$doc])*
        pub(super) const fn $name(value: $type) -> &'static str {
            match value {
                $($pattern => $word,)*
            }
        }

        #[cfg(test)]
        const $all: &[&str] = &[$($word),*];
    };
}

words! {
    decision(Decision), DECISIONS:
    Decision::Accept => "accept",
    Decision::Retry => "retry",
    Decision::Refresh => "refresh",
    Decision::Denied(_) => "denied",
    Decision::Ambiguous => "ambiguous",
}

words! {
    evidence(Evidence), EVIDENCE:
    Evidence::NotSent => "NOT_SENT",
    Evidence::SentNoResponse => "SENT_NO_RESPONSE",
    Evidence::ResponseReceived => "RESPONSE_RECEIVED",
    Evidence::PartialResponse => "PARTIAL_RESPONSE",
}

words! {
    execution(Execution), EXECUTIONS:
    Execution::NotExecuted => "not_executed",
    Execution::Answered => "answered",
    Execution::Unknown => "unknown",
}

words! {
    denied(RetryDenied), DENIED:
    RetryDenied::MaxAttempts => "max_attempts",
    RetryDenied::BudgetExhausted => "budget_exhausted",
    RetryDenied::BodyNotReplayable(_) => "body_not_replayable",
    RetryDenied::ResponseAlreadyDelivered => "response_already_delivered",
    RetryDenied::RuntimeDraining => "runtime_draining",
    RetryDenied::Deadline => "deadline",
    RetryDenied::PermanentFailure(_) => "permanent_failure",
    RetryDenied::RetryAfter(_) => "retry_after",
    RetryDenied::NotIdempotent => "not_idempotent",
    RetryDenied::Status(_) => "status",
    RetryDenied::TooEarly => "too_early",
    RetryDenied::Unauthorized => "unauthorized",
    RetryDenied::Failure(_) => "failure",
}

words! {
    failure(FailureKind), FAILURES:
    FailureKind::Dns => "dns",
    FailureKind::Connect => "connect",
    FailureKind::ConnectTimeout => "connect_timeout",
    FailureKind::PoolTimeout => "pool_timeout",
    FailureKind::Tls => "tls",
    FailureKind::Certificate => "certificate",
    FailureKind::StreamRefused => "stream_refused",
    FailureKind::GoAway => "go_away",
    FailureKind::Closed => "closed",
    FailureKind::Reset => "reset",
    FailureKind::Truncated => "truncated",
    FailureKind::ResponseTimeout => "response_timeout",
    FailureKind::DeadlineReached => "deadline_reached",
    FailureKind::Protocol => "protocol",
    FailureKind::Rejected => "rejected",
    FailureKind::InvalidRequest => "invalid_request",
    FailureKind::RequestBody => "request_body",
    FailureKind::BodyChanged => "body_changed",
    FailureKind::RedirectLoop => "redirect_loop",
    FailureKind::LocalOverload => "local_overload",
    FailureKind::AlreadyRetried => "already_retried",
    FailureKind::Readiness => "readiness",
    FailureKind::Unknown => "unknown",
}

/// What a call ended with: the three answers, and a response that is delivered though it leaves the
/// execution unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Response,
    AmbiguousResponse,
    Failed,
    Ambiguous,
}

impl Answer {
    pub(super) fn of(ended: &CallEnded<'_>) -> Self {
        let ambiguous = |verdict: &Verdict| verdict.is_ambiguous();
        match ended.answer() {
            Ok(_) if last_verdict(ended).is_some_and(ambiguous) => Self::AmbiguousResponse,
            Ok(_) => Self::Response,
            Err(Error::Failed(_)) => Self::Failed,
            Err(Error::Ambiguous(_)) => Self::Ambiguous,
        }
    }

    pub(super) const fn is_ambiguous(self) -> bool {
        match self {
            Self::Ambiguous | Self::AmbiguousResponse => true,
            Self::Response | Self::Failed => false,
        }
    }
}

words! {
    answer(Answer), ANSWERS:
    Answer::Response => "response",
    Answer::AmbiguousResponse => "ambiguous_response",
    Answer::Failed => "failed",
    Answer::Ambiguous => "ambiguous",
}

/// What ended the call. `None`: a first-attempt success.
pub(super) fn last_verdict<'a>(ended: &CallEnded<'a>) -> Option<&'a Verdict> {
    ended.report()?.verdict()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words in the first column of the table under `heading`.
    fn documented(heading: &str) -> Vec<&'static str> {
        let page = include_str!("../../docs/operations.md");
        let section = page
            .split("\n### ")
            .find(|section| section.starts_with(heading))
            .unwrap_or_else(|| panic!("no section {heading}"));
        section
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .collect()
    }

    #[test]
    fn the_page_explains_every_word_and_no_other() {
        for (heading, words) in [
            ("Decisions", DECISIONS),
            ("Evidence", EVIDENCE),
            ("Executions", EXECUTIONS),
            ("Reasons", DENIED),
            ("Failures", FAILURES),
            ("Answers", ANSWERS),
        ] {
            assert_eq!(documented(heading), words, "{heading}");
        }
    }

    #[test]
    fn evidence_is_called_as_it_displays_itself() {
        for value in [
            Evidence::NotSent,
            Evidence::SentNoResponse,
            Evidence::ResponseReceived,
            Evidence::PartialResponse,
        ] {
            assert_eq!(evidence(value), value.to_string());
        }
    }
}
