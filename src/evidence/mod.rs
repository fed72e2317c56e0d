//! What an outcome proves about the server.
//!
//! One frame for every transport (behaviour §2): phase first, then the body witness, then what the
//! error type may add at a fixed position. Walking the `source()` chain for evidence is never
//! sound: a request body that is itself an HTTP stream puts foreign errors into it.

mod causes;
mod contradictions;
mod failure;
#[cfg(feature = "hyper")]
mod h2;
#[cfg(feature = "hyper")]
mod hyper;
mod io;
mod reading;
#[cfg(feature = "reqwest")]
mod reqwest;
#[cfg(feature = "rustls")]
mod rustls;
mod tower;

use std::fmt;

pub(crate) use contradictions::Contradictions;
pub use failure::{Failure, FailureKind};

use reading::Proof;

use crate::BoxError;
use crate::body::BodyTrace;

type StdErr = dyn std::error::Error + 'static;

/// What is known about the server's side of one attempt, from least to most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// Proven: the server never received, or never processed, the request.
    NotSent,
    /// Some or all of it was, or may have been, written; no final header arrived.
    SentNoResponse,
    /// Final headers arrived, whatever the status.
    ResponseReceived,
    /// Final headers and a part of the body arrived.
    PartialResponse,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSent => "NOT_SENT",
            Self::SentNoResponse => "SENT_NO_RESPONSE",
            Self::ResponseReceived => "RESPONSE_RECEIVED",
            Self::PartialResponse => "PARTIAL_RESPONSE",
        })
    }
}

/// Whether the operation was executed, as far as the caller can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Execution {
    /// Proven not executed.
    NotExecuted,
    /// A response tells.
    Answered,
    /// It may have been executed.
    Unknown,
}

impl fmt::Display for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotExecuted => "not executed",
            Self::Answered => "answered",
            Self::Unknown => "execution unknown",
        })
    }
}

/// Whether the next hop's word counts that it did not process a request.
///
/// HTTP/2 REFUSED_STREAM and GOAWAY are such words (RFC 9113 §8.7, §6.8). They rest on the peer's
/// honesty, and a proxy speaks for itself alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerPromises {
    /// They prove `NotSent`. The default.
    Trust,
    /// They prove nothing: `SentNoResponse`.
    Distrust,
}

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

/// The judgement on one failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Judged {
    pub(crate) failure: Failure,
    /// The error type said "not sent", the witness says "consulted": a defect of a rule here or of
    /// a transport. The proof was dropped.
    pub(crate) contradiction: bool,
}

/// Reads a failure of an attempt whose phase is [`Phase::Call`] or [`Phase::Body`]. `kind` names
/// it where the layer itself ended the attempt and there is no error.
pub(crate) fn judge(
    failed: &FailedAttempt<'_>,
    kind: FailureKind,
    promises: PeerPromises,
    classifiers: &[std::sync::Arc<dyn Classify>],
) -> Judged {
    let floor = match failed.phase {
        Phase::Ready => return Judged::plain(Failure::not_sent(FailureKind::Readiness)),
        Phase::Call => Evidence::NotSent,
        Phase::Body => Evidence::ResponseReceived,
    };
    let stated = classifiers
        .iter()
        .find_map(|c| c.classify(failed))
        .or_else(|| {
            failed
                .error?
                .downcast_ref::<EvidenceError>()
                .map(|e| *e.failure())
        });
    if let Some(failure) = stated {
        return Judged::plain(failure.at_least(floor));
    }

    let body = failed.body;
    let proof = failed
        .error
        .map_or(Proof::None, |error| reading::proof(error, body));
    // h2 hides a failure of the request body, and h1 may show it as a close by the peer; and the
    // error of a body that is itself an HTTP stream is foreign. The witness saw it happen.
    let kind = if body.failed() {
        FailureKind::RequestBody
    } else {
        failed
            .error
            .and_then(|error| reading::kind(error, failed.phase))
            .unwrap_or(kind)
    };
    // A hyper client consults the body before it encodes the head. Dropped without that: nothing
    // was written and nothing will be, whatever the error. Alive without that: it may still be
    // (an h2 request that timed out while pending was written 400 ms later).
    let untouched = body.dropped() && !body.consulted();
    let trusted = promises == PeerPromises::Trust && !body.failed();
    let evidence = match proof {
        _ if untouched && body.reached_client() => Evidence::NotSent,
        Proof::BeforeDispatch if !body.consulted() => Evidence::NotSent,
        Proof::IfUntouched if untouched => Evidence::NotSent,
        Proof::PeerRefused if trusted => Evidence::NotSent,
        Proof::PeerGone if trusted && body.polled() => Evidence::NotSent,
        Proof::Answered => Evidence::ResponseReceived,
        Proof::BeforeDispatch
        | Proof::IfUntouched
        | Proof::PeerRefused
        | Proof::PeerGone
        | Proof::None => Evidence::SentNoResponse,
    };
    Judged {
        failure: Failure::new(evidence, kind).at_least(floor),
        contradiction: proof == Proof::BeforeDispatch && body.consulted(),
    }
}

impl Judged {
    fn plain(failure: Failure) -> Self {
        Self {
            failure,
            contradiction: false,
        }
    }
}
