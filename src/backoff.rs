//! How long to wait before a retry.

use std::time::Duration;

/// How long to wait before a retry: exponential, jittered, capped.
///
/// Pure: the random number is an argument, there is no clock and no state. For retry `n`, counted from 1, the
/// ceiling is `min(max, base × 2^(n-1))`; what is waited under it is a matter of jitter:
///
/// | jitter | wait, without a hint |
/// |---|---|
/// | [full](Self::with_full_jitter), the default | uniform in `0..=ceiling` |
/// | [decorrelated](Self::with_decorrelated_jitter) | uniform in `base..=max(base, 3 × previous)`, both ends capped |
/// | [none](Self::without_jitter) | `ceiling` |
///
/// The cap is applied before the jitter is drawn, so that waits at the cap are still spread and never exceed it.
/// Where the base is above the maximum, the maximum wins.
///
/// A server's hint (`Retry-After`) is a floor: the wait is `max(backoff, hint)`, plus up to half the hint of jitter
/// upwards, so that a fleet which was told the same does not return in one instant. `max` does not bound a hint:
/// whether a hint is too long is the policy's `max_retry_after`.
///
/// Every `Duration` has a meaning, zero and [`Duration::MAX`] included; whatever overflows is the longest wait.
///
/// The default is 50 ms, at most 20 s, full jitter, and a base of 1 s for [throttled](Self::throttled) answers.
///
/// ```
/// use std::time::Duration;
/// use tower_http_retry::Backoff;
///
/// let backoff = Backoff::exponential(Duration::from_millis(100), Duration::from_secs(10));
/// let third = backoff.delay(3, Duration::ZERO, None, 0.5);
/// assert_eq!(third, Duration::from_millis(200)); // half of 400 ms
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    max: Duration,
    throttled_base: Option<Duration>,
    jitter: Jitter,
    hint_jitter: HintJitter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Jitter {
    Full,
    Decorrelated,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HintJitter {
    Upwards,
    None,
}

const THROTTLED_BASE: Duration = Duration::from_secs(1);

impl Backoff {
    /// Exponential from `base`, never above `max`, with full jitter.
    ///
    /// A `base` above `max` is not an error here: every ceiling is then `max`.
    pub const fn exponential(base: Duration, max: Duration) -> Self {
        Self {
            base,
            max,
            throttled_base: None,
            jitter: Jitter::Full,
            hint_jitter: HintJitter::Upwards,
        }
    }

    /// Draws waits from zero to the ceiling. The default.
    pub const fn with_full_jitter(mut self) -> Self {
        self.jitter = Jitter::Full;
        self
    }

    /// Draws waits from the base to three times the previous wait.
    ///
    /// A previous wait shorter than the base, zero included, counts as the base: a first wait is at most three
    /// times the base, and a previous wait that was cut short never leaves an empty range.
    pub const fn with_decorrelated_jitter(mut self) -> Self {
        self.jitter = Jitter::Decorrelated;
        self
    }

    /// Waits the ceiling itself. Clients that failed together then return together.
    ///
    /// A hint still gets its own jitter, see [`without_hint_jitter`](Self::without_hint_jitter).
    pub const fn without_jitter(mut self) -> Self {
        self.jitter = Jitter::None;
        self
    }

    /// Adds nothing to a server's hint: the wait is exactly `max(backoff, hint)`.
    pub const fn without_hint_jitter(mut self) -> Self {
        self.hint_jitter = HintJitter::None;
        self
    }

    /// The base for throttled answers (429, 503) that bring no hint.
    ///
    /// The default is 1 s, or the ordinary base where that is longer: by default nobody comes back sooner to an
    /// upstream that is overloaded.
    pub const fn with_throttled_base(mut self, base: Duration) -> Self {
        self.throttled_base = Some(base);
        self
    }

    /// The same backoff on its throttled base.
    pub fn throttled(self) -> Self {
        self.with_base(self.throttled_base())
    }

    /// The same backoff on another base.
    pub const fn with_base(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// The same backoff under another maximum.
    pub const fn with_max(mut self, max: Duration) -> Self {
        self.max = max;
        self
    }

    /// The ceiling of the first retry, unless `max` is below it.
    pub const fn base(&self) -> Duration {
        self.base
    }

    /// The longest wait without a hint.
    pub const fn max(&self) -> Duration {
        self.max
    }

    /// The base that [`throttled`](Self::throttled) goes over to.
    pub fn throttled_base(&self) -> Duration {
        self.throttled_base.unwrap_or(self.base.max(THROTTLED_BASE))
    }

    /// The wait before retry number `retry`, counted from 1 (zero counts as 1).
    ///
    /// - `previous`: the wait before the previous retry, zero if there was none; only decorrelated jitter asks;
    /// - `retry_after`: the server's hint, see [`retry_after::parse`](crate::retry_after::parse);
    /// - `random`: a number from 0 to 1; outside of it the nearest of the two, and 1 for NaN. The wait never falls
    ///   as it rises, and at 1 it is the longest one. The one number decides the wait and the jitter of the hint.
    pub fn delay(
        &self,
        retry: u32,
        previous: Duration,
        retry_after: Option<Duration>,
        random: f64,
    ) -> Duration {
        let random = Fraction::of(random);
        let backoff = match self.jitter {
            Jitter::Full => random.between(0, self.ceiling(retry)),
            Jitter::Decorrelated => self.decorrelated(previous, random),
            Jitter::None => duration(self.ceiling(retry)),
        };
        match retry_after {
            None => backoff,
            Some(hint) => backoff
                .max(hint)
                .saturating_add(self.on_top_of(hint, random)),
        }
    }

    fn ceiling(&self, retry: u32) -> u128 {
        let doublings = retry.saturating_sub(1);
        let factor = 1_u128.checked_shl(doublings).unwrap_or(u128::MAX);
        self.base
            .as_nanos()
            .saturating_mul(factor)
            .min(self.max.as_nanos())
    }

    fn decorrelated(&self, previous: Duration, random: Fraction) -> Duration {
        let base = self.base.as_nanos();
        let max = self.max.as_nanos();
        // A wait that was trimmed below the base would make the range empty. (No overflow: a third of `u128` is
        // far above any `Duration`.)
        let longest = 3 * previous.as_nanos().max(base);
        random.between(base.min(max), longest.min(max))
    }

    fn on_top_of(&self, hint: Duration, random: Fraction) -> Duration {
        match self.hint_jitter {
            HintJitter::Upwards => random.between(0, hint.as_nanos() / 2),
            HintJitter::None => Duration::ZERO,
        }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::exponential(Duration::from_millis(50), Duration::from_secs(20))
    }
}

/// A number from 0 to 1 in steps of 2^-53, the resolution of an `f64` just below 1.
///
/// Nanoseconds are scaled by it in whole numbers: a long `Duration` has more digits than an `f64`.
#[derive(Clone, Copy)]
struct Fraction(u128);

impl Fraction {
    const BITS: u32 = 53;
    const ONE: u128 = 1 << Self::BITS;

    fn of(random: f64) -> Self {
        if random.is_nan() {
            return Self(Self::ONE);
        }
        // Exact: a power of two moves only the exponent.
        Self((random.clamp(0.0, 1.0) * Self::ONE as f64) as u128)
    }

    /// `low` at 0, `high` at 1, rounded down between them.
    fn between(self, low: u128, high: u128) -> Duration {
        let span = high.saturating_sub(low);
        // In two parts, because nanoseconds take up to 94 bits: together the product would need 147.
        let (whole, rest) = (span >> Self::BITS, span & (Self::ONE - 1));
        duration(low + whole * self.0 + ((rest * self.0) >> Self::BITS))
    }
}

fn duration(nanos: u128) -> Duration {
    const PER_SECOND: u128 = 1_000_000_000;
    match u64::try_from(nanos / PER_SECOND) {
        Ok(seconds) => Duration::new(seconds, (nanos % PER_SECOND) as u32),
        Err(_) => Duration::MAX,
    }
}
