//! From the end of an attempt to what follows: facts are gathered, the nine steps decide, and what
//! they permit still has to pass the gates that change something.

use std::time::Duration;

use http::{Response, StatusCode, response};
use tokio::time::Instant;

use crate::BoxError;
use crate::attempt::{Attempt, Outcome, Retried};
use crate::budget::CallBudget;
use crate::call::{Call, Progress};
use crate::deadline::after;
use crate::ended::{Ended, Last, TimedOut};
use crate::error::last_word;
use crate::evidence::{
    Execution, FailedAttempt, Failure, FailureKind, Judged, Phase, judge as read_failure,
};
use crate::observe::AttemptEnded;
use crate::policy::{
    Decision, Policy, RetryDenied, Rule, Step, Verdict, decide, fits, honoured_hint, own_execution,
};
use crate::reconcile::{Ambiguous, Asking};
use crate::refresh::Refreshing;
use crate::report::{AttemptReport, SharedError};
use crate::retry_after;
use crate::shared::Settings;

/// Judges the attempts of one call.
pub(crate) struct Judge<'a, P> {
    pub(crate) call: &'a mut Call,
    pub(crate) policy: &'a P,
    pub(crate) settings: &'a Settings,
}

/// What follows an attempt.
pub(crate) enum Ruling {
    /// Another attempt, for which a token is withdrawn.
    Again(Wait),
    /// The answer.
    Final(Verdict),
    /// The answer, unless somebody can tell what became of the operation.
    Ask(Verdict),
}

/// The way to the next attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    /// Get a new credential first.
    pub(crate) refresh: bool,
    pub(crate) time: Duration,
    /// When the wait began: whatever else is done before the next attempt counts into it.
    pub(crate) from: Instant,
}

impl Wait {
    /// When it ends. `None`: never.
    pub(crate) fn wake(&self) -> Option<Instant> {
        after(self.from, self.time)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.time.is_zero() || self.from.elapsed() >= self.time
    }
}

