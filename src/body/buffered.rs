//! One stream for several attempts: what the first took of it is kept, up to a limit.
//!
//! One attempt at a time reads a stream. Before the next one starts, the call cuts the one before off; reads
//! look for the cut under the stream's lock, so a reader that lost its turn takes nothing any more.

use std::{
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::{
    BodyState, PolledFrame, Replayability, content::Content, erased::Erased, error::Fault,
    metered::less, record::Record, trace::Recorder,
};

/// A source that attempts share.
pub(super) struct Stream {
    mark: Replayability,
    start: SizeHint,
    tape: Mutex<Tape>,
}

struct Tape {
    rest: Rest,
    past: Past,
    /// How many frames `rest` has given.
    taken: u64,
    /// Whether anybody has asked `rest` for one.
    polled: bool,
    /// How many calls may start another attempt. Without one there is no reason to keep anything.
    holds: usize,
    /// Whether the running attempt has read all that is kept.
    caught_up: bool,
}

/// What has not been taken yet.
enum Rest {
    Source(Erased),
    /// Nothing; `told`: the source said so with its last frame, without being asked for another.
    Ended {
        told: bool,
    },
    /// It failed or panicked.
    Failed,
}

/// What has been taken.
enum Past {
    Kept(Record),
    /// At least a part is gone, once anything was taken at all.
    Lost(BodyState),
}

impl Content {
    /// One stream, not kept.
    pub(super) fn one_shot(source: Erased) -> Self {
        Stream::share(
            source,
            Replayability::OneShot,
            Past::Lost(BodyState::Consumed),
        )
    }

    /// One stream, of which up to `limit` bytes are kept.
    pub(super) fn buffered(source: Erased, limit: usize) -> Self {
        // A body that says it will not fit is not worth a single copy of a handle.
        let hopeless = source.size_hint().lower() > limit as u64;
        let past = if hopeless {
            Past::Lost(BodyState::Overflowed)
        } else {
            Past::Kept(Record::new(limit))
        };
        Stream::share(source, Replayability::Replayable, past)
    }
}

impl Stream {
    fn share(source: Erased, mark: Replayability, past: Past) -> Content {
        if source.is_end_stream() {
            return Content::Empty(mark);
        }
        let start = source.size_hint();
        let rest = Rest::Source(source);
        let tape = Tape {
            rest,
            past,
            taken: 0,
            polled: false,
            holds: 0,
            caught_up: true,
        };
        let stream = Arc::new(Self {
            mark,
            start,
            tape: Mutex::new(tape),
        });
        Content::Stream(Reader {
            stream,
            at: Position::default(),
        })
    }

    pub(super) fn replayability(&self) -> Replayability {
        self.mark
    }

    pub(super) fn state(&self) -> BodyState {
        self.tape().state()
    }

    fn tape(&self) -> MutexGuard<'_, Tape> {
        // Only a panic of the source poisons the lock, and it leaves the tape whole: see `Tape::take`.
        self.tape.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tape {
    fn state(&self) -> BodyState {
        match (&self.rest, &self.past) {
            (Rest::Failed, _) => BodyState::Consumed,
            (_, Past::Kept(_)) => BodyState::Replayable,
            (_, Past::Lost(_)) if !self.polled => BodyState::Untouched,
            (_, Past::Lost(state)) => *state,
        }
    }

    /// A frame that was taken before.
    fn replay(&mut self, at: &mut Position) -> Option<Frame<Bytes>> {
        let Past::Kept(record) = &mut self.past else {
            return None;
        };
        let frame = if self.holds == 0 {
            record.take(at.next)
        } else {
            record.get(at.next)
        }?;
        at.next += 1;
        self.caught_up = at.next == record.len();
        if self.caught_up {
            at.taken = self.taken;
            at.at_end = matches!(self.rest, Rest::Ended { told: true });
        }
        Some(frame)
    }

    /// A frame that nobody has seen.
    fn take(&mut self, at: &mut Position, cx: &mut Context<'_>) -> PolledFrame {
        // What was taken between this reader's place and the rest is not kept: it must not be left out silently.
        if matches!(self.past, Past::Lost(_)) && at.taken != self.taken {
            return Poll::Ready(Some(Err(Fault::Gone.into())));
        }
        self.polled = true;
        // A source that panics is never put back.
        match mem::replace(&mut self.rest, Rest::Failed) {
            Rest::Ended { told } => {
                self.rest = Rest::Ended { told };
                at.at_end = true;
                Poll::Ready(None)
            }
            Rest::Failed => Poll::Ready(Some(Err(Fault::Gone.into()))),
            Rest::Source(mut source) => match Pin::new(&mut source).poll_frame(cx) {
                Poll::Pending => {
                    self.rest = Rest::Source(source);
                    Poll::Pending
                }
                Poll::Ready(Some(Ok(frame))) => {
                    self.record(&frame);
                    at.at_end = frame.is_trailers() || source.is_end_stream();
                    self.rest = if at.at_end {
                        Rest::Ended { told: true }
                    } else {
                        Rest::Source(source)
                    };
                    self.taken += 1;
                    at.taken = self.taken;
                    if let Past::Kept(record) = &self.past {
                        at.next = record.len();
                    }
                    Poll::Ready(Some(Ok(frame)))
                }
                Poll::Ready(None) => {
                    self.rest = Rest::Ended { told: false };
                    at.at_end = true;
                    Poll::Ready(None)
                }
                Poll::Ready(Some(Err(error))) => {
                    self.past = Past::Lost(BodyState::Consumed);
                    Poll::Ready(Some(Err(error)))
                }
            },
        }
    }

    fn record(&mut self, frame: &Frame<Bytes>) {
        let Past::Kept(record) = &mut self.past else {
            return;
        };
        if self.holds == 0 {
            self.past = Past::Lost(BodyState::Consumed);
        } else if record.push(frame).is_err() {
            self.past = Past::Lost(BodyState::Overflowed);
        }
    }
}

/// Where in a stream a reader is.
#[derive(Clone, Copy, Default)]
struct Position {
    /// The next frame of the record.
    next: usize,
    /// How many frames were taken when it had read all of the record.
    taken: u64,
    /// How many bytes it has read.
    sent: u64,
    at_end: bool,
}

/// One attempt's view of a stream.
pub(super) struct Reader {
    stream: Arc<Stream>,
    at: Position,
}

impl Reader {
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        recorder: Option<&Recorder>,
    ) -> PolledFrame {
        let mut tape = self.stream.tape();
        if recorder.is_some_and(Recorder::is_cut) {
            return Poll::Ready(Some(Err(Fault::CutOff.into())));
        }
        let frame = match tape.replay(&mut self.at) {
            Some(frame) => Some(Ok(frame)),
            None => ready!(tape.take(&mut self.at, cx)),
        };
        if let Some(Ok(frame)) = &frame {
            let len = frame.data_ref().map_or(0, Bytes::len);
            self.at.sent = self.at.sent.saturating_add(len as u64);
        }
        Poll::Ready(frame)
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.at.at_end
    }

    /// What the source said at its start, less what was read: the same in every attempt, whatever the source
    /// has learned since.
    pub(super) fn size_hint(&self) -> SizeHint {
        less(&self.stream.start, self.at.sent)
    }
}

/// A call's right to start further attempts. While there is one, the stream keeps what it gives.
pub(super) struct Hold {
    stream: Arc<Stream>,
    from: Position,
}

impl Hold {
    pub(super) fn new(reader: Reader) -> Self {
        let Reader { stream, at } = reader;
        let mut tape = stream.tape();
        tape.holds += 1;
        if let Past::Kept(record) = &mut tape.past {
            record.starts_at(at.next);
        }
        drop(tape);
        Self { stream, from: at }
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(super) fn reader(&self) -> Reader {
        let mut tape = self.stream.tape();
        tape.caught_up = match &tape.past {
            Past::Kept(record) => self.from.next == record.len(),
            Past::Lost(_) => true,
        };
        drop(tape);
        Reader {
            stream: Arc::clone(&self.stream),
            at: self.from,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut tape = self.stream.tape();
        tape.holds = tape.holds.saturating_sub(1);
        if tape.holds == 0 && tape.caught_up {
            tape.past = Past::Lost(BodyState::Consumed);
        }
    }
}

#[cfg(test)]
mod tests;
