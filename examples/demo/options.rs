//! The command line.

use std::env;
use std::io::IsTerminal;

const INTRODUCTION: &str = "\
A faulty server, a retrying client, and a judge.

The server listens on 127.0.0.1, misbehaves on cue and keeps a ledger of what it executed. The
client sends GETs, PUTs, POSTs and keyed POSTs through hyper with the retry layer. For each call:
";

/// What the columns mean: also above the table.
pub(crate) const LEGEND: &str = "\
\x20 call        method and request body
  the server  what it does, one line an attempt; it is healthy from then on
  evidence    what the attempt proves about the server: that it never received or never processed
              the request (NOT_SENT), nothing (SENT_NO_RESPONSE), that its answer began
              (RESPONSE_RECEIVED, and PARTIAL_RESPONSE with a part of the body)
  then        the wait before the next attempt, or which of the nine steps said no
  answer      Ok with its status, FAILED, or AMBIGUOUS: it may have been executed
  ledger      what really happened; what is idempotent may be executed twice
";

const USAGE: &str = "\
At the end: how many operations were executed twice that must not be, and how many answers the
ledger contradicts. The exit code is 1 unless both are 0.

USAGE: demo [OPTIONS]
  --seed N     seed of the waits between attempts (default 7)
  --blind      treat every method as idempotent, as many retry loops do: the judge will object
  --no-color   no colours (also: NO_COLOR in the environment, or no terminal)
  --help       this text
";

pub(crate) fn help() -> String {
    [INTRODUCTION, LEGEND, USAGE].join("\n")
}

/// What the demo was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) care: Care,
    pub(crate) colour: Colour,
}

/// Whether the client thinks before it sends again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Care {
    /// The nine steps.
    NineSteps,
    /// As if every operation were idempotent.
    Blind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Never,
    Always,
}

/// What the command line says.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Command {
    Run(Options),
    Help,
}

impl Command {
    /// Reads the arguments after the program's name.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut options = Options {
            seed: 7,
            care: Care::NineSteps,
            colour: Colour::detect(),
        };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match argument.split_once('=').unwrap_or((&argument, "")) {
                ("--seed", value) => {
                    let next = if value.is_empty() {
                        arguments.next()
                    } else {
                        None
                    };
                    let value = next.as_deref().unwrap_or(value);
                    options.seed = value
                        .parse()
                        .map_err(|_| format!("--seed needs a number, not \"{value}\""))?;
                }
                ("--blind", "") => options.care = Care::Blind,
                ("--no-color", "") => options.colour = Colour::Never,
                ("--help" | "-h", "") => return Ok(Self::Help),
                _ => return Err(format!("unknown argument \"{argument}\"; try --help")),
            }
        }
        Ok(Self::Run(options))
    }
}

impl Colour {
    fn detect() -> Self {
        let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if refused || !std::io::stdout().is_terminal() {
            Self::Never
        } else {
            Self::Always
        }
    }
}
