//! Tower middleware that decides whether an HTTP request may be sent again.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backoff;
#[allow(dead_code, unused_imports, reason = "until the state machine uses it")]
mod body;
#[allow(dead_code, reason = "until the state machine uses it")]
mod budget;
#[allow(dead_code, reason = "until the state machine uses it")]
mod budgets;
mod deadline;
mod drain;
mod error;
pub mod retry_after;
#[allow(dead_code, reason = "until the state machine uses it")]
mod upstream_key;

pub use backoff::Backoff;
#[cfg(feature = "fs")]
pub use body::FileBody;
pub use body::{BodyState, BodyTrace, ReplayBody, Replayability};
#[cfg(feature = "multipart")]
pub use body::{Multipart, Part};
pub use budget::{Budget, BudgetBuilder, Token};
pub use budgets::{Budgets, BudgetsBuilder};
pub use deadline::Deadline;
pub use drain::Drain;
pub use error::ConfigError;
pub use upstream_key::UpstreamKey;

/// Any error, boxed: what inner services, bodies and hooks may fail with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
