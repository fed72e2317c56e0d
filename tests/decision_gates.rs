//! What is asked again between a verdict and the next attempt, in the order of
//! `docs/decision-order.md`: each by a policy or a service that changes the fact in between.

#![allow(clippy::unwrap_used)] // helpers of tests

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response};
use http_body::Body as _;
use support::page::{name, rows};
use support::script::{Reply, Script};
use support::{MS, paused, policy, request};
use tower::{Layer, Service, ServiceExt};
use tower_http_retry::{
    Attempt, Budget, Drain, Facts, Policy, ReplayBody, Report, RetryLayer, Rule, StandardPolicy,
    Verdict, decide,
};

/// The standard policy, which does something else while it is asked for the wait: after `decide`,
/// before the gates.
struct Meanwhile<F>(StandardPolicy, F);

impl<F: Fn() + Send + Sync + 'static> Policy for Meanwhile<F> {
    fn rule(&self, attempt: &Attempt<'_>) -> Rule {
        self.0.rule(attempt)
    }
    fn defaults(&self) -> &StandardPolicy {
        &self.0
    }
    fn backoff(&self, attempt: &Attempt<'_>, previous: Duration, random: f64) -> Duration {
        (self.1)();
        self.0.backoff(attempt, previous, random)
    }
}

/// Answers 503 and keeps the request's body, unread.
#[derive(Clone, Default)]
struct Keeps(Arc<Mutex<Option<ReplayBody>>>);

impl Service<Request<ReplayBody>> for Keeps {
    type Response = Response<http_body_util::Empty<bytes::Bytes>>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReplayBody>) -> Self::Future {
        *self.0.lock().unwrap() = Some(request.into_body());
        let response = Response::builder().status(503).body(Default::default());
        std::future::ready(Ok(response.unwrap()))
    }
}

fn last<B>(response: &Response<B>) -> Verdict {
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!(report.attempts().len(), 1, "no second attempt");
    *report.verdict().unwrap()
}

fn busy() -> Script {
    Script::new([Reply::status(503)])
}

fn get() -> Request<ReplayBody> {
    request(Method::GET, ())
}

fn standard() -> StandardPolicy {
    policy().build().unwrap()
}

/// The gates in the page's order, and what each makes of a call to a busy server.
#[test]
fn the_page_has_what_is_asked_again() {
    let hint = {
        let (get, ()) = Request::get("/").body(()).unwrap().into_parts();
        let (busy, ()) = Response::builder()
            .status(503)
            .body(())
            .unwrap()
            .into_parts();
        let facts = Facts::response(&get, &busy)
            .retry_after(3 * MS)
            .min_attempt(2 * MS)
            .remaining(4 * MS);
        decide(&StandardPolicy::default(), &facts.attempt())
    };

    let drawn = paused(async {
        let start = tokio::time::Instant::now();
        let layer = RetryLayer::new(standard()).with_deadline(99 * MS);
        let response = layer.layer(busy()).oneshot(get()).await.unwrap();
        assert!(start.elapsed().is_zero(), "nobody slept");
        last(&response)
    });

    let token = {
        let budget = Budget::builder()
            .floor_per_second(0.0)
            .capacity(1)
            .build()
            .unwrap();
        let other = budget.clone();
        let meanwhile = Meanwhile(standard(), move || other.try_withdraw().unwrap().spend());
        let layer = RetryLayer::new(meanwhile).with_budgets(budget);
        last(&paused(layer.layer(busy()).oneshot(get())).unwrap())
    };

    let body = {
        let keeps = Keeps::default();
        let kept = Arc::clone(&keeps.0);
        let budget = Budget::builder()
            .floor_per_second(0.0)
            .capacity(1)
            .build()
            .unwrap();
        let meanwhile = Meanwhile(standard(), move || {
            let mut kept = kept.lock().unwrap();
            let mut waker = std::task::Context::from_waker(std::task::Waker::noop());
            let _ = std::pin::Pin::new(kept.as_mut().unwrap()).poll_frame(&mut waker);
        });
        let one_shot = ReplayBody::one_shot(http_body_util::Full::new(bytes::Bytes::from("once")));
        let put = request(Method::PUT, one_shot);
        let layer = RetryLayer::new(meanwhile).with_budgets(budget.clone());
        let response = paused(layer.layer(keeps).oneshot(put)).unwrap();
        assert_eq!(budget.balance(), 1.0, "the token goes back");
        last(&response)
    };

    let draining = paused(async {
        let drain = Drain::new();
        let layer = RetryLayer::new(standard()).with_drain(drain.clone());
        let call = tokio::spawn(layer.layer(busy()).oneshot(get()));
        tokio::time::sleep(50 * MS).await;
        drain.start();
        last(&call.await.unwrap().unwrap())
    });

    let late = paused(async {
        // While the call waits, the only permit goes to somebody who keeps it.
        let permits = Arc::new(tokio::sync::Semaphore::new(1));
        let limited = tower::limit::ConcurrencyLimit::with_semaphore(busy(), Arc::clone(&permits));
        let layer = RetryLayer::new(standard()).with_deadline(150 * MS);
        let start = tokio::time::Instant::now();
        let call = tokio::spawn(layer.layer(limited).oneshot(get()));
        tokio::time::sleep(50 * MS).await;
        let _kept = permits.try_acquire().unwrap();
        let response = call.await.unwrap().unwrap();
        assert_eq!(start.elapsed(), 150 * MS);
        last(&response)
    });

    let verdicts = [hint, drawn, token, body, draining, late];
    let told = verdicts.map(|verdict| {
        let step = verdict.step().unwrap() as u8;
        (step.to_string(), name(verdict.decision()))
    });
    let page: Vec<_> = rows("## Asked again")
        .iter()
        .map(|row| (row[0].to_owned(), row[2].to_owned()))
        .collect();
    assert_eq!(told.to_vec(), page);
    // All of these wanted to retry.
    assert!(verdicts.iter().all(|verdict| verdict.rule() == Rule::Retry));
}
