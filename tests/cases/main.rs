//! Public bug reports of other retry systems, as whole calls. `bug-reports.json` says what happened
//! and what is right; where that conflicts with the contract, the contract wins, and the test says
//! so. Cases that other test files cover are named there.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)] // helpers of tests

mod attempts;
mod bodies_and_answers;
mod budgets;
mod cancelled;
mod credentials;
mod duplicates;
mod hints;
mod permanent;
mod pushback;
mod readiness;
#[cfg(feature = "hyper")]
mod sockets;
mod sum;
#[path = "../support/mod.rs"]
mod support;
mod timing;

use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use support::body::TestBody;
use support::script::{Reply, Script};
use tokio::time::Instant;
use tower::{Layer, ServiceExt};
use tower_http_retry::{
    Error, Failure, FailureKind, Policy, ReplayBody, Report, ResponseBody, RetryDenied, RetryLayer,
};

type Answer = Result<Response<ResponseBody<TestBody>>, Error>;

/// A call that ended, and what the inner service saw of it.
struct Ran {
    answer: Answer,
    script: Script,
    took: Duration,
}

/// One call of `request` over a script.
async fn run<P: Policy>(
    layer: &RetryLayer<P>,
    request: Request<ReplayBody>,
    replies: impl IntoIterator<Item = Reply>,
) -> Ran {
    let (script, start) = (Script::new(replies), Instant::now());
    let answer = layer.layer(script.clone()).oneshot(request).await;
    Ran {
        answer,
        script,
        took: start.elapsed(),
    }
}

impl Ran {
    /// There were these waits, and an attempt before and after each.
    #[track_caller]
    fn waited<const N: usize>(&self, waits_ms: [u64; N]) {
        assert_eq!(self.waits_ms(), waits_ms, "waits");
        assert_eq!(self.script.attempts(), N + 1, "attempts");
    }

    fn waits_ms(&self) -> Vec<u64> {
        let attempts = self.report().map_or(&[][..], Report::attempts);
        let waits = attempts.iter().map(|attempt| attempt.waited_before());
        waits.skip(1).map(|wait| wait.as_millis() as u64).collect()
    }

    fn report(&self) -> Option<&Report> {
        match &self.answer {
            Ok(response) => response.extensions().get(),
            Err(error) => Some(error.report()),
        }
    }

    fn denied(&self) -> Option<RetryDenied> {
        self.report()?.verdict()?.denied()
    }

    /// Of a response that is handed over.
    #[track_caller]
    fn status(&self) -> StatusCode {
        self.answer.as_ref().unwrap().status()
    }

    #[track_caller]
    fn error(&self) -> &Error {
        self.answer.as_ref().unwrap_err()
    }

    #[track_caller]
    fn is_ambiguous(&self) {
        assert!(self.error().is_ambiguous(), "{}", self.error());
    }

    /// What the error and its sources say, outermost first.
    fn causes(&self) -> Vec<String> {
        let error: &dyn std::error::Error = self.error();
        let chain = std::iter::successors(Some(error), |error| error.source());
        chain.map(ToString::to_string).collect()
    }

    /// Failed: not executed, or safe to repeat.
    #[track_caller]
    fn failed(&self, kind: FailureKind) {
        assert!(matches!(self.error(), Error::Failed(_)));
        assert_eq!(self.error().failure().map(Failure::kind), Some(kind));
    }
}

fn get() -> Request<ReplayBody> {
    support::request(Method::GET, ())
}

fn post() -> Request<ReplayBody> {
    support::request(Method::POST, "order")
}

fn ok() -> Reply {
    Reply::status(200)
}

fn busy() -> Reply {
    Reply::status(503)
}

fn reset() -> Reply {
    Reply::fails(Failure::sent_no_response(FailureKind::Reset))
}

fn refused() -> Reply {
    Reply::fails(Failure::not_sent(FailureKind::Connect))
}

fn times(count: usize, reply: impl Fn() -> Reply) -> impl Iterator<Item = Reply> {
    (0..count).map(move |_| reply())
}
