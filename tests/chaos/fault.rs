//! Everything that can go wrong on the server's side, at every point.

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// How a connection ends where it should not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Fin,
    Rst,
    /// Nothing more, for longer than any client waits.
    Hang,
}

/// What a server does with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Executes and answers.
    Fine,
    /// Executes, answers, and closes the connection, soon or at once.
    FineThenClose,
    /// HTTP/1: reads this share of the request's head (in 1/256), and ends. HTTP/2: as `CutRequest`.
    CutHead(u8, End),
    /// Reads the head and this share of the body (in 1/256), and ends.
    CutRequest(u8, End),
    /// Reads all of it, and ends.
    Unexecuted(End),
    /// Executes, and ends.
    Executed(End),
    /// Executes, sends a part of the response head, and ends.
    HalfHead(End),
    /// Executes, sends the head and a part of the body, and ends.
    HalfBody(End),
    /// Executes, and sends more than the response's `content-length` says.
    WrongLength,
    /// Executes, and answers when the client may have given up.
    Late(u64),
    /// Answers with an error, having executed or not.
    Status(u16, bool),
    /// Answers before it reads the body, does not execute, and reads on.
    Early(u16),
    /// 103, and then ends without executing.
    Informational(End),
    /// HTTP/2: refuses the stream. HTTP/1: as `Unexecuted`.
    Refused,
    /// HTTP/2: shuts down gracefully, executing what it accepted. HTTP/1: as `FineThenClose`.
    GoAway,
    /// HTTP/2: says that it goes, and goes at once. HTTP/1: as `Executed`.
    GoAwayAtOnce,
}

impl Fault {
    pub(crate) fn random(random: &mut StdRng) -> Self {
        if random.random_bool(0.4) {
            return Self::Fine;
        }
        let end = *[End::Fin, End::Rst, End::Rst, End::Hang]
            .choose(random)
            .unwrap();
        match random.random_range(0..18) {
            0 => Self::FineThenClose,
            1 => Self::CutRequest(random.random(), end),
            2 => Self::Unexecuted(end),
            3 => Self::Executed(end),
            4 => Self::HalfHead(end),
            5 => Self::HalfBody(end),
            6 => Self::Late(random.random_range(20..90)),
            7 => Self::Status(503, false),
            8 => Self::Status(*[502, 503, 504].choose(random).unwrap(), true),
            9 => Self::Status(429, false),
            10 => Self::Status(*[425, 500, 404].choose(random).unwrap(), false),
            11 => Self::Early(*[503, 413].choose(random).unwrap()),
            12 => Self::Informational(end),
            13 => Self::Refused,
            14 => Self::CutHead(random.random(), end),
            15 => Self::WrongLength,
            16 => Self::GoAwayAtOnce,
            _ => Self::GoAway,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::FineThenClose => "fine, then close",
            Self::CutHead(..) => "head cut",
            Self::CutRequest(_, End::Fin) => "request cut (FIN)",
            Self::CutRequest(_, End::Rst) => "request cut (RST)",
            Self::CutRequest(_, End::Hang) => "request cut (hang)",
            Self::Unexecuted(End::Fin) => "read, not executed (FIN)",
            Self::Unexecuted(End::Rst) => "read, not executed (RST)",
            Self::Unexecuted(End::Hang) => "read, not executed (hang)",
            Self::Executed(End::Fin) => "executed (FIN)",
            Self::Executed(End::Rst) => "executed (RST)",
            Self::Executed(End::Hang) => "executed (hang)",
            Self::HalfHead(_) => "executed, half a head",
            Self::HalfBody(_) => "executed, half a body",
            Self::WrongLength => "executed, wrong length",
            Self::Late(_) => "executed, late answer",
            Self::Status(_, false) => "error status, not executed",
            Self::Status(_, true) => "error status, executed",
            Self::Early(_) => "early answer, not executed",
            Self::Informational(_) => "1xx, then end",
            Self::Refused => "refused",
            Self::GoAway => "going away",
            Self::GoAwayAtOnce => "gone away",
        }
    }
}
