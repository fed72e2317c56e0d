//! The body witness: what the client below did with an attempt's body.

use std::{
    fmt, iter, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering, fence},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;

use super::{
    PolledFrame,
    error::{Fault, SourceError},
};
use crate::BoxError;

const REACHED_CLIENT: u8 = 1;
const CONSULTED: u8 = 1 << 1;
const POLLED: u8 = 1 << 2;
const ENDED: u8 = 1 << 3;
const FAILED: u8 = 1 << 4;
const DROPPED: u8 = 1 << 5;
/// A body of an inner layer went elsewhere than to a client, so that `REACHED_CLIENT` of another one proves nothing.
const STRAYED: u8 = 1 << 6;
/// The client sends this one request for the call, and nothing of its own after it.
const ALONE: u8 = 1 << 7;

/// What a client did with the body of one attempt.
///
/// A hyper client asks a body before it encodes the request's head, so a body that *reached the client*, was
/// *dropped*, and was *never consulted* proves that nothing of its request was sent. The default is: nothing
/// happened.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct BodyTrace {
    seen: u8,
}

impl BodyTrace {
    /// The body was handed to a client that consults it before it sends anything.
    pub fn with_reached_client(self) -> Self {
        self.with(REACHED_CLIENT)
    }

    /// The client asked for its end or a frame.
    pub fn with_consulted(self) -> Self {
        self.with(CONSULTED)
    }

    /// The client asked for a frame.
    pub fn with_polled(self) -> Self {
        self.with(POLLED)
    }

    /// The client saw its end.
    pub fn with_ended(self) -> Self {
        self.with(ENDED)
    }

    /// It failed, ended short, ran over its length, or panicked.
    pub fn with_failed(self) -> Self {
        self.with(FAILED)
    }

    /// It was dropped.
    pub fn with_dropped(self) -> Self {
        self.with(DROPPED)
    }

    /// Whether the body was handed to a client that consults it before it sends anything.
    pub fn reached_client(self) -> bool {
        self.has(REACHED_CLIENT)
    }

    /// Whether the client asked for its end or a frame. Asking for its size does not count: some clients do
    /// so long before they send.
    pub fn consulted(self) -> bool {
        self.has(CONSULTED)
    }

    /// Whether the client asked for a frame.
    pub fn polled(self) -> bool {
        self.has(POLLED)
    }

    /// Whether the client saw its end.
    pub fn ended(self) -> bool {
        self.has(ENDED)
    }

    /// Whether it failed, ended short, ran over its length, or panicked: the fault is the body's, whatever
    /// the client's error says.
    pub fn failed(self) -> bool {
        self.has(FAILED)
    }

    /// Whether it was dropped. A body that still lives inside a client may still be sent.
    pub fn dropped(self) -> bool {
        self.has(DROPPED)
    }

    /// Whether the client that it was handed to is known to follow no redirect and to repeat nothing, so that its
    /// error is about this very request.
    #[cfg(feature = "reqwest")]
    pub(crate) fn is_alone(self) -> bool {
        self.has(ALONE)
    }

    fn with(self, flag: u8) -> Self {
        Self {
            seen: self.seen | flag,
        }
    }

    fn has(self, flag: u8) -> bool {
        self.seen & flag != 0
    }
}

impl fmt::Debug for BodyTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyTrace")
            .field("reached_client", &self.reached_client())
            .field("consulted", &self.consulted())
            .field("polled", &self.polled())
            .field("ended", &self.ended())
            .field("failed", &self.failed())
            .field("dropped", &self.dropped())
            .finish()
    }
}

/// The call's end of the witness: one per attempt.
#[derive(Clone)]
pub(crate) struct Witness(Arc<Marks>);

#[derive(Default)]
struct Marks {
    /// What the client did.
    seen: AtomicU8,
    /// Whether the call has cut the body off.
    cut: AtomicBool,
    /// Whether there may be something aside.
    aside_used: AtomicBool,
    aside: Mutex<Aside>,
    /// Whether bytes lie here that the attempt has not sent.
    lends: AtomicBool,
    lent: Mutex<Bytes>,
}

/// What is seldom needed.
#[derive(Default)]
struct Aside {
    /// Who waits for the body's next frame, to be told of a cut.
    waiting: Option<Waker>,
    /// The source's own error, which an HTTP/2 client loses.
    failure: Option<SourceError>,
}

impl Witness {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// What has been seen up to now.
    #[inline]
    pub(crate) fn trace(&self) -> BodyTrace {
        let seen = self.0.seen.load(Ordering::Acquire);
        let strayed = if seen & STRAYED != 0 {
            REACHED_CLIENT | ALONE
        } else {
            0
        };
        BodyTrace {
            seen: seen & !(STRAYED | strayed),
        }
    }

