//! How a body is laid out: in 32 bytes.
//!
//! Clients move a request some twenty times, and the head alone has 224 bytes. More than 256 take twice as long to
//! move, so what an attempt sends has to fit beside its witness in what is left.

use bytes::Bytes;

use super::{Replayability, content::Content, trace::Recorder};

pub(super) enum Repr {
    /// In memory, and not watched. There may be none.
    Bytes(Bytes),
    Other(Other),
}

pub(super) enum Other {
    Lent(Lent),
    Boxed(Box<Watched>),
}

/// In memory, and watched: the bytes, if any are left, wait in the witness.
pub(super) struct Lent {
    pub(super) recorder: Recorder,
    pub(super) left: usize,
}

/// What a body holds.
pub(super) enum Held<'a> {
    /// In memory: so many bytes.
    Bytes(usize),
    Content(&'a Content),
}

/// Everything else.
pub(super) struct Watched {
    // Dropped before the recorder tells.
    pub(super) content: Content,
    pub(super) recorder: Option<Recorder>,
}

const _: () = assert!(size_of::<Repr>() == 32);

impl Repr {
    pub(super) fn new(content: Content) -> Self {
        match in_memory(content) {
            Ok(bytes) => Self::Bytes(bytes),
            Err(content) => Self::boxed(content, None),
        }
    }

    #[inline]
    pub(super) fn watched(content: Content, recorder: Recorder) -> Self {
        match in_memory(content) {
            Ok(bytes) => Self::lent(bytes, recorder),
            Err(content) => Self::boxed(content, Some(recorder)),
        }
    }

    pub(super) fn held(&self) -> Held<'_> {
        match self {
            Self::Bytes(bytes) => Held::Bytes(bytes.len()),
            Self::Other(Other::Lent(lent)) => Held::Bytes(lent.left),
            Self::Other(Other::Boxed(watched)) => Held::Content(&watched.content),
        }
    }

    pub(super) fn recorder(&self) -> Option<&Recorder> {
        match self {
            Self::Bytes(_) => None,
            Self::Other(Other::Lent(lent)) => Some(&lent.recorder),
            Self::Other(Other::Boxed(watched)) => watched.recorder.as_ref(),
        }
    }

    #[inline]
    pub(super) fn into_parts(self) -> (Content, Option<Recorder>) {
        match self {
            Self::Bytes(bytes) => (Content::bytes(bytes), None),
            Self::Other(Other::Lent(Lent { recorder, mut left })) => (
                Content::bytes(recorder.take_lent(&mut left)),
                Some(recorder),
            ),
            Self::Other(Other::Boxed(watched)) => {
                let Watched { content, recorder } = *watched;
                (content, recorder)
            }
        }
    }

    #[inline]
    pub(super) fn lent(bytes: Bytes, recorder: Recorder) -> Self {
        let left = bytes.len();
        if left > 0 {
            recorder.lend(bytes);
        }
        Self::Other(Other::Lent(Lent { recorder, left }))
    }

    fn boxed(content: Content, recorder: Option<Recorder>) -> Self {
        Self::Other(Other::Boxed(Box::new(Watched { content, recorder })))
    }
}

/// The bytes of what is nothing but bytes, or nothing at all.
#[inline]
fn in_memory(content: Content) -> Result<Bytes, Content> {
    match content {
        Content::Bytes(bytes) => Ok(bytes),
        Content::Empty(Replayability::Replayable) => Ok(Bytes::new()),
        content @ (Content::Empty(_)
        | Content::Stream(_)
        | Content::Unopened(_)
        | Content::Made(_)
        | Content::Chain(_)
        | Content::Metered(_)) => Err(content),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            BodyState, ReplayBody, Witness,
            script::{drain, poll, text},
        },
        *,
    };

    fn watched(bytes: &Bytes) -> (ReplayBody, Witness) {
        let (mut body, witness) = (ReplayBody::bytes(bytes.clone()), Witness::new());
        assert!(body.watch(witness.clone(), None).is_ok());
        (body, witness)
    }

    #[test]
    fn bytes_that_wait_in_the_witness_are_the_bodys() {
        let bytes = Bytes::from(vec![7; 100]);
        let (mut body, _witness) = watched(&bytes);
        assert_eq!(body.state(), BodyState::Replayable);
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(100));
        assert!(!http_body::Body::is_end_stream(&body));
        assert_eq!(drain(&mut body), Ok((bytes.to_vec(), None)));
        assert_eq!(body.state(), BodyState::Empty);
        assert!(http_body::Body::is_end_stream(&body));
        assert!(matches!(poll(&mut body), std::task::Poll::Ready(None)));
        assert!(bytes.is_unique(), "nothing of them is left behind");
    }

    #[test]
    fn bytes_that_were_not_sent_go_with_the_body_though_the_call_holds_the_witness() {
        let bytes = Bytes::from(vec![7; 100]);
        let (body, witness) = watched(&bytes);
        assert!(!bytes.is_unique());
        drop(body);
        assert!(bytes.is_unique());
        assert!(witness.trace().dropped());
    }

    #[test]
    fn a_layer_within_takes_them_over() {
        let bytes = Bytes::from("bytes");
        let (mut body, outer) = watched(&bytes);
        let inner = Witness::new();
        assert!(body.watch(inner.clone(), None).is_ok());
        assert_eq!(text(&mut body), "bytes");
        for witness in [outer, inner] {
            assert!(witness.trace().polled());
        }
    }

    #[test]
    fn a_witness_serves_the_next_attempt() {
        let mut witness = Witness::new();
        for sent in ["first", "second"] {
            let mut body = ReplayBody::bytes(sent);
            assert!(body.watch(witness.clone(), None).is_ok());
            assert_eq!(text(&mut body), sent);
            drop(body);
            assert!(witness.reset_if_unique());
        }
    }
}
