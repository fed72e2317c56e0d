//! Budgets, deadlines, and the caller's own hooks.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, request, response};
use tower_http_retry::*;

fn budget() -> Result<Budget, ConfigError> {
    let budget = Budget::builder()
        .ratio(0.2)
        .floor_per_second(10.0)
        .capacity(100)
        .build()?;
    budget.deposit();
    let token: Option<Token> = budget.clone().try_withdraw();
    if let Some(token) = token {
        token.spend();
    }
    let _: (bool, f64) = (budget.is_empty(), budget.balance());
    Ok(Budget::default())
}

fn budgets(key: &UpstreamKey) -> Result<Budgets, ConfigError> {
    let budgets = Budgets::builder()
        .ratio(0.2)
        .floor_per_second(10.0)
        .capacity(100)
        .max_upstreams(1024)
        .build()?;
    let _: Option<Budget> = budgets.clone().get(key);
    let _ = [
        Budgets::default(),
        Budgets::shared(Budget::default()),
        Budget::default().into(),
    ];
    Ok(budgets)
}

fn upstreams(authority: &Authority, request: &request::Parts) -> [UpstreamKey; 6] {
    [
        UpstreamKey::new("stock"),
        UpstreamKey::new(Arc::<str>::from("stock")),
        UpstreamKey::origin(Some(&Scheme::HTTPS), authority),
        UpstreamKey::origin(None, authority),
        UpstreamKey::of(request),
        UpstreamKey::default(),
    ]
}

/// What a request may carry.
fn extensions(request: &mut Request<ReplayBody>) {
    let extensions = request.extensions_mut();
    extensions.insert(Idempotency::Keyed);
    extensions.insert(UpstreamKey::new("stock"));
    extensions.insert(Deadline::at(tokio::time::Instant::now()));
    extensions.insert(Deadline::after(Duration::MAX));
    let _: Option<Duration> = Deadline::after(Duration::ZERO).remaining();
    let _: Option<&NoEarlyData> = extensions.get();
    let number: Option<&AttemptNumber> = extensions.get();
    let _: Option<(NonZeroU32, NonZeroU32)> = number.map(|it| (it.number(), it.max_attempts()));
}

fn drain() -> impl Future<Output = ()> + Send + use<> {
    let drain = Drain::default();
    drain.clone().start();
    let _: bool = Drain::new().is_draining();
    drain.started()
}

struct Mine;

impl Refresh for Mine {
    fn carried(&self, request: &request::Parts) -> Option<HeaderValue> {
        request.headers.get("authorization").cloned()
    }
    async fn refresh(
        &self,
        _stale: &request::Parts,
        challenge: &response::Parts,
    ) -> Result<HeaderValue, BoxError> {
        challenge
            .headers
            .get("x-new")
            .cloned()
            .ok_or_else(|| "none".into())
    }
    fn apply(&self, credential: &HeaderValue, request: &mut request::Parts) {
        request.headers.insert("authorization", credential.clone());
    }
}

struct Short;

impl Refresh for Short {
    async fn refresh(
        &self,
        _: &request::Parts,
        _: &response::Parts,
    ) -> Result<HeaderValue, BoxError> {
        Ok(HeaderValue::from_static("Bearer new"))
    }
}

impl Reconcile for Mine {
    async fn reconcile(
        &self,
        _: &request::Parts,
        ambiguous: Outcome<'_>,
    ) -> Result<Reconciled, BoxError> {
        Ok(match ambiguous {
            Outcome::Failure(_) => Reconciled::NotExecuted,
            Outcome::Response(_) => Reconciled::Executed(Response::new(Bytes::new())),
            Outcome::Broken(..) => Reconciled::Unknown,
        })
    }
}

impl Observer for Mine {
    fn attempt_ended(&self, ended: &AttemptEnded<'_>) {
        let _: &Attempt<'_> = ended.attempt();
        let _: &Verdict = ended.verdict();
        let _: [Duration; 2] = [ended.duration(), ended.waited_before()];
        let _: Option<Duration> = ended.next_wait();
    }
    fn call_ended(&self, ended: &CallEnded<'_>) {
        let _: &request::Parts = ended.request();
        let _: Result<&response::Parts, &Error> = ended.answer();
        let _: u32 = ended.attempts();
        let _: Duration = ended.duration();
        let _: Option<&Report> = ended.report();
    }
}

#[cfg(feature = "tracing")]
fn tracing() -> [observe::Tracing; 2] {
    is_observer::<observe::Tracing>();
    [observe::Tracing::new(), observe::Tracing::default()]
}

#[cfg(feature = "metrics")]
fn metrics() -> [observe::Metrics; 2] {
    is_observer::<observe::Metrics>();
    [observe::Metrics::new(), observe::Metrics::default()]
}

fn is_observer<O: Observer>() {}
