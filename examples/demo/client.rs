//! The caller's side: hyper at the bottom, the layer above it, and a record of what was said.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderName, Request, Response, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tower::{Layer, ServiceExt};
use tower_http_retry::{
    AttemptEnded, Backoff, BoxError, Budget, ConfigError, Drain, Error, Evidence, Execution,
    HyperService, Idempotency, IdempotentMethods, ReplayBody, Report, ResponseBody, RetryDenied,
    RetryLayer, StandardPolicy, Upstream, Verdict,
};

use super::judge::Answer;
use super::ledger::Ledger;
use super::lookup::AskLedger;
use super::options::{Care, Options};
use super::payload::Made;
use super::scene::{Doubt, Limit, Scene};
use super::server::{ATTEMPT, Door, ORDER, Protocol};

/// The bottom of the stack.
pub(crate) type Bottom = HyperService<HttpConnector>;

/// What a caller keeps for all its calls.
#[derive(Debug)]
pub(crate) struct Caller {
    layer: RetryLayer,
    http1: Bottom,
    http2: Bottom,
    care: Care,
    /// Where the ledger can be asked.
    office: Door,
}

/// A call, as the layer told it.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) attempts: Vec<Try>,
    pub(crate) answer: Answer,
    /// How the body broke after it was delivered.
    pub(crate) broken: Option<(Evidence, RetryDenied)>,
}

/// An attempt, as the layer told it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Try {
    pub(crate) number: u32,
    pub(crate) evidence: Evidence,
    pub(crate) verdict: Verdict,
    pub(crate) next_wait: Option<Duration>,
    pub(crate) reconciled: Option<Execution>,
}

impl Caller {
    pub(crate) fn new(options: &Options, ledger: &Ledger) -> Result<Self, BoxError> {
        let backoff = Backoff::exponential(Duration::from_millis(20), Duration::from_secs(2))
            .with_throttled_base(Duration::from_millis(100));
        let policy = StandardPolicy::builder()
            .backoff(backoff)
            .default_upstream(Upstream::new().honours_idempotency_key());
        let policy = match options.care {
            Care::NineSteps => policy,
            Care::Blind => policy.idempotent_methods(IdempotentMethods::All),
        };
        let layer = RetryLayer::new(policy.build()?)
            .with_seed(options.seed)
            .with_attempt_header(HeaderName::from_static(ATTEMPT))
            .with_deadline(Duration::from_secs(20));
        Ok(Self {
            layer,
            http1: HyperService::new(Client::builder(TokioExecutor::new()).build_http()),
            http2: HyperService::new(
                Client::builder(TokioExecutor::new())
                    .http2_only(true)
                    .build_http(),
            ),
            care: options.care,
            office: Door::new(ledger, Protocol::Http1, [])?,
        })
    }

    /// Makes one call.
    pub(crate) async fn call(
        &self,
        scene: &Scene,
        order: u32,
        made: Made,
        door: &Arc<Door>,
    ) -> Result<Told, BoxError> {
        let tries = Arc::new(Mutex::new(Vec::new()));
        let mut layer = self
            .layer
            .clone()
            .with_delivery(scene.delivery)
            .with_attempt_timeout(scene.attempt_timeout)
            .with_peer_promises(scene.peer_promises)
            .with_observer(record(&tries, door));
        layer = match scene.limit {
            Limit::None => layer,
            Limit::Deadline(deadline) => layer.with_deadline(deadline),
            Limit::Draining => {
                let drain = Drain::new();
                drain.start();
                layer.with_drain(drain)
            }
            Limit::EmptyBudget => layer.with_budgets(empty_budget()?),
        };
        if (scene.doubt, self.care) == (Doubt::AskLedger, Care::NineSteps) {
            layer = layer.with_reconcile(AskLedger {
                client: self.http1.clone(),
                office: self.office.address(),
            });
        }
        let bottom = match scene.protocol {
            Protocol::Http1 => self.http1.clone(),
            Protocol::Http2 => self.http2.clone(),
        };
        let request = request(scene, order, made, door)?;
        let outcome = layer.layer(bottom).oneshot(request).await;

        let report = match &outcome {
            Ok(response) => response.extensions().get::<Report>().cloned(),
            Err(error) => Some(error.report().clone()),
        };
        let mut attempts =
            std::mem::take(&mut *tries.lock().unwrap_or_else(PoisonError::into_inner));
        let reports = report.iter().flat_map(Report::attempts);
        for (attempt, report) in attempts.iter_mut().zip(reports) {
            attempt.reconciled = report.reconciled();
            // The last verdict may have been overruled while the call was waiting.
            attempt.verdict = *report.verdict();
        }
        let (answer, broken) = answer(outcome, report.as_ref()).await;
        Ok(Told {
            attempts,
            answer,
            broken,
        })
    }
}

/// One retry, and nothing that fills it up again; the one is already taken.
fn empty_budget() -> Result<Budget, ConfigError> {
    let budget = Budget::builder()
        .capacity(1)
        .floor_per_second(0.0)
        .ratio(0.0)
        .build()?;
    if let Some(token) = budget.try_withdraw() {
        token.spend();
    }
    Ok(budget)
}

/// Keeps what the layer tells of each attempt, and lets the door know: a shut one sees nobody.
fn record(
    tries: &Arc<Mutex<Vec<Try>>>,
    door: &Arc<Door>,
) -> impl Fn(&AttemptEnded<'_>) + Send + Sync + 'static {
    let (tries, door) = (Arc::clone(tries), Arc::clone(door));
    move |ended: &AttemptEnded<'_>| {
        let attempt = ended.attempt();
        let told = Try {
            number: attempt.number().get(),
            evidence: attempt.evidence(),
            verdict: *ended.verdict(),
            next_wait: ended.next_wait(),
            reconciled: None,
        };
        tries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(told);
        door.attempt_ended();
    }
}

fn request(
    scene: &Scene,
    order: u32,
    made: Made,
    door: &Door,
) -> Result<Request<ReplayBody>, BoxError> {
    let mut request = Request::builder()
        .method(&scene.method)
        .uri(format!("http://{}/orders/{order}", door.address()))
        .header(ORDER, order);
    if scene.nature == Idempotency::Keyed {
        request = request.header("idempotency-key", format!("\"order-{order}\""));
    }
    if let Some(content_type) = made.content_type {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    Ok(request.body(made.body)?)
}

/// What a caller makes of the outcome: it reads the body to its end.
async fn answer(
    outcome: Result<Response<ResponseBody<Incoming>>, Error>,
    report: Option<&Report>,
) -> (Answer, Option<(Evidence, RetryDenied)>) {
    match outcome {
        Ok(response) => {
            let execution = report.map_or(Execution::Answered, Report::execution);
            let status = response.status();
            match response.into_body().collect().await {
                Ok(body) => (Answer::Response(status, execution, body.to_bytes()), None),
                Err(error) => (
                    Answer::Broken(status, execution),
                    Some((error.evidence(), error.denied())),
                ),
            }
        }
        Err(Error::Failed(failed)) => (Answer::Failed(failed.execution()), None),
        Err(Error::Ambiguous(ambiguous)) => (Answer::Ambiguous(ambiguous.status()), None),
    }
}
