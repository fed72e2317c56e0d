//! Tower middleware that decides whether an HTTP request may be sent again.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backoff;
#[allow(dead_code, unused_imports, reason = "until the state machine uses it")]
mod body;
mod deadline;
mod drain;
mod error;
pub mod retry_after;

pub use backoff::Backoff;
pub use body::{BodyState, BodyTrace, ReplayBody, Replayability};
pub use deadline::Deadline;
pub use drain::Drain;
pub use error::ConfigError;

/// Any error, boxed: what inner services, bodies and hooks may fail with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
