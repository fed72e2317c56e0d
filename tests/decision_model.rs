//! Every input of the decision, against a model that was written from the contract (behaviour §2,
//! §5, §6) and not from the code.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)] // helpers of tests

use std::num::NonZeroU32;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, Response, StatusCode, request, response};
use tower_http_retry::{
    Attempt, BodyState, Decision, Execution, Facts, Failure, FailureKind, Idempotency, IoFailures,
    Policy, RetryAfterHints, RetryDenied, Rule, StandardPolicy, Step, Upstream, Verdict, decide,
};

/// All that a decision depends on. In each dimension the digits go from permissive to forbidding,
/// except where noted.
#[derive(Debug, Clone, Copy)]
struct Input {
    number: Number,
    budget_empty: bool,
    body_gone: bool,
    delivered: bool,
    draining: bool,
    deadline: Deadline,
    idempotency: Idempotency,
    no_refresh: bool,
    hint: Hint,
    permanent: bool,
    early_data: bool,
    /// The upstream's stop header.
    stop: bool,
    /// The upstream's refusal header; in no order.
    refused: bool,
    /// In no order: a 409 may mean that the first attempt still runs.
    prior_unknown: bool,
    /// In no order.
    ended: Ended,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Number {
    First,
    Second,
    Last,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Deadline {
    None,
    /// Enough for another attempt, but not after a wait of `Hint::Short`.
    Tight,
    Short,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Hint {
    None,
    Short,
    /// Longer than any policy here agrees to.
    Long,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ended {
    NotSent,
    SentNoResponse,
    /// A head was seen, and nobody has it.
    Headless,
    Response(u16),
    /// The head arrived, and then no byte of the body.
    BrokenAtOnce(u16),
    /// The head and a part of the body arrived.
    BrokenLater(u16),
}

const STATUSES: [u16; 17] = [
    100, 200, 204, 304, 400, 401, 404, 408, 409, 412, 425, 429, 500, 501, 502, 503, 504,
];

/// How many values each dimension has, in the order of the fields.
const SIZES: [usize; 15] = [
    3,
    2,
    2,
    2,
    2,
    3,
    4,
    2,
    3,
    2,
    2,
    2,
    2,
    2,
    3 + 3 * STATUSES.len(),
];

/// The dimensions whose digits go from permissive to forbidding.
const ORDERED: usize = 12;

impl Input {
    fn of(digits: [usize; 15]) -> Self {
        let on = |dimension: usize| digits[dimension] == 1;
        let ended = match digits[14] {
            0 => Ended::NotSent,
            1 => Ended::SentNoResponse,
            2 => Ended::Headless,
            rest => {
                let status = STATUSES[(rest - 3) / 3];
                [Ended::Response, Ended::BrokenAtOnce, Ended::BrokenLater][(rest - 3) % 3](status)
            }
        };
        Self {
            number: [Number::First, Number::Second, Number::Last][digits[0]],
            budget_empty: on(1),
            body_gone: on(2),
            delivered: on(3),
            draining: on(4),
            deadline: [Deadline::None, Deadline::Tight, Deadline::Short][digits[5]],
            idempotency: [
                Idempotency::Keyed,
                Idempotency::Idempotent,
                Idempotency::Safe,
                Idempotency::NonIdempotent,
            ][digits[6]],
            no_refresh: on(7),
            hint: [Hint::None, Hint::Short, Hint::Long][digits[8]],
            permanent: on(9),
            early_data: on(10),
            stop: on(11),
            refused: on(12),
            prior_unknown: on(13),
            ended,
        }
    }

    fn safe(&self) -> bool {
        match self.idempotency {
            Idempotency::Safe | Idempotency::Idempotent | Idempotency::Keyed => true,
            Idempotency::NonIdempotent => false,
        }
    }

    fn status(&self) -> Option<u16> {
        match self.ended {
            Ended::NotSent | Ended::SentNoResponse | Ended::Headless => None,
            Ended::Response(status) | Ended::BrokenAtOnce(status) | Ended::BrokenLater(status) => {
                Some(status)
            }
        }
    }

    /// Whether the failure speaks, and not a status.
    fn failed(&self) -> bool {
        match self.ended {
            Ended::NotSent | Ended::SentNoResponse | Ended::Headless => true,
            Ended::Response(_) => false,
            Ended::BrokenAtOnce(status) | Ended::BrokenLater(status) => status < 400,
        }
    }

    fn kind(&self) -> FailureKind {
        match self.permanent {
            true => FailureKind::Certificate,
            false => FailureKind::Reset,
        }
    }
}

/// What a policy is set to. The rule is the table of §6, or a constant.
#[derive(Debug, Clone, Copy)]
struct Model {
    attempts: u32,
    statuses: &'static [u16],
    io_failures: bool,
    hints: bool,
    transient_500: bool,
    headers: bool,
    constant: Option<Rule>,
}

const TABLE: Model = Model {
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
    fn stopped(&self, input: &Input) -> Option<(Step, Decision)> {
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

    fn decide(&self, input: &Input) -> Expected {
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
struct Expected {
    decision: Decision,
    step: Option<Step>,
    rule: Rule,
    execution: Execution,
    ambiguous: bool,
}

impl Expected {
    fn of(verdict: Verdict) -> Self {
        Self {
            decision: verdict.decision(),
            step: verdict.step(),
            rule: verdict.rule(),
            execution: verdict.execution(),
            ambiguous: verdict.is_ambiguous(),
        }
    }

    fn is_again(&self) -> bool {
        matches!(self.decision, Decision::Retry | Decision::Refresh)
    }
}

const LONG: Duration = Duration::from_secs(21);
const TIGHT: Duration = Duration::from_millis(10);
const SHORT: Duration = Duration::from_millis(3);

static STOP: HeaderName = HeaderName::from_static("x-stop");
static REFUSED: HeaderName = HeaderName::from_static("x-refused");
const YES: HeaderValue = HeaderValue::from_static("yes");

/// The heads of all inputs.
struct Heads {
    /// By `early_data`.
    requests: [request::Parts; 2],
    /// By `stop` and `refused`, then by status.
    responses: [[Vec<response::Parts>; 2]; 2],
}

impl Heads {
    fn new() -> Self {
        let request = |early: bool| {
            let mut request = Request::builder();
            if early {
                request = request.header("early-data", "1");
            }
            request.body(()).unwrap().into_parts().0
        };
        let responses = |stop: bool, refused: bool| {
            let head = |status: &u16| {
                let mut response = Response::builder().status(*status);
                for (name, _) in [(&STOP, stop), (&REFUSED, refused)]
                    .iter()
                    .filter(|(_, on)| *on)
                {
                    response = response.header(*name, YES);
                }
                response.body(()).unwrap().into_parts().0
            };
            STATUSES.iter().map(head).collect()
        };
        Self {
            requests: [request(false), request(true)],
            responses: [false, true]
                .map(|stop| [false, true].map(|refused| responses(stop, refused))),
        }
    }

    fn decide(&self, policy: &impl Policy, attempts: u32, input: &Input) -> Verdict {
        let request = &self.requests[usize::from(input.early_data)];
        let responses = &self.responses[usize::from(input.stop)][usize::from(input.refused)];
        let response =
            |status: u16| &responses[STATUSES.iter().position(|known| *known == status).unwrap()];
        let failure = match input.ended {
            Ended::NotSent => Failure::not_sent(input.kind()),
            Ended::SentNoResponse => Failure::sent_no_response(input.kind()),
            Ended::Headless | Ended::Response(_) | Ended::BrokenAtOnce(_) => {
                Failure::response_received(input.kind())
            }
            Ended::BrokenLater(_) => Failure::partial_response(input.kind()),
        };
        let mut facts = match input.ended {
            Ended::NotSent | Ended::SentNoResponse | Ended::Headless => {
                Facts::failure(request, &failure)
            }
            Ended::Response(status) => Facts::response(request, response(status)),
            Ended::BrokenAtOnce(status) | Ended::BrokenLater(status) => {
                Facts::response(request, response(status)).partial(&failure)
            }
        };
        let number = match input.number {
            Number::First => 1,
            Number::Second => 2,
            Number::Last => attempts,
        };
        facts = facts
            .attempt_number(NonZeroU32::new(number).unwrap())
            .max_attempts(NonZeroU32::new(attempts).unwrap())
            .idempotency(input.idempotency)
            .min_attempt(Duration::from_millis(4));
        if input.budget_empty {
            facts = facts.budget_empty();
        }
        if input.body_gone {
            facts = facts.body_state(BodyState::Consumed);
        }
        if input.delivered {
            facts = facts.delivered();
        }
        if input.draining {
            facts = facts.draining();
        }
        if !input.no_refresh {
            facts = facts.refresh_available();
        }
        if input.prior_unknown {
            facts = facts.prior_unknown();
        }
        facts = match input.deadline {
            Deadline::None => facts,
            Deadline::Tight => facts.remaining(TIGHT),
            Deadline::Short => facts.remaining(SHORT),
        };
        facts = match input.hint {
            Hint::None => facts,
            Hint::Short => facts.retry_after(Duration::from_millis(7)),
            Hint::Long => facts.retry_after(LONG),
        };
        decide(policy, &facts.attempt())
    }
}

/// Compares every input, but those of the dimensions that the policy does not look at. Then walks
/// from every no one step towards what forbids more: there must be no yes.
fn enumerate(policy: &impl Policy, model: Model, left_out: &[usize]) {
    let mut sizes = SIZES;
    for dimension in left_out {
        sizes[*dimension] = 1;
    }
    let heads = Heads::new();
    let total: usize = sizes.iter().product();
    let mut again = vec![false; total];
    for (index, again) in again.iter_mut().enumerate() {
        let input = Input::of(digits(index, &sizes));
        let verdict = heads.decide(policy, model.attempts, &input);
        let expected = model.decide(&input);
        assert_eq!(Expected::of(verdict), expected, "{input:?}");
        *again = expected.is_again();
        assert!(!*again || model.stopped(&input).is_none(), "{input:?}");
    }
    let mut stride = 1;
    for (dimension, size) in sizes.iter().enumerate().take(ORDERED) {
        for (index, here) in again.iter().enumerate() {
            let last = index / stride % size == size - 1;
            assert!(
                last || *here || !again[index + stride],
                "dimension {dimension} turns a no into a yes at {:?}",
                Input::of(digits(index, &sizes))
            );
        }
        stride *= size;
    }
    // What was sent without an answer forbids more than what was not sent.
    let ended: usize = sizes[..14].iter().product();
    for index in 0..ended {
        assert!(again[index] || !again[index + ended]);
    }
}

fn digits(mut index: usize, sizes: &[usize; 15]) -> [usize; 15] {
    sizes.map(|size| {
        let digit = index % size;
        index /= size;
        digit
    })
}

const EARLY_DATA: usize = 10;
const STOP_HEADER: usize = 11;
const REFUSAL_HEADER: usize = 12;

#[test]
fn the_default_follows_the_table() {
    enumerate(
        &StandardPolicy::default(),
        TABLE,
        &[STOP_HEADER, REFUSAL_HEADER],
    );
}

#[test]
fn the_conventional_policy_has_its_own_statuses() {
    let model = Model {
        attempts: 4,
        statuses: &[429, 500, 502, 503, 504],
        ..TABLE
    };
    let left_out = [EARLY_DATA, STOP_HEADER, REFUSAL_HEADER];
    enumerate(&StandardPolicy::conventional(), model, &left_out);
}

#[test]
fn the_policy_that_never_retries_stops_at_step_1() {
    let model = Model {
        attempts: 1,
        ..TABLE
    };
    let left_out = [EARLY_DATA, STOP_HEADER, REFUSAL_HEADER];
    enumerate(&StandardPolicy::none(), model, &left_out);
}

#[test]
fn registered_headers_and_statuses_narrow_and_prove() {
    let upstream = Upstream::new()
        .transient_500()
        .refusal_header(REFUSED.clone(), YES)
        .stop_header(STOP.clone(), YES);
    let policy = StandardPolicy::builder()
        .default_upstream(upstream)
        .build()
        .unwrap();
    let model = Model {
        transient_500: true,
        headers: true,
        ..TABLE
    };
    enumerate(&policy, model, &[EARLY_DATA]);
}

#[test]
fn every_setting_does_what_it_says() {
    let statuses: &[u16] = &[401, 404, 409, 425, 500, 503];
    let policy = StandardPolicy::builder()
        .retryable_statuses(
            statuses
                .iter()
                .map(|status| StatusCode::from_u16(*status).unwrap()),
        )
        .io_failures(IoFailures::Deny)
        .retry_after_hints(RetryAfterHints::Ignore)
        .build()
        .unwrap();
    let model = Model {
        statuses,
        io_failures: false,
        hints: false,
        ..TABLE
    };
    enumerate(&policy, model, &[STOP_HEADER, REFUSAL_HEADER]);
}

/// One rule for all attempts, and all else by default.
struct Always(Rule);

impl Policy for Always {
    fn rule(&self, _: &Attempt<'_>) -> Rule {
        self.0
    }
}

#[test]
fn no_policy_gets_past_the_first_eight_steps() {
    for rule in [
        Rule::Accept,
        Rule::Retry,
        Rule::Refresh,
        Rule::Deny,
        Rule::Ambiguous,
    ] {
        let model = Model {
            constant: Some(rule),
            ..TABLE
        };
        let left_out = [EARLY_DATA, STOP_HEADER, REFUSAL_HEADER];
        enumerate(&Always(rule), model, &left_out);
    }
}

/// To the nanosecond: what remains must hold the wait and a minimum attempt.
#[test]
fn the_deadline_is_exact() {
    const NS: Duration = Duration::from_nanos(1);
    let policy = StandardPolicy::default();
    let (request, ()) = Request::get("/").body(()).unwrap().into_parts();
    let (busy, ()) = Response::builder()
        .status(503)
        .body(())
        .unwrap()
        .into_parts();
    let step = |remaining: Duration, min_attempt: Duration, hint: Option<Duration>| {
        let mut facts = Facts::response(&request, &busy)
            .remaining(remaining)
            .min_attempt(min_attempt);
        if let Some(hint) = hint {
            facts = facts.retry_after(hint);
        }
        decide(&policy, &facts.attempt()).step()
    };
    let (fits, late) = (Some(Step::Rule), Some(Step::Deadline));
    assert_eq!(step(TIGHT, TIGHT, None), fits);
    assert_eq!(step(TIGHT - NS, TIGHT, None), late);
    assert_eq!(step(TIGHT + SHORT, TIGHT, Some(SHORT)), fits);
    assert_eq!(step(TIGHT + SHORT - NS, TIGHT, Some(SHORT)), late);
    // At the deadline nothing fits: it would be dropped at once, and leave a doubt behind.
    assert_eq!(step(Duration::ZERO, Duration::ZERO, None), late);
    assert_eq!(step(NS, Duration::ZERO, None), fits);
    assert_eq!(step(Duration::MAX, Duration::MAX, None), fits);

    // A hint to the limit is waited for. One that overflowed is longer than any limit.
    let limit = policy.max_retry_after();
    assert_eq!(step(Duration::MAX, Duration::ZERO, Some(limit)), fits);
    let denied = |policy: &StandardPolicy, hint| {
        decide(
            policy,
            &Facts::response(&request, &busy).retry_after(hint).attempt(),
        )
        .denied()
    };
    assert_eq!(denied(&policy, limit), None);
    let longer = limit + NS;
    assert_eq!(
        denied(&policy, longer),
        Some(RetryDenied::RetryAfter(longer))
    );
    let patient = StandardPolicy::builder()
        .max_retry_after(Duration::MAX)
        .build()
        .unwrap();
    assert_eq!(denied(&patient, longer), None);
    assert_eq!(
        denied(&patient, Duration::MAX),
        Some(RetryDenied::RetryAfter(Duration::MAX))
    );
}

#[test]
fn only_two_states_of_a_body_deny() {
    let (request, ()) = Request::get("/").body(()).unwrap().into_parts();
    let (busy, ()) = Response::builder()
        .status(503)
        .body(())
        .unwrap()
        .into_parts();
    for (state, denied) in [
        (BodyState::Empty, false),
        (BodyState::Replayable, false),
        (BodyState::Reopenable, false),
        (BodyState::Untouched, false),
        (BodyState::Consumed, true),
        (BodyState::Overflowed, true),
    ] {
        let facts = Facts::response(&request, &busy).body_state(state);
        let verdict = decide(&StandardPolicy::default(), &facts.attempt());
        let reason = denied.then_some(RetryDenied::BodyNotReplayable(state));
        assert_eq!(verdict.denied(), reason);
    }
}
