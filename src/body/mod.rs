//! Request bodies that can be sent again.

mod buffered;
mod chain;
mod content;
mod convert;
mod erased;
mod error;
mod factory;
#[cfg(feature = "fs")]
mod file;
mod metered;
#[cfg(feature = "multipart")]
mod multipart;
mod record;
mod repr;
#[cfg(test)]
mod script;
mod source;
mod state;
mod template;
mod trace;

use std::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use self::{
    chain::Chain,
    content::Content,
    erased::erase,
    factory::{Encoded, Factory, Supplier},
    repr::{Held, Lent, Other, Repr, Watched},
    template::Unopened,
    trace::Recorder,
};
use crate::BoxError;

#[cfg(feature = "fs")]
pub use self::file::FileBody;
#[cfg(feature = "multipart")]
pub use self::multipart::{Multipart, Part};
pub(crate) use self::{
    error::OpenError,
    source::{Opened, Opening, Source},
    trace::Witness,
};
pub use self::{
    state::{BodyState, Replayability},
    trace::BodyTrace,
};

type PolledFrame = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

/// The body of a request: what the caller sends and what the inner service receives.
///
/// Every attempt of a call carries the same bytes, trailers, size hint and end-of-stream as the first. A body that
/// cannot be sent again costs the call its retries, never its first attempt.
///
/// The length of a body is watched: one that ends before or runs over its exact size hint or the request's
/// `content-length` is an error, never a short body that looks whole.
pub struct ReplayBody {
    repr: Repr,
}

impl ReplayBody {
    /// The usual limit of [`buffered`](Self::buffered), in bytes: 64 KiB.
    pub const DEFAULT_BUFFER_LIMIT: usize = 64 * 1024;

    /// No body.
    pub fn empty() -> Self {
        Self::new(Content::Empty(Replayability::Replayable))
    }

