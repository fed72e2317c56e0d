//! What a call did: one entry an attempt.

use std::error::Error as StdError;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::BoxError;
use crate::evidence::{Evidence, Execution, Failure};
use crate::policy::{Decision, Verdict};

/// Every attempt of a call. In the extensions of a response that took more than one attempt or was
/// denied a further one, and in both errors.
///
/// `Display` is one readable line an attempt. It holds no header value, body or URI.
#[derive(Clone)]
pub struct Report {
    attempts: Arc<[AttemptReport]>,
}

impl Report {
    pub(crate) fn new(attempts: Vec<AttemptReport>) -> Self {
        Self {
            attempts: attempts.into(),
        }
    }

    /// The attempts, in order. Empty where the first request never left: the inner service failed
    /// before there was a call.
    pub fn attempts(&self) -> &[AttemptReport] {
        &self.attempts
    }

    /// The last verdict: what ended the call. `None`: no attempt ended.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.attempts.last().map(AttemptReport::verdict)
    }

    /// Whether an attempt before the last may have been executed, so that the answer may be an echo
    /// of our own earlier attempt (a DELETE's 404, a conditional PUT's 412).
    pub fn prior_unknown(&self) -> bool {
        let unknown = |attempt: &AttemptReport| attempt.execution == Execution::Unknown;
        self.attempts
            .split_last()
            .is_some_and(|(_, earlier)| earlier.iter().any(unknown))
    }

    /// Whether the operation was executed, over all attempts: `NotExecuted` only if none was,
    /// `Unknown` if one of them may have been, except where an accepted response settles it.
    pub fn execution(&self) -> Execution {
        if self
            .verdict()
            .is_some_and(|verdict| verdict.decision() == Decision::Accept)
        {
            return Execution::Answered;
        }
        execution_of(&self.attempts)
    }
}

pub(crate) fn execution_of(attempts: &[AttemptReport]) -> Execution {
    let any = |execution| {
        attempts
            .iter()
            .any(|attempt| attempt.execution == execution)
    };
    if any(Execution::Unknown) {
        Execution::Unknown
    } else if any(Execution::Answered) {
        Execution::Answered
    } else {
        Execution::NotExecuted
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.attempts.iter()).finish()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, attempt) in self.attempts.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{attempt}")?;
        }
        Ok(())
    }
}

/// One attempt of a call.
#[derive(Clone)]
pub struct AttemptReport {
    pub(crate) number: NonZeroU32,
    pub(crate) evidence: Evidence,
    pub(crate) failure: Option<Failure>,
    pub(crate) status: Option<StatusCode>,
    pub(crate) waited_before: Duration,
    pub(crate) duration: Duration,
    pub(crate) verdict: Verdict,
    /// This attempt's alone, unlike the verdict's.
    pub(crate) execution: Execution,
    pub(crate) reconciled: Option<Execution>,
    pub(crate) refresh_error: Option<SharedError>,
    pub(crate) readiness_error: Option<SharedError>,
    pub(crate) reconcile_error: Option<SharedError>,
}

/// An error of a side path, shared by the copies of a report and by the calls of one refresh.
pub(crate) type SharedError = Arc<dyn StdError + Send + Sync>;

pub(crate) fn shared(error: BoxError) -> SharedError {
    Arc::from(error)
}

impl AttemptReport {
    /// Which attempt it was, from 1.
    pub fn number(&self) -> NonZeroU32 {
        self.number
    }

    /// What it proved about the server.
    pub fn evidence(&self) -> Evidence {
        self.evidence
    }

    /// The failure, if there was one.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// The status, if a response head arrived.
    pub fn status(&self) -> Option<StatusCode> {
        self.status
    }

    /// The wait before it. Zero for the first.
    pub fn waited_before(&self) -> Duration {
        self.waited_before
    }

    /// From its start to its response head or failure. The first attempt's clock starts when it is
    /// first pending: zero if it never was.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// The judgement on it; for the last attempt, what ended the call.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// What a [`Reconcile`](crate::Reconcile) found out, if one was asked.
    pub fn reconciled(&self) -> Option<Execution> {
        self.reconciled
    }

    /// Why there was no new credential after it.
    pub fn refresh_error(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.refresh_error.as_deref()
    }

    /// Why the inner service could not take another attempt after it.
    pub fn readiness_error(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.readiness_error.as_deref()
    }

    /// Why nobody could tell whether it was executed.
    pub fn reconcile_error(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.reconcile_error.as_deref()
    }
}

/// How long something took, for people.
pub(crate) struct Took(pub(crate) Duration);

impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An attempt that is never pending is over before a clock is read.
        if self.0.is_zero() {
            return f.write_str("at once");
        }
        write!(f, "in {:?}", rounded(self.0))
    }
}

/// To whole milliseconds; below one, to microseconds.
pub(crate) fn rounded(time: Duration) -> Duration {
    let unit = if time < Duration::from_millis(1) {
        1_000
    } else {
        1_000_000
    };
    let nanos = (time.subsec_nanos() + unit / 2) / unit * unit;
    Duration::from_nanos(nanos.into()).saturating_add(Duration::from_secs(time.as_secs()))
}

impl fmt::Debug for AttemptReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptReport")
            .field("number", &self.number)
            .field("evidence", &self.evidence)
            .field("failure", &self.failure)
            .field("status", &self.status)
            .field("waited_before", &self.waited_before)
            .field("duration", &self.duration)
            .field("verdict", &self.verdict)
            .field("reconciled", &self.reconciled)
            // The errors are somebody else's and may print anything.
            .field("refresh_error", &self.refresh_error.is_some())
            .field("readiness_error", &self.readiness_error.is_some())
            .field("reconcile_error", &self.reconcile_error.is_some())
            .finish()
    }
}

impl fmt::Display for AttemptReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {}", self.number)?;
        if !self.waited_before.is_zero() {
            write!(f, ", after a wait of {:?}", rounded(self.waited_before))?;
        }
        f.write_str(": ")?;
        if let Some(status) = self.status {
            write!(f, "{} ", status.as_u16())?;
        }
        if let Some(failure) = &self.failure {
            write!(f, "{} ", failure.kind())?;
        }
        write!(f, "[{}] {}", self.evidence, Took(self.duration))?;
        match self.reconciled {
            Some(Execution::NotExecuted) => f.write_str(", reconciled: not executed")?,
            Some(Execution::Answered) => f.write_str(", reconciled: executed")?,
            Some(Execution::Unknown) => f.write_str(", reconciled: unknown")?,
            None => {}
        }
        write!(f, "; {}", self.verdict)?;
        for (what, error) in [
            ("refresh failed", &self.refresh_error),
            ("inner service not ready", &self.readiness_error),
            ("reconciliation failed", &self.reconcile_error),
        ] {
            if error.is_some() {
                write!(f, "; {what}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_for_people() {
        for (time, text) in [
            (Duration::ZERO, "at once"),
            (Duration::from_nanos(78_499), "in 78µs"),
            (Duration::from_nanos(719_118_487), "in 719ms"),
            (Duration::from_nanos(719_500_000), "in 720ms"),
            (Duration::from_nanos(1_999_999_999), "in 2s"),
            (Duration::MAX, "in 18446744073709551615.999999999s"),
        ] {
            assert_eq!(Took(time).to_string(), text);
        }
    }
}
