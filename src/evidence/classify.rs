//! Failed attempts, for whoever can read what the crate cannot.

use std::fmt;

use super::{Failure, StdErr};
use crate::BoxError;
use crate::body::BodyTrace;

/// Where an attempt was when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// The inner service was asked for readiness; the request was still ours.
    Ready,
    /// The inner service had the request; no response head had come back.
    Call,
    /// The response head had come back; its body was being read.
    Body,
}

/// A failed attempt, as a [`Classify`] sees it.
#[derive(Clone, Copy)]
pub struct FailedAttempt<'a> {
    phase: Phase,
    error: Option<&'a StdErr>,
    body: BodyTrace,
}

impl<'a> FailedAttempt<'a> {
    /// The facts by hand, for tests of a classifier.
    pub const fn new(phase: Phase, error: Option<&'a StdErr>, body: BodyTrace) -> Self {
        Self { phase, error, body }
    }

    /// Where the attempt was when it failed.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// The error of the service below, outermost. `None`: the attempt was ended by the layer (a
    /// deadline, an attempt timeout), so there is no error of the client.
    pub const fn error(&self) -> Option<&'a StdErr> {
        self.error
    }

    /// What the client did with the request body.
    pub const fn body(&self) -> BodyTrace {
        self.body
    }
}

impl fmt::Debug for FailedAttempt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The error's own `Debug` may print URIs and header values: it stays out.
        f.debug_struct("FailedAttempt")
            .field("phase", &self.phase)
            .field("has_error", &self.error.is_some())
            .field("body", &self.body)
            .finish()
    }
}

/// Reads the errors of a transport that the crate does not know.
///
/// Added with [`RetryLayer::with_classifier`](crate::RetryLayer::with_classifier) and asked before
/// the built-in ones. `Some` is taken as a statement: the body witness does not overrule it, but
/// evidence never falls below what was seen (a response head, a body byte). Say `NotSent` only for
/// what proves it, and look at the outermost error: deeper ones may belong to the request body.
pub trait Classify: Send + Sync + 'static {
    /// What the failure proves and what kind it is; `None` leaves it to the next classifier.
    fn classify(&self, failed: &FailedAttempt<'_>) -> Option<Failure>;
}

impl<F> Classify for F
where
    F: Fn(&FailedAttempt<'_>) -> Option<Failure> + Send + Sync + 'static,
{
    fn classify(&self, failed: &FailedAttempt<'_>) -> Option<Failure> {
        self(failed)
    }
}

impl<T: Classify + ?Sized> Classify for std::sync::Arc<T> {
    fn classify(&self, failed: &FailedAttempt<'_>) -> Option<Failure> {
        (**self).classify(failed)
    }
}

/// An error that states its own evidence: any service below the layer may return it.
///
/// It is a statement, not a guess: the body witness does not overrule its evidence.
///
/// ```
/// use tower_http_retry::{EvidenceError, Failure, FailureKind};
///
/// let refused = EvidenceError::new(
///     Failure::not_sent(FailureKind::PoolTimeout),
///     "no connection became free",
/// );
/// assert_eq!(refused.failure().kind(), FailureKind::PoolTimeout);
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{failure}")]
pub struct EvidenceError {
    failure: Failure,
    source: BoxError,
}

impl EvidenceError {
    /// States what `source` proves.
    pub fn new(failure: Failure, source: impl Into<BoxError>) -> Self {
        Self {
            failure,
            source: source.into(),
        }
    }

    /// The statement.
    pub const fn failure(&self) -> &Failure {
        &self.failure
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::FailureKind;

    #[test]
    fn a_closure_is_a_classifier_and_so_is_a_shared_one() {
        let failed = FailedAttempt::new(Phase::Call, None, BodyTrace::default());
        let failure = Failure::not_sent(FailureKind::Dns);
        let classifier = move |_: &FailedAttempt<'_>| Some(failure);
        assert_eq!(Classify::classify(&classifier, &failed), Some(failure));
        let shared = Arc::new(classifier);
        assert_eq!(Classify::classify(&shared, &failed), Some(failure));
    }
}
