//! Request bodies, one of every kind.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderValue;
use http_body::{Body, Frame};
use tower_http_retry::{BoxError, ReplayBody, Replayability};
#[cfg(feature = "multipart")]
use tower_http_retry::{Multipart, Part};

/// How a request body is made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Payload {
    /// None.
    Empty,
    /// Bytes in memory.
    Bytes,
    /// A value with an encoder.
    Encoded,
    /// A stream that nobody can make again.
    OneShot,
    /// A stream, kept as it is sent.
    Buffered,
    /// A stream that can be made again, and fails in the middle each time.
    Failing,
    /// A file.
    #[cfg(feature = "fs")]
    File,
    /// A form.
    #[cfg(feature = "multipart")]
    Multipart,
}

/// A body, and the bytes that it must put on the wire.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) body: ReplayBody,
    pub(crate) bytes: Bytes,
    pub(crate) content_type: Option<HeaderValue>,
}

impl Payload {
    pub(crate) async fn make(self, order: u32) -> Result<Made, BoxError> {
        let text = format!("order {order}: one espresso, one croissant, and no second ones\n");
        let bytes = Bytes::from(text);
        let body = match self {
            Self::Empty => {
                return Ok(Made {
                    body: ReplayBody::empty(),
                    bytes: Bytes::new(),
                    content_type: None,
                });
            }
            Self::Bytes => ReplayBody::bytes(bytes.clone()),
            Self::Encoded => {
                ReplayBody::encoded(bytes.clone(), |bytes| Ok::<_, Infallible>(bytes.clone()))
            }
            Self::OneShot => ReplayBody::one_shot(Chunks::of(&bytes)),
            Self::Buffered => {
                ReplayBody::buffered(Chunks::of(&bytes), ReplayBody::DEFAULT_BUFFER_LIMIT)
            }
            Self::Failing => {
                let bytes = bytes.clone();
                ReplayBody::factory(Replayability::Replayable, move || Chunks::failing(&bytes))
            }
            #[cfg(feature = "fs")]
            Self::File => {
                let path = concat!(env!("CARGO_MANIFEST_DIR"), "/LICENSE");
                return Ok(Made {
                    body: ReplayBody::file(path).into(),
                    bytes: tokio::fs::read(path).await?.into(),
                    content_type: None,
                });
            }
            #[cfg(feature = "multipart")]
            Self::Multipart => {
                let form = Multipart::new().part("order", Part::new(bytes.clone()));
                let content_type = form.content_type();
                let (_, boundary) = content_type.to_str()?.split_once('=').unwrap_or_default();
                let head = format!(
                    "--{boundary}\r\n\
                     Content-Disposition: form-data; name=\"order\"\r\n\r\n"
                );
                let end = format!("\r\n--{boundary}--\r\n");
                let bytes = [head.as_bytes(), &bytes, end.as_bytes()].concat().into();
                return Ok(Made {
                    body: form.into(),
                    bytes,
                    content_type: Some(content_type),
                });
            }
        };
        Ok(Made {
            body,
            bytes,
            content_type: None,
        })
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "",
            Self::Bytes => "bytes",
            Self::Encoded => "encoded",
            Self::OneShot => "one_shot",
            Self::Buffered => "buffered",
            Self::Failing => "failing",
            #[cfg(feature = "fs")]
            Self::File => "file",
            #[cfg(feature = "multipart")]
            Self::Multipart => "multipart",
        })
    }
}

/// A stream of unknown length.
struct Chunks(VecDeque<io::Result<Bytes>>);

impl Chunks {
    fn of(bytes: &Bytes) -> Self {
        let middle = bytes.len() / 2;
        Self([Ok(bytes.slice(..middle)), Ok(bytes.slice(middle..))].into())
    }

    fn failing(bytes: &Bytes) -> Self {
        let middle = bytes.len() / 2;
        let fault = io::Error::other("the printer is on fire");
        Self([Ok(bytes.slice(..middle)), Err(fault)].into())
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(self.0.pop_front().map(|chunk| chunk.map(Frame::data)))
    }
}
