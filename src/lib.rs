//! Tower middleware that decides whether an HTTP request may be sent again.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "hyper")]
mod adapter;
mod answer;
mod attempt;
mod backoff;
mod body;
mod budget;
mod budgets;
mod call;
mod deadline;
mod drain;
mod ended;
mod error;
mod evidence;
pub mod future;
mod idempotency;
mod judge;
mod layer;
pub mod observe;
mod policy;
mod random;
mod reconcile;
mod refresh;
mod report;
mod response;
pub mod retry_after;
mod service;
mod shared;
mod snapshot;
mod upstream_key;

#[cfg(feature = "hyper")]
pub use adapter::HyperService;
#[cfg(feature = "reqwest")]
pub use adapter::ReqwestService;
pub use attempt::{Attempt, AttemptNumber, NoEarlyData, Outcome};
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
pub use error::{AmbiguousFailure, BoxedBody, ConfigError, Error, RequestFailed};
pub use evidence::{
    Classify, Evidence, EvidenceError, Execution, FailedAttempt, Failure, FailureKind,
    PeerPromises, Phase,
};
pub use idempotency::Idempotency;
pub use layer::RetryLayer;
pub use observe::{AttemptEnded, CallEnded, Observer};
pub use policy::{
    AmbiguousResponses, Decision, Facts, IdempotentMethods, IoFailures, Policy, Preconditions,
    RetryAfterHints, RetryDenied, Rule, StandardPolicy, StandardPolicyBuilder, Step, Upstream,
    Verdict, decide,
};
pub use reconcile::{Reconcile, Reconciled};
pub use refresh::Refresh;
pub use report::{AttemptReport, Report};
pub use response::{BodyError, Delivery, Discard, ResponseBody};
pub use service::Retry;
pub use upstream_key::UpstreamKey;

/// Any error, boxed: what inner services, bodies and hooks may fail with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
