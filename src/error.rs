//! The errors of the crate: a call without an answer, and a setting that makes no sense.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;

use bytes::Bytes;
use http::{Response, StatusCode, response};
use http_body::Body;
use http_body_util::BodyExt as _;
use sync_wrapper::SyncWrapper;

use crate::BoxError;
use crate::body::Witness;
use crate::evidence::{Evidence, Execution, Failure, causes};
use crate::policy::{AMBIGUOUS, IDEMPOTENT, NOT_EXECUTED, RetryDenied, Verdict};
use crate::report::Report;
use crate::response::{BodyError, ResponseBody};

/// A response body whose type nobody needs to know.
pub type BoxedBody = http_body_util::combinators::UnsyncBoxBody<Bytes, BodyError>;

/// A call without an answer. Exhaustive on purpose: no third arm takes ambiguity for failure.
#[derive(Debug)]
pub enum Error {
    /// The third answer: the operation may have been executed, and must not be sent again blindly.
    /// Ask the upstream, or replay under a key that it honours.
    Ambiguous(AmbiguousFailure),
    /// No whole response, and either not executed or safe to repeat.
    Failed(RequestFailed),
}

/// The operation may have been executed. Carries the response, if there was one.
pub struct AmbiguousFailure {
    facts: Box<Facts>,
    body: Option<SyncWrapper<Box<dyn Carried>>>,
}

/// There is no whole response, and the operation was not executed or is safe to repeat.
pub struct RequestFailed {
    facts: Box<Facts>,
}

/// What both errors know.
pub(crate) struct Facts {
    /// `None`: a response head came, and nothing is wrong with the transport.
    pub(crate) failure: Option<Failure>,
    pub(crate) execution: Execution,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) report: Report,
    pub(crate) head: Option<response::Parts>,
    pub(crate) source: Option<BoxError>,
    /// Whether the layer was permitted more than one attempt: then a layer further out stops.
    pub(crate) retried: bool,
    /// Of the attempt of a layer further out that this call was: only that layer may take the word
    /// of this error for the fate of its request. A side call below knows nothing of it.
    pub(crate) outer: Option<Witness>,
}

/// A response body in an error, whatever its type.
trait Carried: Any + Send {
    fn boxed(self: Box<Self>) -> BoxedBody;
}

impl<B> Carried for ResponseBody<B>
where
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn boxed(self: Box<Self>) -> BoxedBody {
        (*self).boxed_unsync()
    }
}

impl AmbiguousFailure {
    pub(crate) fn new(facts: Facts) -> Self {
        Self {
            facts: Box::new(facts),
            body: None,
        }
    }

    /// With the response, whose head is `facts.head`.
    pub(crate) fn with_response<B>(facts: Facts, body: ResponseBody<B>) -> Self
    where
        B: Body + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self {
            facts: Box::new(facts),
            body: Some(SyncWrapper::new(Box::new(body))),
        }
    }

    /// The response, whole, with the body type of the inner service.
    ///
    /// # Errors
    /// Itself, nothing lost, if there was no response or its body is of another type.
    pub fn into_response<B>(self) -> Result<Response<ResponseBody<B>>, Self>
    where
        B: Body + Send + 'static,
    {
        self.into_response_of().map(|(response, _)| response)
    }

    /// The response with a body of type `T`, and whether the layer may have tried again.
    pub(crate) fn into_response_of<T: 'static>(mut self) -> Result<(Response<T>, bool), Self> {
        // Asked before anything is taken: nothing may be lost.
        let fits = self.body.as_mut().is_some_and(|body| {
            let body: &dyn Any = &**body.get_mut();
            body.is::<T>()
        });
        if !fits || self.facts.head.is_none() {
            return Err(self);
        }
        let body = self.body.take().map(SyncWrapper::into_inner);
        let body = body.and_then(|body| (body as Box<dyn Any>).downcast().ok());
        match (body, self.facts.head.take()) {
            (Some(body), Some(head)) => Ok((Response::from_parts(head, *body), self.facts.retried)),
            (_, head) => {
                self.facts.head = head;
                Err(self)
            }
        }
    }

    /// The response, whole, for whoever does not know the body type of the inner service.
    ///
    /// # Errors
    /// Itself, nothing lost, if there was no response.
    pub fn into_boxed_response(mut self) -> Result<Response<BoxedBody>, Self> {
        match (self.body.take(), self.facts.head.take()) {
            (Some(body), Some(head)) => Ok(Response::from_parts(head, body.into_inner().boxed())),
            (body, head) => {
                self.body = body;
                self.facts.head = head;
                Err(self)
            }
        }
    }
}

