//! Request bodies that come in pieces, and an inner service that takes as much of them as it is told.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use tokio::sync::mpsc;
use tower::Service;
use tower_http_retry::{BoxError, EvidenceError, Failure, ReplayBody};

/// A body of these frames, and then an error if there is one. It says nothing of its length.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    frames: VecDeque<Frame<Bytes>>,
    fails: Option<&'static str>,
    len: Option<u64>,
}

impl Chunks {
    pub(crate) fn new<T: Into<Bytes>>(chunks: impl IntoIterator<Item = T>) -> Self {
        let frames = chunks.into_iter().map(|chunk| Frame::data(chunk.into()));
        Self {
            frames: frames.collect(),
            ..Self::default()
        }
    }

    pub(crate) fn trailers(mut self, trailers: HeaderMap) -> Self {
        self.frames.push_back(Frame::trailers(trailers));
        self
    }

    pub(crate) fn fails(mut self, error: &'static str) -> Self {
        self.fails = Some(error);
        self
    }

    pub(crate) fn exact(mut self, len: u64) -> Self {
        self.len = Some(len);
        self
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(match self.frames.pop_front() {
            Some(frame) => Some(Ok(frame)),
            None => self.fails.take().map(|error| Err(error.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.fails.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.len.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

/// A body whose frames come when the test sends them.
pub(crate) struct Live(mpsc::UnboundedReceiver<Bytes>);

pub(crate) fn live() -> (mpsc::UnboundedSender<Bytes>, Live) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, Live(receiver))
}

impl Body for Live {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0
            .poll_recv(cx)
            .map(|data| data.map(Frame::data).map(Ok))
    }
}

/// What the service does with an attempt: reads so many frames, lets go of the body or keeps it, and answers.
pub(crate) struct Take {
    frames: usize,
    keeps: bool,
    answer: Result<u16, BoxError>,
}

impl Take {
    pub(crate) fn all(status: u16) -> Self {
        Self::some(usize::MAX, status)
    }

    pub(crate) fn none(status: u16) -> Self {
        Self::some(0, status)
    }

    pub(crate) fn some(frames: usize, status: u16) -> Self {
        Self {
            frames,
            keeps: false,
            answer: Ok(status),
        }
    }

    pub(crate) fn fails(frames: usize, failure: Failure) -> Self {
        Self {
            frames,
            keeps: false,
            answer: Err(EvidenceError::new(failure, "scripted").into()),
        }
    }

    /// The body stays alive, as that of an upload that goes on behind an early answer.
    pub(crate) fn keeps(mut self) -> Self {
        self.keeps = true;
        self
    }
}

/// What came of one attempt's body.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Got {
    pub(crate) exact: Option<u64>,
    pub(crate) at_end: bool,
    pub(crate) data: Vec<u8>,
    pub(crate) frames: Vec<Bytes>,
    pub(crate) trailers: Option<HeaderMap>,
    /// It was read to its end.
    pub(crate) whole: bool,
}

/// Clones share the script and the record.
#[derive(Clone)]
pub(crate) struct Sink {
    takes: Arc<Mutex<VecDeque<Take>>>,
    got: Arc<Mutex<Vec<Got>>>,
    kept: Arc<Mutex<Vec<ReplayBody>>>,
}

impl Sink {
    pub(crate) fn new(takes: impl IntoIterator<Item = Take>) -> Self {
        Self {
            takes: Arc::new(Mutex::new(takes.into_iter().collect())),
            got: Arc::default(),
            kept: Arc::default(),
        }
    }

    pub(crate) fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    /// Lets go of all that was read.
    pub(crate) fn forget(&self) {
        self.got.lock().unwrap().clear();
    }

    /// The body that was kept first.
    pub(crate) fn kept(&self) -> ReplayBody {
        self.kept.lock().unwrap().remove(0)
    }
}

impl Service<Request<ReplayBody>> for Sink {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReplayBody>) -> Self::Future {
        let take = self
            .takes
            .lock()
            .unwrap()
            .pop_front()
            .expect("the script is over");
        let (all, kept) = (Arc::clone(&self.got), Arc::clone(&self.kept));
        Box::pin(async move {
            let mut body = request.into_body();
            let mut got = Got::default();
            let read = got.read(&mut body, take.frames).await;
            all.lock().unwrap().push(got);
            if take.keeps {
                kept.lock().unwrap().push(body);
            }
            read?;
            let answer = |status| Response::builder().status(status).body(Full::default());
            Ok(answer(take.answer?)?)
        })
    }
}

impl Got {
    async fn read(&mut self, body: &mut ReplayBody, frames: usize) -> Result<(), BoxError> {
        self.exact = body.size_hint().exact();
        if frames > 0 {
            self.at_end = body.is_end_stream();
        }
        for _ in 0..frames {
            let Some(frame) = body.frame().await else {
                self.whole = true;
                break;
            };
            match frame?.into_data() {
                Ok(data) => {
                    self.data.extend_from_slice(&data);
                    self.frames.push(data);
                }
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
        Ok(())
    }
}
