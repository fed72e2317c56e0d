//! Auto traits, `Debug`, `Copy`, and pointers that forward.

use std::cell::Cell;
use std::fmt::{Debug, Display};
use std::sync::Arc;

use http::Response;
use tower_http_retry::*;

fn is_plain<T: Debug + Send + Sync + 'static>() {}
fn is_copy<T: Debug + Copy + PartialEq + Send + Sync + 'static>() {}
fn is_fact<T: Debug + Copy + Send + Sync>() {}
fn is_debug<T: Debug + Copy>() {}
fn is_error<T: std::error::Error + Send + Sync + 'static>() {}
fn is_shown<T: Display>() {}
fn is_clone<T: Clone>() {}
fn is_setting<T: Clone + Default>() {}
fn is_ordered<T: Ord>() {}
fn is_key<T: Clone + Eq + std::hash::Hash + Default>() {}
fn is_send<T: Send>() {}
fn is_sync<T: Sync>() {}
fn is_unpin<T: Unpin>() {}

fn values<'a>() {
    is_copy::<AmbiguousResponses>();
    is_copy::<AttemptNumber>();
    is_copy::<Backoff>();
    is_copy::<BodyState>();
    is_copy::<BodyTrace>();
    is_copy::<Deadline>();
    is_copy::<Decision>();
    is_copy::<Delivery>();
    is_copy::<Discard>();
    is_copy::<Evidence>();
    is_copy::<Execution>();
    is_copy::<Failure>();
    is_copy::<FailureKind>();
    is_copy::<Idempotency>();
    is_copy::<IdempotentMethods>();
    is_copy::<IoFailures>();
    is_copy::<NoEarlyData>();
    is_copy::<PeerPromises>();
    is_copy::<Phase>();
    is_copy::<Preconditions>();
    is_copy::<Replayability>();
    is_copy::<RetryAfterHints>();
    is_copy::<RetryDenied>();
    is_copy::<Rule>();
    is_copy::<Step>();
    is_copy::<Verdict>();
    is_fact::<Attempt<'a>>();
    is_fact::<Facts<'a>>();
    is_fact::<Outcome<'a>>();
    // As `Send` as the error that it borrows.
    is_debug::<FailedAttempt<'a>>();
    is_ordered::<Deadline>();
    is_ordered::<Replayability>();
    is_ordered::<Step>();
    is_key::<UpstreamKey>();
    is_shown::<FailureKind>();
    is_shown::<Report>();
    is_shown::<RetryDenied>();
    is_shown::<Verdict>();
}

fn things() {
    is_plain::<AttemptEnded<'static>>();
    is_plain::<AttemptReport>();
    is_plain::<Budget>();
    is_plain::<BudgetBuilder>();
    is_plain::<Budgets>();
    is_plain::<BudgetsBuilder>();
    is_plain::<CallEnded<'static>>();
    is_plain::<Drain>();
    is_plain::<Reconciled>();
    is_plain::<Report>();
    is_plain::<RetryLayer>();
    is_plain::<StandardPolicy>();
    is_plain::<StandardPolicyBuilder>();
    is_plain::<Token>();
    is_plain::<Upstream>();
    is_plain::<UpstreamKey>();
    is_unpin::<ReplayBody>();
    is_plain::<ReplayBody>();
    is_clone::<RetryLayer<Box<dyn Policy>>>();
    is_clone::<Retry<(), Box<dyn Policy>>>();
    is_clone::<Drain>();
    is_setting::<Budget>();
    is_setting::<Budgets>();
    is_setting::<StandardPolicy>();
    is_setting::<Upstream>();
}

/// A body that is neither `Sync` nor `Unpin`, as many are.
struct Awkward(Cell<u8>, std::marker::PhantomPinned);

/// An error carries a response of whatever type, and is still everything an error should be.
fn errors() {
    is_error::<Error>();
    is_error::<AmbiguousFailure>();
    is_error::<RequestFailed>();
    is_error::<BodyError>();
    is_error::<ConfigError>();
    is_error::<EvidenceError>();
    is_send::<Result<Response<ResponseBody<Awkward>>, Error>>();
}

/// An inner service that is not `Sync` leaves the layer's future `Send`.
fn futures<S, P, B>()
where
    S: tower::Service<http::Request<ReplayBody>, Response = Response<B>> + Send,
    S::Future: Send,
    B: Send,
    P: Policy,
{
    is_send::<future::ResponseFuture<S, P, B>>();
    is_send::<Retry<S, P>>();
}

fn shared<S: Sync + Send>() {
    is_sync::<Retry<S>>();
}

fn pointers<P, C, O, R, Q>()
where
    P: Policy,
    C: Classify,
    O: Observer,
    R: Refresh,
    Q: Reconcile,
{
    fn policy<T: Policy>() {}
    fn classify<T: Classify>() {}
    fn observer<T: Observer>() {}
    fn refresh<T: Refresh>() {}
    fn reconcile<T: Reconcile>() {}
    policy::<Box<P>>();
    policy::<Arc<P>>();
    policy::<Box<dyn Policy>>();
    policy::<Arc<dyn Policy>>();
    classify::<Arc<C>>();
    classify::<Arc<dyn Classify>>();
    observer::<Arc<O>>();
    observer::<Arc<dyn Observer>>();
    refresh::<Arc<R>>();
    reconcile::<Arc<Q>>();
}