impl RequestFailed {
    pub(crate) fn new(facts: Facts) -> Self {
        Self {
            facts: Box::new(facts),
        }
    }
}

impl Error {
    /// Whether this is the third answer.
    pub fn is_ambiguous(&self) -> bool {
        match self {
            Self::Ambiguous(_) => true,
            Self::Failed(_) => false,
        }
    }

    /// The response, whole, with the body type of the inner service.
    ///
    /// # Errors
    /// Itself, nothing lost, if there was no response or its body is of another type.
    pub fn into_response<B>(self) -> Result<Response<ResponseBody<B>>, Self>
    where
        B: Body + Send + 'static,
    {
        match self {
            Self::Ambiguous(failure) => failure.into_response().map_err(Self::Ambiguous),
            Self::Failed(failure) => Err(Self::Failed(failure)),
        }
    }

    /// The response with a body of type `T`, and whether the layer may have tried again.
    pub(crate) fn into_response_of<T: 'static>(self) -> Result<(Response<T>, bool), Self> {
        match self {
            Self::Ambiguous(failure) => failure.into_response_of().map_err(Self::Ambiguous),
            Self::Failed(failure) => Err(Self::Failed(failure)),
        }
    }

    /// Whether it is about the attempt, of a layer further out, that has this witness.
    pub(crate) fn is_of(&self, witness: &Witness) -> bool {
        self.facts().is_of(witness)
    }

    fn facts(&self) -> &Facts {
        match self {
            Self::Ambiguous(failure) => &failure.facts,
            Self::Failed(failure) => &failure.facts,
        }
    }
}

impl From<AmbiguousFailure> for Error {
    fn from(failure: AmbiguousFailure) -> Self {
        Self::Ambiguous(failure)
    }
}

impl From<RequestFailed> for Error {
    fn from(failure: RequestFailed) -> Self {
        Self::Failed(failure)
    }
}

impl AmbiguousFailure {
    fn facts(&self) -> &Facts {
        &self.facts
    }
}

impl RequestFailed {
    fn facts(&self) -> &Facts {
        &self.facts
    }
}

/// The same questions to the error and to its two arms.
macro_rules! questions {
    ($($error:ident: $claim:expr;)*) => {$(
        impl $error {
            /// What the last attempt proved about the server.
            pub fn evidence(&self) -> Evidence {
                self.facts().evidence()
            }

            /// The last attempt's failure. `None`: a response ended the call, unbroken as far as it was
            /// read.
            pub fn failure(&self) -> Option<&Failure> {
                self.facts().failure.as_ref()
            }

            /// Whether the operation was executed: `NotExecuted` only if no attempt was, `Unknown`
            /// if any may have been.
            pub fn execution(&self) -> Execution {
                self.facts().execution
            }

            /// Why there was no further attempt. `None`: because it may have been executed
            /// ([`Decision::Ambiguous`](crate::Decision::Ambiguous)), or because there was no call.
            pub fn denied(&self) -> Option<RetryDenied> {
                self.facts().verdict.and_then(|verdict| verdict.denied())
            }

            /// Every attempt.
            pub fn report(&self) -> &Report {
                &self.facts().report
            }

            /// The status, if a response head arrived.
            pub fn status(&self) -> Option<StatusCode> {
                self.response_parts().map(|head| head.status)
            }

            /// The response head, if one arrived.
            pub fn response_parts(&self) -> Option<&response::Parts> {
                self.facts().head.as_ref()
            }
        }

        impl fmt::Display for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.facts().sentence($claim(self), f)
            }
        }

        impl StdError for $error {
            fn source(&self) -> Option<&(dyn StdError + 'static)> {
                self.facts().source.as_ref().map(|source| &**source as _)
            }
        }
    )*};
}

