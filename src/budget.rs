//! The retry budget: how many retries an upstream's real traffic allows.

mod bucket;
mod builder;
mod call;
#[cfg(all(loom_models, test))]
mod loom_models;

use std::fmt;
use std::ptr;
use std::sync::{Arc, OnceLock, Weak};

use tokio::time::Instant;

pub(crate) use self::bucket::Rates;
use self::bucket::{Bucket, Change};
pub use self::builder::BudgetBuilder;
pub(crate) use self::call::CallBudget;
use crate::UpstreamKey;

/// A retry budget: a bucket of tokens, one token a retry. Clones share the bucket.
///
/// It starts full. A good call [deposits](Self::deposit) a fraction of a token, a retry
/// [withdraws](Self::try_withdraw) one, and a trickle keeps a quiet upstream able to retry. For
/// every span of time `t`, from any number of threads, after any idle time:
///
/// ```text
/// retries ≤ capacity + ratio × deposits + floor × t
/// ```
///
/// where a retry is a withdrawal that was not refunded. Nothing here locks or waits. The clock is
/// read only when a token is asked for.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), tower_http_retry::ConfigError> {
/// use tower_http_retry::Budget;
///
/// let budget = Budget::builder().ratio(0.6).floor_per_second(0.0).capacity(1).build()?;
/// budget.try_withdraw().expect("it starts full").spend();
/// assert!(budget.is_empty());
/// budget.deposit();
/// assert_eq!(budget.balance(), 0.6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Budget {
    inner: Arc<Inner>,
}

struct Inner {
    bucket: Bucket,
    /// Time zero: when a token was first asked for. Until then the bucket is full.
    origin: OnceLock<Instant>,
    /// Where this is the bucket of one upstream among others.
    place: Option<Place>,
}

pub(crate) struct Place {
    pub(crate) key: UpstreamKey,
    pub(crate) upstreams: Weak<dyn Upstreams>,
}

/// The buckets that one of an upstream is among.
///
/// Full ones may be evicted. Whoever still holds one of those finds the bucket that took its place
/// here, so that an upstream never has tokens in two.
pub(crate) trait Upstreams: Send + Sync {
    /// The bucket of this upstream, a new one if there is none.
    fn get(&self, key: &UpstreamKey) -> Budget;
    /// The bucket of this upstream.
    fn find(&self, key: &UpstreamKey) -> Option<Budget>;
}

impl Budget {
    /// The defaults: ratio 0.2, floor 10 per second, capacity 100.
    pub fn builder() -> BudgetBuilder {
        BudgetBuilder::default()
    }

    /// Adds what one good call is worth: `ratio` tokens, up to the capacity.
    ///
    /// Into a full bucket this is one load: nothing is written and no clock is read.
    #[inline]
    pub fn deposit(&self) {
        self.add(Bucket::deposit);
    }

    /// Takes one token, if there is one. The token refunds itself unless it is spent.
    pub fn try_withdraw(&self) -> Option<Token> {
        match self.inner.bucket.withdraw(|| self.inner.now()) {
            Change::Done => Some(Token::of(self.clone())),
            Change::Refused => None,
            Change::Retired => self.new_successor()?.try_withdraw(),
        }
    }

    /// Whether there is no whole token now. Only a peek: another thread may be faster.
    pub fn is_empty(&self) -> bool {
        if self.is_retired() {
            return self.successor().is_some_and(|next| next.is_empty());
        }
        self.inner.bucket.is_empty(|| self.inner.now())
    }

    /// The tokens there are now, 0 to the capacity, with their fraction.
    pub fn balance(&self) -> f64 {
        if self.is_retired()
            && let Some(next) = self.successor()
        {
            return next.balance();
        }
        self.inner.bucket.balance(|| self.inner.now())
    }

    /// A bucket on its own.
    pub(crate) fn with_rates(rates: Rates) -> Self {
        Self::new(rates, None)
    }

    /// The bucket of one upstream among others.
    pub(crate) fn placed(rates: Rates, place: Place) -> Self {
        Self::new(rates, Some(place))
    }

