//! The peers, each as its documentation shows it.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use backon::Retryable as _;
use bytes::Bytes;
use http::{Extensions, Request, Response, StatusCode};
use http_body_util::Full;
use reqwest_middleware::{ClientBuilder, Middleware, Next};
use reqwest_retry::RetryTransientMiddleware;
use tower::retry::backoff::{Backoff, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff};
use tower::retry::budget::{Budget, TpsBudget};
use tower::retry::{Policy, Retry};
use tower::util::rng::HasherRng;
use tower::{Layer, Service};
use tower_resilience_retry::{RetryBudgetBuilder, RetryLayer};

use super::{BARE, BARE_CHAIN, Case, TOWER, function, service};
use crate::inner::{Answer, Failed, Inner, Upstream, ok};
use crate::request::Profile;

type Plain = Request<Full<Bytes>>;

pub(super) fn cases(profile: Profile, upstream: Upstream) -> Vec<Box<dyn Case>> {
    let make = move || profile.request().map(Full::new);
    let inner = Inner(upstream);
    let mut cases: Vec<Box<dyn Case>> = vec![
        Box::new(function(
            "a loop by hand, without a budget",
            BARE,
            {
                let mut inner = inner.clone();
                async move |request: Plain| {
                    for _ in 0..2 {
                        let answer = inner.call(request.clone()).await;
                        if answer
                            .as_ref()
                            .is_ok_and(|answer| answer.status() != StatusCode::SERVICE_UNAVAILABLE)
                        {
                            return answer;
                        }
                    }
                    inner.call(request).await
                }
            },
            make,
        )),
        Box::new(service(
            TOWER,
            BARE,
            Retry::new(policy(true), inner.clone()),
            make,
        )),
        Box::new(service(
            "tower-resilience-retry, TokenBucket",
            BARE,
            resilient(inner.clone()),
            make,
        )),
        Box::new(function(
            "backon, without a budget",
            BARE,
            {
                let inner = inner.clone();
                async move |request: Plain| {
                    (|| {
                        let (mut inner, request) = (inner.clone(), request.clone());
                        async move { inner.call(request).await.and_then(ok) }
                    })
                    .retry(
                        backon::ExponentialBuilder::new()
                            .with_min_delay(Duration::ZERO)
                            .with_max_delay(Duration::ZERO)
                            .with_max_times(2),
                    )
                    .await
                }
            },
            make,
        )),
    ];
    if upstream == Upstream::Well {
        let once = Retry::new(policy(false), inner);
        cases.push(Box::new(service(
            "tower::retry, `clone_request` gives None",
            BARE,
            once,
            make,
        )));
    }
    cases.push(chain(
        "reqwest-retry, without a budget",
        profile,
        upstream,
        true,
    ));
    cases
}

/// A policy like the one in tower's documentation.
#[derive(Clone)]
struct Standard {
    left: u8,
    budget: Arc<TpsBudget>,
    backoff: ExponentialBackoff,
    clones: bool,
}

fn policy(clones: bool) -> Standard {
    let second = Duration::from_secs(1);
    Standard {
        left: 2,
        budget: Arc::new(TpsBudget::new(10 * second, 1_000_000, 1000.0)),
        // No wait is below a millisecond once tokio's timer has it.
        backoff: ExponentialBackoffMaker::new(
            Duration::ZERO,
            Duration::from_millis(1),
            0.5,
            HasherRng::default(),
        )
        .expect("a valid backoff")
        .make_backoff(),
        clones,
    }
}

impl Policy<Plain, Answer, Failed> for Standard {
    type Future = <ExponentialBackoff as Backoff>::Future;

    fn retry(
        &mut self,
        _: &mut Plain,
        result: &mut Result<Answer, Failed>,
    ) -> Option<Self::Future> {
        match result {
            Ok(answer) if answer.status() != StatusCode::SERVICE_UNAVAILABLE => {
                self.budget.deposit();
                None
            }
            Ok(_) | Err(_) if self.left == 0 || !self.budget.withdraw() => None,
            Ok(_) | Err(_) => {
                self.left -= 1;
                Some(self.backoff.next_backoff())
            }
        }
    }

    fn clone_request(&mut self, request: &Plain) -> Option<Plain> {
        self.clones.then(|| request.clone())
    }
}

fn resilient(
    inner: Inner,
) -> impl Service<Plain, Response = Answer, Error: std::fmt::Debug, Future: Send> {
    let budget = RetryBudgetBuilder::new()
        .token_bucket()
        .tokens_per_second(1e6)
        .max_tokens(1 << 40)
        .initial_tokens(1 << 40)
        .build()
        .expect("a valid budget");
    RetryLayer::<Plain, Answer, Failed>::builder()
        .max_attempts(3)
        .fixed_backoff(Duration::ZERO)
        .retry_on_response(|answer: &Answer| answer.status() == StatusCode::SERVICE_UNAVAILABLE)
        .budget(budget)
        .build()
        .layer(inner)
}

/// reqwest-middleware, with a middleware at its end that answers instead of reqwest.
pub(super) fn chain(
    name: &'static str,
    profile: Profile,
    upstream: Upstream,
    retry: bool,
) -> Box<dyn Case> {
    let mut chain = ClientBuilder::new(reqwest::Client::new());
    if retry {
        let zero = Duration::ZERO;
        let policy = reqwest_retry::policies::ExponentialBackoff::builder()
            .retry_bounds(zero, zero)
            .jitter(reqwest_retry::Jitter::None)
            .build_with_max_retries(2);
        chain = chain.with(RetryTransientMiddleware::new_with_policy(policy));
    }
    let chain = chain.with(Answers(upstream)).build();
    Box::new(function(
        name,
        BARE_CHAIN,
        async move |request: reqwest::Request| chain.execute(request).await,
        move || reqwest::Request::try_from(profile.request()).expect("an absolute URI"),
    ))
}

struct Answers(Upstream);

impl Middleware for Answers {
    fn handle<'a, 'b, 'c, 'd>(
        &'a self,
        request: reqwest::Request,
        _: &'b mut Extensions,
        _: Next<'c>,
    ) -> std::pin::Pin<
        Box<dyn Future<Output = reqwest_middleware::Result<reqwest::Response>> + Send + 'd>,
    >
    where
        'a: 'd,
        'b: 'd,
        'c: 'd,
        Self: 'd,
    {
        drop(request);
        let mut answer = Response::new(reqwest::Body::from(Bytes::new()));
        *answer.status_mut() = self.0.answer();
        let answer: Ready<_> = ready(Ok(reqwest::Response::from(answer)));
        Box::pin(answer)
    }
}
