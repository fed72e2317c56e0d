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

    /// Reads on. Ready: `until` is reached, or the body ended or broke.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, until: Until) -> Poll<()>
    where
        B: Body,
        B::Error: Into<BoxError>,
    {
        while let Rest::Live(body) = &mut self.rest {
            let enough = match until {
                Until::FirstFrame => !self.frames.is_empty(),
                Until::Bytes(limit) => self.read > limit,
            };
            if enough {
                return Poll::Ready(());
            }
            match ready!(Pin::new(body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    self.read = self
                        .read
                        .saturating_add(frame.data_ref().map_or(0, Bytes::len));
                    self.frames.push_back(frame);
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
            Rest::Broken(broken) => Some(broken.failure),
            Rest::End | Rest::Live(_) => None,
        }
    }

    /// The whole body in one piece, if all of it is here: joined once, then shared.
    pub(crate) fn join(&mut self) -> Option<Bytes> {
        if !self.is_whole() {
            return None;
        }
        let mut data = self.frames.iter().filter_map(Frame::data_ref);
        let first = data.next().cloned().unwrap_or_default();
        if data.next().is_none() {
            return Some(first);
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
        Some(all)
    }

    /// The response: what was read, then the rest.
    pub(crate) fn into_response(self) -> (response::Parts, ResponseBody<B>) {
        (self.head, ResponseBody::read_ahead(self.frames, self.rest))
    }
}
