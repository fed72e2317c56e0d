//! Events of the `tracing` crate.

use std::fmt;

use http::request;

use super::names::{self, Answer, last_verdict};
use super::{AttemptEnded, CallEnded, Observer};
use crate::UpstreamKey;
use crate::evidence::{Execution, Failure};
use crate::idempotency::Idempotency;
use crate::report::{AttemptReport, Took, rounded};

const TARGET: &str = "tower_http_retry";

/// Logs every decision as an event of the `tracing` crate, target `tower_http_retry`, in the
/// caller's current span.
///
/// - `http.retry.attempt`, once an attempt: what was tried, what it proves, what follows. Level
///   debug; warn where it leaves the operation ambiguous.
/// - `http.retry.call`, once a call that took more than one attempt, was cut short or ended without
///   an answer. Level debug; warn where the call is ambiguous and no attempt's event said so.
///
/// So an ambiguous call is one warning. [The page on operations](crate::observe) lists the fields,
/// which are stable, and says what to do. Nothing here prints a body, a header value, or more of a
/// URI than scheme and authority.
///
/// ```
/// use tower_http_retry::{RetryLayer, StandardPolicy, observe};
///
/// let layer = RetryLayer::new(StandardPolicy::default()).with_observer(observe::Tracing::new());
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Tracing;

impl Tracing {
    /// An observer that logs.
    pub const fn new() -> Self {
        Self
    }
}

impl Observer for Tracing {
    fn attempt_ended(&self, ended: &AttemptEnded<'_>) {
        let (attempt, verdict) = (ended.attempt(), ended.verdict());
        // A level is a part of a callsite: one event, two callsites.
        macro_rules! event {
            ($level:ident) => {
                ::tracing::$level!(
                    name: "http.retry.attempt",
                    target: TARGET,
                    {
                        http.request.method = attempt.request().method.as_str(),
                        retry.upstream = %upstream(attempt.request()),
                        // OpenTelemetry, semantic conventions for HTTP: the ordinal of the resend.
                        http.request.resend_count = attempt.number().get() - 1,
                        http.response.status_code = attempt.status().map(|status| status.as_u16()),
                        retry.attempt = attempt.number().get(),
                        retry.max_attempts = attempt.max_attempts().get(),
                        retry.evidence = names::evidence(attempt.evidence()),
                        retry.failure = attempt.failure().map(kind),
                        retry.decision = names::decision(verdict.decision()),
                        retry.step = verdict.step().map(|step| step as u8),
                        retry.denied = verdict.denied().map(names::denied),
                        retry.ambiguous = verdict.is_ambiguous(),
                        retry.execution = names::execution(verdict.execution()),
                        retry.reconciled = ended.reconciled().map(names::execution),
                        retry.contradicted = ended.is_contradicted(),
                        retry.waited_seconds = ended.waited_before().as_secs_f64(),
                        retry.duration_seconds = ended.duration().as_secs_f64(),
                        retry.wait_seconds = ended.next_wait().map(|wait| wait.as_secs_f64()),
                        retry.budget_tokens = ended.budget_balance()
                    },
                    "{}",
                    AttemptLine(ended)
                )
            };
        }
        if verdict.is_ambiguous() || ended.is_contradicted() {
            event!(warn);
        } else {
            event!(debug);
        }
    }

    fn call_ended(&self, ended: &CallEnded<'_>) {
        if ended.attempts() == 1 && !ended.is_cut_short() && ended.answer().is_ok() {
            return; // its attempt's event said it all
        }
        let (verdict, answer) = (last_verdict(ended), Answer::of(ended));
        let last = ended.report().and_then(|report| report.attempts().last());
        macro_rules! event {
            ($level:ident) => {
                ::tracing::$level!(
                    name: "http.retry.call",
                    target: TARGET,
                    {
                        http.request.method = ended.request().method.as_str(),
                        retry.upstream = %upstream(ended.request()),
                        http.request.resend_count = ended.attempts().saturating_sub(1),
                        http.response.status_code = status(ended),
                        retry.answer = names::answer(answer),
                        retry.attempts = ended.attempts(),
                        retry.evidence = last.map(|last| names::evidence(last.evidence())),
                        retry.failure = last.and_then(AttemptReport::failure).map(kind),
                        retry.step = verdict.and_then(|v| v.step()).map(|step| step as u8),
                        retry.denied = verdict.and_then(|v| v.denied()).map(names::denied),
                        retry.ambiguous = answer.is_ambiguous(),
                        retry.execution = execution(ended).map(names::execution),
                        retry.prior_unknown = ended.report().is_some_and(|r| r.prior_unknown()),
                        retry.cut_short = ended.is_cut_short(),
                        retry.side_failure = last.and_then(side_failure),
                        retry.duration_seconds = ended.duration().as_secs_f64()
                    },
                    "{}",
                    CallLine(ended)
                )
            };
        }
        let told = !ended.is_cut_short() && verdict.is_some_and(|verdict| verdict.is_ambiguous());
        if answer.is_ambiguous() && !told {
            event!(warn);
        } else {
            event!(debug);
        }
    }
}

