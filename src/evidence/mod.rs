//! What an outcome proves about the server.
//!
//! One frame for every transport, in `judge.rs`: phase first, then the body witness,
//! then what the error type may add at a fixed position. Walking the `source()` chain for evidence
//! is never sound: a request body that is itself an HTTP stream puts foreign errors into it.

mod causes;
mod classify;
mod contradictions;
mod failure;
#[cfg(feature = "hyper")]
mod h2;
#[cfg(feature = "hyper")]
mod hyper;
mod io;
mod judge;
mod proof;
mod reading;
#[cfg(feature = "reqwest")]
mod reqwest;
#[cfg(feature = "rustls")]
mod rustls;
mod tower;

use std::fmt;

pub(crate) use causes::causes;
pub use classify::{Classify, EvidenceError, FailedAttempt, Phase};
pub(crate) use contradictions::Contradictions;
pub use failure::{Failure, FailureKind};
pub(crate) use judge::{Judged, judge};

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
