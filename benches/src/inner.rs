//! The service that all layers wrap: it takes the request and answers at once.

use std::cell::Cell;
use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tower::Service;

pub type Answer = Response<Full<Bytes>>;

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upstream {
    /// 200.
    Well,
    /// First 503, then 200.
    FailsOnce,
    /// 503.
    Fails,
}

/// Drops the request and answers.
#[derive(Debug, Clone)]
pub struct Inner(pub Upstream);

thread_local! {
    static ATTEMPTS: Cell<u64> = const { Cell::new(0) };
}

impl Upstream {
    /// The answer to the next attempt on this thread.
    #[inline(never)]
    pub fn answer(self) -> StatusCode {
        let before = ATTEMPTS.replace(ATTEMPTS.get() + 1);
        match self {
            Self::Fails => StatusCode::SERVICE_UNAVAILABLE,
            Self::FailsOnce if before.is_multiple_of(2) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Well | Self::FailsOnce => StatusCode::OK,
        }
    }
}

impl<B> Service<Request<B>> for Inner {
    type Response = Answer;
    type Error = Failed;
    type Future = Ready<Result<Answer, Failed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    // The request is dropped where it is, at the end: `drop` would move it once more.
    fn call(&mut self, _request: Request<B>) -> Self::Future {
        let mut answer = Response::new(Full::new(Bytes::new()));
        *answer.status_mut() = self.0.answer();
        ready(Ok(answer))
    }
}

/// For peers that repeat errors only.
pub fn ok(answer: Answer) -> Result<Answer, Failed> {
    match answer.status() {
        StatusCode::OK => Ok(answer),
        _ => Err(Failed),
    }
}

/// The error of a service that never fails by itself.
#[derive(Debug, Clone)]
pub struct Failed;

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the upstream failed")
    }
}

impl std::error::Error for Failed {}

impl From<Infallible> for Failed {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
