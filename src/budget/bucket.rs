//! The bucket itself: two atomic words, no clock, no lock.
//!
//! Everything about a bucket is in **one** word, so that every change is one compare-and-swap and
//! there is no moment at which a thread holds tokens that the others cannot see. The trickle needs
//! no writes: the word is the level *as it was at time zero* ("virtual level"), and
//!
//! ```text
//! level(now) = min(capacity, virtual level + floor × now)
//! ```
//!
//! A withdrawal lowers the virtual level, a deposit raises it, and a bucket that overflowed has it
//! cut down to what is full at that moment. An old value that comes back is the same state again,
//! so a compare-and-swap is never fooled by it.
//!
//! Arithmetic is modulo 2^64: only the difference between the virtual level and `floor × now`
//! matters, and it is small unless nobody looked for a very long time. Then the bucket is full
//! anyway, which the second word (the time of the newest withdrawal) tells.

#[cfg(all(loom_models, test))]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(all(loom_models, test)))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Steps per token. A decimal number, so that 0.6 of a token is exactly 0.6.
const STEPS: u64 = 100_000_000;

/// One token in the units of the word. Amounts are even: the lowest bit is [`FULL`].
const TOKEN: u64 = 2 * STEPS;

/// Set while the bucket is known to be full: a deposit then needs one load and nothing else.
const FULL: u64 = 1;

/// The last state of a bucket that was evicted while it was full.
const RETIRED: u64 = u64::MAX;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// What a bucket holds and gains, in its own units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rates {
    capacity: u64,
    deposit: u64,
    /// In steps per second.
    trickle: u64,
}

#[derive(Debug)]
pub(super) struct Bucket {
    rates: Rates,
    /// The virtual level, and [`FULL`]; or [`RETIRED`].
    state: AtomicU64,
    /// Nanoseconds: no withdrawal that `state` tells of was later.
    newest: AtomicU64,
}

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Done,
    /// Nothing changed: no token to withdraw, or no room to add any.
    Refused,
    /// The bucket was evicted; another one has its place.
    Retired,
}

impl Rates {
    /// `ratio` and `floor_per_second` are finite and not negative.
    pub(super) fn new(ratio: f64, floor_per_second: f64, capacity: u32) -> Self {
        Self {
            capacity: u64::from(capacity) * TOKEN,
            deposit: steps(ratio).saturating_mul(2),
            trickle: steps(floor_per_second),
        }
    }

    /// What trickled in since time zero, modulo 2^64, rounded down.
    fn trickled(&self, now: u64) -> u64 {
        2u64.wrapping_mul((self.trickle_steps(now) / NANOS_PER_SECOND) as u64)
    }

    /// The same, rounded up: what is cut off a full bucket is cut with its fraction.
    fn trickled_up(&self, now: u64) -> u64 {
        2u64.wrapping_mul(self.trickle_steps(now).div_ceil(NANOS_PER_SECOND) as u64)
    }

    /// Whether the trickle alone fills an empty bucket in this time.
    fn fills_in(&self, nanos: u64) -> bool {
        self.trickle_steps(nanos) / NANOS_PER_SECOND >= u128::from(self.capacity / 2)
    }

    /// In billionths of a step. Two factors of 64 bits never overflow.
    fn trickle_steps(&self, nanos: u64) -> u128 {
        u128::from(self.trickle) * u128::from(nanos)
    }

    /// The state of a bucket that is full at `now`.
    fn full_at(&self, now: u64) -> u64 {
        let state = self.capacity.wrapping_sub(self.trickled_up(now)) | FULL;
        // One step less, where it would be taken for RETIRED.
        state.min(RETIRED - 2)
    }
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(rates: Rates) -> Self {
        Self {
            rates,
            state: AtomicU64::new(rates.full_at(0)),
            newest: AtomicU64::new(0),
        }
    }

