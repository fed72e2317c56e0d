//! The contract once more, without a look at the code.

use http::StatusCode;
use tower_http_retry::{
    BodyState, Decision, Execution, FailureKind, Idempotency, RetryDenied, Rule, Step, Verdict,
};

use crate::facts::LONG;
use crate::input::{Deadline, Ended, Hint, Input, Number};

/// What a policy is set to. The rule is the table of §6, or a constant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Model {
    pub(crate) attempts: u32,
    pub(crate) statuses: &'static [u16],
    pub(crate) io_failures: bool,
    pub(crate) hints: bool,
    pub(crate) transient_500: bool,
    pub(crate) headers: bool,
    pub(crate) constant: Option<Rule>,
}

pub(crate) const TABLE: Model = Model {
    attempts: 3,
    statuses: &[408, 425, 429, 502, 503, 504],
    io_failures: true,
    hints: true,
    transient_500: false,
    headers: false,
    constant: None,
};

impl Model {
    fn rule(&self, input: &Input) -> Rule {
        if let Some(rule) = self.constant {
            return match (rule, input.status()) {
                (Rule::Accept, None) => Rule::Deny,
                (rule, _) => rule,
            };
        }
        let stop = self.headers && input.stop && input.status().is_some();
        match input.status() {
            Some(status) if !input.failed() => match status {
                100..400 => Rule::Accept,
                _ if stop => Rule::Deny,
                _ => self.status_rule(input, status),
            },
            _ if stop => Rule::Deny,
            _ => self.failure_rule(input),
        }
    }

    fn status_rule(&self, input: &Input, status: u16) -> Rule {
        if self.headers && input.refused {
            return Rule::Retry;
        }
        let listed = self.statuses.contains(&status);
        let when = |condition: bool| if condition { Rule::Retry } else { Rule::Deny };
        match status {
            408 | 429 => when(listed),
            425 => when(listed && self.is_first(input) && !input.early_data),
            401 if input.safe() && !input.no_refresh => Rule::Refresh,
            409 if input.idempotency == Idempotency::Keyed && input.prior_unknown => Rule::Retry,
            500 => when(input.safe() && (listed || self.transient_500)),
            502..=504 if !input.safe() => Rule::Ambiguous,
            _ => when(listed && input.safe()),
        }
    }

    fn is_first(&self, input: &Input) -> bool {
        input.number == Number::First || (input.number == Number::Last && self.attempts == 1)
    }

    fn failure_rule(&self, input: &Input) -> Rule {
        if input.ended == Ended::SentNoResponse && !input.safe() {
            return Rule::Ambiguous;
        }
        let any = input.ended == Ended::NotSent;
        if self.io_failures && !input.permanent && (any || input.safe()) {
            Rule::Retry
        } else {
            Rule::Deny
        }
    }

    /// Of this attempt and the earlier ones.
    fn execution(&self, input: &Input, rule: Rule) -> Execution {
        let own = match (input.status(), input.ended) {
            (Some(status), _) if status >= 400 && self.headers && input.refused => {
                Execution::NotExecuted
            }
            (Some(502..=504), _) => Execution::Unknown,
            (Some(401 | 408 | 425 | 429), _) => Execution::NotExecuted,
            (Some(_), _) => Execution::Answered,
            (None, Ended::NotSent) => Execution::NotExecuted,
            (None, _) => Execution::Unknown,
        };
        match rule {
            Rule::Accept => own,
            Rule::Ambiguous => Execution::Unknown,
            Rule::Retry | Rule::Refresh | Rule::Deny if input.prior_unknown => Execution::Unknown,
            Rule::Retry | Rule::Refresh | Rule::Deny => own,
        }
    }

