//! Finding out what became of an ambiguous operation.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Response, request, response};

use crate::BoxError;
use crate::attempt::Outcome;
use crate::evidence::Failure;

/// Asks the upstream what became of an operation, before the layer answers
/// [`Error::Ambiguous`](crate::Error::Ambiguous).
///
/// Asked once for each ambiguous attempt, within the call's deadline, and never while draining. An
/// error or a panic leaves the third answer standing, and is in the report. Before it is asked about
/// a failure, the attempt's request body is cut off: a client that still holds the request does not
/// send it whole any more.
pub trait Reconcile: Send + Sync + 'static {
    /// What became of `request`, whose attempt ended with `ambiguous`: a failure, or a response
    /// (such as a 503 to a POST) that does not tell.
    fn reconcile(
        &self,
        request: &request::Parts,
        ambiguous: Outcome<'_>,
    ) -> impl Future<Output = Result<Reconciled, BoxError>> + Send;
}

impl<T: Reconcile> Reconcile for Arc<T> {
    fn reconcile(
        &self,
        request: &request::Parts,
        ambiguous: Outcome<'_>,
    ) -> impl Future<Output = Result<Reconciled, BoxError>> + Send {
        (**self).reconcile(request, ambiguous)
    }
}

/// What became of an ambiguous operation.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reconciled {
    /// It was not executed: the attempt counts as `NotSent`, and the nine steps are asked again.
    NotExecuted,
    /// It was executed, and this is its answer.
    Executed(Response<Bytes>),
    /// Nobody can tell: the third answer stands.
    Unknown,
}

/// A [`Reconcile`] of any type.
pub(crate) trait DynReconcile: Send + Sync {
    /// Starts asking.
    fn ask(self: Arc<Self>, request: request::Parts, ambiguous: Ambiguous) -> Asking;
}

/// An ambiguous outcome on its own.
pub(crate) enum Ambiguous {
    Response(response::Parts),
    Failure(Failure),
    Broken(response::Parts, Failure),
}

impl Ambiguous {
    pub(crate) fn of(outcome: Outcome<'_>) -> Self {
        match outcome {
            Outcome::Response(head) => Self::Response(head.clone()),
            Outcome::Failure(failure) => Self::Failure(*failure),
            Outcome::Broken(head, failure) => Self::Broken(head.clone(), *failure),
        }
    }

    fn outcome(&self) -> Outcome<'_> {
        match self {
            Self::Response(head) => Outcome::Response(head),
            Self::Failure(failure) => Outcome::Failure(failure),
            Self::Broken(head, failure) => Outcome::Broken(head, failure),
        }
    }
}

impl<R: Reconcile> DynReconcile for R {
    fn ask(self: Arc<Self>, request: request::Parts, ambiguous: Ambiguous) -> Asking {
        Asking(Box::pin(async move {
            self.reconcile(&request, ambiguous.outcome()).await
        }))
    }
}

/// A reconciliation under way. A panic of the reconciler is an error of it.
pub(crate) struct Asking(Pin<Box<dyn Future<Output = Result<Reconciled, BoxError>> + Send>>);

impl Asking {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reconciled, BoxError>> {
        // A reconciler that panicked is not polled again, so nobody sees its broken state.
        catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx)))
            .unwrap_or_else(|_| Poll::Ready(Err("the reconciler panicked".into())))
    }
}
