//! What an error says: all transports, one after the other.

use super::causes::causes;
use super::proof::Proof;
use super::{FailureKind, Phase, StdErr};
use crate::body::BodyTrace;

/// Each knows the outermost errors of one transport; those of others are `None`.
const PROOFS: &[fn(&StdErr, BodyTrace) -> Option<Proof>] = &[
    #[cfg(feature = "reqwest")]
    super::reqwest::proof,
    #[cfg(feature = "hyper")]
    super::hyper::proof,
    super::tower::proof,
];

/// Each names the errors of one transport, wherever they are met.
const KINDS: &[fn(&StdErr) -> Option<FailureKind>] = &[
    #[cfg(feature = "reqwest")]
    super::reqwest::kind,
    #[cfg(feature = "hyper")]
    super::hyper::kind,
    #[cfg(feature = "hyper")]
    super::h2::kind,
    super::tower::kind,
    super::io::kind,
];

/// What `error` proves. Of a type that is not known, or known in another major version: nothing.
pub(super) fn proof(error: &StdErr, body: BodyTrace) -> Proof {
    PROOFS
        .iter()
        .find_map(|read| read(error, body))
        .unwrap_or(Proof::None)
}

/// What kind of failure it was. The innermost error that is known knows best.
pub(super) fn kind(error: &StdErr, phase: Phase) -> Option<FailureKind> {
    #[cfg(feature = "rustls")]
    if let Some(kind) = causes(error).find_map(super::rustls::kind) {
        return Some(kind);
    }
    let known = causes(error)
        .filter_map(|cause| KINDS.iter().find_map(|kind| kind(cause)))
        .last();
    #[cfg(feature = "hyper")]
    if phase == Phase::Call
        && let Some(connecting) = causes(error).find(|cause| super::hyper::is_connect(*cause))
    {
        return Some(super::hyper::connect_kind(connecting, known));
    }
    match (phase, known) {
        (Phase::Body, Some(FailureKind::Closed)) => Some(FailureKind::Truncated),
        (Phase::Body, None) if causes(error).any(super::io::is_malformed) => {
            Some(FailureKind::Protocol)
        }
        (Phase::Ready | Phase::Call | Phase::Body, known) => known,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    #[test]
    fn bytes_that_are_wrong_or_missing_are_named_where_a_body_is_read() {
        for (error, in_call, in_body) in [
            (ErrorKind::InvalidData, None, Some(FailureKind::Protocol)),
            (ErrorKind::InvalidInput, None, Some(FailureKind::Protocol)),
            (
                ErrorKind::UnexpectedEof,
                Some(FailureKind::Closed),
                Some(FailureKind::Truncated),
            ),
            (ErrorKind::Other, None, None),
        ] {
            let error = Error::from(error);
            assert_eq!(kind(&error, Phase::Call), in_call, "{error}");
            assert_eq!(kind(&error, Phase::Body), in_body, "{error}");
        }
    }
}