impl<P: Policy> Judge<'_, P> {
    /// The inner service failed. A retry layer below, if one answered, knows more than the error of
    /// its transport says; but it speaks of its own request.
    pub(crate) fn failed<B>(&mut self, error: BoxError) -> Ended<B> {
        let trace = self.call.progress.witness.trace();
        let failed = FailedAttempt::new(Phase::Call, Some(&*error), trace);
        let judged = self.read(&failed, FailureKind::Unknown);
        let mut failure = judged.failure;
        if let Some(word) = last_word(&*error).filter(|_| !trace.failed()) {
            let witness = &self.call.progress.witness;
            if !judged.stated && word.is_of(witness) {
                let kind = word
                    .failure
                    .map_or(FailureKind::Unknown, |failure| failure.kind());
                failure = match word.execution {
                    Execution::NotExecuted => Failure::not_sent(kind),
                    Execution::Answered | Execution::Unknown => {
                        Failure::sent_no_response(kind).at_least(word.evidence())
                    }
                };
            }
            if word.retried {
                // That was the last try, whosever it was: layers never multiply.
                failure = Failure::new(failure.evidence(), FailureKind::AlreadyRetried);
            }
        }
        // The transport may hide why the request body failed; the witness does not.
        let source = self.call.progress.witness.take_failure().unwrap_or(error);
        Ended::Failure(failure, Some(source))
    }

    /// The layer ended the attempt, at a limit.
    pub(crate) fn timed_out<B>(&mut self, limit: FailureKind) -> Ended<B> {
        let progress = &mut self.call.progress;
        let failed = FailedAttempt::new(Phase::Call, None, progress.witness.trace());
        let source = TimedOut {
            kind: limit,
            earlier: progress.prior_error.take(),
        };
        Ended::Failure(self.read(&failed, limit).failure, Some(source.into()))
    }

    fn read(&mut self, failed: &FailedAttempt<'_>, kind: FailureKind) -> Judged {
        let Settings {
            peer_promises,
            classifiers,
            ..
        } = self.settings;
        let judged = read_failure(failed, kind, *peer_promises, classifiers);
        self.call.progress.contradicted = judged.contradiction;
        if judged.contradiction {
            self.settings.contradictions.count();
        }
        judged
    }

    /// Whether a response is the answer at once. Of a first attempt that is accepted nothing is
    /// reported: where nobody observes it either, its facts are not gathered.
    #[inline]
    pub(crate) fn accepts_at_once<B>(&self, response: &mut Response<B>) -> bool {
        let progress = &self.call.progress;
        let accepted = progress.attempts.is_empty()
            && self.settings.observers.is_empty()
            && self.policy.accepts(response.status());
        if accepted && let Some(budget) = &progress.budget {
            budget.deposit(response.extensions_mut());
        }
        accepted
    }

    /// A response arrived, and nothing is wrong with it so far. `None`: it is the answer, and the
    /// call is over.
    pub(crate) fn respond(&mut self, head: &mut response::Parts) -> Option<Ruling> {
        match self.rule(Outcome::Response(head), None) {
            Ruling::Final(verdict) if self.accept(head, verdict) => None,
            ruling @ (Ruling::Final(_) | Ruling::Again(_) | Ruling::Ask(_)) => Some(ruling),
        }
    }

    /// The nine steps, and for what they permit the gates that change something: the wait against
    /// the deadline, the token, the body.
    pub(crate) fn rule(&mut self, outcome: Outcome<'_>, whole: Option<&[u8]>) -> Ruling {
        let Call { kept, progress, .. } = &mut *self.call;
        // Still here: the attempt it was for never went out.
        progress.token = None;
        let attempt = Call::attempt(kept, progress, self.policy, self.settings, outcome, whole);
        let verdict = decide(self.policy, &attempt);
        if verdict.decision() != Decision::Accept {
            progress.stop_clock();
        }
        let (verdict, wait) = match verdict.decision() {
            Decision::Accept | Decision::Denied(_) | Decision::Ambiguous => (verdict, None),
            Decision::Retry | Decision::Refresh => {
                match pass(self.policy, progress, &attempt, verdict.decision()) {
                    Ok(wait) => (verdict, Some(wait)),
                    Err((reason, step)) => (verdict.ended_by(reason, step), None),
                }
            }
        };
        if verdict.is_ambiguous()
            && self.settings.reconcile.is_some()
            && progress.reconciled.is_none()
            && !attempt.draining
            && attempt
                .remaining
                .is_none_or(|remaining| !remaining.is_zero())
        {
            return Ruling::Ask(verdict);
        }
        record(
            self.policy,
            progress,
            self.settings,
            &attempt,
            verdict,
            wait,
        );
        match wait {
            Some(wait) => Ruling::Again(wait),
            None => Ruling::Final(verdict),
        }
    }

    /// Something ended the call between two attempts: it is the last verdict now, and the token
    /// goes back. `None` before the first attempt ended.
    pub(crate) fn stop(&mut self, reason: RetryDenied, step: Step) -> Option<Verdict> {
        let progress = &mut self.call.progress;
        progress.token = None;
        progress.cut_short = true;
        let last = progress.attempts.last_mut()?;
        last.verdict = last.verdict.ended_by(reason, step);
        Some(last.verdict)
    }

    /// What forbids another attempt now, though it was permitted before the wait.
    pub(crate) fn ends_before_attempt(&self) -> Option<(RetryDenied, Step)> {
        if self.settings.is_draining() {
            return Some((RetryDenied::RuntimeDraining, Step::Draining));
        }
        let late = self.call.progress.is_late();
        late.then_some((RetryDenied::Deadline, Step::Deadline))
    }

    /// Starts a refresh, from the head that was refused. `None` without a challenge.
    pub(crate) fn refresh<B>(&mut self, last: &Last<B>) -> Option<Refreshing> {
        let (Last::Response(challenge, _), Some(refresher)) = (last, &self.settings.refresh) else {
            return None;
        };
        let stale = self.call.head(self.settings);
        Some(refresher.refresh(stale, challenge.clone()))
    }

    /// Starts asking what became of the attempt. What is left of one that failed is cut off first: a
    /// client may still hold the request, and must not send it once the upstream was asked.
    pub(crate) fn ask(&mut self, outcome: Outcome<'_>) -> Option<Asking> {
        let reconcile = self.settings.reconcile.clone()?;
        if outcome.response().is_none() {
            self.call.progress.witness.cut();
        }
        Some(reconcile.ask(self.call.head(self.settings), Ambiguous::of(outcome)))
    }

    /// The attempt turned out not to have been executed: it counts as `NotSent`, and the nine steps
    /// are asked again. What its response said still holds: how long to wait, that it is not to be
    /// tried again, that a layer below has tried.
    pub(crate) fn not_executed(
        &mut self,
        outcome: Outcome<'_>,
        verdict: Verdict,
    ) -> (Failure, Ruling) {
        let progress = &mut self.call.progress;
        progress.reconciled = Some(Execution::NotExecuted);
        let mut kind = outcome
            .failure()
            .map_or(FailureKind::Unknown, Failure::kind);
        if let Some(head) = outcome.response() {
            progress.reconciled_status = Some(head.status);
            progress.reconciled_hint = retry_after::of(&head.headers);
            if head.extensions.get::<Retried>().is_some() {
                kind = FailureKind::AlreadyRetried;
            }
        }
        let failure = Failure::not_sent(kind);
        if outcome.response().is_some() && verdict.rule() == Rule::Deny {
            // It was found out of this attempt alone.
            let verdict = if progress.prior_unknown {
                verdict
            } else {
                verdict.not_executed()
            };
            self.found_out(Outcome::Failure(&failure), verdict, Execution::NotExecuted);
            return (failure, Ruling::Final(verdict));
        }
        (failure, self.rule(Outcome::Failure(&failure), None))
    }

    /// The attempt turned out to have been executed, and its answer is at hand.
    pub(crate) fn executed(&mut self, outcome: Outcome<'_>, verdict: Verdict) -> Verdict {
        let verdict = verdict.accepted();
        self.found_out(outcome, verdict, Execution::Answered);
        verdict
    }

    /// Nobody could tell: the third answer stands.
    pub(crate) fn unknown(
        &mut self,
        outcome: Outcome<'_>,
        verdict: Verdict,
        error: Option<SharedError>,
    ) {
        self.call.progress.reconcile_error = error;
        self.found_out(outcome, verdict, Execution::Unknown);
    }

    fn found_out(&mut self, outcome: Outcome<'_>, verdict: Verdict, found: Execution) {
        let Call { kept, progress, .. } = &mut *self.call;
        progress.reconciled = Some(found);
        let attempt = Call::attempt(kept, progress, self.policy, self.settings, outcome, None);
        record(
            self.policy,
            progress,
            self.settings,
            &attempt,
            verdict,
            None,
        );
    }
}

