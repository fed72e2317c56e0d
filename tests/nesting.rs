//! Layers over layers: they never multiply, and share a budget without counting a call twice
//!.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests

mod support;

use http::Method;
use support::script::{Reply, Script};
use support::{MS, layer, request};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_http_retry::{
    AmbiguousResponses, Budget, Error, Evidence, Execution, Failure, FailureKind, Report, Retry,
    RetryDenied, RetryLayer, Rule, StandardPolicy,
};

fn inner() -> RetryLayer {
    RetryLayer::new(support::policy().retries(2).build().unwrap())
}

/// A layer over another one.
fn stacked(script: &Script) -> Retry<Retry<Script>> {
    layer().layer(inner().layer(script.clone()))
}

fn times(count: usize, reply: impl Fn() -> Reply) -> Script {
    Script::new((0..count).map(|_| reply()))
}

#[tokio::test(start_paused = true)]
async fn through_a_response_the_calls_on_the_wire_are_the_inner_limit() {
    // AC-01. The contract differs: the outer layer stands down, so that the calls on the wire are the
    // inner limit, not the outer.
    let script = times(3, || Reply::status(429));
    let service = stacked(&script);
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(script.attempts(), 3);
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!(report.attempts().len(), 1);
    assert_eq!(
        report.verdict().unwrap().denied(),
        Some(RetryDenied::PermanentFailure(FailureKind::AlreadyRetried))
    );
}

#[tokio::test(start_paused = true)]
async fn through_an_error_too_and_what_it_knows_of_the_execution_is_kept() {
    for (failure, execution) in [
        (
            Failure::not_sent(FailureKind::Connect),
            Execution::NotExecuted,
        ),
        (
            Failure::sent_no_response(FailureKind::Reset),
            Execution::Unknown,
        ),
    ] {
        let script = times(3, || Reply::fails(failure));
        let service = stacked(&script);
        let error = service
            .oneshot(request(Method::PUT, "order"))
            .await
            .unwrap_err();
        assert_eq!(script.attempts(), 3);
        assert!(matches!(error, Error::Failed(_)));
        assert_eq!(error.failure().unwrap().kind(), FailureKind::AlreadyRetried);
        assert_eq!(error.execution(), execution);
    }
}