    /// Bytes in memory: replayable.
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self::new(Content::bytes(bytes.into()))
    }

    /// One stream, of which nothing is kept: it can be sent again only while no attempt has polled it.
    pub fn one_shot<B>(body: B) -> Self
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        Self::new(Content::one_shot(erase(body)))
    }

    /// One stream, of which up to `limit` bytes are kept while they are sent, so that another attempt can send
    /// them again and go on with the rest. [`DEFAULT_BUFFER_LIMIT`](Self::DEFAULT_BUFFER_LIMIT) is a good limit.
    ///
    /// Over the limit what was kept is let go, the running attempt goes on unharmed, and no other one follows. A
    /// body whose size hint is above the limit is not kept at all. Nothing is kept any more once the call is
    /// over, even where the upload goes on. The limit counts data; the bytes are shared with the stream that gave
    /// them, and copied only where very many small frames would weigh more than they carry.
    pub fn buffered<B>(body: B, limit: usize) -> Self
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        Self::new(Content::buffered(erase(body), limit))
    }

    /// A value that is encoded when its bytes are first needed, once for all attempts: replayable.
    pub fn encoded<T, O, E>(
        value: T,
        encode: impl Fn(&T) -> Result<O, E> + Send + Sync + 'static,
    ) -> Self
    where
        T: Send + Sync + 'static,
        O: Into<Bytes>,
        E: Into<BoxError>,
    {
        Self::new(Content::Unopened(Box::new(Unopened::new(Encoded::new(
            value, encode,
        )))))
    }

    /// A function that makes the body of each attempt, replayable as `mark` declares: by it the caller promises
    /// that all bodies are the same. One of another exact length is not sent. With
    /// [`OneShot`](Replayability::OneShot) it is asked once, here.
    pub fn factory<B>(mark: Replayability, make: impl Fn() -> B + Send + Sync + 'static) -> Self
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        match mark {
            Replayability::OneShot => Self::one_shot(make()),
            Replayability::Reopenable | Replayability::Replayable => Self::new(Content::Unopened(
                Box::new(Unopened::new(Factory::new(mark, make))),
            )),
        }
    }

    /// A body that is opened for each attempt, before anything of the attempt is sent, so that a failure to open
    /// it leaves nothing half done. The caller promises that it is the same each time; one of another exact length
    /// is not sent.
    pub fn reopenable<F, Fut, B, E>(open: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<B, E>> + Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
        E: Into<BoxError>,
    {
        Self::new(Content::Unopened(Box::new(Unopened::new(Supplier::new(
            open,
        )))))
    }

    /// Several bodies as one, as replayable as the weakest of them. Trailers of all parts come at the end.
    pub fn chain(parts: impl IntoIterator<Item = ReplayBody>) -> Self {
        Self::new(Chain::content(parts))
    }

    /// Whose attempt this is the body of, where a layer further out sent it.
    pub(crate) fn outer(&self) -> Option<Witness> {
        let recorder = self.repr.recorder()?;
        Some(recorder.witness().clone())
    }

    /// What the body declares.
    pub fn replayability(&self) -> Replayability {
        match self.repr.held() {
            Held::Bytes(_) => Replayability::Replayable,
            Held::Content(content) => content.replayability(),
        }
    }

    /// What the body can do now.
    pub fn state(&self) -> BodyState {
        match self.repr.held() {
            Held::Bytes(0) => BodyState::Empty,
            Held::Bytes(_) => BodyState::Replayable,
            Held::Content(content) => content.state(),
        }
    }

    /// Says that this very body goes to a hyper client, which asks it before it sends anything of the request.
    ///
    /// Only a service directly on such a client may say so: what follows from it is that a body the client
    /// dropped without a question was never sent, and that its request may be repeated.
    pub fn sits_on_client(&mut self) {
        if let Some(recorder) = self.repr.recorder() {
            recorder.reached_client();
        }
    }

    /// Says that the client follows no redirect and repeats nothing, so that its errors are about this request.
    #[cfg(feature = "reqwest")]
    pub(crate) fn sent_alone(&mut self) {
        if let Some(recorder) = self.repr.recorder() {
            recorder.sent_alone();
        }
    }

    fn new(content: Content) -> Self {
        Self {
            repr: Repr::new(content),
        }
    }
}

impl Default for ReplayBody {
    fn default() -> Self {
        Self::empty()
    }
}

impl Body for ReplayBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        match &mut self.get_mut().repr {
            Repr::Bytes(bytes) => one_frame(mem::take(bytes)),
            Repr::Other(Other::Lent(lent)) => {
                let Lent { recorder, left } = lent;
                recorder.polled(cx, |_| one_frame(recorder.take_lent(left)))
            }
            Repr::Other(Other::Boxed(watched)) => {
                let Watched { content, recorder } = &mut **watched;
                match recorder {
                    Some(recorder) => {
                        recorder.polled(cx, |cx| content.poll_frame(cx, Some(recorder)))
                    }
                    None => content.poll_frame(cx, None),
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let at_end = match self.repr.held() {
            Held::Bytes(left) => left == 0,
            Held::Content(content) => content.is_end_stream(),
        };
        match self.repr.recorder() {
            Some(recorder) => recorder.ended(at_end),
            None => at_end,
        }
    }

    fn size_hint(&self) -> SizeHint {
        if self.repr.recorder().is_some_and(Recorder::is_cut) {
            // An HTTP/1.1 client does not ask a body of length 0 for a frame, and so would miss the error.
            return SizeHint::new();
        }
        match self.repr.held() {
            Held::Bytes(left) => SizeHint::with_exact(left as u64),
            Held::Content(content) => content.size_hint(),
        }
    }
}

fn one_frame(bytes: Bytes) -> PolledFrame {
    Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
}

impl fmt::Debug for ReplayBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayBody")
            .field("replayability", &self.replayability())
            .finish_non_exhaustive()
    }
}
