//! Errors of hyper and of hyper-util's legacy client.
//!
//! ```text
//! legacy::Error [is_connect]                          no connection: nothing was handed over
//! legacy::Error -> hyper::Error [is_canceled]         handed back unserialised
//! legacy::Error [no source, or no connection]         before dispatch, if the witness agrees
//! legacy::Error -> hyper::Error -> h2::Error          what the peer said
//! ```
//!
//! Nothing deeper than that counts, and no `hyper::Error` that is the user's: behind it may stand
//! the error of a request body that is an HTTP stream of its own.

use std::error::Error as _;

use hyper_util::client::legacy;

use super::causes::causes;
use super::h2;
use super::proof::Proof;
use super::{FailureKind, StdErr};
use crate::body::BodyTrace;

pub(super) fn proof(error: &StdErr, _: BodyTrace) -> Option<Proof> {
    if let Some(error) = error.downcast_ref() {
        return Some(legacy_proof(error));
    }
    error.downcast_ref().map(plain_proof)
}

pub(super) fn legacy_proof(error: &legacy::Error) -> Proof {
    if error.is_connect() {
        return Proof::BeforeDispatch;
    }
    let Some(source) = error.source() else {
        // A version, method or URI that the client does not take.
        return Proof::IfUntouched;
    };
    let hyper = source.downcast_ref::<hyper::Error>();
    match hyper {
        Some(hyper) if hyper.is_canceled() => Proof::BeforeDispatch,
        // Every error of a request that was given a connection carries that connection's info;
        // seen in the source, not documented.
        _ if error.connect_info().is_none() => Proof::IfUntouched,
        Some(hyper) if !hyper.is_user() => promise(hyper),
        Some(_) | None => Proof::None,
    }
}

/// Of a connection that is used without the client. Its own pre-dispatch proof,
/// `TrySendError::message`, is no error type.
fn plain_proof(error: &hyper::Error) -> Proof {
    // A middleware that collects response bodies fails with the same types, after the head came
    // (evidence D1x); only the wording differs. Should it change, nothing is claimed.
    if error.is_user() || error.to_string() != "http2 error" {
        return Proof::None;
    }
    promise(error)
}

fn promise(error: &hyper::Error) -> Proof {
    error
        .source()
        .and_then(|source| source.downcast_ref())
        .map_or(Proof::None, h2::promise)
}

pub(super) fn kind(error: &StdErr) -> Option<FailureKind> {
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        return plain_kind(error);
    }
    let error = error.downcast_ref::<legacy::Error>()?;
    // The kind is private; its name shows in the text.
    let text = error.to_string();
    if text.contains("UserUnsupportedVersion") {
        Some(FailureKind::Protocol)
    } else if text.contains("User") {
        Some(FailureKind::InvalidRequest)
    } else {
        None
    }
}

fn plain_kind(error: &hyper::Error) -> Option<FailureKind> {
    if error.is_parse() {
        Some(FailureKind::Protocol)
    } else if error.is_body_write_aborted() {
        Some(FailureKind::RequestBody)
    } else if error.is_user() {
        // hyper calls a connection task that vanished the user's fault, too (evidence R3, D7).
        match error.to_string().as_str() {
            "dispatch task is gone" => Some(FailureKind::Closed),
            "error from user's Body stream" => Some(FailureKind::RequestBody),
            _ => None,
        }
    } else if error.is_incomplete_message()
        || error.is_canceled()
        || error.is_closed()
        || error.is_timeout()
    {
        Some(FailureKind::Closed)
    } else {
        None
    }
}

/// Whether it is the client's word that there is no connection.
pub(super) fn is_connect(error: &StdErr) -> bool {
    error
        .downcast_ref::<legacy::Error>()
        .is_some_and(legacy::Error::is_connect)
}

/// Why there is no connection. `known` is what a look at the causes came to.
pub(super) fn connect_kind(error: &StdErr, known: Option<FailureKind>) -> FailureKind {
    let says = |start: &str| causes(error).any(|cause| cause.to_string().starts_with(start));
    // hyper-util tells these only in words.
    if says("dns error") {
        return FailureKind::Dns;
    }
    if says("invalid URL") {
        return FailureKind::InvalidRequest;
    }
    // It will say so again, until the caller gives it other credentials (evidence A10).
    if says("tunnel error: proxy authorization required") {
        return FailureKind::Rejected;
    }
    match known {
        Some(FailureKind::ResponseTimeout) => FailureKind::ConnectTimeout,
        Some(FailureKind::Closed | FailureKind::Reset) if is_handshake(error) => FailureKind::Tls,
        Some(known) if known.is_permanent() => known,
        Some(_) | None => FailureKind::Connect,
    }
}