fn kind(failure: &Failure) -> &'static str {
    names::failure(failure.kind())
}

fn status(ended: &CallEnded<'_>) -> Option<u16> {
    match ended.answer() {
        Ok(head) => Some(head.status.as_u16()),
        Err(error) => error.status().map(|status| status.as_u16()),
    }
}

fn execution(ended: &CallEnded<'_>) -> Option<Execution> {
    match ended.answer() {
        Ok(_) => ended.report().map(|report| report.execution()),
        Err(error) => Some(error.execution()),
    }
}

/// What failed besides the attempt. The error itself is somebody else's, and may print anything.
fn side_failure(attempt: &AttemptReport) -> Option<&'static str> {
    if attempt.refresh_error().is_some() {
        Some("refresh")
    } else if attempt.readiness_error().is_some() {
        Some("readiness")
    } else if attempt.reconcile_error().is_some() {
        Some("reconcile")
    } else {
        None
    }
}

/// Whom a request names by its URI or its extension. A `Host` is a header value, which nothing prints.
fn upstream(request: &request::Parts) -> UpstreamKey {
    let named = request.extensions.get::<UpstreamKey>().is_some();
    if named || request.uri.authority().is_some() {
        UpstreamKey::of(request)
    } else {
        UpstreamKey::default()
    }
}

/// A method, and whom it was sent to.
struct Sent<'a>(&'a request::Parts);

impl fmt::Display for Sent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.0.method, upstream(self.0))
    }
}

/// What was tried, what is known about the server, which step said no, what is safe to do next.
struct AttemptLine<'a>(&'a AttemptEnded<'a>);

impl fmt::Display for AttemptLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (attempt, ended) = (self.0.attempt(), self.0);
        let (number, max) = (attempt.number(), attempt.max_attempts());
        let request = Sent(attempt.request());
        write!(f, "attempt {number} of {max}: {request}")?;
        if let Some(status) = attempt.status() {
            write!(f, ", status {}", status.as_u16())?;
        }
        if let Some(failure) = attempt.failure() {
            write!(f, ", {}", failure.kind())?;
        }
        write!(f, " [{}] {}", attempt.evidence(), Took(ended.duration()))?;
        match ended.reconciled() {
            Some(Execution::NotExecuted) => f.write_str(", reconciled: not executed")?,
            Some(Execution::Answered) => f.write_str(", reconciled: executed")?,
            Some(Execution::Unknown) => f.write_str(", reconciled: unknown")?,
            None => {}
        }
        write!(f, ", {}", ended.verdict())?;
        if let Some(wait) = ended.next_wait() {
            write!(f, " in {:?}", rounded(wait))?;
        }
        if ended.is_contradicted() {
            f.write_str("; the transport says not sent, but took the body: taken for sent")?;
        }
        Ok(())
    }
}

struct CallLine<'a>(&'a CallEnded<'a>);

impl fmt::Display for CallLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended = self.0;
        write!(f, "{}: ", Sent(ended.request()))?;
        match ended.answer() {
            Ok(head) => {
                let (attempts, status) = (ended.attempts(), head.status.as_u16());
                let s = if attempts == 1 { "" } else { "s" };
                write!(f, "answered after {attempts} attempt{s}: status {status}")?;
                if let Some(verdict) = last_verdict(ended) {
                    write!(f, "; {verdict}")?;
                }
            }
            // Prints no source: that is somebody else's.
            Err(error) => write!(f, "{error}")?,
        }
        let safe = Idempotency::of_method(&ended.request().method) == Idempotency::Safe;
        if !safe && ended.report().is_some_and(|report| report.prior_unknown()) {
            f.write_str("; an earlier attempt may have been executed")?;
        }
        if ended.is_cut_short() {
            f.write_str("; the next attempt was permitted and never made")?;
        }
        Ok(())
    }
}
