//! What a body promises, and what is left of the promise.

use std::fmt;

/// What a body declares about being sent again. Ordered, the weakest first: a body made of parts is its
/// weakest part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Replayability {
    /// One stream: it can be sent once.
    OneShot,
    /// It can be opened again, as a file can; opening may fail.
    Reopenable,
    /// The same bytes as often as needed.
    Replayable,
}

impl fmt::Display for Replayability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneShot => "ONE_SHOT",
            Self::Reopenable => "REOPENABLE",
            Self::Replayable => "REPLAYABLE",
        })
    }
}

/// What a body can do now, whatever it declared: attempts may have used it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BodyState {
    /// There is nothing to send.
    Empty,
    /// The same bytes can be sent again.
    Replayable,
    /// It can be opened again.
    Reopenable,
    /// A stream that no attempt has polled: still whole, so it may be handed out again.
    Untouched,
    /// A stream of which some was handed out, or which failed: it is gone.
    Consumed,
    /// More was handed out than the buffer was allowed to keep.
    Overflowed,
}

impl BodyState {
    /// Whether the next attempt can carry the whole body.
    pub fn is_replayable(self) -> bool {
        match self {
            Self::Empty | Self::Replayable | Self::Reopenable | Self::Untouched => true,
            Self::Consumed | Self::Overflowed => false,
        }
    }

    /// Of several bodies sent as one, the weakest limits it.
    pub(super) fn weakness(self) -> u8 {
        match self {
            Self::Empty => 0,
            Self::Replayable => 1,
            Self::Reopenable => 2,
            Self::Untouched => 3,
            Self::Overflowed => 4,
            Self::Consumed => 5,
        }
    }
}

impl fmt::Display for BodyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "EMPTY",
            Self::Replayable => "REPLAYABLE",
            Self::Reopenable => "REOPENABLE",
            Self::Untouched => "UNTOUCHED",
            Self::Consumed => "CONSUMED",
            Self::Overflowed => "OVERFLOWED",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weakest_mark_is_the_smallest() {
        assert!(Replayability::OneShot < Replayability::Reopenable);
        assert!(Replayability::Reopenable < Replayability::Replayable);
    }

    #[test]
    fn only_consumed_and_overflowed_deny() {
        let denied = [BodyState::Consumed, BodyState::Overflowed];
        for state in [
            BodyState::Empty,
            BodyState::Replayable,
            BodyState::Reopenable,
            BodyState::Untouched,
            BodyState::Consumed,
            BodyState::Overflowed,
        ] {
            assert_eq!(state.is_replayable(), !denied.contains(&state), "{state}");
        }
    }
}
