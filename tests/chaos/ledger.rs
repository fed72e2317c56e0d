//! What really happened: operations that servers executed, by the number that each request carries.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::op::{Told, sum};

/// What a second execution would do. The client tells the server, so that the server can do what
/// such an upstream does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Safe,
    Idempotent,
    /// The server executes once per key that it reads.
    Keyed,
    NonIdempotent,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Entry {
    /// How often the operation was applied.
    pub(crate) executed: u32,
    /// Bodies that were read to their end and were not what the client sent.
    pub(crate) corrupted: u32,
    /// Bodies that were read to their end and were just that.
    pub(crate) whole: u32,
    /// The keys that were executed.
    keys: Vec<String>,
    /// What the server did with each request for it that it noticed, in order.
    pub(crate) faults: Vec<&'static str>,
}

/// Shared by all servers and the judge.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<HashMap<u64, Entry>>);

impl Ledger {
    /// Applies the operation.
    pub(crate) fn execute(&self, told: &Told) {
        let mut ledger = self.0.lock().unwrap();
        let entry = ledger.entry(told.op).or_default();
        if told.kind == Kind::Keyed {
            let key = told.key.clone().unwrap_or_default();
            if entry.keys.contains(&key) {
                return;
            }
            entry.keys.push(key);
        }
        entry.executed += 1;
    }

    pub(crate) fn note(&self, op: u64, fault: &'static str) {
        self.0
            .lock()
            .unwrap()
            .entry(op)
            .or_default()
            .faults
            .push(fault);
    }

    /// A body that was read to its end.
    pub(crate) fn received(&self, told: &Told, body: &[u8]) {
        let mut ledger = self.0.lock().unwrap();
        let entry = ledger.entry(told.op).or_default();
        if sum(body) == told.sum {
            entry.whole += 1;
        } else {
            entry.corrupted += 1;
        }
    }

    pub(crate) fn entry(&self, op: u64) -> Entry {
        self.0.lock().unwrap().get(&op).cloned().unwrap_or_default()
    }
}