/// The gates behind the nine steps. The token is withdrawn as the last that another call could
/// take; only then the running upload is cut off, because a response that is delivered after all
/// must leave it alone. If the body is lost in that instant, the token goes back.
fn pass<P: Policy>(
    policy: &P,
    progress: &mut Progress,
    attempt: &Attempt<'_>,
    decision: Decision,
) -> Result<Wait, (RetryDenied, Step)> {
    let wait = wait(policy, attempt, progress.waited, progress.random.draw())
        .ok_or((RetryDenied::Deadline, Step::Deadline))?;
    let token = match &progress.budget {
        Some(budget) => Some(
            budget
                .try_withdraw()
                .ok_or((RetryDenied::BudgetExhausted, Step::Budget))?,
        ),
        None => None,
    };
    let state = progress.cut();
    if !state.is_replayable() {
        return Err((RetryDenied::BodyNotReplayable(state), Step::Body));
    }
    progress.token = token;
    progress.no_early_data |= attempt.status() == Some(StatusCode::TOO_EARLY);
    let refresh = decision == Decision::Refresh;
    progress.refreshed |= refresh;
    Ok(Wait {
        refresh,
        time: wait,
        from: Instant::now(),
    })
}

/// How long to wait: what the policy says, raised to the server's hint; without the hint's jitter
/// where only that does not fit. `None`: it does not fit (step 6, asked again for the drawn wait).
fn wait<P: Policy>(
    policy: &P,
    attempt: &Attempt<'_>,
    previous: Duration,
    random: f64,
) -> Option<Duration> {
    // A wait that ends at the very deadline would be in vain, however short an attempt may be.
    let in_time = |wait: &Duration| {
        fits(attempt, *wait) && attempt.remaining.is_none_or(|remaining| *wait < remaining)
    };
    let hint = honoured_hint(policy, attempt);
    let drawn = policy
        .backoff(attempt, previous, random)
        .max(hint.unwrap_or_default());
    if in_time(&drawn) {
        return Some(drawn);
    }
    // The jitter is at most half the hint, and no part of what is waited for in any case.
    let hint = hint?;
    let least = policy
        .backoff(attempt, previous, 0.0)
        .max(drawn.saturating_sub(hint / 2))
        .clamp(hint, drawn);
    Some(least).filter(in_time)
}

/// Writes the attempt into the report, and tells the observers. A first attempt that is accepted
/// leaves no report.
fn record<P: Policy>(
    policy: &P,
    progress: &mut Progress,
    settings: &Settings,
    attempt: &Attempt<'_>,
    verdict: Verdict,
    wait: Option<Wait>,
) {
    if let (Some(StatusCode::UNAUTHORIZED), Some(refresher), Some(credential)) =
        (attempt.status(), &settings.refresh, &progress.credential)
    {
        refresher.refused(credential);
    }
    let accepted_at_once = verdict.decision() == Decision::Accept
        && progress.attempts.is_empty()
        && progress.reconciled.is_none();
    if !accepted_at_once {
        let execution = match progress.reconciled {
            Some(found) => found,
            None if verdict.rule() == Rule::Ambiguous => Execution::Unknown,
            None => own_execution(policy, attempt),
        };
        progress.prior_unknown |= execution == Execution::Unknown;
        progress.stop_clock();
        // There are seldom more, and a waiting call should be small.
        progress.attempts.reserve_exact(1);
        progress.attempts.push(AttemptReport {
            number: attempt.number,
            evidence: attempt.evidence(),
            failure: attempt.failure().copied(),
            status: attempt.status().or(progress.reconciled_status.take()),
            waited_before: progress.waited,
            duration: progress.attempt_took,
            verdict,
            execution,
            reconciled: progress.reconciled,
            refresh_error: None,
            readiness_error: None,
            reconcile_error: progress.reconcile_error.take(),
        });
    }
    if settings.observers.is_empty() {
        return;
    }
    progress.stop_clock();
    let ended = AttemptEnded {
        attempt,
        verdict: &verdict,
        duration: progress.attempt_took,
        waited_before: progress.waited,
        next_wait: wait.map(|wait| wait.time),
        budget_balance: progress.budget.as_ref().map(CallBudget::balance),
        reconciled: progress.reconciled,
        contradicted: progress.contradicted,
    };
    for observer in &settings.observers {
        observer.attempt_ended(&ended);
    }
}