    /// Takes one token. `clock` counts nanoseconds from any origin, the same for every call.
    pub(super) fn withdraw(&self, clock: impl Fn() -> u64) -> Change {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            if state == RETIRED {
                return Change::Retired;
            }
            // After the load: so it is never older than what the state tells of.
            let now = clock().max(self.newest.load(Ordering::Acquire));
            let level = self.level(state, now);
            if level < TOKEN {
                return Change::Refused;
            }
            if level == self.rates.capacity && state & FULL == 0 {
                // First write down that it is full, then take from that: `newest` may not move on
                // while a state stands that it is needed to understand.
                let full = self.rates.full_at(now);
                state = match self.swap(state, full) {
                    Ok(()) => full,
                    Err(current) => current,
                };
                continue;
            }
            let from = if state & FULL == 0 {
                state
            } else {
                self.rates.full_at(now) & !FULL
            };
            // Before the state: whoever reads the state finds a time that is not older.
            self.newest.fetch_max(now, Ordering::AcqRel);
            match self.swap(state, from.wrapping_sub(TOKEN)) {
                Ok(()) => return Change::Done,
                Err(current) => state = current,
            }
        }
    }

    /// Adds what one good call is worth.
    #[inline]
    pub(super) fn deposit(&self) -> Change {
        if self.is_full() {
            return Change::Refused;
        }
        self.add(self.rates.deposit)
    }

    /// Puts back one token that was withdrawn.
    pub(super) fn refund(&self) -> Change {
        self.add(TOKEN)
    }

    /// Marks a full bucket as evicted, for good. False if it is not full.
    pub(super) fn retire(&self, clock: impl Fn() -> u64) -> bool {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            if state == RETIRED || self.level_now(state, &clock) < self.rates.capacity {
                return false;
            }
            match self.swap(state, RETIRED) {
                Ok(()) => return true,
                Err(current) => state = current,
            }
        }
    }

    /// Whether it is known to be full. For the hot path of a healthy upstream: one load, no write, no
    /// clock.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        state & FULL != 0 && state != RETIRED
    }

    #[inline]
    pub(super) fn is_retired(&self) -> bool {
        self.state.load(Ordering::Relaxed) == RETIRED
    }

    pub(super) fn is_empty(&self, clock: impl Fn() -> u64) -> bool {
        self.level_now(self.state.load(Ordering::Acquire), clock) < TOKEN
    }

    /// In tokens.
    pub(super) fn balance(&self, clock: impl Fn() -> u64) -> f64 {
        self.level_now(self.state.load(Ordering::Acquire), clock) as f64 / TOKEN as f64
    }

    fn add(&self, amount: u64) -> Change {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            if state == RETIRED {
                return Change::Retired;
            }
            if state & FULL != 0 {
                return Change::Refused;
            }
            // No clock here: full as of the newest withdrawal is full now.
            let newest = self.newest.load(Ordering::Acquire);
            let room = self.rates.capacity - self.level(state, newest);
            let next = if amount < room {
                state.wrapping_add(amount)
            } else {
                self.rates.full_at(newest)
            };
            match self.swap(state, next) {
                Ok(()) => return Change::Done,
                Err(current) => state = current,
            }
        }
    }

    fn level_now(&self, state: u64, clock: impl Fn() -> u64) -> u64 {
        if state & FULL != 0 {
            return self.rates.capacity;
        }
        self.level(state, clock())
    }

    /// What the bucket holds: 0 to `capacity`.
    fn level(&self, state: u64, now: u64) -> u64 {
        let quiet = now.saturating_sub(self.newest.load(Ordering::Acquire));
        if state & FULL != 0 || self.rates.fills_in(quiet) {
            return self.rates.capacity;
        }
        // Negative where `now` is older than the state: nothing there yet.
        let level = state.wrapping_add(self.rates.trickled(now)).cast_signed();
        u64::try_from(level).unwrap_or(0).min(self.rates.capacity)
    }

    fn swap(&self, from: u64, to: u64) -> Result<(), u64> {
        self.state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
    }
}

/// Steps in so many tokens: eight decimals are kept exactly, more are rounded down.
fn steps(tokens: f64) -> u64 {
    let steps = (tokens * STEPS as f64).round();
    // The nearest number is the right one for 0.6, which has no exact binary form; for 2/3 it would
    // be too much. Division rounds correctly, so it tells them apart.
    let excess = steps / STEPS as f64 > tokens;
    (steps as u64).saturating_sub(u64::from(excess))
}

#[cfg(test)]
#[cfg(not(loom_models))]
mod tests {
    use std::cell::Cell;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn settings_are_kept_to_the_eighth_decimal_and_never_rounded_up() {
        for (tokens, expected) in [
            (0.6, 60_000_000),
            (0.001, 100_000),
            (0.1 + 0.2, 30_000_000),
            (1000.0, 100_000_000_000),
            (0.000_000_01, 1),
            (0.000_000_009, 0),
            (1.0 / 3.0, 33_333_333),
            (2.0 / 3.0, 66_666_666),
            (0.0, 0),
            (-0.0, 0),
            (f64::MAX, u64::MAX - 1),
        ] {
            assert_eq!(steps(tokens), expected, "{tokens}");
        }
        for thousandths in 0..=1_000_000_u32 {
            assert_eq!(
                steps(f64::from(thousandths) / 1000.0),
                u64::from(thousandths) * 100_000
            );
        }
    }

