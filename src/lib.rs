//! Tower middleware that sends an HTTP request again only where that is safe, and says so when nobody
//! can know.
//!
//! A second attempt happens only when idempotency, body, evidence of execution, deadline and retry
//! budget all permit it. The method alone never decides. And there are three answers, never two:
//!
//! ```text
//!               ┌───────────────────────────────────────────────┐
//!               │ RetryLayer                                    │
//!  request ────▶│  attempt ──▶ facts ──▶ decide: nine steps ─┐  │
//!               │     ▲                                      │  │
//!               │     └── wait ◀── budget ◀── retry ◀────────┤  │
//!               └────────────────────────────────────────────┼──┘
//!                 Ok(response)              accepted, or denied a retry
//!                 Err(Error::Failed)        not executed, or safe to send again
//!                 Err(Error::Ambiguous)     perhaps executed: never send it again blindly
//! ```
//!
//! ```
//! use std::time::Duration;
//! use http::{Request, Response};
//! use tower::{Layer, Service, ServiceExt};
//! use tower_http_retry::{BoxError, Error, ReplayBody, RetryLayer, StandardPolicy};
//!
//! # async fn example<S, B>(client: S) -> Result<(), BoxError>
//! # where
//! #     S: Service<Request<ReplayBody>, Response = Response<B>> + Clone,
//! #     S::Error: Into<BoxError>,
//! #     B: http_body::Body + Send + 'static,
//! #     B::Data: Send,
//! #     B::Error: Into<BoxError>,
//! # {
//! // `client`: any service of `http::Request<ReplayBody>`, such as `HyperService` or `ReqwestService`.
//! let mut service = RetryLayer::new(StandardPolicy::default())
//!     .with_deadline(Duration::from_secs(10))
//!     .layer(client);
//!
//! let order = Request::post("http://shop.example/orders").body("rope".into())?;
//! match service.ready().await?.call(order).await {
//!     Ok(response) => println!("answered: {}", response.status()),
//!     Err(Error::Failed(failure)) => println!("not executed, or safe to send again: {failure}"),
//!     Err(Error::Ambiguous(doubt)) => println!("find out before it is sent again: {doubt}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Where to read on
//!
//! - [`RetryLayer`]: all settings of a layer. [`StandardPolicy`]: what is retried; [`Policy`]: your own.
//! - [`ReplayBody`]: bodies that can be sent again. [`Error`] and [`Report`]: what the caller learns.
//! - [`decide`] and [`Facts`]: the decision as a pure function, to test a policy as a table.
//! - [`docs`], the guides of the repository: the decision order, evidence, bodies, policies,
//!   budgets and backoff, composition with other layers, migrating, design; and [`observe`] for operations.
//!
//! # Features
//!
//! None by default. A feature adds API and never changes behaviour, except that a transport's
//! feature lets its errors be read.
//!
//! | feature | adds |
//! |---|---|
//! | `hyper` | `HyperService` over hyper-util's client; reads errors of hyper and h2 |
//! | `reqwest` | `ReqwestService`; reads errors of reqwest; implies `hyper` |
//! | `rustls` | tells a refused certificate from a broken handshake |
//! | `fs` | files as request bodies |
//! | `multipart` | `multipart/form-data` request bodies |
//! | `tracing` | `observe::Tracing`, one event per decision |
//! | `metrics` | `observe::Metrics` |
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
#[cfg(doc)]
pub mod docs;
mod drain;
mod ended;
mod error;
mod evidence;
pub mod future;
mod head;
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

/// The examples of the README are tests.
#[cfg(all(doctest, feature = "hyper"))]
#[doc = include_str!("../README.md")]
mod readme {}
