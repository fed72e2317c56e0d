//! A transport's response body, counted.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Method, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::error::BodyError;
use crate::BoxError;
use crate::body::Witness;
use crate::evidence::{
    Classify, Evidence, FailedAttempt, Failure, FailureKind, PeerPromises, Phase, judge,
};

pin_project! {
    /// Counts what a transport's body yields, and tells a clean end from a short one.
    pub(crate) struct Counted<B> {
        #[pin]
        body: B,
        received: u64,
        // At least this much, by `content-length`. 0 where that says nothing.
        expected: u64,
        reader: Option<Box<Reader>>,
    }
}

/// What reads a failure of the body, where the defaults do not do.
pub(crate) struct Reader {
    pub(crate) classifiers: Arc<[Arc<dyn Classify>]>,
    /// Of the request body: it may still be on its way up, and fail.
    pub(crate) witness: Witness,
}

/// What counts a body that nobody polled yet, without the body.
pub(crate) struct Fresh {
    expected: u64,
    reader: Option<Box<Reader>>,
}

impl Fresh {
    /// For the body of this response to `method`.
    #[inline]
    pub(crate) fn new(
        method: &Method,
        status: StatusCode,
        headers: &HeaderMap,
        reader: Option<Box<Reader>>,
    ) -> Self {
        Self {
            expected: expected(method, status, headers).unwrap_or(0),
            reader,
        }
    }

    #[inline]
    pub(crate) fn count<B>(self, body: B) -> Counted<B> {
        Counted {
            body,
            received: 0,
            expected: self.expected,
            reader: self.reader,
        }
    }
}

impl<B> Counted<B> {
    /// The same body, movable while it is being read.
    pub(crate) fn boxed(self) -> Counted<Pin<Box<B>>> {
        Counted {
            body: Box::pin(self.body),
            received: self.received,
            expected: self.expected,
            reader: self.reader,
        }
    }

    /// What it amounts to if the layer stops reading now.
    pub(crate) fn cut(&self, kind: FailureKind) -> BodyError {
        BodyError::new(read(&self.reader, self.received, kind, None), None)
    }
}

impl<B> Counted<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    pub(crate) fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.project();
        let (kind, source) = match ready!(this.body.poll_frame(cx)) {
            Some(Ok(frame)) => {
                let frame = frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
                if let Some(data) = frame.data_ref() {
                    *this.received = this.received.saturating_add(data.len() as u64);
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            // hyper ends an h2 body cleanly after RST_STREAM(NO_ERROR), short or not.
            None if this.received < this.expected => (FailureKind::Truncated, None),
            None => return Poll::Ready(None),
            Some(Err(error)) => (FailureKind::Unknown, Some(error.into())),
        };
        let failure = read(this.reader, *this.received, kind, source.as_ref());
        let error = BodyError::new(failure, source).after(*this.received);
        Poll::Ready(Some(Err(error)))
    }

    /// A transport that says "end" too early must be polled, so that the error is seen.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && self.received >= self.expected
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Reads a failure in the body phase: never below what was seen.
fn read(
    reader: &Option<Box<Reader>>,
    received: u64,
    kind: FailureKind,
    source: Option<&BoxError>,
) -> Failure {
    let seen = if received > 0 {
        Evidence::PartialResponse
    } else {
        Evidence::ResponseReceived
    };
    let (trace, classifiers) = match reader {
        Some(reader) => (reader.witness.trace(), &*reader.classifiers),
        None => (Default::default(), [].as_slice()),
    };
    let error = source.map(|error| &**error as &(dyn std::error::Error + 'static));
    let failed = FailedAttempt::new(Phase::Body, error, trace);
    judge(&failed, kind, PeerPromises::Distrust, classifiers)
        .failure
        .at_least(seen)
}

/// The length that `content-length` promises for this body. HEAD, 1xx, 204, 304 and a successful
/// CONNECT have none, whatever the header says (RFC 9110 §6.4.1, §8.6), nor has one beside a
/// transfer coding, which overrides it (RFC 9112 §6.3). The same length said several times, in
/// lines or in a list, is that length (§8.6).
#[inline]
fn expected(method: &Method, status: StatusCode, headers: &HeaderMap) -> Option<u64> {
    if headers.is_empty() || is_bodiless(method, status) {
        return None;
    }
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    let first = content_length(lines.next()?.as_bytes())?;
    if headers.contains_key(TRANSFER_ENCODING) {
        return None;
    }
    lines
        .all(|line| content_length(line.as_bytes()) == Some(first))
        .then_some(first)
}

/// The length that one line says, if it is one (RFC 9110 §8.6: `1*DIGIT`, no sign), or the same one
/// several times, in a list.
#[inline]
pub(crate) fn content_length(line: &[u8]) -> Option<u64> {
    digits(line).or_else(|| {
        let mut lengths = line
            .split(|byte| *byte == b',')
            .map(|length| digits(length.trim_ascii()));
        let first = lengths.next()??;
        lengths.all(|other| other == Some(first)).then_some(first)
    })
}

#[inline]
fn digits(text: &[u8]) -> Option<u64> {
    let number = text.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    });
    number.filter(|_| !text.is_empty())
}

pub(crate) fn is_bodiless(method: &Method, status: StatusCode) -> bool {
    *method == Method::HEAD
        || status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED
        || (*method == Method::CONNECT && status.is_success())
}
