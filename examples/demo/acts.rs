//! The calls that are made.

use std::time::Duration;

use http::StatusCode;

use super::cue::Cue;
use super::cue::Effect::{Executed, Nothing};
use super::payload::Payload;
use super::scene::{Limit, Scene};

/// Calls on one subject.
#[derive(Debug)]
pub(crate) struct Act {
    pub(crate) title: &'static str,
    pub(crate) scenes: Vec<Scene>,
}

/// The programme.
pub(crate) fn acts() -> Vec<Act> {
    vec![
        Act {
            title: "All is well; and no connection: nothing was sent, so anything may be sent again",
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