    /// Whether both are of one attempt.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The error of the body's own source, once. The client below got one that leads to the same.
    pub(crate) fn take_failure(&self) -> Option<BoxError> {
        let failure = self.aside().failure.take()?;
        Some(failure.into())
    }

    /// Makes it as new for the next attempt, unless somebody still holds this attempt's body.
    #[inline]
    pub(crate) fn reset_if_unique(&mut self) -> bool {
        // There are no weak references, and whoever could clone it has to come past this `&mut`. Cheaper than
        // `Arc::get_mut`, which takes a locked write.
        if Arc::strong_count(&self.0) != 1 {
            return false;
        }
        // What the last one who let go of it wrote is seen from here.
        fence(Ordering::Acquire);
        self.0.seen.store(0, Ordering::Relaxed);
        self.0.cut.store(false, Ordering::Relaxed);
        if self.0.aside_used.load(Ordering::Relaxed) {
            self.0.aside_used.store(false, Ordering::Relaxed);
            *self.aside() = Aside::default();
        }
        true
    }

    /// Cuts the attempt's body off: from now on it gives an error, at once where somebody waits for it.
    pub(crate) fn cut(&self) {
        self.0.cut.store(true, Ordering::Release);
        let waiting = self.aside().waiting.take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    fn is_cut(&self) -> bool {
        self.0.cut.load(Ordering::Acquire)
    }

    /// Marks what the one body of an attempt did. It alone writes, so a store is enough: only two questions on
    /// two threads at once could lose something, and then not that there was a question.
    fn mark(&self, flags: u8) {
        let seen = self.0.seen.load(Ordering::Relaxed);
        if seen & flags != flags {
            self.0.seen.store(seen | flags, Ordering::Release);
        }
    }

    /// Marks what one of several bodies did: those of an inner layer's attempts, of which one that was cut off
    /// may still be read elsewhere.
    fn mark_among_others(&self, flags: u8) {
        if self.0.seen.load(Ordering::Relaxed) & flags != flags {
            self.0.seen.fetch_or(flags, Ordering::AcqRel);
        }
    }

    fn lent(&self) -> MutexGuard<'_, Bytes> {
        self.0.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn aside_to_use(&self) -> MutexGuard<'_, Aside> {
        self.0.aside_used.store(true, Ordering::Relaxed);
        self.aside()
    }

    fn aside(&self) -> MutexGuard<'_, Aside> {
        self.0.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body's end of the witness.
///
/// Where a layer sits within another one, the inner attempts' bodies report to the outer attempt too: each of
/// them is a part of what the outer client did.
pub(super) struct Recorder {
    witness: Witness,
    outer: Option<Arc<Recorder>>,
}

impl Recorder {
    pub(super) fn witness(&self) -> &Witness {
        &self.witness
    }

    pub(super) fn new(witness: Witness, outer: Option<Arc<Recorder>>) -> Self {
        Self { witness, outer }
    }

    /// Leaves the attempt's bytes with the witness: a body that moves often stays small.
    pub(super) fn lend(&self, bytes: Bytes) {
        self.witness.0.lends.store(true, Ordering::Relaxed);
        *self.witness.lent() = bytes;
    }

    /// What is `left` of them: all or nothing.
    pub(super) fn take_lent(&self, left: &mut usize) -> Bytes {
        if mem::take(left) == 0 {
            return Bytes::new();
        }
        self.witness.0.lends.store(false, Ordering::Relaxed);
        mem::take(&mut self.witness.lent())
    }

    pub(super) fn reached_client(&self) {
        self.mark(REACHED_CLIENT);
    }

    #[cfg(feature = "reqwest")]
    pub(super) fn sent_alone(&self) {
        self.mark(ALONE);
    }

    /// The client asked whether the body is at its end.
    ///
    /// Once cut off it never is, so that a client which still holds the request has to ask for a frame, and
    /// gets the error, instead of sending a request that nobody waits for.
    pub(super) fn ended(&self, at_end: bool) -> bool {
        let ended = at_end && !self.is_cut();
        self.mark(if ended { CONSULTED | ENDED } else { CONSULTED });
        ended
    }

