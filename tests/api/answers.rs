//! What the caller gets.

use std::error::Error as StdError;
use std::num::NonZeroU32;
use std::time::Duration;

use http::{Response, StatusCode, response};
use http_body::Body;
use tower_http_retry::*;

/// Exhaustive: no third arm takes ambiguity for failure.
fn answer<B: Body + Send + 'static>(error: Error) -> Option<Response<ResponseBody<B>>> {
    let _: bool = error.is_ambiguous();
    match error {
        Error::Ambiguous(failure) => failure.into_response::<B>().ok(),
        Error::Failed(_) => None,
    }
}

fn boxed(failure: AmbiguousFailure) -> Result<Response<BoxedBody>, AmbiguousFailure> {
    failure.into_boxed_response()
}

fn whole<B: Body + Send + 'static>(error: Error) -> Result<Response<ResponseBody<B>>, Error> {
    error.into_response()
}

macro_rules! answers_the_same_questions {
    ($($error:ident $name:ident)*) => {$(
        fn $name(error: $error) -> Error {
            let _: Evidence = error.evidence();
            let _: Option<&Failure> = error.failure();
            let _: Execution = error.execution();
            let _: Option<RetryDenied> = error.denied();
            let _: &Report = error.report();
            let _: Option<StatusCode> = error.status();
            let _: Option<&response::Parts> = error.response_parts();
            let _: Option<&(dyn StdError + 'static)> = StdError::source(&error);
            error.into()
        }
    )*};
}
answers_the_same_questions!(Error error  AmbiguousFailure ambiguous  RequestFailed failed);

fn report(report: &Report) -> Vec<String> {
    let _: Option<&Verdict> = report.verdict();
    let _: bool = report.prior_unknown();
    let _: Execution = report.execution();
    let lines = report
        .clone()
        .attempts()
        .iter()
        .map(AttemptReport::to_string)
        .collect();
    let _: String = report.to_string();
    lines
}

fn attempt(attempt: &AttemptReport) -> AttemptReport {
    let _: NonZeroU32 = attempt.number();
    let _: Evidence = attempt.evidence();
    let _: Option<&Failure> = attempt.failure();
    let _: Option<StatusCode> = attempt.status();
    let _: [Duration; 2] = [attempt.waited_before(), attempt.duration()];
    let _: &Verdict = attempt.verdict();
    let _: Option<Execution> = attempt.reconciled();
    let _: [Option<&(dyn StdError + Send + Sync + 'static)>; 3] = [
        attempt.refresh_error(),
        attempt.readiness_error(),
        attempt.reconcile_error(),
    ];
    attempt.clone()
}
