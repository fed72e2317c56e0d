//! This crate before the judge: hyper below, the layer above.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::{HeaderName, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::Connect;
use hyper_util::rt::TokioExecutor;
use tower::limit::ConcurrencyLimit;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_http_retry::{
    AttemptNumber, Backoff, Budget, Deadline, Drain, Error, Execution, FailureKind, HyperService,
    IdempotentMethods, ReplayBody, Retry, RetryLayer, StandardPolicy, Upstream, UpstreamKey,
};

use crate::arena::{Client, Target};
use crate::body::{OnDisk, body};
use crate::judge::Answer;
use crate::ledger::Kind;
use crate::op::Op;

type Stack = Retry<
    BoxCloneSyncService<Request<ReplayBody>, Response<Incoming>, hyper_util::client::legacy::Error>,
>;

#[derive(Clone)]
pub(crate) struct Ours {
    h1: Stack,
    h2: Stack,
    file: Arc<OnDisk>,
    pub(crate) books: Books,
}

/// What must add up in the end.
#[derive(Clone)]
pub(crate) struct Books {
    pub(crate) budget: Budget,
    pub(crate) retries: Arc<AtomicU32>,
    pub(crate) permits: Arc<tokio::sync::Semaphore>,
    pub(crate) layer: RetryLayer,
}

const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The name of the upstream for which the layer generates keys.
const GENERATED: &str = "keys are generated";

pub(crate) const PERMITS: usize = 150;
pub(crate) const TOKENS: u32 = 1_000_000;

/// `connector`: what the client connects with, by whether it speaks HTTP/2.
pub(crate) fn ours<C>(
    methods: IdempotentMethods,
    drain: Drain,
    connector: impl Fn(bool) -> C,
) -> Ours
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let retries = Arc::new(AtomicU32::new(0));
    let budget = Budget::builder()
        .ratio(0.0)
        .floor_per_second(0.0)
        .capacity(TOKENS)
        .build()
        .unwrap();
    let base = Duration::from_millis(1);
    let policy = StandardPolicy::builder()
        .retries(3)
        .backoff(Backoff::exponential(base, Duration::from_millis(20)).with_throttled_base(base))
        .idempotent_methods(methods)
        .default_upstream(Upstream::new().honours_idempotency_key())
        .upstream(
            UpstreamKey::new(GENERATED),
            Upstream::new().generates_key(HeaderName::from_static(IDEMPOTENCY_KEY)),
        )
        .build()
        .unwrap();
    let layer = RetryLayer::new(policy)
        .with_budgets(budget.clone())
        .with_drain(drain)
        .with_attempt_timeout(Duration::from_millis(60));
    let permits = Arc::new(tokio::sync::Semaphore::new(PERMITS));
    let stack = |http2: bool| {
        let client = HyperClient::builder(TokioExecutor::new())
            .http2_only(http2)
            .build(connector(http2));
        let counted = Arc::clone(&retries);
        let counting = ServiceBuilder::new()
            .map_request(move |request: Request<ReplayBody>| {
                if request.extensions().get::<AttemptNumber>().is_some() {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
                request
            })
            .service(HyperService::new(client));
        let limited = ConcurrencyLimit::with_semaphore(counting, Arc::clone(&permits));
        layer.layer(BoxCloneSyncService::new(limited))
    };
    let (h1, h2) = (stack(false), stack(true));
    Ours {
        h1,
        h2,
        file: Arc::new(OnDisk::new()),
        books: Books {
            budget,
            retries,
            permits,
            layer,
        },
    }
}

impl Client for Ours {
    async fn call(&self, op: &Op, target: Target) -> Answer {
        let stack = if target.http2 {
            self.h2.clone()
        } else {
            self.h1.clone()
        };
        let (body, sent) = body(op, &self.file);
        let mut request = Request::builder()
            .method(op.method.clone())
            .uri(target.uri())
            .body(body)
            .unwrap();
        request.headers_mut().extend(op.headers(&sent));
        if op.kind == Kind::Keyed && op.number.is_multiple_of(2) {
            // The layer makes one up, and has to keep to it.
            request.headers_mut().remove(IDEMPOTENCY_KEY);
            request.extensions_mut().insert(UpstreamKey::new(GENERATED));
        }
        if let Some(ms) = op.deadline_ms {
            request
                .extensions_mut()
                .insert(Deadline::after(Duration::from_millis(ms)));
        }
        match stack.oneshot(request).await {
            Ok(response) => {
                let status = response.status().as_u16();
                let _ = response.into_body().collect().await;
                Answer::Status(status)
            }
            Err(Error::Ambiguous(error)) => Answer::Ambiguous(match error.failure() {
                Some(failure) => name(failure.kind()),
                None => "a status",
            }),
            Err(error @ Error::Failed(_)) => Answer::Failed {
                not_executed: error.execution() == Execution::NotExecuted,
            },
        }
    }
}

fn name(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Closed => "closed",
        FailureKind::Reset => "reset",
        FailureKind::ResponseTimeout => "attempt timeout",
        FailureKind::DeadlineReached => "deadline",
        FailureKind::GoAway => "going away",
        FailureKind::RequestBody => "request body",
        FailureKind::Unknown => "unknown",
        _ => "another failure",
    }
}