/// TLS connectors report as an I/O error that wraps another one what a TCP connector reports
/// directly.
fn is_handshake(error: &StdErr) -> bool {
    error
        .source()
        .and_then(|source| source.downcast_ref::<std::io::Error>())
        .and_then(std::io::Error::get_ref)
        .is_some_and(|inner| inner.is::<std::io::Error>())
}

#[cfg(test)]
mod tests {
    use std::io;

    use http::{Request, Response};
    use http_body_util::combinators::UnsyncBoxBody;
    use http_body_util::{BodyExt, Empty, StreamBody};
    use hyper::body::{Bytes, Frame, Incoming};
    use hyper::client::conn::http1::{self, SendRequest};
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, DuplexStream};

    use super::*;
    use crate::BoxError;

    type Body = UnsyncBoxBody<Bytes, BoxError>;
    type Connection = http1::Connection<TokioIo<DuplexStream>, Body>;
    type Answer = hyper::Result<Response<Incoming>>;

    #[derive(Debug, thiserror::Error)]
    #[error("connecting")]
    struct Connecting(#[source] io::Error);

    #[test]
    fn a_cut_while_connecting_is_a_cut_handshake_only_where_a_tls_connector_wraps_it() {
        let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
        for cut in [FailureKind::Reset, FailureKind::Closed] {
            for (cause, kind) in [
                (reset(), FailureKind::Connect),
                (io::Error::other("reset"), FailureKind::Connect),
                (io::Error::other(reset()), FailureKind::Tls),
            ] {
                assert_eq!(connect_kind(&Connecting(cause), Some(cut)), kind);
            }
        }
    }

    #[test]
    fn what_is_permanent_is_so_while_connecting_too() {
        let connecting = Connecting(io::Error::other("proxy"));
        let kind = connect_kind(&connecting, Some(FailureKind::Protocol));
        assert_eq!(kind, FailureKind::Protocol);
    }

    /// In memory; each is ended in one way.
    async fn connected() -> (SendRequest<Body>, Connection, DuplexStream) {
        let (near, far) = tokio::io::duplex(1024);
        let (sender, connection) = http1::handshake(TokioIo::new(near)).await.unwrap();
        (sender, connection, far)
    }

    fn request(body: Body) -> Request<Body> {
        Request::post("/").body(body).unwrap()
    }

    fn empty() -> Body {
        Empty::new().map_err(|never| match never {}).boxed_unsync()
    }

    fn kind_of(answer: Answer) -> Option<FailureKind> {
        plain_kind(&answer.unwrap_err())
    }

    #[tokio::test]
    async fn a_body_that_fails_and_a_task_that_vanishes_are_both_the_users_fault_and_told_apart() {
        let (mut sender, connection, _far) = connected().await;
        let failing = tokio_stream::once(Err::<Frame<Bytes>, BoxError>("failed".into()));
        let answer = sender.send_request(request(StreamBody::new(failing).boxed_unsync()));
        let (answer, _) = tokio::join!(answer, connection);
        assert_eq!(kind_of(answer), Some(FailureKind::RequestBody));

        let (mut sender, connection, mut far) = connected().await;
        let running = tokio::spawn(connection);
        let answer = sender.send_request(request(empty()));
        let vanish = async {
            far.read_u8().await.unwrap();
            running.abort();
        };
        let (answer, ()) = tokio::join!(answer, vanish);
        assert_eq!(kind_of(answer), Some(FailureKind::Closed));
    }

    #[tokio::test]
    async fn a_connection_that_ends_is_closed_before_during_or_after_the_request() {
        let (mut sender, connection, _far) = connected().await;
        drop(connection);
        let unready = sender.ready().await.unwrap_err();
        assert!(unready.is_closed());
        assert_eq!(plain_kind(&unready), Some(FailureKind::Closed));
        let unsent = sender.send_request(request(empty())).await;
        assert!(unsent.as_ref().unwrap_err().is_canceled());
        assert_eq!(kind_of(unsent), Some(FailureKind::Closed));

        let (mut sender, connection, mut far) = connected().await;
        let answer = sender.send_request(request(empty()));
        let hang_up = async {
            far.read_u8().await.unwrap();
            drop(far);
        };
        let (answer, _, ()) = tokio::join!(answer, connection, hang_up);
        assert!(answer.as_ref().unwrap_err().is_incomplete_message());
        assert_eq!(kind_of(answer), Some(FailureKind::Closed));
    }
}