#[tokio::test(start_paused = true)]
async fn also_when_a_layer_in_between_wraps_the_error() {
    #[derive(Debug, thiserror::Error)]
    #[error("wrapped")]
    struct Wrapped(#[source] Error);

    let script = times(3, || Reply::fails(Failure::not_sent(FailureKind::Connect)));
    let service = ServiceBuilder::new()
        .layer(layer())
        .map_err(Wrapped)
        .layer(inner())
        .service(script.clone());
    let error = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert_eq!(script.attempts(), 3);
    assert_eq!(error.evidence(), Evidence::NotSent);

    let script = times(3, || Reply::fails(Failure::not_sent(FailureKind::Connect)));
    let service = ServiceBuilder::new()
        .layer(layer())
        .layer(tower::timeout::TimeoutLayer::new(10_000 * MS))
        .layer(inner())
        .service(script.clone());
    let error = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert_eq!(script.attempts(), 3);
    assert_eq!(error.failure().unwrap().kind(), FailureKind::AlreadyRetried);
}

#[tokio::test(start_paused = true)]
async fn an_ambiguous_inner_answer_stays_ambiguous() {
    let script = times(1, || {
        Reply::fails(Failure::sent_no_response(FailureKind::Reset))
    });
    let service = stacked(&script);
    let error = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert!(error.is_ambiguous());
    assert_eq!(script.attempts(), 1);

    let script = times(1, || Reply::status(503));
    let service = stacked(&script);
    let error = service
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap_err();
    assert!(error.is_ambiguous());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_an_attempt_of_unknown_execution_stays_ambiguous() {
    for answer in [AmbiguousResponses::Reject, AmbiguousResponses::Deliver] {
        let careless = support::policy()
            .rule(|attempt| (attempt.status()?.as_u16() == 503).then_some(Rule::Retry))
            .ambiguous_responses(answer)
            .build()
            .unwrap();
        let script = Script::new([
            Reply::status(503),
            Reply::status(429).header("retry-after", "1000"),
        ]);
        let service = ServiceBuilder::new()
            .layer(layer())
            .layer(RetryLayer::new(careless))
            .service(script.clone());
        let error = service
            .oneshot(request(Method::POST, "order"))
            .await
            .unwrap_err();
        assert_eq!(script.attempts(), 2);
        assert!(error.is_ambiguous());
        assert_eq!(error.status().unwrap(), 429);
        assert_eq!(error.execution(), Execution::Unknown);
    }
}

#[tokio::test(start_paused = true)]
async fn not_executed_is_what_no_attempt_was_of_whichever_layer() {
    let script = Script::new([Reply::status(500), Reply::status(408)]);
    let once = RetryLayer::new(support::policy().retries(1).build().unwrap());
    let service = layer().layer(once.layer(script.clone()));
    let response = service
        .oneshot(request(Method::PUT, "order"))
        .await
        .unwrap();
    assert_eq!((response.status().as_u16(), script.attempts()), (408, 2));
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!(report.execution(), Execution::Answered);
}

#[tokio::test(start_paused = true)]
async fn the_response_to_a_side_call_is_no_answer() {
    let (main, token) = (
        Script::new([Reply::status(200)]),
        times(1, || Reply::status(503)),
    );
    let authorized = {
        let (main, token) = (main.clone(), token.clone());
        tower::service_fn(move |request| {
            let (main, token) = (inner().layer(main.clone()), inner().layer(token.clone()));
            async move {
                token
                    .oneshot(support::request(Method::POST, "token"))
                    .await?;
                main.oneshot(request).await
            }
        })
    };
    let error = layer()
        .layer(authorized)
        .oneshot(request(Method::GET, ()))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Failed(_)));
    assert_eq!(error.status(), None);
    assert_eq!((token.attempts(), main.attempts()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_inner_layer_that_never_retries_stops_nobody() {
    let script = Script::new([
        Reply::status(503),
        Reply::fails(Failure::not_sent(FailureKind::Connect)),
        Reply::status(200),
    ]);
    let off = RetryLayer::new(StandardPolicy::none());
    let service = ServiceBuilder::new()
        .layer(layer())
        .layer(off)
        .service(script.clone());
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(script.attempts(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_outer_layer_accepts_what_the_inner_one_achieved() {
    let script = Script::new([Reply::status(503), Reply::status(200).body(b"fine")]);
    let service = stacked(&script);
    let response = service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(
        response
            .extensions()
            .get::<Report>()
            .unwrap()
            .attempts()
            .len(),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn stacked_layers_send_the_body_once_an_attempt() {
    // BR-09
    let script = Script::new([Reply::status(503), Reply::status(200)]);
    let service = stacked(&script);
    service.oneshot(request(Method::PUT, "abc")).await.unwrap();
    script.seen(|seen| {
        let bodies: Vec<_> = seen
            .iter()
            .map(|seen| seen.body.as_deref().unwrap())
            .collect();
        assert_eq!(bodies, [b"abc", b"abc"]);
    });
}

/// Five tokens of ten, and each good call adds one.
fn half_full() -> Budget {
    let budget = Budget::builder()
        .ratio(1.0)
        .floor_per_second(0.0)
        .capacity(10)
        .build()
        .unwrap();
    (0..5).for_each(|_| budget.try_withdraw().unwrap().spend());
    budget
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_two_layers_gets_one_deposit_a_call() {
    let budget = half_full();
    let service = ServiceBuilder::new()
        .layer(layer().with_budgets(budget.clone()))
        .layer(inner().with_budgets(budget.clone()))
        .service(Script::new([Reply::status(200), Reply::status(404)]));
    service
        .clone()
        .oneshot(request(Method::GET, ()))
        .await
        .unwrap();
    assert_eq!(budget.balance(), 6.0);
    service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!(
        budget.balance(),
        7.0,
        "a plain 404 is traffic that was served"
    );
}

#[tokio::test(start_paused = true)]
async fn one_deposit_also_through_a_layer_between_that_has_another_budget_or_none() {
    for with_budget in [true, false] {
        let budget = half_full();
        let again = support::policy()
            .rule(|attempt| (attempt.number().get() == 1).then_some(Rule::Retry))
            .build()
            .unwrap();
        let again = RetryLayer::new(again);
        let between = if with_budget {
            again.with_budgets(half_full())
        } else {
            again.without_budgets()
        };
        let service = ServiceBuilder::new()
            .layer(layer().with_budgets(budget.clone()))
            .layer(between)
            .layer(inner().with_budgets(budget.clone()))
            .service(times(2, || Reply::status(200)));
        service.oneshot(request(Method::GET, ())).await.unwrap();
        assert_eq!(budget.balance(), 6.0);
    }
}

#[tokio::test(start_paused = true)]
async fn only_served_traffic_deposits() {
    for (status, deposits) in [
        (200, 1.0),
        (304, 1.0),
        (400, 1.0),
        (401, 1.0),
        (404, 1.0),
        (409, 1.0),
        (408, 0.0),
        (425, 0.0),
        (429, 0.0),
        (500, 0.0),
        (503, 0.0),
    ] {
        let (none, budget) = (StandardPolicy::none(), half_full());
        let service = RetryLayer::new(none)
            .with_budgets(budget.clone())
            .layer(Script::new([Reply::status(status)]));
        service.oneshot(request(Method::GET, ())).await.unwrap();
        assert_eq!(budget.balance(), 5.0 + deposits, "{status}");
    }
}
