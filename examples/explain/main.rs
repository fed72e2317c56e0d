//! Explains a retry decision: `cargo run --example explain -- --method POST --evidence sent-no-response`.
//!
//! Nothing is sent: [`Facts`] describe an attempt by hand, and [`decide`] judges it exactly as the
//! layer would. The same two make a table test of a policy of your own (see `custom_policy`).

mod question;

use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use question::{Command, Ended, Flag, HELP, Question};
use tower_http_retry::{
    AmbiguousResponses, Attempt, Decision, Facts, Policy, Verdict, decide, retry_after,
};

fn main() -> ExitCode {
    match Command::parse(std::env::args().skip(1)) {
        Ok(Command::Explain(question)) => {
            print!("{}", explain(&question));
            ExitCode::SUCCESS
        }
        Ok(Command::Help) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(mistake) => {
            eprintln!("{mistake}");
            ExitCode::from(2)
        }
    }
}

/// The facts, the nine steps, the verdict, and what the caller gets.
fn explain(question: &Question) -> String {
    let attempt = attempt(question);
    let verdict = decide(&question.policy, &attempt);

    let mut text = String::new();
    let mut line = |args: std::fmt::Arguments<'_>| {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{args}");
    };
    line(format_args!("{}", heading(&attempt)));
    line(format_args!(
        "the rule, asked first and once: {}\n",
        said(verdict.rule(), attempt)
    ));
    let mut end = verdict.step().map(|step| step as u8);
    if verdict.decision() == Decision::Accept {
        line(format_args!("accepted: no step is asked\n"));
        end = Some(0);
    }
    for (number, (question, fact)) in (1_u8..).zip(steps(&attempt)) {
        let answer = match end {
            Some(end) if number > end => "-",
            Some(end) if number == end => match verdict.decision() {
                Decision::Retry | Decision::Refresh => "GO",
                Decision::Accept | Decision::Denied(_) | Decision::Ambiguous => "STOP",
            },
            _ => "ok",
        };
        line(format_args!("{number}  {answer:<4}  {question:<42} {fact}"));
    }
    line(format_args!("\nverdict: {verdict}"));
    line(format_args!(
        "caller:  {}",
        outcome(question, &attempt, &verdict)
    ));
    text
}

/// What the layer would know of the attempt.
fn attempt(question: &Question) -> Attempt<'_> {
    let request = &question.request;
    let mut facts = match &question.ended {
        Ended::Response(head) => Facts::response(request, head),
        Ended::Failure(failure) => Facts::failure(request, failure),
        Ended::Broken(head, failure) => Facts::response(request, head).partial(failure),
    };
    facts = facts
        .attempt_number(question.attempt)
        .body_state(question.body)
        .min_attempt(question.min_attempt);
    if let Some(max_attempts) = question.max_attempts {
        facts = facts.max_attempts(max_attempts);
    }
    if let Some(remaining) = question.remaining {
        facts = facts.remaining(remaining);
    }
    if let Ended::Response(head) | Ended::Broken(head, _) = &question.ended {
        #[allow(
            clippy::disallowed_methods,
            reason = "a date is held against the clock on the wall"
        )]
        let now = SystemTime::now();
        if let Some(hint) = retry_after::parse(&head.headers, now) {
            facts = facts.retry_after(hint);
        }
    }
    for flag in &question.flags {
        facts = match flag {
            Flag::BudgetEmpty => facts.budget_empty(),
            Flag::Delivered => facts.delivered(),
            Flag::Draining => facts.draining(),
            Flag::PriorUnknown => facts.prior_unknown(),
            Flag::Refresh => facts.refresh_available(),
        };
    }
    // Asks the policy for the number of attempts and the idempotency, as the layer does.
    facts.attempt_for(&question.policy)
}

fn heading(attempt: &Attempt<'_>) -> String {
    let mut text = format!(
        "{}, attempt {} of {}, {}",
        attempt.request().method,
        attempt.number(),
        attempt.max_attempts(),
        attempt.evidence(),
    );
    if let Some(status) = attempt.status() {
        let _ = write!(text, ", status {}", status.as_u16());
    }
    if let Some(failure) = attempt.failure() {
        let _ = write!(text, ", {}", failure.kind());
    }
    text
}

