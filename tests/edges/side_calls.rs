//! A service that sends the request, and then fails in a call of its own: its error speaks of
//! another request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_http_retry::{
    BoxError, Error, EvidenceError, FailedAttempt, Failure, FailureKind, ReplayBody, RetryLayer,
    StandardPolicy,
};

use crate::support::body::TestBody;
use crate::support::script::{Reply, Script};
use crate::support::{layer, request};
use crate::{Answer, failed_post};

#[derive(Debug, thiserror::Error)]
#[error("the audit log is down")]
struct Wrapped(#[source] Error);

/// Executes the request, and then fails in the audit log behind `side`.
fn audited(
    side: RetryLayer,
    fails: impl Fn(Error) -> BoxError + Clone + Send + 'static,
    executed: Arc<AtomicUsize>,
) -> impl Service<
    Request<ReplayBody>,
    Response = Answer,
    Error = BoxError,
    Future = impl Future<Output = Result<Answer, BoxError>> + Send,
> + Clone {
    let side = side.layer(Script::new(
        (0..10).map(|_| Reply::fails(Failure::not_sent(FailureKind::Connect))),
    ));
    service_fn(move |req: Request<ReplayBody>| {
        let (side, fails, executed) = (side.clone(), fails.clone(), Arc::clone(&executed));
        async move {
            req.into_body().collect().await?;
            executed.fetch_add(1, Ordering::SeqCst);
            side.oneshot(request(Method::GET, ())).await.map_err(fails)
        }
    })
}

/// A duplicate of the POST, or "failed", would be wrong.
async fn is_ambiguous(
    outer: RetryLayer,
    side: RetryLayer,
    fails: impl Fn(Error) -> BoxError + Clone + Send + 'static,
) -> Failure {
    let executed = Arc::new(AtomicUsize::new(0));
    let error = failed_post(outer.layer(audited(side, fails, Arc::clone(&executed)))).await;
    assert_eq!(executed.load(Ordering::SeqCst), 1, "a duplicate of a POST");
    match error {
        Error::Ambiguous(doubt) => *doubt.failure().unwrap(),
        Error::Failed(_) => panic!("{error}"),
    }
}

fn once() -> RetryLayer {
    RetryLayer::new(StandardPolicy::none())
}

#[tokio::test(start_paused = true)]
async fn one_that_failed_is_no_proof_about_this_request() {
    is_ambiguous(layer(), once(), |error| Wrapped(error).into()).await;
    is_ambiguous(layer(), once(), Into::into).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_gave_up_is_not_reported_as_a_plain_failure() {
    is_ambiguous(layer(), layer(), |error| Wrapped(error).into()).await;
    is_ambiguous(layer(), layer(), Into::into).await;
}

#[tokio::test(start_paused = true)]
async fn a_statement_is_not_overruled_by_what_it_wraps() {
    let state = |error: Error| {
        EvidenceError::new(Failure::sent_no_response(FailureKind::Reset), error).into()
    };
    is_ambiguous(layer(), once(), state).await;
}

#[tokio::test(start_paused = true)]
async fn classifiers_go_before_the_built_in_ones() {
    let outer = layer().with_classifier(|_: &FailedAttempt<'_>| {
        Some(Failure::sent_no_response(FailureKind::Reset))
    });
    let failure = is_ambiguous(outer, once(), |error| Wrapped(error).into()).await;
    let said = Failure::sent_no_response(FailureKind::Reset);
    assert_eq!(failure, said, "the classifier's word");
}

/// What a service said of its own failure does not hide that the request's body failed.
#[tokio::test(start_paused = true)]
async fn a_failed_body_is_the_kind_of_a_statement_too() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&attempts);
    let below = service_fn(move |req: Request<ReplayBody>| {
        counter.fetch_add(1, Ordering::SeqCst);
        async move {
            let _ = req.into_body().collect().await;
            let failure = Failure::sent_no_response(FailureKind::Reset);
            Err::<Response<TestBody>, BoxError>(EvidenceError::new(failure, "reset").into())
        }
    });
    let call = layer()
        .layer(below)
        .oneshot(request(Method::PUT, crate::heads::broken_body()));
    let error = call.await.unwrap_err();
    assert_eq!(error.failure().unwrap().kind(), FailureKind::RequestBody);
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
}
