//! What a request body can be made from.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::{Empty, Full};

use super::ReplayBody;

impl From<Bytes> for ReplayBody {
    fn from(bytes: Bytes) -> Self {
        Self::bytes(bytes)
    }
}

impl From<BytesMut> for ReplayBody {
    fn from(bytes: BytesMut) -> Self {
        Self::bytes(bytes)
    }
}

impl From<Vec<u8>> for ReplayBody {
    fn from(bytes: Vec<u8>) -> Self {
        Self::bytes(bytes)
    }
}

impl From<Box<[u8]>> for ReplayBody {
    fn from(bytes: Box<[u8]>) -> Self {
        Self::bytes(bytes)
    }
}

impl From<String> for ReplayBody {
    fn from(text: String) -> Self {
        Self::bytes(text)
    }
}

impl From<&'static str> for ReplayBody {
    fn from(text: &'static str) -> Self {
        Self::bytes(text)
    }
}

impl From<&'static [u8]> for ReplayBody {
    fn from(bytes: &'static [u8]) -> Self {
        Self::bytes(bytes)
    }
}

impl From<()> for ReplayBody {
    fn from((): ()) -> Self {
        Self::empty()
    }
}

impl From<Empty<Bytes>> for ReplayBody {
    fn from(_: Empty<Bytes>) -> Self {
        Self::empty()
    }
}

impl From<Full<Bytes>> for ReplayBody {
    fn from(mut full: Full<Bytes>) -> Self {
        // It is one frame or none, and gives it at once.
        let frame = Pin::new(&mut full).poll_frame(&mut Context::from_waker(Waker::noop()));
        match frame {
            Poll::Ready(Some(Ok(frame))) => Self::bytes(frame.into_data().unwrap_or_default()),
            Poll::Ready(None) | Poll::Pending => Self::empty(),
        }
    }
}

/// One stream, which can be sent once; [`ReplayBody::buffered`] keeps some of it.
#[cfg(feature = "hyper")]
impl From<hyper::body::Incoming> for ReplayBody {
    fn from(body: hyper::body::Incoming) -> Self {
        Self::one_shot(body)
    }
}

/// Bytes stay bytes; a stream can be sent once.
#[cfg(feature = "reqwest")]
impl From<reqwest::Body> for ReplayBody {
    fn from(body: reqwest::Body) -> Self {
        match body.as_bytes() {
            // reqwest shares its bytes only as a slice.
            Some(bytes) => Self::bytes(Bytes::copy_from_slice(bytes)),
            None => Self::one_shot(body),
        }
    }
}
