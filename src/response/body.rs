//! The response body that the caller reads.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::counted::{Counted, Fresh};
use super::error::BodyError;
use crate::BoxError;
use crate::evidence::Failure;
use crate::policy::RetryDenied;

pin_project! {
    /// The body of a delivered response: what the layer read before delivery, then the live rest.
    ///
    /// A body that ends short of its `content-length` is an error here, even where the transport
    /// ends it cleanly (hyper does so after an h2 RST_STREAM(NO_ERROR)). Dropping it drops the
    /// transport's body: nothing goes on in the background.
    pub struct ResponseBody<B> {
        // Boxed: most bodies have nothing of it.
        ahead: Option<Box<ReadAhead>>,
        #[pin]
        live: Live<B>,
    }
}

/// What the layer read before delivery.
#[derive(Default)]
struct ReadAhead {
    frames: VecDeque<Frame<Bytes>>,
    /// Bytes of those frames that the caller got.
    delivered: u64,
    /// Comes after the frames, if the body broke before delivery.
    broken: Option<BodyError>,
}

pin_project! {
    #[project = LiveProj]
    enum Live<B> {
        // As the transport gave it: never polled yet, so it may be moved.
        Fresh { #[pin] body: Counted<B> },
        // Read ahead by the layer and moved since: pinned on the heap.
        Begun { body: Counted<Pin<Box<B>>> },
        Ended,
    }
}

impl<B> ResponseBody<B> {
    /// A transport's body that nobody polled yet.
    #[inline]
    pub(crate) fn fresh(body: B, fresh: Fresh) -> Self {
        Self::new(Live::Fresh {
            body: fresh.count(body),
        })
    }

    /// What was read ahead, and how it goes on.
    pub(crate) fn read_ahead(frames: VecDeque<Frame<Bytes>>, rest: Rest<B>) -> Self {
        let (live, broken) = match rest {
            Rest::End => (Live::Ended, None),
            Rest::Live(body) => (Live::Begun { body }, None),
            Rest::Broken(broken) => (Live::Ended, Some(broken)),
        };
        Self {
            ahead: Some(Box::new(ReadAhead {
                frames,
                delivered: 0,
                broken,
            })),
            ..Self::new(live)
        }
    }

    /// A body that is all here.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            return Self::new(Live::Ended);
        }
        Self::read_ahead([Frame::data(bytes)].into(), Rest::End)
    }

    #[inline]
    fn new(live: Live<B>) -> Self {
        Self { ahead: None, live }
    }

    /// Says why a body that broke before delivery was not fetched again.
    pub(crate) fn deny(&mut self, reason: RetryDenied) {
        if let Some(ahead) = &mut self.ahead
            && let Some(broken) = &mut ahead.broken
        {
            broken.denied = reason;
        }
    }

    /// Takes it apart again, to read (more of) it ahead.
    pub(crate) fn into_parts(self) -> (VecDeque<Frame<Bytes>>, Rest<B>) {
        let ReadAhead { frames, broken, .. } = self.ahead.map(|ahead| *ahead).unwrap_or_default();
        let rest = match (self.live, broken) {
            (Live::Fresh { body }, _) => Rest::Live(body.boxed()),
            (Live::Begun { body }, _) => Rest::Live(body),
            (Live::Ended, Some(broken)) => Rest::Broken(broken),
            (Live::Ended, None) => Rest::End,
        };
        (frames, rest)
    }

    /// What broke it before delivery, if something did.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.broken().map(|broken| *broken.failure())
    }

    fn frames(&self) -> impl Iterator<Item = &Frame<Bytes>> {
        self.ahead.iter().flat_map(|ahead| &ahead.frames)
    }

    fn broken(&self) -> Option<&BodyError> {
        self.ahead.as_ref()?.broken.as_ref()
    }
}

impl<B> ResponseBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    /// Itself, if all of it is here; otherwise what broke it, if something did. Either way the
    /// transport's body is dropped.
    pub(crate) fn into_whole(mut self) -> Result<Self, Option<BodyError>> {
        if let Some(broken) = self.ahead.as_mut().and_then(|ahead| ahead.broken.take()) {
            return Err(Some(broken));
        }
        if self.live_ended() {
            Ok(Self {
                ahead: self.ahead,
                ..Self::new(Live::Ended)
            })
        } else {
            Err(None)
        }
    }

    fn live_ended(&self) -> bool {
        match &self.live {
            Live::Fresh { body } => body.is_end_stream(),
            Live::Begun { body } => body.is_end_stream(),
            Live::Ended => true,
        }
    }
}

impl ReadAhead {
    fn next(&mut self) -> Option<Result<Frame<Bytes>, BodyError>> {
        let Some(frame) = self.frames.pop_front() else {
            let broken = self.broken.take()?;
            return Some(Err(broken.after(self.delivered)));
        };
        let len = frame.data_ref().map_or(0, Bytes::len) as u64;
        self.delivered = self.delivered.saturating_add(len);
        Some(Ok(frame))
    }
}

/// How a body goes on after what was read ahead.
pub(crate) enum Rest<B> {
    End,
    Live(Counted<Pin<Box<B>>>),
    Broken(BodyError),
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut this = self.project();
        if let Some(next) = this.ahead.as_mut().and_then(|ahead| ahead.next()) {
            return Poll::Ready(Some(next));
        }
        // What was read ahead is gone by now: the caller got all that was received.
        let next = match this.live.as_mut().project() {
            LiveProj::Fresh { body } => ready!(body.poll_frame(cx)),
            LiveProj::Begun { body } => ready!(Pin::new(body).poll_frame(cx)),
            LiveProj::Ended => None,
        };
        if !matches!(next, Some(Ok(_))) {
            this.live.set(Live::Ended);
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.live_ended() && self.frames().next().is_none() && self.broken().is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let live = match &self.live {
            Live::Fresh { body } => body.size_hint(),
            Live::Begun { body } => body.size_hint(),
            Live::Ended => SizeHint::with_exact(0),
        };
        let ahead = self
            .frames()
            .filter_map(Frame::data_ref)
            .fold(0_u64, |sum, data| sum.saturating_add(data.len() as u64));
        let mut hint = SizeHint::new();
        if let Some(upper) = live.upper().filter(|_| self.broken().is_none()) {
            hint.set_upper(upper.saturating_add(ahead));
        }
        hint.set_lower(live.lower().saturating_add(ahead));
        hint
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody")
            .field("read_ahead", &self.frames().count())
            .finish_non_exhaustive()
    }
}
