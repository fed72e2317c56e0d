//! What one attempt sends.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::{
    BodyState, PolledFrame, Replayability,
    buffered::{Hold, Reader},
    chain::Chain,
    metered::Metered,
    source::Kept,
    template::{self, Made, Unopened},
    trace::Recorder,
};

/// In-memory bytes stand here as they are: nothing is boxed on their way.
pub(super) enum Content {
    /// Nothing, as a body that declared this mark.
    Empty(Replayability),
    /// At least one byte.
    Bytes(Bytes),
    Stream(Reader),
    Unopened(Box<Unopened>),
    Made(Box<Made>),
    Chain(Box<Chain>),
    Metered(Box<Metered>),
}

impl Content {
    pub(super) fn bytes(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            Self::Empty(Replayability::Replayable)
        } else {
            Self::Bytes(bytes)
        }
    }

    /// The next frame. The recorder tells a stream that is shared with a later attempt whether it still may.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        recorder: Option<&Recorder>,
    ) -> PolledFrame {
        match self {
            Self::Empty(_) => Poll::Ready(None),
            Self::Bytes(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Empty(Replayability::Replayable);
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Self::Stream(reader) => reader.poll_frame(cx, recorder),
            Self::Unopened(unopened) => match ready!(unopened.poll_open(cx)) {
                Ok(content) => {
                    *self = content;
                    self.poll_frame(cx, recorder)
                }
                Err(error) => {
                    *self = Self::Empty(unopened.template().replayability());
                    Poll::Ready(Some(Err(error.into())))
                }
            },
            Self::Made(made) => made.poll_frame(cx),
            Self::Chain(chain) => chain.poll_frame(cx, recorder),
            Self::Metered(metered) => metered.poll_frame(cx, recorder),
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty(_) => true,
            Self::Bytes(_) => false,
            Self::Stream(reader) => reader.is_end_stream(),
            Self::Unopened(_) => false,
            Self::Made(made) => made.is_end_stream(),
            Self::Chain(chain) => chain.is_end_stream(),
            Self::Metered(metered) => metered.is_end_stream(),
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty(_) => SizeHint::with_exact(0),
            Self::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(reader) => reader.size_hint(),
            Self::Unopened(unopened) => unopened.template().size_hint(),
            Self::Made(made) => made.size_hint(),
            Self::Chain(chain) => chain.size_hint(),
            Self::Metered(metered) => metered.size_hint(),
        }
    }

    pub(super) fn replayability(&self) -> Replayability {
        match self {
            Self::Empty(mark) => *mark,
            Self::Bytes(_) => Replayability::Replayable,
            Self::Stream(reader) => reader.stream().replayability(),
            Self::Unopened(unopened) => unopened.template().replayability(),
            Self::Made(made) => made.template().replayability(),
            Self::Chain(chain) => chain.replayability(),
            Self::Metered(metered) => metered.content().replayability(),
        }
    }

    pub(super) fn state(&self) -> BodyState {
        match self {
            Self::Empty(_) => BodyState::Empty,
            Self::Bytes(_) => BodyState::Replayable,
            Self::Stream(reader) => reader.stream().state(),
            Self::Unopened(unopened) => template::state(unopened.template()),
            Self::Made(made) => template::state(&**made.template()),
            Self::Chain(chain) => chain.state(),
            Self::Metered(metered) => metered.content().state(),
        }
    }

    /// What a call keeps, to make the bodies of its attempts from.
    pub(super) fn keep(self) -> Kept {
        match self {
            Self::Empty(mark) => Kept::Empty(mark),
            Self::Bytes(bytes) => Kept::Bytes(bytes),
            Self::Stream(reader) => Kept::Stream(Hold::new(reader)),
            Self::Unopened(unopened) => Kept::Template(unopened.into_template(), None),
            // An outer layer has opened it for this attempt: there is no need to do so again.
            Self::Made(made) if made.is_untouched() => {
                Kept::Template(Arc::clone(made.template()), Some(made))
            }
            Self::Made(made) => Kept::Template(Arc::clone(made.template()), None),
            Self::Chain(chain) => Kept::Chain(chain.keep()),
            Self::Metered(metered) => metered.into_content().keep(),
        }
    }
}