    /// What steps 1 to 8 say.
    pub(crate) fn stopped(&self, input: &Input) -> Option<(Step, Decision)> {
        let is_last = match input.number {
            Number::First => self.attempts <= 1,
            Number::Second => self.attempts <= 2,
            Number::Last => true,
        };
        let permanent = input.permanent && !matches!(input.ended, Ended::Response(_));
        let unknown = input.ended == Ended::SentNoResponse && !input.safe();
        [
            (is_last, Step::Attempts, RetryDenied::MaxAttempts),
            (
                input.budget_empty,
                Step::Budget,
                RetryDenied::BudgetExhausted,
            ),
            (
                input.body_gone,
                Step::Body,
                RetryDenied::BodyNotReplayable(BodyState::Consumed),
            ),
            (
                input.delivered,
                Step::Delivered,
                RetryDenied::ResponseAlreadyDelivered,
            ),
            (input.draining, Step::Draining, RetryDenied::RuntimeDraining),
            (
                input.deadline == Deadline::Short,
                Step::Deadline,
                RetryDenied::Deadline,
            ),
            (
                permanent,
                Step::Permanent,
                RetryDenied::PermanentFailure(FailureKind::Certificate),
            ),
        ]
        .into_iter()
        .find(|(stops, ..)| *stops)
        .map(|(_, step, reason)| (step, Decision::Denied(reason)))
        .or(unknown.then_some((Step::Ambiguous, Decision::Ambiguous)))
    }

    pub(crate) fn decide(&self, input: &Input) -> Expected {
        let rule = self.rule(input);
        let (step, decision) = match (rule, self.stopped(input)) {
            (Rule::Accept, _) => (None, Decision::Accept),
            (_, Some((step, decision))) => (Some(step), decision),
            (Rule::Ambiguous, None) => (Some(Step::Rule), Decision::Ambiguous),
            (Rule::Refresh, None) if !input.no_refresh => self.again(input, Decision::Refresh),
            (Rule::Retry, None) => self.again(input, Decision::Retry),
            (Rule::Refresh | Rule::Deny, None) => {
                (Some(Step::Rule), Decision::Denied(self.reason(input)))
            }
        };
        let execution = self.execution(input, rule);
        let unknown = execution == Execution::Unknown && !input.safe();
        Expected {
            decision,
            step,
            rule,
            execution,
            ambiguous: match decision {
                Decision::Ambiguous => true,
                Decision::Denied(_) => unknown,
                Decision::Accept | Decision::Retry | Decision::Refresh => false,
            },
        }
    }

    fn again(&self, input: &Input, decision: Decision) -> (Option<Step>, Decision) {
        let hint = if self.hints { input.hint } else { Hint::None };
        match (hint, input.deadline) {
            (Hint::Long, _) => (
                Some(Step::Rule),
                Decision::Denied(RetryDenied::RetryAfter(LONG)),
            ),
            (Hint::Short, Deadline::Tight) => (
                Some(Step::Deadline),
                Decision::Denied(RetryDenied::Deadline),
            ),
            (Hint::None | Hint::Short, _) => (Some(Step::Rule), decision),
        }
    }

    fn reason(&self, input: &Input) -> RetryDenied {
        match (input.status(), input.ended) {
            (Some(401), _) => RetryDenied::Unauthorized,
            (Some(425), _) => RetryDenied::TooEarly,
            (Some(status), _) if !input.failed() => {
                RetryDenied::Status(StatusCode::from_u16(status).unwrap())
            }
            (_, Ended::BrokenLater(_)) if !input.safe() => RetryDenied::NotIdempotent,
            _ => RetryDenied::Failure(input.kind()),
        }
    }
}

#[derive(Debug, PartialEq)]
pub(crate) struct Expected {
    decision: Decision,
    step: Option<Step>,
    rule: Rule,
    execution: Execution,
    ambiguous: bool,
}

impl Expected {
    pub(crate) fn of(verdict: Verdict) -> Self {
        Self {
            decision: verdict.decision(),
            step: verdict.step(),
            rule: verdict.rule(),
            execution: verdict.execution(),
            ambiguous: verdict.is_ambiguous(),
        }
    }

    pub(crate) fn is_again(&self) -> bool {
        matches!(self.decision, Decision::Retry | Decision::Refresh)
    }
}
