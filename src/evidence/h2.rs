//! HTTP/2 errors.

use h2::{Error, Reason};

use super::proof::Proof;
use super::{FailureKind, StdErr, io};

/// What the peer said about the stream. The caller vouches for the error's position: an error like
/// it may come from the request body.
///
/// REFUSED_STREAM: nothing of the stream was processed (RFC 9113 §8.7). It has to be remote: a
/// body that fails with such an error echoes it as one of our own (evidence D8r).
///
/// GOAWAY: nothing above its last stream id was processed (§6.8), whatever the reason; but the
/// error does not tell the ids.
pub(super) fn promise(error: &Error) -> Proof {
    if !error.is_remote() {
        Proof::None
    } else if error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM) {
        Proof::PeerRefused
    } else if error.is_go_away() {
        Proof::PeerGone
    } else {
        Proof::None
    }
}

pub(super) fn kind(error: &StdErr) -> Option<FailureKind> {
    let error = error.downcast_ref::<Error>()?;
    if let Some(cause) = error.get_io() {
        return Some(io::of(cause).unwrap_or(FailureKind::Closed));
    }
    // The peer breaks the rules, or wants another protocol: it will again.
    if error.is_library() || error.reason() == Some(Reason::HTTP_1_1_REQUIRED) {
        Some(FailureKind::Protocol)
    } else if error.is_go_away() {
        Some(FailureKind::GoAway)
    } else if error.is_reset() {
        Some(match error.reason() {
            Some(Reason::REFUSED_STREAM) => FailureKind::StreamRefused,
            Some(_) | None => FailureKind::Reset,
        })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_alone_is_no_promise() {
        for reason in [Reason::REFUSED_STREAM, Reason::NO_ERROR] {
            assert_eq!(promise(&Error::from(reason)), Proof::None);
        }
    }
}
