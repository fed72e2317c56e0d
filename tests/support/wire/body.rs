//! Request bodies that misbehave.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tower_http_retry::{BoxError, ReplayBody};

pub(crate) enum Step {
    Data(&'static [u8]),
    Fail(BoxError),
    Panic,
    Hang,
}

/// A stream of these steps.
pub(crate) struct Steps {
    pub(crate) steps: VecDeque<Step>,
    pub(crate) len: Option<u64>,
    pub(crate) lazy: bool,
}

/// One stream, sent once.
pub(crate) fn steps(steps: impl IntoIterator<Item = Step>) -> ReplayBody {
    ReplayBody::one_shot(Steps::new(None, steps))
}

/// The same, and it says that it has `len` bytes.
pub(crate) fn sized_steps(len: u64, steps: impl IntoIterator<Item = Step>) -> ReplayBody {
    ReplayBody::one_shot(Steps::new(Some(len), steps))
}

impl Steps {
    pub(crate) fn new(len: Option<u64>, steps: impl IntoIterator<Item = Step>) -> Self {
        let steps: VecDeque<_> = steps.into_iter().collect();
        let lazy = steps.is_empty();
        Self { steps, len, lazy }
    }
}

impl Body for Steps {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.steps.pop_front() {
            Some(Step::Data(data)) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(data))))),
            Some(Step::Fail(error)) => {
                // What was written before goes out first.
                self.steps.push_front(Step::Fail("again".into()));
                Poll::Ready(Some(Err(error)))
            }
            Some(Step::Panic) => panic!("the body panics, as the test wants"),
            Some(Step::Hang) => {
                self.steps.push_front(Step::Hang);
                let _ = cx;
                Poll::Pending
            }
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        // One that has nothing from the start does not know it.
        self.steps.is_empty() && !self.lazy
    }

    fn size_hint(&self) -> SizeHint {
        self.len.map(SizeHint::with_exact).unwrap_or_default()
    }
}
