//! Bodies that do as they are told, for tests.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};

use super::{Opened, ReplayBody};

/// What a scripted body does when it is polled.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Data(Bytes),
    Trailers(HeaderMap),
    /// Pending once; the test polls again by itself.
    Wait,
    /// Pending for ever.
    Hang,
    Fail(&'static str),
    Panic,
}

#[derive(Debug)]
pub(super) struct Script {
    steps: VecDeque<Step>,
    hint: SizeHint,
    /// Whether it says that it is at its end before it is asked for a frame.
    tells_end: bool,
    over: bool,
}

impl Script {
    pub(super) fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        let steps = steps.into_iter().collect();
        Self {
            steps,
            hint: SizeHint::new(),
            tells_end: true,
            over: false,
        }
    }

    pub(super) fn data(chunks: &[&'static str]) -> Self {
        Self::new(chunks.iter().map(|chunk| data(chunk)))
    }

    pub(super) fn exact(self, len: u64) -> Self {
        self.hint(SizeHint::with_exact(len))
    }

    /// What it says of its size at its start; it knows nothing of it later.
    pub(super) fn hint(mut self, hint: SizeHint) -> Self {
        self.hint = hint;
        self
    }

    pub(super) fn silent(mut self) -> Self {
        self.tells_end = false;
        self
    }
}

pub(super) fn data(text: &'static str) -> Step {
    Step::Data(Bytes::from_static(text.as_bytes()))
}

pub(super) fn trailers() -> HeaderMap {
    HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("sum"))])
}

impl Body for Script {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        assert!(!self.over, "polled after its end");
        match self.steps.pop_front() {
            None => {
                self.over = true;
                Poll::Ready(None)
            }
            Some(Step::Data(data)) => Poll::Ready(Some(Ok(Frame::data(data)))),
            Some(Step::Trailers(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Some(Step::Wait) => Poll::Pending,
            Some(Step::Hang) => {
                self.steps.push_front(Step::Hang);
                Poll::Pending
            }
            Some(Step::Fail(error)) => {
                self.over = true;
                Poll::Ready(Some(Err(error)))
            }
            Some(Step::Panic) => panic!("scripted"),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.tells_end && self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        less(&self.hint)
    }
}

fn less(hint: &SizeHint) -> SizeHint {
    super::metered::less(hint, 0)
}

/// Counts its calls.
#[derive(Debug, Default)]
pub(super) struct Alarm(AtomicUsize);

impl Alarm {
    pub(super) fn new() -> (Arc<Self>, Waker) {
        let alarm = Arc::new(Self::default());
        (Arc::clone(&alarm), Waker::from(alarm))
    }

    pub(super) fn rings(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

pub(super) fn poll(body: &mut ReplayBody) -> super::PolledFrame {
    Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
}

/// One frame of data, as text.
pub(super) fn text(body: &mut ReplayBody) -> String {
    match poll(body) {
        Poll::Ready(Some(Ok(frame))) => {
            String::from_utf8(frame.into_data().expect("data").to_vec()).expect("text")
        }
        other @ (Poll::Pending | Poll::Ready(_)) => panic!("no data: {other:?}"),
    }
}

pub(super) fn error(body: &mut ReplayBody) -> String {
    match poll(body) {
        Poll::Ready(Some(Err(error))) => error.to_string(),
        other @ (Poll::Pending | Poll::Ready(_)) => panic!("no error: {other:?}"),
    }
}

/// All data and trailers, or the error. A body that waits is polled again.
pub(super) fn drain(body: &mut ReplayBody) -> Result<(Vec<u8>, Option<HeaderMap>), String> {
    let (mut data, mut trailers) = (Vec::new(), None);
    loop {
        match poll(body) {
            Poll::Pending => {}
            Poll::Ready(None) => return Ok((data, trailers)),
            Poll::Ready(Some(Err(error))) => return Err(error.to_string()),
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(chunk) => data.extend_from_slice(&chunk),
                Err(frame) => trailers = frame.into_trailers().ok(),
            },
        }
    }
}

pub(super) fn body(opened: Opened) -> ReplayBody {
    match opened {
        Opened::Body(body) => body,
        Opened::Opening(_) => panic!("it has to be opened first"),
        Opened::Failed(error) => panic!("{error:?}"),
    }
}

/// What an attempt sends, once it is opened.
pub(super) async fn open(opened: Opened) -> Result<ReplayBody, super::OpenError> {
    match opened {
        Opened::Body(body) => Ok(body),
        Opened::Opening(opening) => opening.await,
        Opened::Failed(error) => Err(error),
    }
}

/// The next attempt's body, opened.
pub(super) async fn next(source: &mut super::Source) -> Result<ReplayBody, super::OpenError> {
    open(source.attempt(super::Witness::new(), None)).await
}

/// All data of a body that waits for real.
pub(super) async fn collect(body: ReplayBody) -> Result<Bytes, String> {
    use http_body_util::BodyExt;
    body.collect()
        .await
        .map(|all| all.to_bytes())
        .map_err(|error| {
            error
                .source()
                .map_or_else(|| error.to_string(), |cause| cause.to_string())
        })
}
