//! The buckets of many upstreams: read without a lock, bounded, safe to fill with rubbish.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;
use tokio::time::Instant;

use crate::UpstreamKey;
use crate::budget::{Budget, Place, Rates};
use crate::upstream_key::UpstreamRef;

/// How many buckets a newcomer looks at for one to evict. Each newcomer starts where the one before
/// stopped, so none is left out, and nobody pays for more than these.
const LOOK_AT: usize = 16;

/// Upstreams per shard when there are as many as there may be.
const PER_SHARD: usize = 4;

const MAX_SHARDS: usize = 1 << 16;

/// A map in many small pieces. A write copies one piece, so a million hostile authorities, each of
/// them new, cost a few entries each and never the whole map.
pub(super) struct Upstreams {
    rates: Rates,
    max: usize,
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
    /// Of the budget's key.
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
            shards: (0..shards).map(|_| Shard::default()).collect(),
            writer: Mutex::default(),
            overflow: Budget::with_rates(rates),
            this: Weak::clone(this),
        })
    }

    /// The budget of this upstream. If it has one, nothing is locked and nothing allocated.
    pub(super) fn get(&self, upstream: &UpstreamRef<'_>) -> Budget {
        self.find(upstream).unwrap_or_else(|| self.insert(upstream))
    }

    fn find(&self, upstream: &UpstreamRef<'_>) -> Option<Budget> {
        let shard = self.shard(upstream)?.load();
        let entry = shard.iter().find(|entry| {
            let key = entry.budget.key();
            entry.hash == upstream.hash()
                && key.is_some_and(|key| key.as_ref() == *upstream)
                && !entry.budget.is_retired()
        })?;
        Some(entry.budget.clone())
    }

    #[cold]
    fn insert(&self, upstream: &UpstreamRef<'_>) -> Budget {
        // Nothing in here leaves a shard half changed.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(budget) = self.find(upstream) {
            return budget;
        }
        let Some(shard) = self.shard(upstream) else {
            return self.overflow.clone();
        };
        if writer.len < self.max {
            writer.len += 1;
        } else if !self.make_room(shard, &mut writer) {
            return self.overflow.clone();
        }
        let place = Place {
            key: upstream.to_key(),
            upstreams: self.this.clone(),
        };
        let budget = Budget::placed(self.rates, place);
        let newcomer = Entry {
            hash: upstream.hash(),
            budget: budget.clone(),
        };
        let entries = shard.load().iter().cloned().chain([newcomer]).collect();
        shard.store(Arc::new(entries));
        budget
    }

    /// Evicts one bucket that is full again, if there is any: of the newcomer's shard, so that none
    /// grows, else of the next ones.
    fn make_room(&self, own: &Shard, writer: &mut Writer) -> bool {
        let now = Instant::now();
        if evict_one(own, now) {
            return true;
        }
        let mut to_look_at = LOOK_AT.min(writer.len);
        while to_look_at > 0 {
            let Some(shard) = self.shards.get(writer.hand) else {
                writer.hand = 0;
                continue;
            };
            writer.hand += 1;
            if evict_one(shard, now) {
                return true;
            }
            to_look_at = to_look_at.saturating_sub(shard.load().len());
        }
        false
    }

    fn shard(&self, upstream: &UpstreamRef<'_>) -> Option<&Shard> {
        // A power of two, at least one.
        self.shards
            .get(upstream.hash() as usize & (self.shards.len() - 1))
    }
}

fn evict_one(shard: &Shard, now: Instant) -> bool {
    let entries = shard.load();
    // Retired first, then out of the map: a call that finds it in between takes it for missing and
    // waits for the lock.
    let evicted = entries.iter().any(|entry| entry.budget.retire(now));
    if evicted {
        let kept = entries.iter().filter(|entry| !entry.budget.is_retired());
        shard.store(Arc::new(kept.cloned().collect()));
    }
    evicted
}

impl crate::budget::Upstreams for Upstreams {
    fn get(&self, key: &UpstreamKey) -> Budget {
        self.get(&key.as_ref())
    }

    fn find(&self, key: &UpstreamKey) -> Option<Budget> {
        self.find(&key.as_ref())
    }
}

impl std::fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known: usize = self.shards.iter().map(|shard| shard.load().len()).sum();
        f.debug_struct("Upstreams")
            .field("known", &known)
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BudgetBuilder;

    fn upstreams(max: usize) -> Arc<Upstreams> {
        Upstreams::new(BudgetBuilder::default().unchecked(), max)
    }

    fn key(number: usize) -> UpstreamKey {
        UpstreamKey::new(number.to_string())
    }

    fn lengths(upstreams: &Upstreams) -> Vec<usize> {
        upstreams
            .shards
            .iter()
            .map(|shard| shard.load().len())
            .collect()
    }

    #[test]
    fn every_upstream_up_to_the_maximum_has_a_bucket_of_its_own() {
        for max in [1, 2, 3, 5, 100, 1024] {
            let upstreams = upstreams(max);
            for number in 0..max {
                let token = upstreams.get(&key(number).as_ref()).try_withdraw();
                token.unwrap().spend();
            }
            assert_eq!(lengths(&upstreams).iter().sum::<usize>(), max);
            assert!(upstreams.get(&key(max).as_ref()).key().is_none());
            for number in 0..max {
                assert_eq!(
                    upstreams.get(&key(number).as_ref()).key(),
                    Some(&key(number))
                );
            }
        }
    }

    #[test]
    fn no_shard_grows_under_a_flood() {
        let upstreams = upstreams(1024);
        for number in 0..50_000 {
            upstreams.get(&key(number).as_ref());
        }
        let lengths = lengths(&upstreams);
        assert_eq!(lengths.iter().sum::<usize>(), 1024);
        // Four on average, and chance.
        assert!(lengths.iter().all(|length| *length < 32), "{lengths:?}");
    }

    /// A newcomer may have to come twice, but no idle bucket is overlooked for good.
    #[test]
    fn the_one_idle_bucket_of_many_is_found() {
        let upstreams = upstreams(1024);
        for number in 0..1024 {
            let budget = upstreams.get(&key(number).as_ref());
            if number != 700 {
                budget.try_withdraw().unwrap().spend();
            }
        }
        let rounds =
            (0..=1024 / LOOK_AT).position(|_| upstreams.get(&key(5_000).as_ref()).key().is_some());
        assert!(rounds.is_some());
        assert!(upstreams.find(&key(700).as_ref()).is_none());
    }

    /// Between its eviction and its removal, as another thread may meet it.
    #[test]
    fn an_evicted_bucket_is_not_found() {
        let upstreams = upstreams(4);
        let budget = upstreams.get(&key(1).as_ref());
        assert!(upstreams.find(&key(1).as_ref()).is_some());
        assert!(budget.retire(Instant::now()));
        assert!(upstreams.find(&key(1).as_ref()).is_none());
        let next = upstreams.get(&key(1).as_ref());
        assert!(!next.is_retired() && next.is(&upstreams.get(&key(1).as_ref())));
    }

    #[test]
    fn a_poisoned_lock_is_no_ones_problem() {
        let upstreams = upstreams(4);
        let poisoner = Arc::clone(&upstreams);
        let panicked = std::thread::spawn(move || {
            let _lock = poisoner.writer.lock();
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        assert_eq!(upstreams.get(&key(1).as_ref()).key(), Some(&key(1)));
    }
}
