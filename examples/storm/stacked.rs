//! Five layers over each other, as a careless composition has them: the real ones.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use tower::{Layer, Service, ServiceExt};
use tower_http_retry::{Backoff, BoxError, ReplayBody, RetryLayer, StandardPolicy};

use super::sim::{ATTEMPTS, CALLS_PER_SECOND};

/// A dead upstream that counts.
#[derive(Debug, Clone, Default)]
struct Dead {
    attempts: Arc<AtomicU64>,
}

impl Service<Request<ReplayBody>> for Dead {
    type Response = Response<Empty<Bytes>>;
    type Error = BoxError;
    type Future = Ready<Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<ReplayBody>) -> Self::Future {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let mut response = Response::new(Empty::new());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        ready(Ok(response))
    }
}

/// Attempts per call in a full outage, from its first second: the start-up burst is in it.
///
/// Every layer has a budget of its own, with default settings. Time must be paused.
pub(crate) async fn load(seconds: u64) -> Result<f64, BoxError> {
    let at_once = Backoff::exponential(Duration::ZERO, Duration::ZERO);
    let policy = StandardPolicy::builder()
        .retries(ATTEMPTS - 1)
        .backoff(at_once.with_throttled_base(Duration::ZERO))
        .build()?;
    let layer = || RetryLayer::new(policy.clone());
    let dead = Dead::default();
    let stack = (layer(), layer(), layer(), layer(), layer());
    let mut service = stack.layer(dead.clone());

    let calls = seconds * CALLS_PER_SECOND;
    for _ in 0..calls {
        let request = Request::get("http://dead.example/").body(ReplayBody::empty())?;
        let response = service.ready().await?.call(request).await?;
        debug_assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        tokio::time::advance(Duration::from_secs(1) / CALLS_PER_SECOND as u32).await;
    }
    Ok(dead.attempts.load(Ordering::Relaxed) as f64 / calls as f64)
}
