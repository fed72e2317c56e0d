//! What an error's type can prove.

/// What the outermost error says, by its type and at fixed positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "reqwest"),
    allow(dead_code, reason = "each transport says its own")
)]
pub(super) enum Proof {
    /// It arises only before a request is handed to a connection. The witness can veto.
    BeforeDispatch,
    /// The same, but by a rule that is undocumented or that holds only if nothing below repeats
    /// requests: it counts only if the body was dropped without a question.
    IfUntouched,
    /// The peer said that it did not process the stream: REFUSED_STREAM.
    PeerRefused,
    /// The peer said that it goes away before this stream: GOAWAY. A proof only if the body was
    /// polled, since hyper hands the same error to streams that the peer did process.
    PeerGone,
    /// There was a response.
    Answered,
    /// Nothing.
    None,
}