    #[test]
    fn no_state_of_use_is_taken_for_the_evicted_one() {
        let rates = Rates::new(0.2, 1.0, 1);
        // Where the trickle is two units ahead of the capacity, full is all ones.
        let now = SECOND + 10;
        assert_eq!(
            rates.capacity.wrapping_sub(rates.trickled_up(now)) | FULL,
            RETIRED
        );
        let bucket = Bucket::new(rates);
        assert_eq!(bucket.withdraw(|| 0), Change::Done);
        // Full again, which is written down, and used.
        assert!(!bucket.is_empty(|| now));
        assert_eq!(bucket.withdraw(|| now), Change::Done);
        assert_eq!(bucket.withdraw(|| now), Change::Refused);
        assert!(!bucket.is_retired());
    }

    #[test]
    fn a_clock_that_goes_back_grants_nothing() {
        let bucket = Bucket::new(Rates::new(0.5, 1.0, 2));
        assert_eq!(bucket.withdraw(|| 10 * SECOND), Change::Done);
        assert_eq!(bucket.withdraw(|| 10 * SECOND), Change::Done);
        assert_eq!(bucket.withdraw(|| 0), Change::Refused);
        assert_eq!(bucket.balance(|| 0), 0.0);
        assert_eq!(bucket.deposit(), Change::Done);
        assert_eq!(bucket.balance(|| 10 * SECOND), 0.5);
        assert_eq!(bucket.withdraw(|| 5 * SECOND), Change::Refused);
    }

    #[test]
    fn what_is_less_than_a_step_is_lost_not_minted() {
        // A step in 10 ns, and the bucket is full half a step late.
        let bucket = Bucket::new(Rates::new(0.0, 1.0, 1));
        assert_eq!(bucket.withdraw(|| 0), Change::Done);
        assert_eq!(bucket.withdraw(|| 2 * SECOND + 5), Change::Done);
        assert_eq!(bucket.withdraw(|| 3 * SECOND), Change::Refused);
        assert_eq!(bucket.withdraw(|| 3 * SECOND + 10), Change::Done);
    }

    #[test]
    fn a_bucket_left_alone_for_as_long_as_it_fills_is_full() {
        // Not a step later, though what it was cut to when it was full was rounded.
        let bucket = Bucket::new(Rates::new(0.0, 1.0, 1));
        assert_eq!(bucket.withdraw(|| 5), Change::Done);
        assert_eq!(bucket.withdraw(|| SECOND + 4), Change::Refused);
        assert_eq!(bucket.withdraw(|| SECOND + 5), Change::Done);
    }

    #[test]
    fn a_full_bucket_takes_no_deposit_and_says_so() {
        let bucket = Bucket::new(Rates::new(0.5, 0.0, 1));
        assert_eq!(bucket.deposit(), Change::Refused);
        assert_eq!(bucket.withdraw(|| 0), Change::Done);
        let deposits = [bucket.deposit(), bucket.deposit(), bucket.deposit()];
        assert_eq!(deposits, [Change::Done, Change::Done, Change::Refused]);
        assert_eq!(bucket.refund(), Change::Refused);
    }

    #[test]
    fn only_a_token_costs_a_look_at_the_clock() {
        let looks = Cell::new(0);
        let clock = || {
            looks.set(looks.get() + 1);
            0
        };
        let bucket = Bucket::new(Rates::new(0.5, 1.0, 2));
        assert_eq!(bucket.deposit(), Change::Refused);
        assert!(!bucket.is_empty(clock));
        assert_eq!(bucket.balance(clock), 2.0);
        assert_eq!(looks.get(), 0);
        assert_eq!(bucket.withdraw(clock), Change::Done);
        assert_eq!(looks.get(), 1);
        bucket.deposit();
        bucket.refund();
        assert_eq!(looks.get(), 1);
    }

    #[test]
    fn an_evicted_bucket_changes_no_more() {
        let bucket = Bucket::new(Rates::new(0.5, 1.0, 2));
        assert!(bucket.retire(|| 0));
        assert!(!bucket.retire(|| 0));
        for change in [
            bucket.withdraw(|| SECOND),
            bucket.deposit(),
            bucket.refund(),
        ] {
            assert_eq!(change, Change::Retired);
        }
        assert!(bucket.is_retired());
    }

    #[test]
    fn a_bucket_that_is_not_full_is_not_evicted() {
        let bucket = Bucket::new(Rates::new(0.5, 1.0, 2));
        assert_eq!(bucket.withdraw(|| 0), Change::Done);
        assert!(!bucket.retire(|| SECOND - 1));
        assert!(bucket.retire(|| SECOND));
    }
}
