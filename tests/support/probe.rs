//! An inner service that panics when the contract of `poll_ready` is broken.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;
use tower::Service;
use tower_http_retry::{BoxError, ReplayBody};

use super::body::TestBody;
use super::script::Script;

/// Takes a permit in `poll_ready`, as `ConcurrencyLimit` does, and holds it until the attempt's
/// future is gone. A clone is not ready. Not being ready before a call is a panic, and so is a
/// second permit for the same instance.
pub(crate) struct Probe {
    inner: Script,
    semaphore: Arc<Semaphore>,
    polled: PollSemaphore,
    permit: Option<OwnedSemaphorePermit>,
    pub(crate) ready_polls: Arc<AtomicUsize>,
}

impl Probe {
    pub(crate) fn new(inner: Script, permits: usize) -> Self {
        let semaphore = Arc::new(Semaphore::new(permits));
        Self {
            inner,
            polled: PollSemaphore::new(Arc::clone(&semaphore)),
            semaphore,
            permit: None,
            ready_polls: Arc::default(),
        }
    }

    pub(crate) fn semaphore(&self) -> Arc<Semaphore> {
        Arc::clone(&self.semaphore)
    }
}

impl Clone for Probe {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            semaphore: Arc::clone(&self.semaphore),
            polled: PollSemaphore::new(Arc::clone(&self.semaphore)),
            permit: None,
            ready_polls: Arc::clone(&self.ready_polls),
        }
    }
}

impl Service<Request<ReplayBody>> for Probe {
    type Response = Response<TestBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.ready_polls.fetch_add(1, Ordering::SeqCst);
        if self.permit.is_none() {
            match self.polled.poll_acquire(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(permit) => self.permit = permit,
            }
        }
        Poll::Ready(if self.permit.is_some() {
            Ok(())
        } else {
            Err("closed".into())
        })
    }

    fn call(&mut self, request: Request<ReplayBody>) -> Self::Future {
        let permit = self.permit.take().expect("called without being ready");
        let future = self.inner.call(request);
        Box::pin(async move {
            let _permit = permit;
            future.await
        })
    }
}