questions! {
    Error: |error: &Error| if error.is_ambiguous() { Claim::Ambiguous } else { Claim::Failed };
    AmbiguousFailure: |_| Claim::Ambiguous;
    RequestFailed: |_| Claim::Failed;
}

/// Which of the two errors it is.
enum Claim {
    Ambiguous,
    Failed,
}

impl Facts {
    pub(crate) fn is_of(&self, witness: &Witness) -> bool {
        self.outer.as_ref().is_some_and(|outer| outer.is(witness))
    }

    pub(crate) fn evidence(&self) -> Evidence {
        self.failure
            .map_or(Evidence::ResponseReceived, |failure| failure.evidence())
    }

    /// One line: what was tried, what is known about the server, which step said no, what to do.
    /// What to do follows from the whole call, which may know more than the last verdict.
    fn sentence(&self, claim: Claim, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match claim {
            Claim::Ambiguous => "ambiguous",
            Claim::Failed => "request failed",
        })?;
        match self.report.attempts().len() {
            0 => f.write_str(" before the first attempt")?,
            1 => f.write_str(" after 1 attempt")?,
            more => write!(f, " after {more} attempts")?,
        }
        if let Some(status) = self.head.as_ref().map(|head| head.status.as_u16()) {
            write!(f, ": status {status}")?;
        }
        if let Some(failure) = &self.failure {
            write!(f, ": {}", failure.kind())?;
        }
        write!(f, " [{}]", self.evidence())?;
        if let Some(verdict) = &self.verdict {
            write!(f, "; {}", verdict.why())?;
        }
        let next = match (claim, self.execution) {
            (Claim::Ambiguous, _) => AMBIGUOUS,
            (Claim::Failed, Execution::NotExecuted) => NOT_EXECUTED,
            (Claim::Failed, Execution::Answered | Execution::Unknown) => IDEMPOTENT,
        };
        write!(f, "; {next}")
    }
}

impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facts")
            .field("evidence", &self.evidence())
            .field("failure", &self.failure)
            .field("execution", &self.execution)
            .field("verdict", &self.verdict)
            .field("status", &self.head.as_ref().map(|head| head.status))
            .field("has_source", &self.source.is_some())
            .field("report", &self.report)
            .finish()
    }
}

impl fmt::Debug for AmbiguousFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmbiguousFailure")
            .field("facts", &self.facts)
            .field("has_response", &self.body.is_some())
            .finish()
    }
}

impl fmt::Debug for RequestFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestFailed")
            .field("facts", &self.facts)
            .finish()
    }
}

/// The last word of a retry layer below, wherever it stands in the chain: a mapping layer in
/// between may have wrapped it.
pub(crate) fn last_word<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Facts> {
    causes(error).find_map(|cause| {
        (cause.downcast_ref::<Error>().map(Error::facts))
            .or_else(|| cause.downcast_ref().map(AmbiguousFailure::facts))
            .or_else(|| cause.downcast_ref().map(RequestFailed::facts))
    })
}

/// A setting that makes no sense, found when it is built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} cannot be {value}: {reason}")]
pub struct ConfigError {
    setting: &'static str,
    value: String,
    reason: &'static str,
}

impl ConfigError {
    pub(crate) fn new(
        setting: &'static str,
        value: impl fmt::Display,
        reason: &'static str,
    ) -> Self {
        Self {
            setting,
            value: value.to_string(),
            reason,
        }
    }

    /// The setting, as its builder method is called.
    pub fn setting(&self) -> &'static str {
        self.setting
    }

    /// The offending value, as it was given.
    pub fn value(&self) -> &str {
        &self.value
    }
}
