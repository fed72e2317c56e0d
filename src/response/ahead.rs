//! Reading a response body before it is delivered, or before it is thrown away.

use std::collections::VecDeque;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::response;
use http_body::{Body, Frame};

use super::body::{ResponseBody, Rest};
use crate::BoxError;
use crate::evidence::{Failure, FailureKind};

/// So many frames are read at a stretch: a body that is always ready must not outrun the limits,
/// which are asked when it is pending.
const STRETCH: usize = 32;
/// What a frame weighs beside its bytes, and what all of them may weigh before they are joined.
const FRAME_WEIGHT: usize = 64;
const FREE_WEIGHT: usize = 16 * 1024;

/// A response whose body is being read.
pub(crate) struct Ahead<B> {
    head: response::Parts,
    frames: VecDeque<Frame<Bytes>>,
    read: usize,
    rest: Rest<B>,
}

/// Where reading stops by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    /// The first frame, or the end.
    FirstFrame,
    /// The end, or more than this many bytes.
    Bytes(usize),
}

impl<B> Ahead<B> {
    pub(crate) fn new(head: response::Parts, body: ResponseBody<B>) -> Self {
        let (frames, rest) = body.into_parts();
        let read = frames
            .iter()
            .filter_map(Frame::data_ref)
            .map(Bytes::len)
            .sum();
        Self {
            head,
            frames,
            read,
            rest,
        }
    }

    /// Reads on. Ready: `until` is reached, or the body ended or broke. Pending also after a
    /// stretch of frames; then it is to be polled again at once.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, until: Until) -> Poll<()>
    where
        B: Body,
        B::Error: Into<BoxError>,
    {
        let mut stretch = 0;
        while let Rest::Live(body) = &mut self.rest {
            let enough = match until {
                Until::FirstFrame => !self.frames.is_empty(),
                Until::Bytes(limit) => self.read > limit,
            };
            if enough {
                return Poll::Ready(());
            }
            if stretch == STRETCH {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            stretch += 1;
            match ready!(Pin::new(body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    self.keep(frame);
                    // Not to hold a connection that has nothing left to say.
                    if let Rest::Live(body) = &self.rest
                        && body.is_end_stream()
                    {
                        self.rest = Rest::End;
                    }
                }
                Some(Err(broken)) => self.rest = Rest::Broken(broken),
                None => self.rest = Rest::End,
            }
        }
        Poll::Ready(())
    }

    /// Keeps a frame, if there is anything in it: an empty one is no first byte either.
    fn keep(&mut self, frame: Frame<Bytes>) {
        let len = frame.data_ref().map_or(0, Bytes::len);
        if len == 0 && frame.is_data() {
            return;
        }
        self.read = self.read.saturating_add(len);
        self.frames.push_back(frame);
        // Many small frames weigh many times their bytes, which are what is limited.
        if self.frames.len().saturating_mul(FRAME_WEIGHT) > FREE_WEIGHT.saturating_add(self.read) {
            self.join();
        }
    }

    /// Stops reading: what did not come by now never will.
    pub(crate) fn cut(&mut self, kind: FailureKind) {
        if let Rest::Live(body) = &self.rest {
            let broken = body.cut(kind);
            self.rest = Rest::Broken(broken);
        }
    }

    /// Whether all of it is here.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.rest, Rest::End)
    }

    /// What broke it, if something did.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match &self.rest {
            Rest::Broken(broken) => Some(*broken.failure()),
            Rest::End | Rest::Live(_) => None,
        }
    }

    /// The whole body in one piece, if all of it is here and it is not longer than `limit`: joined
    /// once, then shared.
    pub(crate) fn whole(&mut self, limit: usize) -> Option<Bytes> {
        (self.is_whole() && self.read <= limit).then(|| self.join())
    }

    /// All data that was read, in one piece.
    fn join(&mut self) -> Bytes {
        let mut data = self.frames.iter().filter_map(Frame::data_ref);
        let first = data.next().cloned().unwrap_or_default();
        if data.next().is_none() {
            return first;
        }
        let mut all = BytesMut::with_capacity(self.read);
        let mut others = VecDeque::new();
        for frame in mem::take(&mut self.frames) {
            match frame.into_data() {
                Ok(data) => all.extend_from_slice(&data),
                Err(trailers) => others.push_back(trailers),
            }
        }
        let all = all.freeze();
        others.push_front(Frame::data(all.clone()));
        self.frames = others;
        all
    }

    /// The response: what was read, then the rest.
    pub(crate) fn into_response(self) -> (response::Parts, ResponseBody<B>) {
        (self.head, ResponseBody::read_ahead(self.frames, self.rest))
    }
}
