//! How an attempt ended, with what the caller may still get of it.

use http::response;
use http_body::Body;

use crate::BoxError;
use crate::attempt::Outcome;
use crate::evidence::{Failure, FailureKind};
use crate::response::{BodyError, ResponseBody};

/// An attempt that ended.
pub(crate) enum Ended<B> {
    /// A response, and nothing wrong with it so far.
    Response(response::Parts, ResponseBody<B>),
    /// A response whose body broke: it ends with the error.
    Broken(response::Parts, ResponseBody<B>, Failure),
    /// No response.
    Failure(Failure, Option<BoxError>),
}

impl<B> Ended<B> {
    pub(crate) fn outcome(&self) -> Outcome<'_> {
        match self {
            Self::Response(head, _) => Outcome::Response(head),
            Self::Broken(head, _, failure) => Outcome::Broken(head, failure),
            Self::Failure(failure, _) => Outcome::Failure(failure),
        }
    }
}

/// What is left of the last attempt while the call waits for another: the caller's answer, should
/// there be no other.
pub(crate) enum Last<B> {
    /// A response that is still whole: read out, or not touched.
    Response(response::Parts, ResponseBody<B>),
    /// The head of a response whose body was given up, or broke.
    Head(response::Parts, Option<BodyError>),
    /// A failure.
    Failure(Failure, Option<BoxError>),
}

impl<B> Last<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    /// Lets go of a response that is not all here: between two attempts no connection is held.
    pub(crate) fn let_go(self) -> Self {
        match self {
            Self::Response(head, body) => match body.into_whole() {
                Ok(body) => Self::Response(head, body),
                Err(broken) => Self::Head(head, broken),
            },
            Self::Head(..) | Self::Failure(..) => self,
        }
    }
}

impl<B> Last<B> {
    /// Its response head, and the transport's error.
    pub(crate) fn into_parts(self) -> (Option<response::Parts>, Option<BoxError>) {
        match self {
            Self::Response(head, _) => (Some(head), None),
            Self::Head(head, broken) => {
                (Some(head), broken.and_then(|broken| broken.into_parts().1))
            }
            Self::Failure(_, source) => (None, source),
        }
    }
}

impl<B> From<Ended<B>> for Last<B> {
    fn from(ended: Ended<B>) -> Self {
        match ended {
            // A broken body is delivered too: head, received bytes, and then the error.
            Ended::Response(head, body) | Ended::Broken(head, body, _) => {
                Self::Response(head, body)
            }
            Ended::Failure(failure, source) => Self::Failure(failure, source),
        }
    }
}

impl<B> Ended<B> {
    /// The same attempt, found out not to have been executed.
    pub(crate) fn not_sent(self, failure: Failure) -> Self {
        match self {
            Self::Response(..) | Self::Broken(..) => self,
            Self::Failure(_, source) => Self::Failure(failure, source),
        }
    }
}

/// The layer itself ended an attempt. The source is the last error of the transport, from an
/// earlier attempt: a bland time-out does not replace the informative error.
#[derive(Debug, thiserror::Error)]
#[error("{kind}")]
pub(crate) struct TimedOut {
    pub(crate) kind: FailureKind,
    #[source]
    pub(crate) earlier: Option<BoxError>,
}

/// What is worth remembering of an error: a time-out is not, but what it remembers is.
pub(crate) fn earlier_error(error: BoxError) -> Option<BoxError> {
    match error.downcast::<TimedOut>() {
        Ok(timed_out) => timed_out.earlier,
        Err(error) => Some(error),
    }
}
