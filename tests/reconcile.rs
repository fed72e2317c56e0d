//! Finding out what became of an ambiguous operation.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests

mod support;

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request, Response, StatusCode, request, response};
use http_body_util::BodyExt;
use support::script::{Reply, Script};
use support::{MS, layer, request};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt};
use tower_http_retry::{
    AmbiguousResponses, Attempt, AttemptNumber, BoxError, Budget, Decision, Drain, Error, Evidence,
    Execution, Failure, FailureKind, Outcome, Policy, Reconcile, Reconciled, Refresh, ReplayBody,
    Report, RetryDenied, RetryLayer, Rule, StandardPolicy,
};

/// Says what it was told to, and counts.
struct Oracle<F> {
    asked: Arc<AtomicUsize>,
    says: F,
}

impl<F, Fut> Reconcile for Oracle<F>
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Reconciled, BoxError>> + Send,
{
    async fn reconcile(
        &self,
        request: &request::Parts,
        ambiguous: Outcome<'_>,
    ) -> Result<Reconciled, BoxError> {
        assert_eq!(request.method, Method::POST);
        assert_eq!(request.uri, "http://shop.example/orders");
        assert!(ambiguous.response().is_some() || ambiguous.failure().is_some());
        self.asked.fetch_add(1, Ordering::SeqCst);
        (self.says)().await
    }
}

fn oracle<F, Fut>(says: F) -> (Oracle<F>, Arc<AtomicUsize>)
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Reconciled, BoxError>> + Send,
{
    let asked = Arc::new(AtomicUsize::new(0));
    (
        Oracle {
            asked: Arc::clone(&asked),
            says,
        },
        asked,
    )
}

fn reset() -> Reply {
    Reply::fails(Failure::sent_no_response(FailureKind::Reset))
}

#[tokio::test(start_paused = true)]
async fn not_executed_is_tried_again() {
    let (oracle, asked) = oracle(async || Ok(Reconciled::NotExecuted));
    let script = Script::new([reset(), Reply::status(201)]);
    let service = layer().with_reconcile(oracle).layer(script.clone());
    let response = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap();
    assert_eq!(response.status(), 201);
    assert_eq!(script.waits(), [100 * MS]);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let report = response.extensions().get::<Report>().unwrap();
    let first = &report.attempts()[0];
    assert_eq!(first.reconciled(), Some(Execution::NotExecuted));
    assert_eq!(first.evidence(), Evidence::NotSent);
    assert!(!report.prior_unknown(), "it is known now");
}

#[tokio::test(start_paused = true)]
async fn the_nine_steps_are_asked_again() {
    let (oracle, asked) = oracle(async || Ok(Reconciled::NotExecuted));
    let policy = support::policy().retries(1).build().unwrap();
    let script = Script::new([reset(), reset()]);
    let service = RetryLayer::new(policy)
        .with_reconcile(oracle)
        .layer(script.clone());
    let error = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Failed(_)));
    assert_eq!(error.denied(), Some(RetryDenied::MaxAttempts));
    assert_eq!(error.execution(), Execution::NotExecuted);
    assert_eq!(
        asked.load(Ordering::SeqCst),
        2,
        "once for each ambiguous attempt"
    );

    let (oracle, _) = self::oracle(async || Ok(Reconciled::NotExecuted));
    let empty = Budget::builder()
        .capacity(1)
        .floor_per_second(0.0)
        .ratio(0.0)
        .build()
        .unwrap();
    empty.try_withdraw().unwrap().spend();
    let service = layer()
        .with_budgets(empty)
        .with_reconcile(oracle)
        .layer(Script::new([reset()]));
    let error = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Failed(_)));
    assert_eq!(error.denied(), Some(RetryDenied::BudgetExhausted));
}

