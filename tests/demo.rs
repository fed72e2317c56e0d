//! The demo's claims, and that its judge objects where it must.
#![cfg(feature = "hyper")]
#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "../examples/demo/main.rs"]
mod demo;

use std::process::ExitCode;

use bytes::Bytes;
use demo::cue::Effect;
use demo::judge::{Answer, Case, Claim, Findings, Untrue, judge};
use demo::ledger::{Arrival, Entry};
use demo::options::{Care, Colour, Command, Options};
use http::StatusCode;
use tower_http_retry::{Evidence, Execution, Idempotency};

const SENT: &[u8] = b"one espresso";
const RECEIPT: &[u8] = b"receipt";

async fn run(care: Care) -> (Findings, String) {
    let options = Options {
        seed: 7,
        care,
        colour: Colour::Never,
    };
    let mut out = Vec::new();
    let findings = demo::run(&options, &mut out).await.unwrap();
    (findings, String::from_utf8(out).unwrap())
}

#[tokio::test]
async fn the_nine_steps_leave_no_duplicate_and_no_untrue_answer() {
    let (findings, printed) = run(Care::NineSteps).await;
    let table = printed.strip_prefix(demo::options::LEGEND).unwrap();
    assert!(findings.is_clean(), "{table}");
    assert!(table.ends_with("duplicates: 0, untrue answers: 0\n"));
    for step in 1..=9 {
        assert!(
            table.contains(&format!("step {step}: ")),
            "step {step}:\n{table}"
        );
    }
    for evidence in [
        Evidence::NotSent,
        Evidence::SentNoResponse,
        Evidence::ResponseReceived,
        Evidence::PartialResponse,
    ] {
        assert!(
            table.contains(&evidence.to_string()),
            "{evidence}:\n{table}"
        );
    }
}

#[tokio::test]
async fn blind_retries_are_found_out() {
    let (findings, table) = run(Care::Blind).await;
    assert!(findings.duplicates > 0, "{table}");
    assert!(!findings.untrue.is_empty(), "{table}");
    assert!(table.contains("^ duplicate"));
    assert!(table.contains("^ untrue"));
}

#[test]
fn the_exit_code_tells() {
    let exit = |duplicates, untrue: &[Untrue]| {
        let code = demo::exit_code(&Findings {
            duplicates,
            untrue: untrue.into(),
        });
        format!("{code:?}")
    };
    assert_eq!(exit(0, &[]), format!("{:?}", ExitCode::SUCCESS));
    assert_ne!(exit(1, &[]), format!("{:?}", ExitCode::SUCCESS));
    let untrue = [Untrue::ExecutionDenied];
    assert_ne!(exit(0, &untrue), format!("{:?}", ExitCode::SUCCESS));
}

/// A ledger entry: which attempts arrived, and whether they were executed.
fn truth(arrivals: &[(u32, Effect)]) -> Entry {
    let mut entry = Entry::default();
    for (attempt, effect) in arrivals {
        entry.book(Arrival {
            attempt: *attempt,
            key: None,
            body: Bytes::from_static(SENT),
            effect: *effect,
        });
    }
    entry
}

fn verdict(nature: Idempotency, answer: Answer, claims: &[Claim], truth: &Entry) -> Findings {
    judge(&Case {
        nature,
        sent: SENT,
        claims,
        answer: &answer,
        receipt: RECEIPT,
        truth,
    })
}

fn ok(body: &'static [u8]) -> Answer {
    Answer::Response(
        StatusCode::OK,
        Execution::Answered,
        Bytes::from_static(body),
    )
}

const ONCE: [(u32, Effect); 1] = [(1, Effect::Executed)];
const TWICE: [(u32, Effect); 2] = [(1, Effect::Executed), (2, Effect::Executed)];

#[test]
fn a_second_execution_is_a_duplicate_unless_it_does_no_harm() {
    let duplicates =
        |nature, arrivals: &[_]| verdict(nature, ok(RECEIPT), &[], &truth(arrivals)).duplicates;
    for nature in [Idempotency::NonIdempotent, Idempotency::Keyed] {
        assert_eq!(duplicates(nature, &ONCE), 0);
        assert_eq!(duplicates(nature, &TWICE), 1);
        assert_eq!(duplicates(nature, &[(1, Effect::Executed); 4]), 3);
    }
    for nature in [Idempotency::Safe, Idempotency::Idempotent] {
        assert_eq!(duplicates(nature, &TWICE), 0);
    }
}

#[test]
fn the_server_executes_a_key_once_and_two_keys_twice() {
    let keyed = |keys: [&str; 2]| {
        let mut entry = Entry::default();
        for (attempt, key) in (1..).zip(keys) {
            entry.book(Arrival {
                attempt,
                key: Some(key.to_owned()),
                body: Bytes::from_static(SENT),
                effect: Effect::Executed,
            });
        }
        verdict(Idempotency::Keyed, ok(RECEIPT), &[], &entry).duplicates
    };
    assert_eq!(keyed(["a", "a"]), 0);
    assert_eq!(keyed(["a", "b"]), 1);
}

