//! The calls that are made, and what the server does to each.

use std::fmt;
use std::time::Duration;

use http::{Method, StatusCode};
use tower_http_retry::{Delivery, Idempotency, PeerPromises};

use super::cue::Cue;
use super::cue::Effect::{Executed, Nothing};
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

/// Calls on one subject.
#[derive(Debug)]
pub(crate) struct Act {
    pub(crate) title: &'static str,
    pub(crate) scenes: Vec<Scene>,
}

impl Scene {
    fn get() -> Self {
        Self::new(Method::GET, Payload::Empty)
    }

    fn put(payload: Payload) -> Self {
        Self::new(Method::PUT, payload)
    }

    fn post(payload: Payload) -> Self {
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

    fn meets<const N: usize>(self, cues: [Cue; N]) -> Self {
        Self {
            cues: cues.into(),
            ..self
        }
    }

    /// With an `idempotency-key`.
    fn keyed(self) -> Self {
        Self {
            nature: Idempotency::Keyed,
            ..self
        }
    }

    /// Waits for the whole response before anything is delivered.
    fn whole(self) -> Self {
        Self {
            delivery: Delivery::Whole { limit: 64 * 1024 },
            ..self
        }
    }

    fn impatient(self) -> Self {
        Self {
            attempt_timeout: Duration::from_millis(400),
            ..self
        }
    }

    fn asking(self) -> Self {
        Self {
            doubt: Doubt::AskLedger,
            ..self
        }
    }

    fn within(self, limit: Limit) -> Self {
        Self { limit, ..self }
    }

    fn http2(self) -> Self {
        Self {
            protocol: Protocol::Http2,
            ..self
        }
    }

    /// Takes no peer's word for it that a request was not processed.
    fn distrusting(self) -> Self {
        Self {
            peer_promises: PeerPromises::Distrust,
            ..self
        }
    }
}

/// The programme.
pub(crate) fn acts() -> Vec<Act> {
    vec![
        Act {
            title: "No connection: nothing was sent, so anything may be sent again",
            scenes: vec![
                Scene::get(),
                Scene::post(Payload::Bytes).meets([Cue::Refuse]),
                Scene::post(Payload::OneShot).meets([Cue::Refuse, Cue::Refuse]),
                Scene::post(Payload::Bytes).meets([Cue::Refuse, Cue::Refuse, Cue::Refuse]),
                Scene::put(Payload::Encoded).meets([Cue::CloseAtOnce]),
            ],
        },
        Act {
            title: "The connection breaks: was it executed?",
            scenes: vec![
                Scene::post(Payload::Bytes).meets([Cue::CloseUnread]),
                Scene::get().meets([Cue::Reset(Executed)]),
                Scene::put(Payload::Bytes).meets([Cue::Reset(Executed)]),
                Scene::post(Payload::Bytes).meets([Cue::Reset(Executed)]),
                Scene::post(Payload::Bytes).meets([Cue::Reset(Nothing)]),
                Scene::post(Payload::OneShot).meets([Cue::Reset(Executed)]),
                Scene::get().meets([Cue::HalfStatusLine(Executed)]),
                Scene::post(Payload::Bytes).meets([Cue::HalfStatusLine(Executed)]),
                Scene::get().meets([Cue::Silence(Executed)]).impatient(),
                Scene::post(Payload::Bytes)
                    .meets([Cue::Silence(Executed)])
                    .impatient(),
            ],
        },
        Act {
            title: "The ways out: a key that the server knows, or a question",
            scenes: vec![
                Scene::post(Payload::Bytes)
                    .keyed()
                    .meets([Cue::Reset(Executed)]),
                Scene::post(Payload::Buffered)
                    .keyed()
                    .meets([Cue::Reset(Nothing), Cue::Reset(Executed)]),
                Scene::post(Payload::Bytes)
                    .asking()
                    .meets([Cue::Reset(Executed)]),
                Scene::post(Payload::Bytes)
                    .asking()
                    .meets([Cue::Reset(Nothing)]),
            ],
        },
        Act {
            title: "The response body breaks",
            scenes: vec![
                Scene::get().meets([Cue::CutBody]),
                Scene::get().whole().meets([Cue::CutBody]),
                Scene::post(Payload::Bytes).whole().meets([Cue::CutBody]),
            ],
        },
        Act {
            title: "The server says no",
            scenes: vec![
                Scene::put(Payload::Buffered)
                    .meets([Cue::status(StatusCode::SERVICE_UNAVAILABLE, Executed)]),
                Scene::put(Payload::OneShot)
                    .meets([Cue::status(StatusCode::SERVICE_UNAVAILABLE, Nothing)]),
                Scene::post(Payload::Bytes)
                    .meets([Cue::status(StatusCode::SERVICE_UNAVAILABLE, Executed)]),
                Scene::get().meets([Cue::refusal(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "retry-after",
                    "1",
                )]),
                Scene::post(Payload::Bytes).meets([Cue::refusal(
                    StatusCode::TOO_MANY_REQUESTS,
                    "retry-after-ms",
                    "40",
                )]),
                Scene::get().meets([Cue::refusal(
                    StatusCode::TOO_MANY_REQUESTS,
                    "retry-after",
                    "3600",
                )]),
                Scene::post(Payload::Bytes).meets([Cue::status(StatusCode::TOO_EARLY, Nothing)]),
                Scene::post(Payload::Bytes).meets([Cue::status(StatusCode::TOO_EARLY, Nothing); 2]),
                Scene::get().meets([Cue::status(StatusCode::INTERNAL_SERVER_ERROR, Nothing)]),
                Scene::post(Payload::Bytes)
                    .meets([Cue::status(StatusCode::INTERNAL_SERVER_ERROR, Executed)]),
                #[cfg(feature = "fs")]
                Scene::put(Payload::File)
                    .meets([Cue::status(StatusCode::SERVICE_UNAVAILABLE, Nothing)]),
                #[cfg(feature = "multipart")]
                Scene::post(Payload::Multipart)
                    .meets([Cue::status(StatusCode::TOO_MANY_REQUESTS, Nothing)]),
            ],
        },
        Act {
            title: "The caller has limits of its own",
            scenes: vec![
                Scene::get()
                    .within(Limit::EmptyBudget)
                    .meets([Cue::Reset(Nothing)]),
                Scene::get()
                    .within(Limit::Draining)
                    .meets([Cue::status(StatusCode::SERVICE_UNAVAILABLE, Nothing)]),
                Scene::put(Payload::Bytes)
                    .within(Limit::Deadline(Duration::from_millis(600)))
                    .meets([Cue::refusal(
                        StatusCode::SERVICE_UNAVAILABLE,
                        "retry-after",
                        "1",
                    )]),
                Scene::put(Payload::Failing),
                Scene::post(Payload::Failing),
            ],
        },
        Act {
            title: "HTTP/2: the server promises that it did nothing",
            scenes: vec![
                Scene::post(Payload::Bytes).http2(),
                Scene::post(Payload::Bytes)
                    .http2()
                    .meets([Cue::RefuseStream]),
                Scene::post(Payload::Bytes)
                    .http2()
                    .distrusting()
                    .meets([Cue::RefuseStream]),
                Scene::post(Payload::Bytes).http2().meets([Cue::GoAway]),
                Scene::get().http2().meets([Cue::GoAway]),
                Scene::post(Payload::Bytes)
                    .http2()
                    .meets([Cue::Reset(Executed)]),
            ],
        },
    ]
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nature == Idempotency::Keyed {
            f.write_str("keyed ")?;
        }
        write!(f, "{} {}", self.method, self.payload)
    }
}
