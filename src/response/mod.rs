//! Responses: their bodies, when they are delivered, and what happens to those that are not.

mod ahead;
mod body;
mod counted;
mod error;

use std::time::Duration;

pub(crate) use ahead::{Ahead, Until};
pub use body::ResponseBody;
pub(crate) use counted::{Fresh, Reader, content_length, is_bodiless};
pub use error::BodyError;

/// When a response is handed to the caller. From then on nothing is retried (step 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Delivery {
    /// At its headers. The default: nothing is late, nothing is buffered.
    AtHeaders,
    /// At the first frame of its body, or its end: a body that dies before is still retried.
    AtFirstByte,
    /// When its body is complete, or longer than `limit` bytes: a body that dies before is still
    /// retried, and the policy sees the bytes ([`Attempt::body`](crate::Attempt::body)). A longer
    /// body is streamed, nothing lost.
    Whole {
        /// In bytes.
        limit: usize,
    },
}

impl Delivery {
    /// How far a body is read before it is delivered.
    pub(crate) fn until(self) -> Option<Until> {
        match self {
            Self::AtHeaders => None,
            Self::AtFirstByte => Some(Until::FirstFrame),
            Self::Whole { limit } => Some(Until::Bytes(limit)),
        }
    }
}

/// How much of a failed response is read before a wait, so that its connection can be used again.
/// Default: what comes within 25 ms, up to 64 KiB. The time counts into the backoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct Discard {
    time: Duration,
    bytes: usize,
}

impl Discard {
    /// Reads nothing: the failed response is dropped at once.
    pub fn none() -> Self {
        Self {
            time: Duration::ZERO,
            bytes: 0,
        }
    }

    /// The longest time that reading may take.
    pub fn within(self, time: Duration) -> Self {
        Self { time, ..self }
    }

    /// The most bytes that are read.
    pub fn up_to(self, bytes: usize) -> Self {
        Self { bytes, ..self }
    }

    pub(crate) fn time(self) -> Duration {
        self.time
    }

    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }
}

impl Default for Discard {
    fn default() -> Self {
        Self {
            time: Duration::from_millis(25),
            bytes: 64 * 1024,
        }
    }
}
