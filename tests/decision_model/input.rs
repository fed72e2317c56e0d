//! The inputs, as numbers that can be counted through.

use tower_http_retry::{FailureKind, Idempotency};

/// All that a decision depends on. In each dimension the digits go from permissive to forbidding,
/// except where noted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input {
    pub(crate) number: Number,
    pub(crate) budget_empty: bool,
    pub(crate) body_gone: bool,
    pub(crate) delivered: bool,
    pub(crate) draining: bool,
    pub(crate) deadline: Deadline,
    pub(crate) idempotency: Idempotency,
    pub(crate) no_refresh: bool,
    pub(crate) hint: Hint,
    pub(crate) permanent: bool,
    pub(crate) early_data: bool,
    /// The upstream's stop header.
    pub(crate) stop: bool,
    /// The upstream's refusal header; in no order.
    pub(crate) refused: bool,
    /// In no order: a 409 may mean that the first attempt still runs.
    pub(crate) prior_unknown: bool,
    /// In no order.
    pub(crate) ended: Ended,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    First,
    Second,
    Last,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Deadline {
    None,
    /// Enough for another attempt, but not after a wait of `Hint::Short`.
    Tight,
    Short,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Hint {
    None,
    Short,
    /// Longer than any policy here agrees to.
    Long,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Ended {
    NotSent,
    SentNoResponse,
    /// A head was seen, and nobody has it.
    Headless,
    Response(u16),
    /// The head arrived, and then no byte of the body.
    BrokenAtOnce(u16),
    /// The head and a part of the body arrived.
    BrokenLater(u16),
}

pub(crate) const STATUSES: [u16; 14] = [
    100, 200, 304, 401, 404, 408, 409, 425, 429, 500, 501, 502, 503, 504,
];

/// How many values each dimension has, in the order of the fields.
pub(crate) const SIZES: [usize; 15] = [
    3,
    2,
    2,
    2,
    2,
    3,
    4,
    2,
    3,
    2,
    2,
    2,
    2,
    2,
    3 + 3 * STATUSES.len(),
];

/// The dimensions whose digits go from permissive to forbidding.
pub(crate) const ORDERED: usize = 12;

impl Input {
    pub(crate) fn of(digits: [usize; 15]) -> Self {
        let on = |dimension: usize| digits[dimension] == 1;
        let ended = match digits[14] {
            0 => Ended::NotSent,
            1 => Ended::SentNoResponse,
            2 => Ended::Headless,
            rest => {
                let status = STATUSES[(rest - 3) / 3];
                [Ended::Response, Ended::BrokenAtOnce, Ended::BrokenLater][(rest - 3) % 3](status)
            }
        };
        Self {
            number: [Number::First, Number::Second, Number::Last][digits[0]],
            budget_empty: on(1),
            body_gone: on(2),
            delivered: on(3),
            draining: on(4),
            deadline: [Deadline::None, Deadline::Tight, Deadline::Short][digits[5]],
            idempotency: [
                Idempotency::Keyed,
                Idempotency::Idempotent,
                Idempotency::Safe,
                Idempotency::NonIdempotent,
            ][digits[6]],
            no_refresh: on(7),
            hint: [Hint::None, Hint::Short, Hint::Long][digits[8]],
            permanent: on(9),
            early_data: on(10),
            stop: on(11),
            refused: on(12),
            prior_unknown: on(13),
            ended,
        }
    }

    pub(crate) fn safe(&self) -> bool {
        match self.idempotency {
            Idempotency::Safe | Idempotency::Idempotent | Idempotency::Keyed => true,
            Idempotency::NonIdempotent => false,
        }
    }

    pub(crate) fn status(&self) -> Option<u16> {
        match self.ended {
            Ended::NotSent | Ended::SentNoResponse | Ended::Headless => None,
            Ended::Response(status) | Ended::BrokenAtOnce(status) | Ended::BrokenLater(status) => {
                Some(status)
            }
        }
    }

    /// Whether the failure speaks, and not a status.
    pub(crate) fn failed(&self) -> bool {
        match self.ended {
            Ended::NotSent | Ended::SentNoResponse | Ended::Headless => true,
            Ended::Response(_) => false,
            Ended::BrokenAtOnce(status) | Ended::BrokenLater(status) => status < 400,
        }
    }

    pub(crate) fn kind(&self) -> FailureKind {
        match self.permanent {
            true => FailureKind::Certificate,
            false => FailureKind::Reset,
        }
    }
}
