//! The table: a line an attempt, and the answer beside what really happened.

use std::fmt::Write;
use std::time::Duration;

use tower_http_retry::{Decision, Execution, RetryDenied, Step};

use super::client::{Told, Try};
use super::cue::Cue;
use super::judge::{Answer, Findings};
use super::ledger::Entry;
use super::options::Colour;
use super::payload::Payload;
use super::scene::Scene;

/// One call, and the truth about it.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) order: u32,
    pub(crate) scene: &'a Scene,
    pub(crate) told: &'a Told,
    pub(crate) truth: &'a Entry,
    pub(crate) findings: &'a Findings,
}

/// One line of the table.
#[derive(Debug, Default)]
struct Line {
    server: String,
    evidence: String,
    then: String,
}

#[derive(Debug, Clone, Copy)]
enum Ink {
    Faint,
    Title,
    Good,
    Doubtful,
    Bad,
}

/// `number  call  server  evidence  then  answer  ledger`
const WIDTHS: [usize; 6] = [2, 19, 19, 17, 27, 13];

pub(crate) fn heading(colour: Colour) -> String {
    let line = line(["", "call", "the server", "evidence", "then", "answer"]);
    ink(colour, Ink::Faint, &format!("{line}ledger"))
}

pub(crate) fn title(colour: Colour, title: &str) -> String {
    ink(colour, Ink::Title, title)
}

pub(crate) fn totals(colour: Colour, calls: u32, attempts: usize, findings: &Findings) -> String {
    let good = if findings.is_clean() {
        Ink::Good
    } else {
        Ink::Bad
    };
    let text = format!(
        "{calls} calls, {attempts} attempts; duplicates: {}, untrue answers: {}",
        findings.duplicates,
        findings.untrue.len()
    );
    ink(colour, good, &text)
}

impl Row<'_> {
    pub(crate) fn print(&self, colour: Colour) -> String {
        let lines = self.lines();
        let last = lines.len().saturating_sub(1);
        let mut text = String::new();
        for (index, cells) in lines.iter().enumerate() {
            let (number, call) = if index == 0 {
                (self.order.to_string(), self.scene.to_string())
            } else {
                Default::default()
            };
            let [number, call, server, evidence, then] =
                [&number, &call, &cells.server, &cells.evidence, &cells.then].map(String::as_str);
            if index < last {
                text += line([number, call, server, evidence, then, ""]).trim_end();
                text += "\n";
            } else {
                let (answer, good) = answer(&self.told.answer);
                text += &line([number, call, server, evidence, then]);
                text += &ink(colour, good, &format!("{answer:<13}"));
                // Writing to a string does not fail.
                let _ = writeln!(text, "  {}", self.truth);
            }
        }
        if self.findings.duplicates > 0 {
            text += &ink(
                colour,
                Ink::Bad,
                "    ^ duplicate: nobody may execute this twice",
            );
            text += "\n";
        }
        for untrue in &self.findings.untrue {
            text += &ink(colour, Ink::Bad, &format!("    ^ untrue: {untrue}"));
            text += "\n";
        }
        text
    }

    fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        let cues = self
            .scene
            .cues
            .iter()
            .chain(std::iter::repeat(&Cue::HEALTHY));
        for (attempt, cue) in self.told.attempts.iter().zip(cues) {
            let server = if matches!(self.scene.payload, Payload::Failing) {
                // It never comes to the cue.
                "waits for the rest".to_owned()
            } else {
                cue.to_string()
            };
            let (evidence, then) = (attempt.evidence.to_string(), then(attempt));
            let Some(found) = attempt.reconciled else {
                lines.push(Line {
                    server,
                    evidence,
                    then,
                });
                continue;
            };
            lines.push(Line {
                server,
                evidence: "in doubt".to_owned(),
                then: "asks the ledger".to_owned(),
            });
            lines.push(Line {
                server: match found {
                    Execution::NotExecuted => "  \"not executed\"",
                    Execution::Answered => "  \"executed\"",
                    Execution::Unknown => "  \"unknown\"",
                }
                .to_owned(),
                evidence,
                then,
            });
        }
        let said = self
            .told
            .attempts
            .last()
            .and_then(|last| last.verdict.denied());
        if let Some((evidence, denied)) = self.told.broken
            && said != Some(denied)
        {
            lines.push(Line {
                server: "  in the body".to_owned(),
                evidence: evidence.to_string(),
                then: if denied == RetryDenied::ResponseAlreadyDelivered {
                    format!("step {}: {}", Step::Delivered as u8, reason(denied))
                } else {
                    reason(denied)
                },
            });
        }
        lines
    }
}

fn line<const N: usize>(cells: [&str; N]) -> String {
    let cells = cells.iter().zip(WIDTHS);
    cells
        .map(|(cell, width)| format!("{cell:<width$}  "))
        .collect()
}

fn ink(colour: Colour, ink: Ink, text: &str) -> String {
    let code = match (colour, ink) {
        (Colour::Never, _) => return text.to_owned(),
        (Colour::Always, Ink::Faint) => "2",
        (Colour::Always, Ink::Title) => "1",
        (Colour::Always, Ink::Good) => "32",
        (Colour::Always, Ink::Doubtful) => "1;33",
        (Colour::Always, Ink::Bad) => "1;31",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

fn answer(answer: &Answer) -> (String, Ink) {
    match answer {
        Answer::Response(status, ..) => {
            let good = if status.is_success() {
                Ink::Good
            } else {
                Ink::Faint
            };
            (format!("Ok {}", status.as_u16()), good)
        }
        Answer::Broken(status, _) => (format!("Ok {}, cut", status.as_u16()), Ink::Doubtful),
        Answer::Failed(_) => ("FAILED".to_owned(), Ink::Bad),
        Answer::Ambiguous(None) => ("AMBIGUOUS".to_owned(), Ink::Doubtful),
        Answer::Ambiguous(Some(status)) => {
            (format!("AMBIGUOUS {}", status.as_u16()), Ink::Doubtful)
        }
    }
}

/// The wait that follows, or the step that said no.
fn then(attempt: &Try) -> String {
    let step = attempt.verdict.step().map_or(0, |step| step as u8);
    match attempt.verdict.decision() {
        Decision::Accept => String::new(),
        Decision::Retry | Decision::Refresh => {
            let wait = attempt.next_wait.unwrap_or(Duration::ZERO);
            format!("again in {} ms", wait.as_millis())
        }
        Decision::Denied(denied) => format!("step {step}: {}", reason(denied)),
        Decision::Ambiguous => format!("step {step}: perhaps executed"),
    }
}

/// Where the crate's own words are too long for the column: shorter ones.
fn reason(denied: RetryDenied) -> String {
    #[allow(clippy::wildcard_enum_match_arm)] // Not exhaustive, and all have words of their own.
    match denied {
        RetryDenied::BodyNotReplayable(_) => "body used up".to_owned(),
        RetryDenied::ResponseAlreadyDelivered => "already delivered".to_owned(),
        RetryDenied::Deadline => "deadline".to_owned(),
        RetryDenied::PermanentFailure(kind) => kind.to_string(),
        RetryDenied::RetryAfter(hint) => format!("told to wait {} s", hint.as_secs()),
        RetryDenied::NotIdempotent => "partly answered".to_owned(),
        RetryDenied::Status(status) => format!("status {}", status.as_u16()),
        RetryDenied::TooEarly => "425 once more".to_owned(),
        other => other.to_string(),
    }
}
