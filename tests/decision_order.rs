//! The nine steps, in the order of `docs/decision-order.md`: page and code are held together. What
//! is asked again behind them is in `decision_gates.rs`.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)] // helpers of tests

mod support;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use http::{Method, Request, Response, request, response};
use support::MS;
use support::page::{PAGE, name, rows};
use tower_http_retry::{
    Attempt, BodyState, Decision, Execution, Facts, Failure, FailureKind, Idempotency, Policy,
    RetryDenied, Rule, StandardPolicy, Step, Verdict, decide,
};

fn head(method: Method) -> request::Parts {
    let request = Request::builder().method(method).uri("/").body(());
    request.unwrap().into_parts().0
}

fn answered(status: u16) -> response::Parts {
    let response = Response::builder().status(status).body(());
    response.unwrap().into_parts().0
}

/// One rule for all attempts.
#[derive(Debug)]
struct Always(Rule);

impl Policy for Always {
    fn rule(&self, _: &Attempt<'_>) -> Rule {
        self.0
    }
}

/// The verdict where exactly these steps have something against another attempt.
fn verdict(stopped: &BTreeSet<usize>) -> Verdict {
    let on = |step: usize| stopped.contains(&step);
    let kind = match on(7) {
        true => FailureKind::Certificate,
        false => FailureKind::Reset,
    };
    let failure = match on(8) {
        true => Failure::sent_no_response(kind),
        false => Failure::not_sent(kind),
    };
    let post = head(Method::POST);
    let mut facts = Facts::failure(&post, &failure);
    if on(1) {
        facts = facts.attempt_number(NonZeroU32::new(3).unwrap());
    }
    if on(2) {
        facts = facts.budget_empty();
    }
    if on(3) {
        facts = facts.body_state(BodyState::Consumed);
    }
    if on(4) {
        facts = facts.delivered();
    }
    if on(5) {
        facts = facts.draining();
    }
    if on(6) {
        facts = facts.remaining(MS).min_attempt(2 * MS);
    }
    let rule = if on(9) { Rule::Deny } else { Rule::Retry };
    decide(&Always(rule), &facts.attempt())
}

#[test]
fn the_page_has_the_nine_steps_in_their_order() {
    let steps = rows("# The decision order");
    let numbers: Vec<&str> = steps.iter().map(|row| row[0]).collect();
    assert_eq!(numbers, ["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    let order = [
        Step::Attempts,
        Step::Budget,
        Step::Body,
        Step::Delivered,
        Step::Draining,
        Step::Deadline,
        Step::Permanent,
        Step::Ambiguous,
        Step::Rule,
    ];
    assert!(order.is_sorted());
    for (row, step) in steps.iter().zip(order) {
        let alone = verdict(&BTreeSet::from([step as usize]));
        assert_eq!(alone.step(), Some(step), "{row:?}");
        if step != Step::Rule {
            assert_eq!(name(alone.decision()), row[2]);
        }
    }
}

/// Two steps, or any others together: all 512 sets.
#[test]
fn where_several_steps_would_stop_the_first_one_does() {
    for bits in 0..512_u32 {
        let stopped: BTreeSet<usize> = (1..=9).filter(|step| bits >> (step - 1) & 1 == 1).collect();
        let verdict = verdict(&stopped);
        match stopped.first() {
            None => assert_eq!(verdict.decision(), Decision::Retry),
            Some(first) => {
                assert_eq!(verdict.step().map(|step| step as usize), Some(*first));
                assert!(!matches!(
                    verdict.decision(),
                    Decision::Retry | Decision::Accept
                ));
            }
        }
        // The answer is a second matter: sent without an answer is ambiguous, whoever said no.
        assert_eq!(verdict.is_ambiguous(), stopped.contains(&8), "{stopped:?}");
        let rule = if stopped.contains(&9) {
            Rule::Deny
        } else {
            Rule::Retry
        };
        assert_eq!(verdict.rule(), rule, "kept, whichever step decided");
    }
}

#[test]
fn what_is_accepted_is_not_held_against_any_step() {
    let (get, ok) = (head(Method::GET), answered(200));
    let facts = Facts::response(&get, &ok)
        .attempt_number(NonZeroU32::new(3).unwrap())
        .budget_empty()
        .body_state(BodyState::Consumed)
        .delivered()
        .draining()
        .remaining(Duration::ZERO)
        .prior_unknown();
    let verdict = decide(&StandardPolicy::default(), &facts.attempt());
    assert_eq!(
        (verdict.decision(), verdict.step()),
        (Decision::Accept, None)
    );
}

#[test]
fn a_failure_cannot_be_accepted() {
    let post = head(Method::POST);
    for (failure, ambiguous) in [
        (Failure::not_sent(FailureKind::Connect), false),
        (Failure::sent_no_response(FailureKind::Reset), true),
        (Failure::response_received(FailureKind::Reset), true),
    ] {
        let verdict = decide(
            &Always(Rule::Accept),
            &Facts::failure(&post, &failure).attempt(),
        );
        assert_eq!(verdict.rule(), Rule::Deny);
        assert_eq!(verdict.is_ambiguous(), ambiguous);
    }
}

/// Each row of the page, and each verdict of step 9, has its facts here.
#[test]
fn the_page_has_what_step_9_says() {
    let standard = StandardPolicy::default();
    let (get, post) = (head(Method::GET), head(Method::POST));
    let [missing, unauthorized, early, busy, ok] = [404, 401, 425, 503, 200].map(answered);
    let cut = Failure::partial_response(FailureKind::Reset);
    let refused = Failure::not_sent(FailureKind::Connect);
    let verdicts = [
        decide(&standard, &Facts::response(&get, &busy).attempt()),
        decide(
            &standard,
            &Facts::response(&get, &unauthorized)
                .refresh_available()
                .attempt(),
        ),
        decide(&standard, &Facts::response(&post, &busy).attempt()),
        decide(&standard, &Facts::response(&get, &unauthorized).attempt()),
        decide(
            &standard,
            &Facts::response(&get, &early)
                .attempt_number(NonZeroU32::new(2).unwrap())
                .attempt(),
        ),
        decide(&standard, &Facts::response(&get, &missing).attempt()),
        decide(
            &standard,
            &Facts::response(&post, &ok).partial(&cut).attempt(),
        ),
        decide(
            &Always(Rule::Deny),
            &Facts::failure(&post, &refused).attempt(),
        ),
        decide(
            &standard,
            &Facts::response(&get, &busy)
                .retry_after(Duration::from_secs(21))
                .attempt(),
        ),
    ];
    for verdict in &verdicts {
        assert_eq!(verdict.step(), Some(Step::Rule));
    }
    let page: Vec<&str> = rows("## What step 9 says")
        .iter()
        .map(|row| row[0])
        .collect();
    assert_eq!(
        verdicts.map(|verdict| name(verdict.decision())).to_vec(),
        page
    );
    // Where an error's body breaks, the status rules; where a rule denies an answer, it is told as
    // its status.
    let broken = decide(
        &standard,
        &Facts::response(&post, &missing).partial(&cut).attempt(),
    );
    assert_eq!(broken.denied(), Some(RetryDenied::Status(missing.status)));
    let denied = decide(&Always(Rule::Deny), &Facts::response(&post, &ok).attempt());
    assert_eq!(denied.denied(), Some(RetryDenied::Status(ok.status)));
    // Without a credential to be had, a wish for one is denied.
    let forbidden = answered(403);
    let vain = decide(
        &Always(Rule::Refresh),
        &Facts::response(&get, &forbidden).attempt(),
    );
    assert_eq!(vain.denied(), Some(RetryDenied::Status(forbidden.status)));
}

#[test]
fn every_reason_is_on_the_page() {
    // `RetryDenied` may grow, so its source says which variants there are.
    let source = include_str!("../src/policy/verdict.rs");
    let variants = source.split_once("pub enum RetryDenied {").unwrap().1;
    let variants = variants.split_once("\n}").unwrap().0;
    let variants: Vec<&str> = variants
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("///") && !line.is_empty())
        .map(|line| line.split(['(', ',']).next().unwrap())
        .collect();
    assert_eq!(variants.len(), 13);
    for variant in variants {
        assert!(
            PAGE.contains(&format!("`RetryDenied::{variant}`")),
            "{variant}"
        );
    }
}

