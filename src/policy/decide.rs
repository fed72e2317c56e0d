//! The nine steps, once.

use std::time::Duration;

use http::StatusCode;

use super::status::is_error;
use super::{Decision, Policy, RetryAfterHints, RetryDenied, Rule, Step, Verdict};
use crate::attempt::{Attempt, Outcome, Retried};
use crate::evidence::{Evidence, Execution, FailureKind};
use crate::report::Report;

/// Judges an attempt. Pure: the same facts and the same policy give the same verdict.
///
/// The policy's rule is asked first, once. Then the steps stand in their order, and a later one
/// cannot re-enable what an earlier one forbade. `docs/decision-order.md` is this table in words.
pub fn decide<P: Policy + ?Sized>(policy: &P, attempt: &Attempt<'_>) -> Verdict {
    let rule = match (policy.rule(attempt), attempt.outcome) {
        // There is nothing to accept in a failure.
        (Rule::Accept, Outcome::Failure(_)) => Rule::Deny,
        (rule, _) => rule,
    };
    let safely_idempotent = attempt.idempotency.is_safely_idempotent();
    let verdict = |decision, step| Verdict {
        decision,
        rule,
        execution: execution(policy, attempt, rule),
        safely_idempotent,
        step,
    };
    if rule == Rule::Accept {
        return verdict(Decision::Accept, None);
    }
    let no = |step, reason| verdict(Decision::Denied(reason), Some(step));

    if attempt.number >= attempt.max_attempts {
        return no(Step::Attempts, RetryDenied::MaxAttempts);
    }
    if attempt.budget_empty {
        return no(Step::Budget, RetryDenied::BudgetExhausted);
    }
    if !attempt.body_state.is_replayable() {
        return no(
            Step::Body,
            RetryDenied::BodyNotReplayable(attempt.body_state),
        );
    }
    if attempt.delivered {
        return no(Step::Delivered, RetryDenied::ResponseAlreadyDelivered);
    }
    if attempt.draining {
        return no(Step::Draining, RetryDenied::RuntimeDraining);
    }
    if !fits(attempt, Duration::ZERO) {
        return no(Step::Deadline, RetryDenied::Deadline);
    }
    if let Some(kind) = permanent(attempt) {
        return no(Step::Permanent, RetryDenied::PermanentFailure(kind));
    }
    if attempt.evidence() == Evidence::SentNoResponse && !safely_idempotent {
        return verdict(Decision::Ambiguous, Some(Step::Ambiguous));
    }
    match rule {
        Rule::Retry => again(policy, attempt, Decision::Retry, verdict),
        Rule::Refresh if attempt.can_refresh => again(policy, attempt, Decision::Refresh, verdict),
        Rule::Ambiguous => verdict(Decision::Ambiguous, Some(Step::Rule)),
        Rule::Accept | Rule::Refresh | Rule::Deny => no(Step::Rule, reason(attempt)),
    }
}

/// The rule wants another attempt: the server's hint may still stand against it. A hint that is
/// longer than agreed to is refused before it is held against the deadline.
fn again<P: Policy + ?Sized>(
    policy: &P,
    attempt: &Attempt<'_>,
    decision: Decision,
    verdict: impl Fn(Decision, Option<Step>) -> Verdict,
) -> Verdict {
    match honoured_hint(policy, attempt) {
        // One that overflowed is longer than any limit.
        Some(hint) if hint > policy.max_retry_after() || hint == Duration::MAX => verdict(
            Decision::Denied(RetryDenied::RetryAfter(hint)),
            Some(Step::Rule),
        ),
        Some(hint) if !fits(attempt, hint) => verdict(
            Decision::Denied(RetryDenied::Deadline),
            Some(Step::Deadline),
        ),
        Some(_) | None => verdict(decision, Some(Step::Rule)),
    }
}

/// The server's hint, where the policy honours hints.
pub(crate) fn honoured_hint<P: Policy + ?Sized>(
    policy: &P,
    attempt: &Attempt<'_>,
) -> Option<Duration> {
    attempt
        .retry_after
        .filter(|_| policy.retry_after_hints() == RetryAfterHints::Honour)
}

/// Whether another attempt after `wait` fits into what remains. At the deadline nothing fits, even
/// where the minimum attempt is zero.
pub(crate) fn fits(attempt: &Attempt<'_>, wait: Duration) -> bool {
    attempt.remaining.is_none_or(|remaining| {
        !remaining.is_zero() && wait.saturating_add(attempt.min_attempt) <= remaining
    })
}

/// Step 7. A retry layer below that answered with its last word has already tried: layers never
/// multiply.
fn permanent(attempt: &Attempt<'_>) -> Option<FailureKind> {
    let failed = attempt.failure().map(|failure| failure.kind());
    let retried = attempt
        .response()
        .is_some_and(|head| head.extensions.get::<Retried>().is_some());
    failed
        .filter(|kind| kind.is_permanent())
        .or(retried.then_some(FailureKind::AlreadyRetried))
}

/// Whether the operation was executed, as far as the caller will know.
fn execution<P: Policy + ?Sized>(policy: &P, attempt: &Attempt<'_>, rule: Rule) -> Execution {
    let own = own_execution(policy, attempt);
    match rule {
        Rule::Accept => own,
        Rule::Ambiguous => Execution::Unknown,
        // A DELETE's 404 may be the echo of our own first attempt.
        Rule::Retry | Rule::Refresh | Rule::Deny if attempt.prior_unknown => Execution::Unknown,
        Rule::Retry | Rule::Refresh | Rule::Deny => own,
    }
}

/// Whether this attempt alone was executed: evidence tells for failures, the policy for responses.
pub(crate) fn own_execution<P: Policy + ?Sized>(policy: &P, attempt: &Attempt<'_>) -> Execution {
    match attempt.outcome {
        Outcome::Response(head) | Outcome::Broken(head, _) => {
            // A layer below, which made several attempts of this one, knows more than its last
            // response tells.
            let below = head.extensions.get().map(Report::execution);
            match (below, policy.execution(attempt)) {
                (Some(Execution::Unknown), _) => Execution::Unknown,
                (Some(Execution::Answered), Execution::NotExecuted) => Execution::Answered,
                (_, own) => own,
            }
        }
        Outcome::Failure(failure) => match failure.evidence() {
            Evidence::NotSent => Execution::NotExecuted,
            // Even if a response was received: without its head the caller cannot see the answer.
            Evidence::SentNoResponse | Evidence::ResponseReceived | Evidence::PartialResponse => {
                Execution::Unknown
            }
        },
    }
}

/// The word for what the rule denied. Where a broken response has a status of an error, the status
/// speaks, not the break.
fn reason(attempt: &Attempt<'_>) -> RetryDenied {
    match attempt.outcome {
        Outcome::Response(head) => of_status(head.status),
        Outcome::Broken(head, _) if is_error(head.status) => of_status(head.status),
        Outcome::Broken(_, failure) | Outcome::Failure(failure) => {
            let partial = attempt.evidence() == Evidence::PartialResponse;
            if partial && !attempt.idempotency.is_safely_idempotent() {
                RetryDenied::NotIdempotent
            } else {
                RetryDenied::Failure(failure.kind())
            }
        }
    }
}

fn of_status(status: StatusCode) -> RetryDenied {
    match status {
        StatusCode::UNAUTHORIZED => RetryDenied::Unauthorized,
        StatusCode::TOO_EARLY => RetryDenied::TooEarly,
        other => RetryDenied::Status(other),
    }
}
