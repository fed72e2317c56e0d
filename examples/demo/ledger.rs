//! What the server really did: the truth that every answer is held against.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::cue::Effect;

/// The server's book, one entry an order. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<BTreeMap<u32, Entry>>>);

/// What became of one order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entry {
    arrivals: Vec<Arrival>,
}

/// A request that was read to its end.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    /// Which attempt it says it is, from 1.
    pub(crate) attempt: u32,
    /// Its `idempotency-key`.
    pub(crate) key: Option<String>,
    pub(crate) body: Bytes,
    pub(crate) effect: Effect,
}

impl Ledger {
    /// Books an arrival.
    pub(crate) fn book(&self, order: u32, arrival: Arrival) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.entry(order).or_default().book(arrival);
    }

    pub(crate) fn entry(&self, order: u32) -> Entry {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(&order).cloned().unwrap_or_default()
    }

    /// The server's answer to an executed order.
    pub(crate) fn receipt(order: u32) -> Bytes {
        format!("receipt of order {order}\n").into()
    }
}

impl Entry {
    /// An operation whose key is in the book is not executed again: its answer is repeated.
    pub(crate) fn book(&mut self, mut arrival: Arrival) {
        let known =
            arrival.key.is_some() && self.executed().any(|earlier| earlier.key == arrival.key);
        if known {
            arrival.effect = Effect::Nothing;
        }
        self.arrivals.push(arrival);
    }

    pub(crate) fn executed(&self) -> impl Iterator<Item = &Arrival> {
        self.arrivals
            .iter()
            .filter(|arrival| arrival.effect == Effect::Executed)
    }

    pub(crate) fn executions(&self) -> usize {
        self.executed().count()
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.arrivals.len(), self.executions()) {
            (0, _) => f.write_str("never read"),
            (_, 0) => f.write_str("not executed"),
            (_, 1) => f.write_str("executed once"),
            (_, more) => write!(f, "executed {more}x"),
        }
    }
}
