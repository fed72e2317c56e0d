//! Rules that turned out not to hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts proofs by error type that the body witness contradicted. Shared by a layer's clones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contradictions(Arc<AtomicU64>);

impl Contradictions {
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
