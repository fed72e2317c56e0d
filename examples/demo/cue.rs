//! How the server misbehaves, one cue an attempt.

use std::fmt;

use http::StatusCode;

/// What the server does with one attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cue {
    /// Nobody listens.
    Refuse,
    /// Accepts the connection and closes it at once.
    CloseAtOnce,
    /// Waits until the request has arrived, and closes without reading it.
    CloseUnread,
    /// Reads the whole request, then resets the connection or the stream.
    Reset(Effect),
    /// Reads the whole request, sends half a status line, then closes (HTTP/1.1).
    HalfStatusLine(Effect),
    /// Reads the whole request, and never answers.
    Silence(Effect),
    /// Executes, and cuts the response off in its body.
    CutBody,
    /// Answers with this status.
    Answer(Answer),
    /// Reads the request, then sends RST_STREAM(REFUSED_STREAM) (HTTP/2).
    RefuseStream,
    /// Receives the request, then sends GOAWAY with a last stream id below it (HTTP/2).
    GoAway,
}

/// Whether an operation takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Executed,
    Nothing,
}

/// A whole response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) effect: Effect,
    /// When to come back: a header and its value.
    pub(crate) hint: Option<(&'static str, &'static str)>,
}

impl Cue {
    /// What a healthy server does.
    pub(crate) const HEALTHY: Self = Self::status(StatusCode::OK, Effect::Executed);

    pub(crate) const fn status(status: StatusCode, effect: Effect) -> Self {
        Self::Answer(Answer {
            status,
            effect,
            hint: None,
        })
    }

    /// A refusal, with a hint when to come back.
    pub(crate) const fn refusal(
        status: StatusCode,
        header: &'static str,
        value: &'static str,
    ) -> Self {
        Self::Answer(Answer {
            status,
            effect: Effect::Nothing,
            hint: Some((header, value)),
        })
    }
}

impl fmt::Display for Cue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refuse => f.write_str("refuses"),
            Self::CloseAtOnce => f.write_str("closes at once"),
            Self::CloseUnread => f.write_str("closes, unread"),
            Self::Reset(effect) => write!(f, "{effect}resets"),
            Self::HalfStatusLine(effect) => write!(f, "{effect}half line"),
            Self::Silence(effect) => write!(f, "{effect}is silent"),
            Self::CutBody => f.write_str("executes, cuts body"),
            Self::Answer(Answer {
                status,
                effect,
                hint,
            }) => {
                if status.is_success() {
                    return write!(f, "executes, {}", status.as_u16());
                }
                write!(f, "{effect}{}", status.as_u16())?;
                match hint {
                    Some((header, value)) if header.ends_with("-ms") => {
                        write!(f, ", wait {value} ms")
                    }
                    Some((_, value)) => write!(f, ", wait {value} s"),
                    None => Ok(()),
                }
            }
            Self::RefuseStream => f.write_str("REFUSED_STREAM"),
            Self::GoAway => f.write_str("GOAWAY"),
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Executed => "executes, ",
            Self::Nothing => "",
        })
    }
}
