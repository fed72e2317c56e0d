//! Answers held against the ledger, call by call.

use std::collections::BTreeMap;
use std::fmt;

use crate::arena::Target;
use crate::ledger::{Entry, Kind};
use crate::op::{Op, Shape};

/// What a client says of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A response.
    Status(u16),
    /// "It failed": it was not executed, or may be repeated.
    Failed {
        /// Whether the client claims a proof that nothing was executed.
        not_executed: bool,
    },
    /// "It may have been executed", for this reason.
    Ambiguous(&'static str),
    /// The caller went away.
    Dropped,
    /// None, for so long that none will come.
    Hung,
}

/// The sums over many calls.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    pub(crate) calls: u64,
    pub(crate) succeeded: u64,
    /// The same, by the kind of server.
    pub(crate) at: BTreeMap<&'static str, u64>,
    /// Operations that were executed twice and must not be: non-idempotent ones, and those with a key,
    /// which a server executes once as long as the key stays the same.
    pub(crate) duplicates: u64,
    /// "Failed" for what may not be repeated and was executed; a claim of no execution that is
    /// false; a success that never was.
    pub(crate) untrue: u64,
    /// Bodies that arrived whole and were not what was sent.
    pub(crate) corrupted: u64,
    /// Operations whose body arrived as it was sent, at least once.
    pub(crate) arrived: BTreeMap<Shape, u64>,
    /// Operations that were never executed, though nobody went away.
    pub(crate) lost: u64,
    /// Calls that never ended.
    pub(crate) hung: u64,
    pub(crate) ambiguous: u64,
    /// Of those, the ones that the ledger shows as not executed: by what the server did last.
    pub(crate) imprecise: BTreeMap<String, u64>,
    /// The first few violations, for whoever has to find them.
    pub(crate) examples: Vec<String>,
}

impl Verdicts {
    pub(crate) fn judge(&mut self, op: &Op, target: Target, answer: Answer, entry: &Entry) {
        self.calls += 1;
        let once_only = op.kind == Kind::NonIdempotent;
        let success = matches!(answer, Answer::Status(200..=299));
        self.succeeded += u64::from(success);
        if success {
            *self.at.entry(target.name()).or_default() += 1;
        }
        let duplicate = (once_only || op.kind == Kind::Keyed) && entry.executed > 1;
        let untrue = match answer {
            Answer::Failed { not_executed } => entry.executed > 0 && (once_only || not_executed),
            Answer::Status(_) => success && entry.executed == 0,
            Answer::Ambiguous(_) | Answer::Dropped | Answer::Hung => false,
        };
        self.lost += u64::from(!success && entry.executed == 0 && answer != Answer::Dropped);
        let hung = answer == Answer::Hung;
        self.hung += u64::from(hung);
        self.duplicates += u64::from(duplicate);
        self.untrue += u64::from(untrue);
        self.corrupted += u64::from(entry.corrupted > 0);
        if entry.whole > 0 {
            *self.arrived.entry(op.shape).or_default() += 1;
        }
        if let Answer::Ambiguous(reason) = answer {
            self.ambiguous += 1;
            if entry.executed == 0 {
                let last = entry
                    .faults
                    .last()
                    .copied()
                    .unwrap_or("never seen by the server");
                *self
                    .imprecise
                    .entry(format!("{last} ({reason})"))
                    .or_default() += 1;
            }
        }
        if (duplicate || untrue || hung || entry.corrupted > 0) && self.examples.len() < 5 {
            self.examples.push(format!(
                "operation {} ({} {:?} {:?}, {}): {answer:?}, but {entry:?}",
                op.number,
                op.method,
                op.kind,
                op.shape,
                target.name()
            ));
        }
    }

    pub(crate) fn violations(&self) -> u64 {
        self.duplicates + self.untrue + self.corrupted + self.hung
    }
}

impl fmt::Display for Verdicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let imprecise: u64 = self.imprecise.values().sum();
        writeln!(
            f,
            "{} calls, {} succeeded {:?}; {} duplicates, {} untrue answers, {} corrupted bodies, \
             {} never ended; {} ambiguous, of which {imprecise} were not executed",
            self.calls,
            self.succeeded,
            self.at,
            self.duplicates,
            self.untrue,
            self.corrupted,
            self.hung,
            self.ambiguous,
        )?;
        writeln!(f, "  bodies that arrived: {:?}", self.arrived)?;
        for (what, count) in &self.imprecise {
            writeln!(f, "  ambiguous, not executed: {count:>6}  {what}")?;
        }
        for example in &self.examples {
            writeln!(f, "  VIOLATION {example}")?;
        }
        Ok(())
    }
}
