//! What one attempt sends.

use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::{
    BodyState, PolledFrame, Replayability,
    buffered::{Hold, Reader},
    metered::Metered,
    source::Kept,
    trace::Recorder,
};

/// In-memory bytes stand here as they are: nothing is boxed on their way.
pub(super) enum Content {
    /// Nothing, as a body that declared this mark.
    Empty(Replayability),
    /// At least one byte.
    Bytes(Bytes),
    Stream(Reader),
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
            Self::Metered(metered) => metered.poll_frame(cx, recorder),
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty(_) => true,
            Self::Bytes(_) => false,
            Self::Stream(reader) => reader.is_end_stream(),
            Self::Metered(metered) => metered.is_end_stream(),
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty(_) => SizeHint::with_exact(0),
            Self::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(reader) => reader.size_hint(),
            Self::Metered(metered) => metered.size_hint(),
        }
    }

    pub(super) fn replayability(&self) -> Replayability {
        match self {
            Self::Empty(mark) => *mark,
            Self::Bytes(_) => Replayability::Replayable,
            Self::Stream(reader) => reader.stream().replayability(),
            Self::Metered(metered) => metered.content().replayability(),
        }
    }

    pub(super) fn state(&self) -> BodyState {
        match self {
            Self::Empty(_) => BodyState::Empty,
            Self::Bytes(_) => BodyState::Replayable,
            Self::Stream(reader) => reader.stream().state(),
            Self::Metered(metered) => metered.content().state(),
        }
    }

    /// What a call keeps, to make the bodies of its attempts from.
    pub(super) fn keep(self) -> Kept {
        match self {
            Self::Empty(mark) => Kept::Empty(mark),
            Self::Bytes(bytes) => Kept::Bytes(bytes),
            Self::Stream(reader) => Kept::Stream(Hold::new(reader)),
            Self::Metered(metered) => metered.into_content().keep(),
        }
    }
}
