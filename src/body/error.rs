//! What is wrong with a body, as the client below and the caller above read it.

use std::{error, fmt, sync::Arc};

use crate::BoxError;

/// A fault found by this crate, not by the body's own source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("the attempt is over: its body was cut off")]
    CutOff,
    #[error("the body ended after {sent} of {expected} bytes")]
    Short { expected: u64, sent: u64 },
    #[error("the body is longer than its {expected} bytes")]
    Long { expected: u64 },
    #[error("the body has {exact} bytes, but content-length says {declared}")]
    Misdeclared { declared: u64, exact: u64 },
    #[error("the body was handed out before and not kept")]
    Gone,
    #[error("the body is not as long as in the first attempt")]
    Resized,
}

/// The error of a body's own source, shared: HTTP/2 clients lose it, so the call keeps a second handle.
#[derive(Debug, Clone)]
pub(super) struct SourceError(Arc<BoxError>);

impl SourceError {
    pub(super) fn new(error: BoxError) -> Self {
        Self(Arc::new(error))
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request body failed")
    }
}

impl error::Error for SourceError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&**self.0)
    }
}

/// Why the next attempt has no body; nothing of it was sent.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// It could not be opened, encoded, or does not fit its declared length.
    Failed(BoxError),
    /// It could be opened, and is not what the first attempt carried.
    Changed(BoxError),
}

impl From<OpenError> for BoxError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Failed(error) | OpenError::Changed(error) => error,
        }
    }
}
