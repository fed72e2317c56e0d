//! Until when a call may go on.

use std::time::Duration;

use tokio::time::Instant;

/// Until when a call may go on, its attempts, waits and everything between included.
///
/// A request extension: `request.extensions_mut().insert(Deadline::after(..))`. The earlier of the
/// request's and the layer's counts, which is `min`: deadlines are ordered in time, and *never*
/// comes last.
///
/// ```
/// # use std::time::Duration;
/// use tower_http_retry::Deadline;
///
/// let request = Deadline::after(Duration::from_secs(2));
/// let layer = Deadline::after(Duration::MAX); // never
/// assert_eq!(request.min(layer), request);
/// assert_eq!(layer.remaining(), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(End);

/// In the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum End {
    At(Instant),
    Never,
}

/// An instant closer than this to the last one that can be represented is as good as never: tokio
/// rounds the end of a timer up to the next millisecond, and must not overflow.
const TIMER_ROUNDING: Duration = Duration::from_secs(1);

/// `time` after `start`, for a timer. `None`: never.
pub(crate) fn after(start: Instant, time: Duration) -> Option<Instant> {
    start
        .checked_add(time)
        .filter(|end| end.checked_add(TIMER_ROUNDING).is_some())
}

impl Deadline {
    /// At `instant`. One that has passed is allowed: nothing remains.
    pub fn at(instant: Instant) -> Self {
        match instant.checked_add(TIMER_ROUNDING) {
            Some(_) => Self(End::At(instant)),
            None => Self(End::Never),
        }
    }

    /// After `timeout` from now. What is too long to be represented, like [`Duration::MAX`], is
    /// never.
    pub fn after(timeout: Duration) -> Self {
        match Instant::now().checked_add(timeout) {
            Some(instant) => Self::at(instant),
            None => Self(End::Never),
        }
    }

    /// What remains of it now, zero once it has passed; `None` if it never ends.
    pub fn remaining(&self) -> Option<Duration> {
        self.instant()
            .map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// The instant to set a timer for; `None` if it never ends.
    pub(crate) fn instant(self) -> Option<Instant> {
        match self.0 {
            End::At(instant) => Some(instant),
            End::Never => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn what_remains_shrinks_to_zero_and_stays_there() {
        let deadline = Deadline::after(2 * SECOND);
        assert_eq!(deadline.remaining(), Some(2 * SECOND));
        tokio::time::advance(SECOND / 2).await;
        assert_eq!(deadline.remaining(), Some(SECOND * 3 / 2));
        tokio::time::advance(SECOND * 5).await;
        assert_eq!(deadline.remaining(), Some(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn after_and_at_name_the_same_instant() {
        let end = Instant::now() + SECOND;
        assert_eq!(Deadline::after(SECOND), Deadline::at(end));
        assert_eq!(Deadline::at(end).instant(), Some(end));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_of_now_leaves_nothing() {
        assert_eq!(
            Deadline::after(Duration::ZERO).remaining(),
            Some(Duration::ZERO)
        );
    }

    #[test]
    fn what_cannot_be_represented_is_never() {
        for timeout in [
            Duration::MAX,
            Duration::from_secs(u64::MAX),
            Duration::MAX / 2 + SECOND,
        ] {
            assert_eq!(Deadline::after(timeout).remaining(), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_comes_first_and_never_last() {
        let (soon, late) = (Deadline::after(SECOND), Deadline::after(1_000_000 * SECOND));
        let never = Deadline::after(Duration::MAX);
        let mut deadlines = [never, late, soon];
        deadlines.sort();
        assert_eq!(deadlines, [soon, late, never]);
    }

    /// The last instant of the platform's clock.
    fn last_instant() -> Instant {
        let seconds = (0..64).rev().map(|bit| Duration::from_secs(1 << bit));
        let nanos = (0..30).rev().map(|bit| Duration::from_nanos(1 << bit));
        seconds.chain(nanos).fold(Instant::now(), |last, step| {
            last.checked_add(step).unwrap_or(last)
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_can_be_set_for_every_instant_there_is() {
        let last = last_instant();
        assert_eq!(last.checked_add(Duration::from_nanos(1)), None);
        assert_eq!(Deadline::at(last).instant(), None);
        let end = Deadline::at(last - TIMER_ROUNDING).instant().unwrap();
        let elapsed = tokio::time::timeout(SECOND, tokio::time::sleep_until(end)).await;
        assert!(elapsed.is_err());
    }

    proptest! {
        #[test]
        fn no_more_remains_than_was_given(seconds: u64, nanos in 0..1_000_000_000_u32) {
            let timeout = Duration::new(seconds, nanos);
            prop_assert!(Deadline::after(timeout).remaining().is_none_or(|left| left <= timeout));
        }
    }
}
