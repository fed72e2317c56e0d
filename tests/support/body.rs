//! A response body that follows a script, and counts how many of its kind are alive.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;
use tower_http_retry::BoxError;

pub(crate) enum Step {
    Data(&'static [u8]),
    Trailers(&'static str),
    /// Nothing for this long.
    Pause(Duration),
    /// Nothing, ever.
    Hang,
    Fail(&'static str),
}

pub(crate) struct TestBody {
    steps: VecDeque<Step>,
    pause: Option<Pin<Box<Sleep>>>,
    alive: Arc<AtomicUsize>,
}

impl TestBody {
    pub(crate) fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        let alive = Arc::new(AtomicUsize::new(1));
        Self {
            steps: steps.into_iter().collect(),
            pause: None,
            alive,
        }
    }

    /// 1 as long as this body is alive.
    pub(crate) fn alive(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.alive)
    }
}

impl From<&'static [u8]> for TestBody {
    fn from(bytes: &'static [u8]) -> Self {
        Self::new((!bytes.is_empty()).then_some(Step::Data(bytes)))
    }
}

impl Drop for TestBody {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Body for TestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if let Some(pause) = &mut self.pause {
                if pause.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.pause = None;
            }
            return Poll::Ready(match self.steps.pop_front() {
                None => None,
                Some(Step::Data(bytes)) => Some(Ok(Frame::data(Bytes::from_static(bytes)))),
                Some(Step::Trailers(name)) => {
                    let mut trailers = HeaderMap::new();
                    trailers.insert(name, "1".parse().unwrap());
                    Some(Ok(Frame::trailers(trailers)))
                }
                Some(Step::Fail(text)) => Some(Err(text.into())),
                Some(Step::Pause(time)) => {
                    self.pause = Some(Box::pin(tokio::time::sleep(time)));
                    continue;
                }
                Some(Step::Hang) => {
                    self.steps.push_front(Step::Hang);
                    return Poll::Pending;
                }
            });
        }
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty() && self.pause.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let known = |step: &Step| match step {
            Step::Data(bytes) => bytes.len() as u64,
            _ => 0,
        };
        let ends = self
            .steps
            .iter()
            .all(|step| !matches!(step, Step::Hang | Step::Fail(_)));
        let sum = self.steps.iter().map(known).sum();
        let mut hint = SizeHint::new();
        hint.set_lower(sum);
        if ends {
            hint.set_upper(sum);
        }
        hint
    }
}