#[tokio::test(start_paused = true)]
async fn an_unexecuted_503_is_tried_again_and_stays_the_answer_if_it_cannot_be() {
    let (oracle, _) = oracle(async || Ok(Reconciled::NotExecuted));
    let script = Script::new([Reply::status(503), Reply::status(201)]);
    let service = layer().with_reconcile(oracle).layer(script);
    assert_eq!(
        service
            .oneshot(request(Method::POST, "order"))
            .await
            .unwrap()
            .status(),
        201
    );

    let (oracle, _) = self::oracle(async || Ok(Reconciled::NotExecuted));
    let policy = support::policy().retries(0).build().unwrap();
    let script = Script::new([Reply::status(503).body(b"busy")]);
    let service = RetryLayer::new(policy).with_reconcile(oracle).layer(script);
    let response = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap();
    assert_eq!(
        response.status(),
        503,
        "known not to be executed: a plain answer"
    );
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!(report.attempts()[0].status().unwrap(), 503);
    assert_eq!(report.execution(), Execution::NotExecuted);
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "busy"
    );
}

#[tokio::test(start_paused = true)]
async fn executed_gives_its_answer() {
    let (oracle, _) = oracle(async || {
        let response = Response::builder().status(201).header("x-order", "17");
        Ok(Reconciled::Executed(
            response.body(Bytes::from_static(b"order 17"))?,
        ))
    });
    let script = Script::new([reset()]);
    let service = layer().with_reconcile(oracle).layer(script.clone());
    let response = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap();
    assert_eq!(response.headers()["x-order"], "17");
    let report = response.extensions().get::<Report>().unwrap().clone();
    assert_eq!(report.attempts()[0].reconciled(), Some(Execution::Answered));
    assert_eq!(report.execution(), Execution::Answered);
    let verdict = report.verdict().unwrap();
    assert_eq!(
        (verdict.decision(), verdict.step()),
        (Decision::Accept, None)
    );
    assert_eq!(verdict.execution(), Execution::Answered);
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "order 17"
    );
    assert_eq!(script.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn unknown_an_error_and_a_panic_leave_the_third_answer_standing() {
    async fn ask<F, Fut>(says: F) -> Error
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reconciled, BoxError>> + Send,
    {
        let (oracle, asked) = oracle(says);
        let service = layer().with_reconcile(oracle).layer(Script::new([reset()]));
        let error = service
            .oneshot(request(Method::POST, "order"))
            .await
            .unwrap_err();
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert!(error.is_ambiguous());
        assert_eq!(
            error.report().attempts()[0].reconciled(),
            Some(Execution::Unknown)
        );
        error
    }
    let text = |error: &Error| {
        error.report().attempts()[0]
            .reconcile_error()
            .map(|error| error.to_string())
    };
    assert_eq!(text(&ask(async || Ok(Reconciled::Unknown)).await), None);
    let failed = ask(async || Err("no route to the ledger".into())).await;
    assert_eq!(text(&failed).unwrap(), "no route to the ledger");
    let panicked = ask(async || panic!("a bug in the hook")).await;
    assert_eq!(text(&panicked).unwrap(), "the reconciler panicked");
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_that_hangs_meets_the_deadline() {
    let (oracle, _) = oracle(std::future::pending);
    let service = layer()
        .with_deadline(400 * MS)
        .with_reconcile(oracle)
        .layer(Script::new([reset()]));
    let start = Instant::now();
    let error = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert_eq!(start.elapsed(), 400 * MS);
    assert!(error.is_ambiguous());
    assert_eq!(error.failure().unwrap().kind(), FailureKind::Reset);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_while_draining() {
    let (oracle, asked) = oracle(async || Ok(Reconciled::NotExecuted));
    let drain = Drain::new();
    drain.start();
    let service = layer()
        .with_drain(drain)
        .with_reconcile(oracle)
        .layer(Script::new([reset()]));
    assert!(
        service
            .oneshot(request(Method::POST, "order"))
            .await
            .unwrap_err()
            .is_ambiguous()
    );
    assert_eq!(asked.load(Ordering::SeqCst), 0);

    let (oracle, _) = self::oracle(std::future::pending);
    let drain = Drain::new();
    let service = layer()
        .with_drain(drain.clone())
        .with_reconcile(oracle)
        .layer(Script::new([reset()]));
    let call = tokio::spawn(service.oneshot(request(Method::POST, "order")));
    tokio::time::sleep(MS).await;
    drain.start();
    assert!(call.await.unwrap().unwrap_err().is_ambiguous());
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_about_what_is_clear() {
    let (oracle, asked) = oracle(async || Ok(Reconciled::Unknown));
    let script = Script::new([
        Reply::status(201),
        Reply::fails(Failure::not_sent(FailureKind::Certificate)),
        Reply::status(404),
    ]);
    let service = layer().with_reconcile(oracle).layer(script);
    for _ in 0..3 {
        let _ = service
            .clone()
            .oneshot(request(Method::POST, "order"))
            .await;
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn one_shot_bodies_and_exhausted_attempts_are_asked_about_too() {
    // Whichever step said no.
    let (oracle, asked) = oracle(async || Ok(Reconciled::Unknown));
    let service = layer().with_reconcile(oracle).layer(Script::new([reset()]));
    let body = tower_http_retry::ReplayBody::one_shot(support::body::TestBody::from(&b"order"[..]));
    let error = service
        .oneshot(request(Method::POST, body))
        .await
        .unwrap_err();
    assert!(error.is_ambiguous());
    assert!(matches!(
        error.denied(),
        Some(RetryDenied::BodyNotReplayable(_))
    ));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_caller_stops_the_reconciler() {
    struct Guard(Arc<AtomicUsize>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&dropped);
    let (oracle, _) = oracle(move || {
        let guard = Guard(Arc::clone(&seen));
        async move {
            let _guard = guard;
            tokio::time::sleep(Duration::from_secs(3600)).await;
            Ok(Reconciled::Unknown)
        }
    });
    let service = layer().with_reconcile(oracle).layer(Script::new([reset()]));
    let call = tokio::spawn(service.oneshot(request(Method::POST, "order")));
    tokio::time::sleep(MS).await;
    call.abort();
    let _ = call.await;
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_delivers_ambiguous_responses_is_helped_as_well() {
    let (oracle, asked) = oracle(async || Ok(Reconciled::NotExecuted));
    let policy = support::policy()
        .ambiguous_responses(AmbiguousResponses::Deliver)
        .build()
        .unwrap();
    let script = Script::new([Reply::status(503), Reply::status(201)]);
    let service = RetryLayer::new(policy).with_reconcile(oracle).layer(script);
    assert_eq!(
        service
            .oneshot(request(Method::POST, "order"))
            .await
            .unwrap()
            .status(),
        201
    );
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

/// Refreshes after every 401, that of a POST as well.
struct Renews(StandardPolicy);

impl Policy for Renews {
    fn rule(&self, attempt: &Attempt<'_>) -> Rule {
        match attempt.status() {
            Some(StatusCode::UNAUTHORIZED) => Rule::Refresh,
            _ => self.0.rule(attempt),
        }
    }

    fn defaults(&self) -> &StandardPolicy {
        &self.0
    }
}

/// To `new`.
struct New;

impl Refresh for New {
    async fn refresh(
        &self,
        _: &request::Parts,
        _: &response::Parts,
    ) -> Result<HeaderValue, BoxError> {
        Ok(HeaderValue::from_static("new"))
    }
}

/// Keeps the credentials that it is asked with.
struct Asked(Arc<Mutex<Vec<HeaderValue>>>);

impl Reconcile for Asked {
    async fn reconcile(
        &self,
        request: &request::Parts,
        _: Outcome<'_>,
    ) -> Result<Reconciled, BoxError> {
        let sent = request.headers.get_all(AUTHORIZATION);
        self.0.lock().unwrap().extend(sent.iter().cloned());
        Ok(Reconciled::Unknown)
    }
}

#[tokio::test(start_paused = true)]
async fn the_reconciler_gets_the_refreshed_credential() {
    let seen = Arc::default();
    let script = Script::new([Reply::status(401), reset()]);
    let service = RetryLayer::new(Renews(support::policy().build().unwrap()))
        .with_refresh(New)
        .with_reconcile(Asked(Arc::clone(&seen)))
        .layer(script.clone());
    let mut request = request(Method::POST, "order");
    let old = HeaderValue::from_static("old");
    request.headers_mut().insert(AUTHORIZATION, old);
    assert!(service.oneshot(request).await.unwrap_err().is_ambiguous());
    assert_eq!(script.attempts(), 2);
    assert_eq!(*seen.lock().unwrap(), ["new"]);
}

/// Says "retry" to everything.
struct Always(StandardPolicy);

impl Policy for Always {
    fn rule(&self, _: &Attempt<'_>) -> Rule {
        Rule::Retry
    }

    fn defaults(&self) -> &StandardPolicy {
        &self.0
    }
}

#[tokio::test(start_paused = true)]
async fn a_careless_policy_is_reconciled_where_the_steps_stop_it() {
    let (oracle, asked) = oracle(async || Ok(Reconciled::NotExecuted));
    let policy = Always(support::policy().retries(1).build().unwrap());
    let script = Script::new([reset(), Reply::status(503)]);
    let service = RetryLayer::new(policy).with_reconcile(oracle).layer(script);
    let response = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn what_was_found_out_of_one_attempt_says_nothing_of_an_earlier_one() {
    let (oracle, asked) = oracle(async || Ok(Reconciled::NotExecuted));
    let policy = support::policy()
        .rule(|attempt| (attempt.status()? == StatusCode::BAD_GATEWAY).then_some(Rule::Retry))
        .build()
        .unwrap();
    let script = Script::new([Reply::status(502), Reply::status(500)]);
    let service = RetryLayer::new(policy).with_reconcile(oracle).layer(script);
    let error = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert!(error.is_ambiguous());
    assert_eq!(error.execution(), Execution::Unknown);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

/// Sends what it is given when it gets to it, whether or not anybody still waits: as a client does
/// whose connection has no free stream.
#[derive(Clone, Default)]
struct Queue {
    waiting: Arc<Mutex<Vec<ReplayBody>>>,
    executed: Arc<AtomicUsize>,
}

impl Queue {
    async fn send(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
        for body in waiting {
            if body.collect().await.is_ok() {
                self.executed.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

impl Service<Request<ReplayBody>> for Queue {
    type Response = Response<String>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<String>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReplayBody>) -> Self::Future {
        let queue = self.clone();
        let is_retry = request.extensions().get::<AttemptNumber>().is_some();
        queue.waiting.lock().unwrap().push(request.into_body());
        Box::pin(async move {
            if !is_retry {
                std::future::pending::<()>().await;
            }
            queue.send().await;
            Ok(Response::default())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_client_still_holds_is_not_sent_after_somebody_was_asked() {
    for body in [
        ReplayBody::empty(),
        ReplayBody::from("order"),
        ReplayBody::from(vec![0; 5000]),
        ReplayBody::buffered(support::body::TestBody::from(&b"order"[..]), 10),
    ] {
        let queue = Queue::default();
        let stream = queue.clone();
        let (oracle, _) = oracle(move || {
            let stream = stream.clone();
            async move {
                // While the answer is on its way back, a stream becomes free.
                stream.send().await;
                Ok(Reconciled::NotExecuted)
            }
        });
        let service = layer()
            .with_attempt_timeout(50 * MS)
            .with_reconcile(oracle)
            .layer(queue.clone());
        let call = service.oneshot(request(Method::POST, body));
        assert_eq!(call.await.unwrap().status(), 200);
        assert_eq!(queue.executed.load(Ordering::SeqCst), 1);
    }
}
