//! I/O errors name a failure. They prove nothing: the same reset may hit a request that was
//! executed and one that never left (evidence C2).

use std::io::{Error, ErrorKind};

use super::{FailureKind, StdErr};

pub(super) fn kind(error: &StdErr) -> Option<FailureKind> {
    of(error.downcast_ref()?)
}

pub(super) fn of(error: &Error) -> Option<FailureKind> {
    const UNREACHABLE: [ErrorKind; 6] = [
        ErrorKind::ConnectionRefused,
        ErrorKind::HostUnreachable,
        ErrorKind::NetworkUnreachable,
        ErrorKind::NetworkDown,
        ErrorKind::AddrNotAvailable,
        ErrorKind::NotConnected,
    ];
    let kind = error.kind();
    if kind == ErrorKind::TimedOut {
        Some(FailureKind::ResponseTimeout)
    } else if UNREACHABLE.contains(&kind) {
        Some(FailureKind::Connect)
    } else if matches!(
        kind,
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    ) {
        Some(FailureKind::Reset)
    } else if matches!(kind, ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof) {
        Some(FailureKind::Closed)
    } else {
        None
    }
}

/// Whether it tells of bytes that are not what they should be: a bad chunk (evidence B9m).
pub(super) fn is_malformed(error: &StdErr) -> bool {
    error
        .downcast_ref::<Error>()
        .is_some_and(|io| matches!(io.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData))
}