/// Every step as a question, and the fact that answers it.
fn steps(attempt: &Attempt<'_>) -> [(&'static str, String); 9] {
    let yes = |fact| if fact { "yes" } else { "no" }.to_owned();
    let remaining = match attempt.remaining() {
        None => "no deadline".to_owned(),
        Some(left) => {
            let hint = attempt.retry_after().unwrap_or_default();
            format!(
                "{left:?} left, {:?} needed",
                attempt.min_attempt().saturating_add(hint)
            )
        }
    };
    let kind = match attempt.failure() {
        None => "no failure".to_owned(),
        Some(failure) if failure.kind().is_permanent() => {
            format!("{:?}: permanent", failure.kind())
        }
        Some(failure) => format!("{:?}: transient", failure.kind()),
    };
    [
        (
            "Are attempts left?",
            format!("{} of {} made", attempt.number(), attempt.max_attempts()),
        ),
        (
            "Has the retry budget a token?",
            yes(!attempt.is_budget_empty()),
        ),
        (
            "Can the body be sent again, now?",
            attempt.body_state().to_string(),
        ),
        (
            "Is nothing delivered to the caller yet?",
            yes(!attempt.is_delivered()),
        ),
        ("Is the process to live on?", yes(!attempt.is_draining())),
        ("Does the deadline leave enough?", remaining),
        ("Could another attempt help?", kind),
        (
            "Answered, not sent, or safely idempotent?",
            format!("{}, {:?}", attempt.evidence(), attempt.idempotency()),
        ),
        (
            "What does the rule say?",
            match attempt.retry_after() {
                None => "no hint of the server".to_owned(),
                Some(Duration::MAX) => "hint: longer than any limit".to_owned(),
                Some(hint) => format!("hint: {hint:?}"),
            },
        ),
    ]
}

fn said(rule: tower_http_retry::Rule, attempt: Attempt<'_>) -> String {
    format!("{rule:?} ({:?})", attempt.idempotency())
}

/// What follows for whoever made the call.
fn outcome(question: &Question, attempt: &Attempt<'_>, verdict: &Verdict) -> String {
    let policy = &question.policy;
    let wait = |random| {
        let hint = attempt.retry_after().unwrap_or_default();
        policy.backoff(attempt, Duration::ZERO, random).max(hint)
    };
    match verdict.decision() {
        Decision::Retry | Decision::Refresh => {
            format!(
                "waits {:?} to {:?}, then attempt {}",
                wait(0.0),
                wait(1.0),
                attempt.number().saturating_add(1)
            )
        }
        Decision::Accept => "Ok(response)".to_owned(),
        Decision::Denied(_) | Decision::Ambiguous => {
            let deliver =
                policy.ambiguous_responses(&question.request) == AmbiguousResponses::Deliver;
            match (attempt.status(), verdict.is_ambiguous()) {
                (Some(status), true) if !deliver => {
                    format!(
                        "Err(Error::Ambiguous), which carries the {} whole",
                        status.as_u16()
                    )
                }
                (Some(status), _) => {
                    format!(
                        "Ok(response), the {} with a Report in its extensions",
                        status.as_u16()
                    )
                }
                (None, true) => {
                    "Err(Error::Ambiguous): ask the upstream, or replay under a key".to_owned()
                }
                (None, false) => "Err(Error::Failed): safe to send again".to_owned(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(arguments: &str) -> String {
        let arguments = arguments.split_whitespace().map(str::to_owned);
        match Command::parse(arguments) {
            Ok(Command::Explain(question)) => explain(&question),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_post_without_an_answer_stops_at_step_8() {
        let text = explained("--method POST --evidence sent-no-response --attempt 2");
        assert!(text.contains("\n7  ok "), "{text}");
        assert!(text.contains("\n8  STOP"), "{text}");
        assert!(text.contains("\n9  - "), "{text}");
        assert!(text.contains("caller:  Err(Error::Ambiguous)"), "{text}");
    }

    #[test]
    fn a_key_makes_it_a_retry() {
        let text = explained("--method POST --key 17 --evidence sent-no-response --attempt 2");
        assert!(text.contains("\n9  GO  "), "{text}");
        assert!(text.contains("then attempt 3"), "{text}");
    }

    #[test]
    fn a_hint_beyond_the_agreed_one_is_refused_and_the_503_delivered() {
        let text = explained("--status 503 --retry-after 60");
        assert!(text.contains("\n9  STOP"), "{text}");
        assert!(text.contains("60s"), "{text}");
        assert!(text.contains("caller:  Ok(response), the 503"), "{text}");
    }

    #[test]
    fn an_empty_budget_stops_before_anything_later_is_asked() {
        let text = explained("--budget-empty --draining --body consumed");
        assert!(text.contains("\n2  STOP"), "{text}");
        assert!(text.contains("\n3  - "), "{text}");
    }

    #[test]
    fn a_success_asks_no_step() {
        let text = explained("--method POST --status 201 --attempt 3");
        assert!(text.contains("accepted: no step is asked"), "{text}");
        assert!(!text.contains("STOP"), "{text}");
    }

    #[test]
    fn mistakes_are_named() {
        let mistake = |arguments: &str| {
            Command::parse(arguments.split_whitespace().map(str::to_owned)).unwrap_err()
        };
        assert_eq!(mistake("--status teapot"), "--status cannot be teapot");
        assert_eq!(mistake("--attempt 0"), "--attempt cannot be 0");
        assert!(mistake("--kind flood").contains("stream-refused"));
        assert_eq!(mistake("--method"), "--method needs a value");
        assert_eq!(mistake("--colour"), "unknown option --colour; try --help");
    }
}