#[test]
fn true_answers_are_not_objected_to() {
    use Execution::{NotExecuted, Unknown};
    use Idempotency::{Idempotent, NonIdempotent};

    let nothing = [(1, Effect::Nothing)];
    for (nature, answer, arrivals) in [
        (NonIdempotent, ok(RECEIPT), &ONCE[..]),
        (NonIdempotent, Answer::Failed(NotExecuted), &nothing),
        (NonIdempotent, Answer::Ambiguous(None), &nothing),
        (NonIdempotent, Answer::Ambiguous(None), &ONCE),
        (Idempotent, Answer::Failed(Unknown), &TWICE),
        (Idempotent, ok(RECEIPT), &TWICE),
    ] {
        let findings = verdict(nature, answer, &[], &truth(arrivals));
        assert!(findings.is_clean(), "{findings:?}");
    }
}

#[test]
fn every_untrue_answer_is_found() {
    use Execution::{Answered, NotExecuted, Unknown};
    use Idempotency::{Idempotent, NonIdempotent};

    let teapot = Answer::Response(StatusCode::IM_A_TEAPOT, NotExecuted, Bytes::new());
    for (nature, answer, arrivals, expected) in [
        (
            NonIdempotent,
            ok(RECEIPT),
            &[][..],
            Untrue::SuccessWithoutExecution,
        ),
        (
            NonIdempotent,
            Answer::Broken(StatusCode::OK, Answered),
            &[(1, Effect::Nothing)],
            Untrue::SuccessWithoutExecution,
        ),
        (NonIdempotent, ok(b"rec"), &ONCE, Untrue::AnotherReceipt),
        (NonIdempotent, teapot, &ONCE, Untrue::ExecutionDenied),
        (
            Idempotent,
            Answer::Failed(NotExecuted),
            &ONCE,
            Untrue::ExecutionDenied,
        ),
        (
            NonIdempotent,
            Answer::Failed(Unknown),
            &ONCE,
            Untrue::FailedButExecuted,
        ),
        (
            NonIdempotent,
            Answer::Ambiguous(None),
            &TWICE,
            Untrue::AmbiguousButTwice,
        ),
        (
            Idempotent,
            Answer::Ambiguous(None),
            &ONCE,
            Untrue::AmbiguousButRepeatable,
        ),
    ] {
        let findings = verdict(nature, answer, &[], &truth(arrivals));
        assert_eq!(findings.untrue, [expected]);
    }
}

#[test]
fn evidence_is_held_against_the_attempt_it_speaks_of() {
    let claim = |attempt, evidence| Claim { attempt, evidence };
    let untrue = |claims: &[Claim]| {
        let second = truth(&[(1, Effect::Nothing), (2, Effect::Executed)]);
        verdict(Idempotency::NonIdempotent, ok(RECEIPT), claims, &second).untrue
    };
    assert_eq!(
        untrue(&[
            claim(1, Evidence::NotSent),
            claim(2, Evidence::ResponseReceived)
        ]),
        []
    );
    assert_eq!(
        untrue(&[claim(2, Evidence::NotSent)]),
        [Untrue::NotSentButExecuted(2)]
    );
}

#[test]
fn other_bytes_than_the_callers_are_found() {
    let mut entry = Entry::default();
    entry.book(Arrival {
        attempt: 1,
        key: None,
        body: Bytes::from_static(b"two espressos"),
        effect: Effect::Executed,
    });
    let findings = verdict(Idempotency::NonIdempotent, ok(RECEIPT), &[], &entry);
    assert_eq!(findings.untrue, [Untrue::AnotherRequest]);
}

#[test]
fn the_command_line_is_read() {
    let parse = |arguments: &[&str]| Command::parse(arguments.iter().map(|&word| word.to_owned()));
    let options = |arguments: &[&str]| match parse(arguments) {
        Ok(Command::Run(options)) => options,
        other => panic!("{other:?}"),
    };
    assert_eq!(options(&["--seed", "12"]).seed, 12);
    assert_eq!(options(&["--seed=13"]).seed, 13);
    assert_eq!(options(&["--blind"]).care, Care::Blind);
    assert_eq!(options(&["--no-color"]).colour, Colour::Never);
    assert!(matches!(parse(&["--help"]), Ok(Command::Help)));
    for wrong in [
        &["--seed", "x"][..],
        &["--seed"],
        &["-x"],
        &["--no-color=1"],
    ] {
        assert!(parse(wrong).is_err(), "{wrong:?}");
    }
}
