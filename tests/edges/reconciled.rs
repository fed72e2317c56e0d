//! What a reconciliation means for everything else that was known of the attempt.

use std::sync::{Arc, Mutex};

use http::{HeaderName, HeaderValue, Method, StatusCode, request};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_http_retry::{
    AmbiguousResponses, Attempt, BoxError, Evidence, Execution, Outcome, Reconcile, Reconciled,
    Report, RetryLayer, Rule, StandardPolicy, Upstream,
};

use crate::support::script::{Reply, Script};
use crate::support::{MS, layer, policy, request};
use crate::{failed_post, text};

struct NotExecuted;
impl Reconcile for NotExecuted {
    async fn reconcile(&self, _: &request::Parts, _: Outcome<'_>) -> Result<Reconciled, BoxError> {
        Ok(Reconciled::NotExecuted)
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconciled_503_is_not_retried_earlier_than_asked() {
    let script = Script::new([
        Reply::status(503).header("retry-after", "5"),
        Reply::status(200),
    ]);
    let service = layer().with_reconcile(NotExecuted).layer(script.clone());
    service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap();
    let waits = script.waits();
    assert!(waits.iter().all(|wait| *wait >= 5000 * MS), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reconciled_503_with_a_longer_hint_than_agreed_to_is_not_retried() {
    let script = Script::new([
        Reply::status(503).header("retry-after", "3600"),
        Reply::status(200),
    ]);
    let service = layer().with_reconcile(NotExecuted).layer(script.clone());
    let _ = service.oneshot(request(Method::POST, "order")).await;
    assert_eq!(script.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_header_stops_after_a_reconciliation_too() {
    let upstream = Upstream::new().stop_header(
        HeaderName::from_static("x-should-retry"),
        HeaderValue::from_static("false"),
    );
    let policy = policy().default_upstream(upstream).build().unwrap();
    let script = Script::new([
        Reply::status(503).header("x-should-retry", "false"),
        Reply::status(200),
    ]);
    let service = RetryLayer::new(policy)
        .with_reconcile(NotExecuted)
        .layer(script.clone());
    let _ = service.oneshot(request(Method::POST, "order")).await;
    assert_eq!(
        script.attempts(),
        1,
        "a response header that forbids retries"
    );
}

#[tokio::test(start_paused = true)]
async fn a_reconciliation_does_not_multiply_layers() {
    // The inner layer gets its three attempts refused and delivers its last 503.
    let inner = RetryLayer::new(
        policy()
            .retries(2)
            .ambiguous_responses(AmbiguousResponses::Deliver)
            .build()
            .unwrap(),
    );
    let replies = [429, 429, 503, 429, 429, 503, 429, 429, 503, 429, 429, 503];
    let script = Script::new(replies.map(Reply::status));
    let service = ServiceBuilder::new()
        .layer(layer().with_reconcile(NotExecuted))
        .layer(inner)
        .service(script.clone());
    let _ = service.oneshot(request(Method::POST, "order")).await;
    assert_eq!(script.attempts(), 3, "layers never multiply");
}

#[tokio::test(start_paused = true)]
async fn a_reconciled_503_that_is_not_retried_is_delivered_whole() {
    let script = Script::new([Reply::status(503).body(b"busy")]);
    let service = RetryLayer::new(StandardPolicy::none())
        .with_reconcile(NotExecuted)
        .layer(script);
    let response = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(
        response.extensions().get::<Report>().unwrap().execution(),
        Execution::NotExecuted
    );
    assert_eq!(text(response).await, "busy");
}

struct Outcomes(Arc<Mutex<Vec<Evidence>>>);
impl Reconcile for Outcomes {
    async fn reconcile(
        &self,
        _: &request::Parts,
        outcome: Outcome<'_>,
    ) -> Result<Reconciled, BoxError> {
        self.0.lock().unwrap().push(outcome.evidence());
        Ok(Reconciled::NotExecuted)
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_that_says_not_executed_does_not_hide_an_earlier_unknown() {
    let policy = policy()
        .rule(|attempt: &Attempt<'_>| {
            (attempt.status() == Some(StatusCode::SERVICE_UNAVAILABLE)
                && attempt.number().get() == 1)
                .then_some(Rule::Retry)
        })
        .build()
        .unwrap();
    let seen = Arc::default();
    let script = Script::new([503, 429, 429, 429].map(Reply::status));
    let service = RetryLayer::new(policy)
        .with_reconcile(Outcomes(Arc::clone(&seen)))
        .layer(script);
    let answer = service.oneshot(request(Method::POST, "order")).await;
    assert!(answer.unwrap_err().is_ambiguous());
}

struct Never;
impl Reconcile for Never {
    async fn reconcile(&self, _: &request::Parts, _: Outcome<'_>) -> Result<Reconciled, BoxError> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconciliation_cut_by_the_deadline_is_the_third_answer_in_time() {
    let script = Script::new([Reply::status(503)]);
    let service = layer()
        .with_deadline(1000 * MS)
        .with_reconcile(Never)
        .layer(script.clone());
    let start = tokio::time::Instant::now();
    let error = failed_post(service).await;
    assert!(error.is_ambiguous());
    assert_eq!(start.elapsed(), 1000 * MS);
}

/// Panics at once, before its future exists.
struct Rude;
impl Reconcile for Rude {
    fn reconcile(
        &self,
        _: &request::Parts,
        _: Outcome<'_>,
    ) -> impl Future<Output = Result<Reconciled, BoxError>> + Send {
        if true {
            panic!("rude");
        }
        std::future::ready(Ok(Reconciled::Unknown))
    }
}

#[tokio::test(start_paused = true)]
async fn a_rude_reconciler_is_an_unknown() {
    let service = layer()
        .with_reconcile(Rude)
        .layer(Script::new([Reply::status(503)]));
    let error = failed_post(service).await;
    assert!(error.report().attempts()[0].reconcile_error().is_some());
}
