//! What can happen to a call: how the inner service behaves, and what else befalls it.

use proptest::prelude::*;

/// Milliseconds. Behaviours take multiples of 10; the limits end in other digits, so that no two
/// things happen at one instant: attempt timeouts in 3 (up to three of them add up to 9), drops in
/// 1, drains in 5, deadlines in 7. Reading out a failed response takes [`DISCARD`] at most.
pub(crate) type Ms = u64;

pub(crate) const DISCARD: Ms = 24;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Ready {
    After(Ms),
    Fails,
    PanicsAfter(Ms),
}

/// How the attempt ends, after the time that it takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Ends {
    Status(u16, Option<Download>),
    NotSent,
    NotSentUnread,
    Certificate,
    Reset,
    Never,
    Panics,
    /// At once: there is no future.
    PanicsInCall,
}

/// A response body: perhaps a byte, and then the end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Download {
    pub(crate) byte_after: Option<Ms>,
    pub(crate) ends_after: Ms,
    pub(crate) end: End,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum End {
    Clean,
    Breaks,
    Panics,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Behaviour {
    pub(crate) ready: Ready,
    pub(crate) takes: Ms,
    pub(crate) ends: Ends,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Upload {
    Bytes,
    OneShot,
}

/// When a response is handed over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Delivered {
    AtHeaders,
    AtFirstByte,
    Whole,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Observed {
    ByNobody,
    Quietly,
    /// The observer panics when it is told of so many attempts.
    PanicsAtAttempt(u32),
    /// The observer panics when it is told of the call's end.
    PanicsAtEnd,
}

#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) post: bool,
    pub(crate) upload: Upload,
    pub(crate) delivered: Delivered,
    pub(crate) observed: Observed,
    pub(crate) retries: u32,
    pub(crate) tokens: u32,
    pub(crate) attempt_timeout: Option<Ms>,
    pub(crate) deadline: Option<Ms>,
    pub(crate) drain: Option<Ms>,
    /// The caller's future is dropped.
    pub(crate) drop: Option<Ms>,
    /// One for each attempt.
    pub(crate) behaviours: Vec<Behaviour>,
}

/// What came of it.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) answer: Answer,
    pub(crate) at: Ms,
    /// Attempts that reached the inner service's call.
    pub(crate) sent: u32,
    /// Left in the budget.
    pub(crate) tokens: u32,
    /// How often the observer was told of an attempt, and of the end.
    pub(crate) told: (u32, u32),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Answer {
    /// And what the caller finds when it reads the body, and when.
    Ok(u16, Read, Ms),
    Failed,
    Ambiguous,
    /// The inner service was not ready for the first attempt: there was no call.
    NotReady,
    Dropped,
    Panicked,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Read {
    Whole,
    Broken,
    Panicked,
    Dropped,
}

pub(crate) fn scenarios() -> impl Strategy<Value = Scenario> {
    let some = |max: Ms, digit: Ms| {
        proptest::option::weighted(0.3, (0..max).prop_map(move |n| n * 10 + digit))
    };
    // Most calls can go on: the later an attempt, the more came before it.
    let few = || prop_oneof![1 => Just(0_u32), 1 => Just(1), 2 => Just(2), 4 => Just(3)];
    let observed = prop_oneof![
        6 => Just(Observed::ByNobody),
        8 => Just(Observed::Quietly),
        1 => (1_u32..4).prop_map(Observed::PanicsAtAttempt),
        1 => Just(Observed::PanicsAtEnd),
    ];
    let delivered = prop::sample::select(vec![
        Delivered::AtHeaders,
        Delivered::AtFirstByte,
        Delivered::Whole,
    ]);
    (
        any::<bool>(),
        prop_oneof![3 => Just(Upload::Bytes), 1 => Just(Upload::OneShot)],
        (delivered, observed),
        (few(), few()),
        (some(30, 3), some(150, 7), some(150, 5), some(60, 1)),
        proptest::collection::vec(behaviours(), 4),
    )
        .prop_map(|(post, upload, how, numbers, limits, behaviours)| {
            let (delivered, observed) = how;
            let (retries, tokens) = numbers;
            let (timeout, deadline, drain, drop) = limits;
            Scenario {
                post,
                upload,
                delivered,
                observed,
                retries,
                tokens,
                // Something must end an attempt that never answers.
                attempt_timeout: timeout.or(deadline.is_none().then_some(203)),
                deadline,
                drain,
                drop,
                behaviours,
            }
        })
}

fn behaviours() -> impl Strategy<Value = Behaviour> {
    let ready = prop_oneof![
        20 => Just(Ready::After(0)),
        10 => tens(20).prop_map(Ready::After),
        1 => Just(Ready::Fails),
        1 => prop_oneof![Just(0), tens(20)].prop_map(Ready::PanicsAfter),
    ];
    let status = prop::sample::select(vec![200, 404, 429, 429, 500, 503, 503]);
    let ends = prop_oneof![
        24 => (status, proptest::option::of(downloads()))
            .prop_map(|(status, body)| Ends::Status(status, body)),
        6 => Just(Ends::NotSent),
        6 => Just(Ends::NotSentUnread),
        2 => Just(Ends::Certificate),
        6 => Just(Ends::Reset),
        3 => Just(Ends::Never),
        1 => Just(Ends::Panics),
        1 => Just(Ends::PanicsInCall),
    ];
    (ready, tens(20), ends).prop_map(|(ready, takes, ends)| Behaviour { ready, takes, ends })
}

fn downloads() -> impl Strategy<Value = Download> {
    let end = prop_oneof![6 => Just(End::Clean), 3 => Just(End::Breaks), 1 => Just(End::Panics)];
    // Short ones are read out before a wait, long ones given up.
    let time = || prop_oneof![Just(0), tens(3), tens(60)];
    (proptest::option::of(time()), time(), end).prop_map(|(byte_after, ends_after, end)| Download {
        byte_after,
        ends_after,
        end,
    })
}

fn tens(max: Ms) -> impl Strategy<Value = Ms> {
    (0..=max).prop_map(|n| n * 10)
}