    /// Whose bucket this is among others.
    pub(crate) fn key(&self) -> Option<&UpstreamKey> {
        self.inner.place.as_ref().map(|place| &place.key)
    }

    /// Whether this is the bucket of one of these upstreams.
    #[inline]
    pub(crate) fn is_among(&self, upstreams: &dyn Upstreams) -> bool {
        let own = self.inner.place.as_ref().map(|place| &place.upstreams);
        own.is_some_and(|own| ptr::addr_eq(own.as_ptr(), upstreams))
    }

    /// Evicts the bucket, for good, if it is full.
    pub(crate) fn retire(&self, now: Instant) -> bool {
        self.inner.bucket.retire(|| self.inner.nanos(now))
    }

    /// Whether both are one bucket.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// How many there are of this one bucket's handles.
    #[cfg(test)]
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.inner)
    }

    /// Whether a deposit would add nothing.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.inner.bucket.is_full()
    }

    #[inline]
    pub(crate) fn is_retired(&self) -> bool {
        self.inner.bucket.is_retired()
    }

    fn new(rates: Rates, place: Option<Place>) -> Self {
        let (bucket, origin) = (Bucket::new(rates), OnceLock::new());
        Self {
            inner: Arc::new(Inner {
                bucket,
                origin,
                place,
            }),
        }
    }

    /// Whether anything was added.
    #[inline]
    fn add(&self, change: fn(&Bucket) -> Change) -> bool {
        match change(&self.inner.bucket) {
            Change::Done => true,
            Change::Refused => false,
            Change::Retired => self.successor().is_some_and(|next| next.add(change)),
        }
    }

    /// What took the place of this evicted bucket. None is as good as a full one.
    #[cold]
    fn successor(&self) -> Option<Self> {
        let place = self.inner.place.as_ref()?;
        place.upstreams.upgrade()?.find(&place.key)
    }

    /// The same, made if there is none.
    #[cold]
    fn new_successor(&self) -> Option<Self> {
        let place = self.inner.place.as_ref()?;
        Some(place.upstreams.upgrade()?.get(&place.key))
    }
}

impl Default for Budget {
    /// Ratio 0.2, floor 10 per second, capacity 100.
    fn default() -> Self {
        Self::with_rates(BudgetBuilder::default().unchecked())
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Budget");
        if let Some(key) = self.key() {
            debug.field("upstream", key);
        }
        debug.finish_non_exhaustive()
    }
}

impl Inner {
    fn now(&self) -> u64 {
        self.nanos(Instant::now())
    }

    /// Nanoseconds since time zero.
    fn nanos(&self, now: Instant) -> u64 {
        let origin = *self.origin.get_or_init(|| now);
        u64::try_from(now.saturating_duration_since(origin).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The right to one retry, withdrawn from a [`Budget`].
///
/// Dropped unspent, it goes back: a retry that is never sent costs nothing.
#[derive(Debug)]
#[must_use = "a token that is dropped goes back to its budget"]
pub struct Token {
    /// Where it goes back to.
    budget: Option<Budget>,
}

impl Token {
    fn of(budget: Budget) -> Self {
        Self {
            budget: Some(budget),
        }
    }

    /// The retry is sent: the token is gone.
    pub fn spend(mut self) {
        self.budget = None;
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if let Some(budget) = self.budget.take() {
            budget.add(Bucket::refund);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_starts_full_and_trickles() {
        let budget = Budget::default();
        for _ in 0..100 {
            budget.try_withdraw().unwrap().spend();
        }
        assert!(budget.is_empty());
        tokio::time::advance(Duration::from_millis(99)).await;
        assert!(budget.try_withdraw().is_none());
        tokio::time::advance(Duration::from_millis(1)).await;
        budget.try_withdraw().unwrap().spend();
        assert_eq!(budget.balance(), 0.0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_token_goes_back() {
        let budget = Budget::default();
        let token = budget.try_withdraw();
        assert_eq!(budget.balance(), 99.0);
        drop(token);
        assert_eq!(budget.balance(), 100.0);
    }
}
