//! A call, and what the server does to it.

use std::fmt;
use std::time::Duration;

use http::Method;
use tower_http_retry::{Delivery, Idempotency, PeerPromises};

use super::cue::Cue;
use super::payload::Payload;
use super::server::Protocol;

/// One call.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) method: Method,
    /// What the caller knows: the judge's measure. The layer is told nothing of it.
    pub(crate) nature: Idempotency,
    pub(crate) payload: Payload,
    pub(crate) protocol: Protocol,
    /// One an attempt. The server is healthy from then on.
    pub(crate) cues: Vec<Cue>,
    pub(crate) delivery: Delivery,
    pub(crate) attempt_timeout: Duration,
    pub(crate) peer_promises: PeerPromises,
    pub(crate) doubt: Doubt,
    pub(crate) limit: Limit,
}

/// What the caller does about an ambiguous outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// Takes the third answer.
    Accept,
    /// Has the layer ask the server's ledger.
    AskLedger,
}

/// What stands in the way of a retry on the caller's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    None,
    /// This much time for the whole call.
    Deadline(Duration),
    /// The process is about to end.
    Draining,
    /// No tokens left in the retry budget.
    EmptyBudget,
}

impl Scene {
    pub(crate) fn get() -> Self {
        Self::new(Method::GET, Payload::Empty)
    }

    pub(crate) fn put(payload: Payload) -> Self {
        Self::new(Method::PUT, payload)
    }

    pub(crate) fn post(payload: Payload) -> Self {
        Self::new(Method::POST, payload)
    }

    fn new(method: Method, payload: Payload) -> Self {
        Self {
            nature: Idempotency::of_method(&method),
            method,
            payload,
            protocol: Protocol::Http1,
            cues: Vec::new(),
            delivery: Delivery::AtHeaders,
            attempt_timeout: Duration::from_secs(10),
            peer_promises: PeerPromises::Trust,
            doubt: Doubt::Accept,
            limit: Limit::None,
        }
    }

    pub(crate) fn meets<const N: usize>(self, cues: [Cue; N]) -> Self {
        Self {
            cues: cues.into(),
            ..self
        }
    }

    /// With an `idempotency-key`.
    pub(crate) fn keyed(self) -> Self {
        Self {
            nature: Idempotency::Keyed,
            ..self
        }
    }

    /// Waits for the whole response before anything is delivered.
    pub(crate) fn whole(self) -> Self {
        Self {
            delivery: Delivery::Whole { limit: 64 * 1024 },
            ..self
        }
    }

    pub(crate) fn impatient(self) -> Self {
        Self {
            attempt_timeout: Duration::from_millis(400),
            ..self
        }
    }

    pub(crate) fn asking(self) -> Self {
        Self {
            doubt: Doubt::AskLedger,
            ..self
        }
    }

    pub(crate) fn within(self, limit: Limit) -> Self {
        Self { limit, ..self }
    }

    pub(crate) fn http2(self) -> Self {
        Self {
            protocol: Protocol::Http2,
            ..self
        }
    }

    /// Takes no peer's word for it that a request was not processed.
    pub(crate) fn distrusting(self) -> Self {
        Self {
            peer_promises: PeerPromises::Distrust,
            ..self
        }
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nature == Idempotency::Keyed {
            f.write_str("keyed ")?;
        }
        write!(f, "{} {}", self.method, self.payload)
    }
}
