//! How long to wait before a retry.

use std::time::Duration;

/// How long to wait before a retry: exponential, jittered, capped.
///
/// Pure: the random number is an argument, there is no clock and no state. For retry `n`, counted
/// from 1, the ceiling is `min(max, base × 2^(n-1))`; what is waited under it is a matter of
/// jitter:
///
/// | jitter | wait, without a hint |
/// |---|---|
/// | [full](Self::with_full_jitter), the default | uniform in `0..=ceiling` |
/// | [decorrelated](Self::with_decorrelated_jitter) | uniform in `base..=max(base, 3 × previous)`, both ends capped |
/// | [none](Self::without_jitter) | `ceiling` |
///
/// The cap is applied before the jitter is drawn, so that waits at the cap are still spread and
/// never exceed it. Where the base is above the maximum, the maximum wins.
///
/// A server's hint (`Retry-After`) is a floor: the wait is `max(backoff, hint)`, plus up to half
/// the hint of jitter upwards, so that a fleet which was told the same does not return in one
/// instant. `max` does not bound a hint: whether a hint is too long is the policy's
/// `max_retry_after`.
///
/// Every `Duration` has a meaning, zero and [`Duration::MAX`] included; whatever overflows is the
/// longest wait.
///
/// The default is 50 ms, at most 20 s, full jitter, and a base of 1 s for
/// [throttled](Self::throttled) answers.
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
    /// A previous wait of zero, which is that there was none, counts as the base: a first wait is
    /// at most three times the base. After a previous wait that was cut short below a third of the
    /// base, the base is the wait.
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
    /// The default is 1 s, or the ordinary base where that is longer: by default nobody comes back
    /// sooner to an upstream that is overloaded.
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
    /// - `previous`: the wait before the previous retry, zero if there was none; only decorrelated
    ///   jitter asks;
    /// - `retry_after`: the server's hint, see [`retry_after::parse`](crate::retry_after::parse);
    /// - `random`: a number from 0 to 1; outside of it the nearest of the two, and 1 for NaN. The
    ///   wait never falls as it rises, and at 1 it is the longest one. The one number decides the
    ///   wait and the jitter of the hint.
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
        let previous = match previous.as_nanos() {
            0 => base,
            previous => previous,
        };
        // Not below the base, even if the previous wait was cut short: the range is never empty.
        // (And no overflow: a third of `u128` is far above any `Duration`.)
        let longest = base.max(3 * previous);
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
        // In two parts, because nanoseconds take up to 94 bits: together the product would need
        // 147.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STD: Backoff = Backoff::exponential(ms(100), ms(10_000));

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at_most(backoff: Backoff, retry: u32) -> Duration {
        backoff.delay(retry, Duration::ZERO, None, 1.0)
    }

    #[test]
    fn the_default_is_50_ms_up_to_20_s_with_full_jitter() {
        let default = Backoff::default();
        assert_eq!(default, Backoff::exponential(ms(50), ms(20_000)));
        assert_eq!(
            default,
            default.with_decorrelated_jitter().with_full_jitter()
        );
        assert_eq!(
            (at_most(default, 1), at_most(default, 100)),
            (ms(50), ms(20_000))
        );
        assert_eq!(default.delay(1, Duration::ZERO, None, 0.0), Duration::ZERO);
    }

    #[test]
    fn retry_zero_counts_as_the_first() {
        assert_eq!(at_most(STD, 0), at_most(STD, 1));
    }

    #[test]
    fn a_zero_base_never_waits_however_many_retries() {
        let backoff = STD.with_base(Duration::ZERO);
        for retry in [1, 2, 127, 128, 129, 130, u32::MAX] {
            assert_eq!(at_most(backoff, retry), Duration::ZERO, "retry {retry}");
            assert_eq!(
                at_most(backoff.with_decorrelated_jitter(), retry),
                Duration::ZERO
            );
        }
    }

    #[test]
    fn the_longest_durations_do_not_overflow() {
        let longest = Backoff::exponential(Duration::MAX, Duration::MAX);
        for backoff in [
            longest,
            longest.with_decorrelated_jitter(),
            longest.without_jitter(),
        ] {
            assert_eq!(
                backoff.delay(u32::MAX, Duration::MAX, Some(Duration::MAX), 1.0),
                Duration::MAX
            );
        }
    }

    #[test]
    fn random_numbers_outside_of_0_to_1_are_clamped_and_nan_is_1() {
        let delay = |random| STD.delay(1, Duration::ZERO, None, random);
        for low in [0.0, -0.0, -1.0, f64::MIN, f64::NEG_INFINITY] {
            assert_eq!(delay(low), Duration::ZERO, "{low}");
        }
        for high in [1.0, 1.5, f64::MAX, f64::INFINITY, f64::NAN, -f64::NAN] {
            assert_eq!(delay(high), ms(100), "{high}");
        }
    }

    #[test]
    fn the_maximum_wins_over_a_larger_base() {
        let swapped = Backoff::exponential(ms(500), ms(50));
        for backoff in [
            swapped,
            swapped.without_jitter(),
            swapped.with_decorrelated_jitter(),
        ] {
            assert_eq!(at_most(backoff, 1), ms(50));
        }
        let low = swapped
            .with_decorrelated_jitter()
            .delay(1, Duration::ZERO, None, 0.0);
        assert_eq!(low, ms(50));
    }

    #[test]
    fn throttled_answers_start_at_one_second() {
        let throttled = STD.throttled();
        assert_eq!(
            (at_most(throttled, 1), at_most(throttled, 2)),
            (ms(1_000), ms(2_000))
        );
        assert_eq!(throttled.throttled(), throttled);
        assert_eq!(throttled.max(), STD.max());
    }

    #[test]
    fn a_base_above_one_second_is_kept_for_throttled_answers() {
        assert_eq!(STD.with_base(ms(3_000)).throttled().base(), ms(3_000));
    }

    #[test]
    fn a_throttled_base_of_the_callers_is_taken_as_it_is() {
        for base in [Duration::ZERO, ms(10), ms(5_000), Duration::MAX] {
            assert_eq!(STD.with_throttled_base(base).throttled().base(), base);
        }
    }

    #[test]
    fn without_jitter_the_random_number_matters_only_to_a_hint() {
        let backoff = STD.without_jitter();
        assert_eq!(backoff.delay(3, Duration::ZERO, None, 0.0), ms(400));
        assert_eq!(
            backoff.delay(3, Duration::ZERO, Some(ms(6_000)), 0.5),
            ms(7_500)
        );
        let exact = backoff.without_hint_jitter();
        assert_eq!(
            exact.delay(3, Duration::ZERO, Some(ms(6_000)), 0.5),
            ms(6_000)
        );
    }

    #[test]
    fn a_hint_of_zero_leaves_the_backoff_as_it_is() {
        let delay = |hint| STD.delay(2, Duration::ZERO, hint, 0.5);
        assert_eq!(delay(Some(Duration::ZERO)), delay(None));
    }

    #[test]
    fn the_maximum_does_not_shorten_a_hint() {
        let hint = ms(60_000);
        assert_eq!(STD.delay(1, Duration::ZERO, Some(hint), 0.0), hint);
    }

    #[test]
    fn a_first_decorrelated_wait_is_at_most_three_times_the_base() {
        let backoff = STD.with_decorrelated_jitter();
        let first = |random| backoff.delay(1, Duration::ZERO, None, random);
        assert_eq!(
            (first(0.0), first(0.5), first(1.0)),
            (ms(100), ms(200), ms(300))
        );
    }

    #[test]
    fn decorrelated_waits_depend_on_the_previous_wait_and_not_on_the_number() {
        let backoff = STD.with_decorrelated_jitter();
        let delay = |retry| backoff.delay(retry, ms(1_000), None, 1.0);
        assert_eq!(
            (delay(1), delay(7), delay(u32::MAX)),
            (ms(3_000), ms(3_000), ms(3_000))
        );
    }

    fn any_duration() -> impl Strategy<Value = Duration> {
        let long = (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(s, n)| Duration::new(s, n));
        let short = (0..100_000_000_000_u64).prop_map(Duration::from_nanos);
        prop_oneof![short, long, Just(Duration::ZERO), Just(Duration::MAX)]
    }

    fn any_retry() -> impl Strategy<Value = u32> {
        prop_oneof![0..200_u32, any::<u32>()]
    }

    fn any_random() -> impl Strategy<Value = f64> {
        prop_oneof![0.0..=1.0, any::<f64>()]
    }

    fn any_backoff() -> impl Strategy<Value = Backoff> {
        let jitter = vec![Jitter::Full, Jitter::Decorrelated, Jitter::None];
        let hint_jitter = vec![HintJitter::Upwards, HintJitter::None];
        (
            any_duration(),
            any_duration(),
            proptest::option::of(any_duration()),
            proptest::sample::select(jitter),
            proptest::sample::select(hint_jitter),
        )
            .prop_map(|(base, max, throttled_base, jitter, hint_jitter)| Backoff {
                base,
                max,
                throttled_base,
                jitter,
                hint_jitter,
            })
    }

    /// The ceiling of the contract, the slow way: one doubling after the other.
    fn doubled(base: Duration, max: Duration, retry: u32) -> Duration {
        let doublings = retry.saturating_sub(1).min(200);
        (0..doublings)
            .fold(base, |wait, _| wait.saturating_mul(2))
            .min(max)
    }

    proptest! {
        #[test]
        fn no_input_panics_or_exceeds_the_maximum(
            backoff in any_backoff(), retry in any_retry(), previous in any_duration(), random in any_random(),
        ) {
            let throttled = backoff.throttled().delay(retry, previous, None, random);
            prop_assert!(throttled <= backoff.max());
            prop_assert!(backoff.delay(retry, previous, None, random) <= backoff.max());
        }

        #[test]
        fn at_1_the_wait_is_exactly_the_ceiling(
            base in any_duration(), max in any_duration(), retry in any_retry(),
        ) {
            let backoff = Backoff::exponential(base, max);
            let ceiling = doubled(base, max, retry);
            prop_assert_eq!(at_most(backoff, retry), ceiling);
            prop_assert_eq!(backoff.without_jitter().delay(retry, Duration::ZERO, None, 0.3), ceiling);
        }

        #[test]
        fn between_0_and_1_the_wait_is_exact_to_the_nanosecond(
            base in any_duration(), retry in any_retry(), steps in 0..=1_u128 << 20,
        ) {
            let backoff = Backoff::exponential(base, Duration::MAX);
            let random = steps as f64 / f64::from(1 << 20);
            let wait = backoff.delay(retry, Duration::ZERO, None, random);
            let ceiling = doubled(base, Duration::MAX, retry).as_nanos();
            prop_assert_eq!(wait.as_nanos(), (ceiling * steps) >> 20);
        }

        #[test]
        fn a_larger_random_number_never_waits_less(
            backoff in any_backoff(), retry in any_retry(), previous in any_duration(),
            hint in proptest::option::of(any_duration()), a in 0.0..=1.0, b in 0.0..=1.0,
        ) {
            let delay = |random: f64| backoff.delay(retry, previous, hint, random);
            prop_assert!(delay(f64::min(a, b)) <= delay(f64::max(a, b)));
        }

        #[test]
        fn a_later_retry_never_waits_less(
            backoff in any_backoff(), a in any_retry(), b in any_retry(), random in any_random(),
        ) {
            let delay = |retry| backoff.delay(retry, ms(1), None, random);
            prop_assert!(delay(a.min(b)) <= delay(a.max(b)));
        }

        #[test]
        fn a_hint_is_a_floor_with_up_to_half_of_it_on_top(
            backoff in any_backoff(), retry in any_retry(), previous in any_duration(), hint in any_duration(),
            random in any_random(),
        ) {
            let floor = backoff.delay(retry, previous, None, random).max(hint);
            let wait = backoff.delay(retry, previous, Some(hint), random);
            prop_assert!(floor <= wait && wait <= floor.saturating_add(hint / 2));
            let exact = backoff.without_hint_jitter().delay(retry, previous, Some(hint), random);
            prop_assert_eq!(exact, floor);
        }

        #[test]
        fn decorrelated_waits_stay_between_the_base_and_three_times_the_previous(
            base in any_duration(), max in any_duration(), previous in any_duration(), random in any_random(),
        ) {
            let backoff = Backoff::exponential(base, max).with_decorrelated_jitter();
            let wait = backoff.delay(1, previous, None, random);
            let previous = if previous.is_zero() { base } else { previous };
            let longest = previous.saturating_mul(3).max(base);
            prop_assert!(base.min(max) <= wait);
            prop_assert!(wait <= longest.min(max));
        }
    }
}
