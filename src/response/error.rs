//! A response body that broke.

use std::error::Error as StdError;
use std::fmt;

use crate::BoxError;
use crate::evidence::{Evidence, Failure};
use crate::policy::RetryDenied;

/// A response body that broke. The caller holds the head, and the bytes before it.
pub struct BodyError {
    failure: Failure,
    pub(super) denied: RetryDenied,
    delivered: u64,
    source: Option<BoxError>,
}

impl BodyError {
    pub(super) fn new(failure: Failure, source: Option<BoxError>) -> Self {
        Self {
            failure,
            denied: RetryDenied::ResponseAlreadyDelivered,
            delivered: 0,
            source,
        }
    }

    pub(super) fn after(self, delivered: u64) -> Self {
        Self { delivered, ..self }
    }

    pub(crate) fn into_parts(self) -> (Failure, Option<BoxError>) {
        (self.failure, self.source)
    }

    /// `PartialResponse`; `ResponseReceived` if no byte of the body came.
    pub fn evidence(&self) -> Evidence {
        self.failure.evidence()
    }

    /// What broke it.
    pub fn failure(&self) -> &Failure {
        &self.failure
    }

    /// Why the request was not sent again:
    /// [`ResponseAlreadyDelivered`](RetryDenied::ResponseAlreadyDelivered), or the verdict's reason
    /// where the body broke before it was delivered. Where the answer as a whole is the third one,
    /// the reason is [`NotIdempotent`](RetryDenied::NotIdempotent).
    pub fn denied(&self) -> RetryDenied {
        self.denied
    }

    /// The bytes that the caller got before it.
    pub fn delivered_bytes(&self) -> u64 {
        self.delivered
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "response body broke after {} bytes: {}; no retry: {}",
            self.delivered, self.failure, self.denied
        )
    }
}

impl fmt::Debug for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyError")
            .field("failure", &self.failure)
            .field("denied", &self.denied)
            .field("delivered_bytes", &self.delivered)
            .finish_non_exhaustive()
    }
}

impl StdError for BodyError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}