#[test]
fn the_page_reads_like_the_verdicts() {
    let (get, post) = (head(Method::GET), head(Method::POST));
    let [ok, busy, unauthorized, missing] = [200, 503, 401, 404].map(answered);
    let reset = Failure::sent_no_response(FailureKind::Reset);
    let refused = Failure::not_sent(FailureKind::Connect);
    let standard = StandardPolicy::default();
    let texts = [
        Facts::response(&get, &ok),
        Facts::response(&get, &busy),
        Facts::response(&get, &unauthorized).refresh_available(),
        Facts::failure(&get, &reset).attempt_number(NonZeroU32::new(3).unwrap()),
        Facts::failure(&post, &refused).budget_empty(),
        Facts::failure(&post, &reset).body_state(BodyState::Consumed),
        Facts::failure(&post, &reset),
        Facts::response(&get, &missing),
    ]
    .map(|facts| decide(&standard, &facts.attempt()).to_string());
    let page = PAGE.split_once("```text\n").unwrap().1;
    let page: Vec<&str> = page.split_once("\n```").unwrap().0.lines().collect();
    assert_eq!(texts.to_vec(), page);
}

/// Its answer may be the echo of our own first request.
#[test]
fn an_earlier_attempt_of_unknown_execution_counts() {
    let standard = StandardPolicy::default();
    let (post, delete) = (head(Method::POST), head(Method::DELETE));
    let [ok, missing] = [200, 404].map(answered);
    let refused = Failure::not_sent(FailureKind::Certificate);
    for (facts, execution, ambiguous) in [
        (Facts::response(&post, &missing), Execution::Unknown, true),
        (Facts::failure(&post, &refused), Execution::Unknown, true),
        (
            Facts::response(&delete, &missing),
            Execution::Unknown,
            false,
        ),
        // An answer that is accepted settles it.
        (Facts::response(&post, &ok), Execution::Answered, false),
    ] {
        let verdict = decide(&standard, &facts.prior_unknown().attempt());
        assert_eq!(
            (verdict.execution(), verdict.is_ambiguous()),
            (execution, ambiguous)
        );
        assert_ne!(
            decide(&standard, &facts.attempt()).execution(),
            Execution::Unknown
        );
    }
}

/// Declared by the caller, whatever the method says: step 8 looks at nothing else.
#[test]
fn step_8_asks_for_the_operation_not_for_the_method() {
    let reset = Failure::sent_no_response(FailureKind::Reset);
    for (idempotency, decision) in [
        (Idempotency::Safe, Decision::Retry),
        (Idempotency::Idempotent, Decision::Retry),
        (Idempotency::Keyed, Decision::Retry),
        (Idempotency::NonIdempotent, Decision::Ambiguous),
    ] {
        for method in [Method::GET, Method::PUT, Method::POST] {
            let head = head(method);
            let facts = Facts::failure(&head, &reset).idempotency(idempotency);
            assert_eq!(
                decide(&StandardPolicy::default(), &facts.attempt()).decision(),
                decision
            );
        }
    }
}
