//! The service: readiness, and the start of a call. Everything else is in `future.rs`.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use tower::Service;

use crate::BoxError;
use crate::body::ReplayBody;
use crate::call::Call;
use crate::error::{Error, Facts, RequestFailed};
use crate::evidence::{Execution, Failure, FailureKind};
use crate::future::ResponseFuture;
use crate::policy::{Policy, StandardPolicy};
use crate::report::Report;
use crate::shared::{Settings, Shared};

/// A service whose requests are sent again where that is safe. Made by
/// [`RetryLayer`](crate::RetryLayer).
///
/// `poll_ready` is the inner service's; if it fails there is no call yet:
/// [`Error::Failed`], `NotSent`, with an empty report.
pub struct Retry<S, P = StandardPolicy> {
    inner: S,
    shared: Arc<Shared<S, P>>,
    /// The caller may have changed the inner service: retries must be clones of it as it is now.
    changed: bool,
}

impl<S, P> Retry<S, P> {
    pub(crate) fn new(inner: S, policy: Arc<P>, settings: Settings) -> Self
    where
        S: Clone,
    {
        let shared = Shared::new(inner.clone(), policy, Arc::new(settings));
        Self {
            inner,
            shared,
            changed: false,
        }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service. Retries of later calls are clones of it as it is then.
    pub fn get_mut(&mut self) -> &mut S {
        self.changed = true;
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }

    fn renew_template(&mut self)
    where
        S: Clone,
    {
        self.changed = false;
        let Shared {
            policy, settings, ..
        } = &*self.shared;
        self.shared = Shared::new(self.inner.clone(), Arc::clone(policy), Arc::clone(settings));
    }
}

impl<S, P, B> Service<Request<ReplayBody>> for Retry<S, P>
where
    S: Service<Request<ReplayBody>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
    P: Policy,
{
    type Response = Response<crate::ResponseBody<B>>;
    type Error = Error;
    type Future = ResponseFuture<S, P, B>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(ready!(self.inner.poll_ready(cx)).map_err(|error| not_ready(error.into())))
    }

    #[inline]
    fn call(&mut self, mut request: Request<ReplayBody>) -> Self::Future {
        if self.changed {
            self.renew_template();
        }
        let shared = Arc::clone(&self.shared);
        let (call, held) = Call::begin(&mut request, &*shared.policy, &shared.settings);
        match held {
            None => ResponseFuture::sent(self.inner.call(request), call, shared),
            Some(held) => ResponseFuture::held(call, request, *held, shared, &mut self.inner),
        }
    }
}

fn not_ready(source: BoxError) -> Error {
    RequestFailed::new(Facts {
        failure: Some(Failure::not_sent(FailureKind::Readiness)),
        execution: Execution::NotExecuted,
        verdict: None,
        report: Report::new(Vec::new()),
        head: None,
        source: Some(source),
        retried: false,
        outer: None,
    })
    .into()
}

impl<S: Clone, P> Clone for Retry<S, P> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            shared: Arc::clone(&self.shared),
            changed: self.changed,
        }
    }
}

impl<S: fmt::Debug, P: fmt::Debug> fmt::Debug for Retry<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("inner", &self.inner)
            .field("policy", &self.shared.policy)
            .finish_non_exhaustive()
    }
}