    /// The client asks for a frame: gets it from `source` and records what comes of it.
    pub(super) fn polled(
        &self,
        cx: &mut Context<'_>,
        source: impl FnOnce(&mut Context<'_>) -> PolledFrame,
    ) -> PolledFrame {
        self.mark(CONSULTED | POLLED);
        if self.is_cut() {
            return cut_off();
        }
        let panic = PanicWatch(self);
        let polled = source(cx);
        mem::forget(panic);
        match polled {
            Poll::Pending => self.wait(cx),
            Poll::Ready(None) => {
                self.mark(ENDED);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Ok(frame))) => {
                if frame.is_trailers() {
                    // Nothing follows trailers, and no client asks again.
                    self.mark(ENDED);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            // A cut is ours, not the source's.
            Poll::Ready(Some(Err(error))) if self.is_cut() => Poll::Ready(Some(Err(error))),
            Poll::Ready(Some(Err(error))) => {
                let error = SourceError::new(error);
                self.fail(&error);
                Poll::Ready(Some(Err(error.into())))
            }
        }
    }

    /// Whether the call, or one around it, has cut this body off.
    pub(super) fn is_cut(&self) -> bool {
        self.with_outer().any(|recorder| recorder.witness.is_cut())
    }

    fn wait(&self, cx: &Context<'_>) -> PolledFrame {
        for recorder in self.with_outer() {
            let mut aside = recorder.witness.aside_to_use();
            match &mut aside.waiting {
                Some(waiting) => waiting.clone_from(cx.waker()),
                None => aside.waiting = Some(cx.waker().clone()),
            }
        }
        // A cut sets its mark before it looks for a waker, so one of both sees the other.
        if self.is_cut() {
            cut_off()
        } else {
            Poll::Pending
        }
    }

    fn fail(&self, error: &SourceError) {
        for recorder in self.with_outer() {
            recorder.witness.aside_to_use().failure = Some(error.clone());
        }
        self.mark(FAILED);
    }

    fn mark(&self, flags: u8) {
        self.witness.mark(flags);
        for outer in self.with_outer().skip(1) {
            outer.witness.mark_among_others(flags);
        }
    }

    /// This one and those of the layers around.
    fn with_outer(&self) -> impl Iterator<Item = &Recorder> {
        iter::successors(Some(self), |recorder| recorder.outer.as_deref())
    }
}

impl Drop for Recorder {
    #[inline]
    fn drop(&mut self) {
        if self.witness.0.lends.load(Ordering::Relaxed) {
            self.take_lent(&mut 1);
        }
        self.witness.mark(DROPPED);
        if let Some(outer) = &self.outer
            && !self.witness.trace().reached_client()
        {
            outer.witness.mark_among_others(STRAYED);
        }
    }
}

/// Dropped only by a panic of the body's source: HTTP/2 clients hide one, and then wait for ever.
struct PanicWatch<'a>(&'a Recorder);

impl Drop for PanicWatch<'_> {
    fn drop(&mut self) {
        self.0.mark(FAILED);
    }
}

fn cut_off() -> PolledFrame {
    Poll::Ready(Some(Err(Fault::CutOff.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Set = fn(BodyTrace) -> BodyTrace;
    type Get = fn(BodyTrace) -> bool;

    #[test]
    fn each_mark_is_its_own() {
        let marks: [(Set, Get); 6] = [
            (BodyTrace::with_reached_client, BodyTrace::reached_client),
            (BodyTrace::with_consulted, BodyTrace::consulted),
            (BodyTrace::with_polled, BodyTrace::polled),
            (BodyTrace::with_ended, BodyTrace::ended),
            (BodyTrace::with_failed, BodyTrace::failed),
            (BodyTrace::with_dropped, BodyTrace::dropped),
        ];
        for (with, (set, _)) in marks.iter().enumerate() {
            let trace = set(BodyTrace::default());
            assert_eq!(set(trace), trace);
            for (has, (_, get)) in marks.iter().enumerate() {
                assert_eq!(get(trace), with == has, "{trace:?}");
            }
        }
    }

    #[test]
    fn what_the_call_does_is_not_what_the_client_did() {
        let witness = Witness::new();
        witness.cut();
        assert_eq!(witness.trace(), BodyTrace::default());
        witness.mark(REACHED_CLIENT | STRAYED);
        assert_eq!(witness.trace(), BodyTrace::default());
    }

    #[test]
    fn a_cut_in_the_middle_of_a_poll_is_not_the_bodys_failure() {
        let witness = Witness::new();
        let recorder = Recorder::new(witness.clone(), None);
        let polled = recorder.polled(&mut Context::from_waker(Waker::noop()), |_| {
            witness.cut();
            cut_off()
        });
        assert!(matches!(polled, Poll::Ready(Some(Err(_)))));
        assert!(!witness.trace().failed());
        assert!(witness.take_failure().is_none());
    }
}
