//! Until when a call may go on.

use std::time::Duration;

use tokio::time::Instant;

/// Until when a call may go on, its attempts, waits and everything between included.
///
/// A request extension: `request.extensions_mut().insert(Deadline::after(..))`. The earlier of the request's and the
/// layer's counts, which is `min`: deadlines are ordered in time, and *never* comes last.
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

/// An instant closer than this to the last one that can be represented is as good as never: tokio rounds the end of a
/// timer up to the next millisecond, and must not overflow.
const TIMER_ROUNDING: Duration = Duration::from_secs(1);

impl Deadline {
    /// At `instant`. One that has passed is allowed: nothing remains.
    pub fn at(instant: Instant) -> Self {
        match instant.checked_add(TIMER_ROUNDING) {
            Some(_) => Self(End::At(instant)),
            None => Self(End::Never),
        }
    }

    /// After `timeout` from now. What is too long to be represented, like [`Duration::MAX`], is never.
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
