//! The buckets of many upstreams: read without a lock, bounded, safe to fill with rubbish.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;

use crate::UpstreamKey;
use crate::budget::{Budget, Place, Rates};
use crate::upstream_key::UpstreamRef;

/// How many buckets a newcomer looks at for one to evict. Each newcomer starts where the one before
/// stopped, so none is left out, and nobody pays for more than these.
const LOOK_AT: usize = 32;

/// Upstreams per shard when there are as many as there may be.
const PER_SHARD: usize = 4;

const MAX_SHARDS: usize = 1 << 16;

/// A map in many small pieces. A write copies one piece, so a million hostile authorities, each of
/// them new, cost a few entries each and never the whole map.
pub(super) struct Upstreams {
    rates: Rates,
    max: usize,
    /// Keyed at random: nobody can aim at a shard.
    hasher: RandomState,
    shards: Box<[Shard]>,
    writer: Mutex<Writer>,
    /// What newcomers share while all places are taken by upstreams that need theirs.
    overflow: Budget,
    /// For the buckets, which outlive their place.
    this: Weak<Self>,
}

type Shard = ArcSwap<Vec<Entry>>;

#[derive(Clone)]
struct Entry {
    hash: u64,
    budget: Budget,
}

/// Shards change under its lock only.
#[derive(Default)]
struct Writer {
    len: usize,
    /// The shard to look at next for a bucket to evict.
    hand: usize,
}

impl Upstreams {
    pub(super) fn new(rates: Rates, max: usize) -> Arc<Self> {
        let shards = max.div_ceil(PER_SHARD).min(MAX_SHARDS).next_power_of_two();
        Arc::new_cyclic(|this| Self {
            rates,
            max,
            hasher: RandomState::new(),
            shards: (0..shards).map(|_| Shard::default()).collect(),
            writer: Mutex::default(),
            overflow: Budget::with_rates(rates),
            this: Weak::clone(this),
        })
    }

    /// The budget of this upstream. If it has one, nothing is locked and nothing allocated.
    pub(super) fn get(&self, upstream: &UpstreamRef<'_>) -> Budget {
        let hash = self.hasher.hash_one(upstream);
        self.find(hash, upstream)
            .unwrap_or_else(|| self.insert(hash, upstream))
    }

    fn find(&self, hash: u64, upstream: &UpstreamRef<'_>) -> Option<Budget> {
        let shard = self.shard(hash)?.load();
        let entry = shard.iter().find(|entry| {
            entry.hash == hash
                && entry
                    .budget
                    .key()
                    .is_some_and(|key| key.as_ref() == *upstream)
        })?;
        (!entry.budget.is_retired()).then(|| entry.budget.clone())
    }

    #[cold]
    fn insert(&self, hash: u64, upstream: &UpstreamRef<'_>) -> Budget {
        // Nothing in here leaves a shard half changed.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(budget) = self.find(hash, upstream) {
            return budget;
        }
        if writer.len >= self.max && !self.evict(&mut writer) {
            return self.overflow.clone();
        }
        let Some(shard) = self.shard(hash) else {
            return self.overflow.clone();
        };
        let place = Place {
            key: upstream.to_key(),
            upstreams: self.this.clone(),
        };
        let budget = Budget::placed(self.rates, place);
        let newcomer = Entry {
            hash,
            budget: budget.clone(),
        };
        let entries = shard.load().iter().cloned().chain([newcomer]).collect();
        shard.store(Arc::new(entries));
        writer.len += 1;
        budget
    }

    /// Makes room for one, if there is a bucket that is full again.
    fn evict(&self, writer: &mut Writer) -> bool {
        let mut looked_at = 0;
        for shard in self
            .shards
            .iter()
            .cycle()
            .skip(writer.hand)
            .take(self.shards.len())
        {
            writer.hand = (writer.hand + 1) % self.shards.len();
            let entries = shard.load();
            // Retired first, and out of the map then: a call that finds it in between looks again,
            // and comes to wait for the lock.
            if entries.iter().any(|entry| entry.budget.retire()) {
                let kept = entries.iter().filter(|entry| !entry.budget.is_retired());
                shard.store(Arc::new(kept.cloned().collect()));
                writer.len -= 1;
                return true;
            }
            looked_at += entries.len();
            if looked_at >= LOOK_AT {
                break;
            }
        }
        false
    }

    fn shard(&self, hash: u64) -> Option<&Shard> {
        // A power of two, at least one.
        self.shards.get(hash as usize & (self.shards.len() - 1))
    }
}

impl crate::budget::Upstreams for Upstreams {
    fn get(&self, key: &UpstreamKey) -> Budget {
        self.get(&key.as_ref())
    }

    fn find(&self, key: &UpstreamKey) -> Option<Budget> {
        let upstream = key.as_ref();
        self.find(self.hasher.hash_one(&upstream), &upstream)
    }
}

impl std::fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstreams")
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}
