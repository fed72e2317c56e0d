//! The end of a call: what the caller gets.

use http::{Response, StatusCode, response};
use http_body::Body;

use crate::BoxError;
use crate::attempt::Retried;
use crate::call::{Call, Progress};
use crate::ended::Last;
use crate::error::{AmbiguousFailure, Error, Facts, RequestFailed};
use crate::evidence::Execution;
use crate::head::Head;
use crate::judge::Judge;
use crate::observe::CallEnded;
use crate::policy::{AmbiguousResponses, Decision, Policy, RetryDenied, Verdict};
use crate::report::Report;
use crate::response::{BodyError, ResponseBody};

type Whole<B> = (response::Parts, ResponseBody<B>);

impl<P: Policy> Judge<'_, P> {
    /// Ends a call whose first attempt is its answer: nothing is reported. `false`: it is not so,
    /// and nothing happened.
    pub(crate) fn accept(&mut self, head: &mut response::Parts, verdict: Verdict) -> bool {
        if !self.call.progress.attempts.is_empty() {
            return false;
        }
        deposit(&self.call.progress, head, verdict.decision());
        self.tell(Ok(head), None);
        true
    }

    /// Ends the call: the token goes back, the budget gets its deposit, and the observers are told
    /// what the caller gets.
    pub(crate) fn answer<B>(
        &mut self,
        mut last: Last<B>,
        verdict: Verdict,
    ) -> Result<Response<ResponseBody<B>>, Error>
    where
        B: Body + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let progress = &mut self.call.progress;
        progress.token = None;
        if let Last::Response(head, _) = &mut last {
            deposit(progress, head, verdict.decision());
        }
        // No attempt reported: a first-attempt success.
        let reported = std::mem::take(&mut progress.attempts);
        let report = (!reported.is_empty()).then(|| Report::new(reported));
        let answer = match (last, &report) {
            (Last::Response(head, body), None) => Ok((head, body)),
            (Last::Response(head, body), Some(report)) => self.deliver(head, body, report, verdict),
            (Last::Head(head, broken), report) => {
                let (failure, source) = match broken.map(BodyError::into_parts) {
                    Some((failure, source)) => (Some(failure), source),
                    None => (None, None),
                };
                Err(self.error(Facts {
                    failure,
                    head: Some(head),
                    source,
                    ..self.facts(report.as_ref(), verdict)
                }))
            }
            (Last::Failure(failure, source), report) => Err(self.error(Facts {
                failure: Some(failure),
                source,
                ..self.facts(report.as_ref(), verdict)
            })),
        };
        self.tell(answer.as_ref().map(|(head, _)| head), report.as_ref());
        answer.map(|(head, body)| Response::from_parts(head, body))
    }

    /// A whole response: delivered, unless it leaves the execution of a non-idempotent operation
    /// unknown and the policy wants that rejected.
    fn deliver<B>(
        &mut self,
        mut head: response::Parts,
        mut body: ResponseBody<B>,
        report: &Report,
        verdict: Verdict,
    ) -> Result<Whole<B>, Error>
    where
        B: Body + Send + 'static,
        B::Error: Into<BoxError>,
    {
        // A third answer has no reason of its own; this is the one behind it (step 8).
        let third = verdict.is_ambiguous().then_some(RetryDenied::NotIdempotent);
        if let Some(reason) = verdict.denied().or(third) {
            body.deny(reason);
        }
        if verdict.is_ambiguous() {
            match self.policy.ambiguous_responses(self.call.kept.parts()) {
                AmbiguousResponses::Reject => {
                    let facts = Facts {
                        failure: body.failure(),
                        head: Some(head),
                        ..self.facts(Some(report), verdict)
                    };
                    return Err(AmbiguousFailure::with_response(facts, body).into());
                }
                AmbiguousResponses::Deliver => {
                    head.extensions.insert(verdict);
                }
            }
        }
        head.extensions.insert(report.clone());
        if self.may_retry() {
            head.extensions.insert(Retried);
        }
        Ok((head, body))
    }

    /// Without a whole response: `Failed` only for what was not executed, or may be repeated.
    fn error(&self, facts: Facts) -> Error {
        let ambiguous = facts.verdict.is_none_or(|verdict| verdict.is_ambiguous());
        let harmless = facts.execution == Execution::NotExecuted || self.is_safely_idempotent();
        if ambiguous || !harmless {
            AmbiguousFailure::new(facts).into()
        } else {
            RequestFailed::new(facts).into()
        }
    }

    fn facts(&self, report: Option<&Report>, verdict: Verdict) -> Facts {
        let report = report.cloned().unwrap_or_else(|| Report::new(Vec::new()));
        Facts {
            failure: None,
            execution: report.execution(),
            verdict: Some(verdict),
            report,
            head: None,
            source: None,
            retried: self.may_retry(),
            outer: self.call.progress.outer.clone(),
        }
    }

    fn is_safely_idempotent(&self) -> bool {
        let Call { kept, progress, .. } = &*self.call;
        progress
            .idempotency(kept, self.policy)
            .is_safely_idempotent()
    }

    fn may_retry(&self) -> bool {
        self.call.progress.max_attempts.get() > 1
    }

    fn tell(&self, answer: Result<&response::Parts, &Error>, report: Option<&Report>) {
        if self.settings.observers.is_empty() {
            return;
        }
        let started = self.call.progress.call_started;
        let ended = CallEnded {
            request: Head::Kept(&self.call.kept),
            answer,
            attempts: report.map_or(1, |report| report.attempts().len() as u32),
            duration: started.map(|started| started.elapsed()).unwrap_or_default(),
            report,
            cut_short: self.call.progress.cut_short,
        };
        for observer in &self.settings.observers {
            observer.call_ended(&ended);
        }
    }
}

/// A call that ends with an accepted response, or with a plain 4xx, is traffic that the upstream
/// served: it pays for a fraction of a retry. Once a call, whatever its attempts.
fn deposit(progress: &Progress, head: &mut response::Parts, decision: Decision) {
    let Some(budget) = &progress.budget else {
        return;
    };
    let accepted = decision == Decision::Accept && progress.reconciled.is_none();
    let plain = head.status.is_client_error()
        && !matches!(
            head.status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        );
    if accepted || plain {
        budget.deposit(&mut head.extensions);
    }
}
