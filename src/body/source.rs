//! What a call holds outside its attempts.

use std::{future::Future, mem, pin::Pin, sync::Arc};

use bytes::Bytes;

use super::{
    BodyState, ReplayBody, Replayability,
    buffered::Hold,
    chain::KeptChain,
    content::Content,
    error::{Fault, OpenError},
    metered::Metered,
    repr::{Held, Repr},
    template::{self, Made, Open, Template},
    trace::{Recorder, Witness},
};

/// Where the bodies of a call's attempts come from. A transport that drops a request unread does not destroy it.
///
/// Dropping it lets a body that is still being sent go on, and frees what was kept for another attempt.
pub(crate) struct Source {
    kept: Kept,
    /// Where the body is itself that of an outer layer's attempt: that attempt's witness.
    outer: Option<Arc<Recorder>>,
    running: Option<Witness>,
}

/// What is kept of each kind of body.
pub(super) enum Kept {
    Empty(Replayability),
    Bytes(Bytes),
    Stream(Hold),
    /// What makes the bodies, and the first of them where it is made already.
    Template(Arc<dyn Template>, Option<Box<Made>>),
    Chain(KeptChain),
}

/// The next attempt's body.
pub(crate) enum Opened {
    /// Ready to be sent.
    Body(ReplayBody),
    /// To be awaited before the attempt is sent.
    Opening(Opening<ReplayBody>),
    /// There is none, and nothing was sent.
    Failed(OpenError),
}

pub(crate) type Opening<T> = Pin<Box<dyn Future<Output = Result<T, OpenError>> + Send>>;

/// The first share of fresh bytes allocates, and counting shares takes locked writes: so much is copied faster.
const FEW: usize = 1024;

impl ReplayBody {
    pub(crate) fn into_source(self) -> Source {
        let (content, recorder) = self.repr.into_parts();
        Source {
            kept: content.keep(),
            outer: recorder.map(Arc::new),
            running: None,
        }
    }

    /// Its bytes, where it is cheaper to copy them than to share them: few, in memory, and not watched by a layer
    /// around. With its state.
    #[inline]
    pub(crate) fn few_bytes(&self) -> Option<(&[u8], BodyState)> {
        match &self.repr {
            Repr::Bytes(bytes) if bytes.len() <= FEW => Some((bytes, self.state())),
            Repr::Bytes(_) | Repr::Other(_) => None,
        }
    }

    /// Whether its bytes, or that there are none, are known without asking anybody.
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.repr.held(), Held::Bytes(_))
    }

    /// As [`witnessed`](Self::witnessed), in place: for one in memory.
    #[inline]
    pub(crate) fn watch(
        &mut self,
        witness: Witness,
        declared_len: Option<u64>,
    ) -> Result<(), OpenError> {
        if let Held::Bytes(left) = self.repr.held() {
            check(Some(left as u64), declared_len)?;
        }
        self.repr = match &mut self.repr {
            Repr::Bytes(bytes) => Repr::lent(mem::take(bytes), Recorder::new(witness, None)),
            Repr::Other(_) => {
                let (content, recorder) = mem::take(self).repr.into_parts();
                Repr::watched(content, Recorder::new(witness, recorder.map(Arc::new)))
            }
        };
        Ok(())
    }

    /// The body of a call that is sent once: itself, witnessed, nothing kept.
    pub(crate) fn witnessed(self, witness: Witness, declared_len: Option<u64>) -> Opened {
        let (content, recorder) = self.repr.into_parts();
        let send = Sending {
            witness,
            outer: recorder.map(Arc::new),
            declared_len,
        };
        match content {
            Content::Empty(_) | Content::Bytes(_) => send.opened(Ok(content)),
            // The source goes at once, so the stream keeps nothing for another attempt.
            Content::Stream(_)
            | Content::Unopened(_)
            | Content::Made(_)
            | Content::Chain(_)
            | Content::Metered(_) => send.open(&mut content.keep()),
        }
    }
}

impl Source {
    /// The declared mark.
    pub(crate) fn replayability(&self) -> Replayability {
        self.kept.replayability()
    }

    /// What another attempt could carry now.
    pub(crate) fn state(&self) -> BodyState {
        self.kept.state()
    }

    /// The next attempt's body; the one before is cut off. `declared_len` is what the request's
    /// `content-length` says: a body of another length is an error, before it is sent where its length is known.
    pub(crate) fn attempt(&mut self, witness: Witness, declared_len: Option<u64>) -> Opened {
        self.cut();
        self.running = Some(witness.clone());
        Sending {
            witness,
            outer: self.outer.clone(),
            declared_len,
        }
        .open(&mut self.kept)
    }

    /// Cuts the running attempt's body off: whoever still sends it gets an error at once. After this no
    /// attempt takes anything from the source, so [`Source::state`] stays as it is.
    pub(crate) fn cut(&mut self) {
        if let Some(witness) = self.running.take() {
            witness.cut();
        }
    }
}

impl Kept {
    pub(super) fn replayability(&self) -> Replayability {
        match self {
            Self::Empty(mark) => *mark,
            Self::Bytes(_) => Replayability::Replayable,
            Self::Stream(hold) => hold.stream().replayability(),
            Self::Template(template, _) => template.replayability(),
            Self::Chain(chain) => chain.replayability(),
        }
    }

    pub(super) fn state(&self) -> BodyState {
        match self {
            Self::Empty(_) => BodyState::Empty,
            Self::Bytes(_) => BodyState::Replayable,
            Self::Stream(hold) => hold.stream().state(),
            Self::Template(template, _) => template::state(&**template),
            Self::Chain(chain) => chain.state(),
        }
    }

    pub(super) fn open(&mut self) -> Open {
        match self {
            Self::Empty(mark) => Open::Now(Ok(Content::Empty(*mark))),
            Self::Bytes(bytes) => Open::Now(Ok(Content::Bytes(bytes.clone()))),
            Self::Stream(hold) => Open::Now(Ok(Content::Stream(hold.reader()))),
            Self::Template(template, made) => match made.take() {
                Some(made) => Open::Now(Ok(Content::Made(made))),
                None => Arc::clone(template).open(),
            },
            Self::Chain(chain) => chain.open(),
        }
    }
}

/// One attempt about to begin.
struct Sending {
    witness: Witness,
    outer: Option<Arc<Recorder>>,
    declared_len: Option<u64>,
}

impl Sending {
    fn open(self, kept: &mut Kept) -> Opened {
        match kept.open() {
            Open::Now(content) => self.opened(content),
            Open::Later(opening) => {
                Opened::Opening(Box::pin(async move { self.body(opening.await?) }))
            }
        }
    }

    fn opened(self, content: Result<Content, OpenError>) -> Opened {
        match content.and_then(|content| self.body(content)) {
            Ok(body) => Opened::Body(body),
            Err(error) => Opened::Failed(error),
        }
    }

    fn body(self, content: Content) -> Result<ReplayBody, OpenError> {
        check(content.size_hint().exact(), self.declared_len)?;
        let content = match content {
            // Their length is known, and was compared.
            Content::Empty(_) | Content::Bytes(_) => content,
            Content::Stream(_)
            | Content::Unopened(_)
            | Content::Made(_)
            | Content::Chain(_)
            | Content::Metered(_) => {
                Content::Metered(Box::new(Metered::new(content, self.declared_len)))
            }
        };
        let recorder = Recorder::new(self.witness, self.outer);
        Ok(ReplayBody {
            repr: Repr::watched(content, recorder),
        })
    }
}

/// A body of another length than its request declares is not sent.
fn check(exact: Option<u64>, declared_len: Option<u64>) -> Result<(), OpenError> {
    if let Some(declared) = declared_len
        && let Some(exact) = exact
        && declared != exact
    {
        return Err(OpenError::Failed(
            Fault::Misdeclared { declared, exact }.into(),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use http_body::Body;

    use super::{
        super::script::{self, Alarm, Script, Step, data, drain, error, poll, text},
        *,
    };

    fn attempt(source: &mut Source) -> (ReplayBody, Witness) {
        let witness = Witness::new();
        (script::body(source.attempt(witness.clone(), None)), witness)
    }

    #[test]
    fn bytes_go_out_again_and_are_shared() {
        let bytes = Bytes::from(vec![7; 100]);
        let at = bytes.as_ptr();
        let mut source = ReplayBody::bytes(bytes).into_source();
        for _ in 0..3 {
            assert_eq!(source.state(), BodyState::Replayable);
            let (mut body, _) = attempt(&mut source);
            assert_eq!(body.size_hint().exact(), Some(100));
            let Poll::Ready(Some(Ok(frame))) = poll(&mut body) else {
                panic!("no frame")
            };
            assert_eq!(frame.data_ref().expect("data").as_ptr(), at);
            assert!(body.is_end_stream());
            assert!(matches!(poll(&mut body), Poll::Ready(None)));
        }
    }

    #[test]
    fn few_bytes_are_offered_to_be_copied_and_more_are_shared() {
        let offered = |body: &ReplayBody| {
            let (bytes, state) = body.few_bytes()?;
            assert_eq!(state, body.state());
            Some(bytes.len())
        };
        for len in [0, 1, FEW, FEW + 1] {
            let body = ReplayBody::bytes(vec![7; len]);
            assert_eq!(offered(&body), (len <= FEW).then_some(len));
            assert!(body.is_in_memory());
        }
        assert!(!ReplayBody::one_shot(Script::data(&["a"])).is_in_memory());
        let (watched, _) = attempt(&mut ReplayBody::bytes("a").into_source());
        assert_eq!(offered(&watched), None, "another layer would not see it");
    }

    #[test]
    fn a_one_shot_goes_out_again_until_an_attempt_polls_it() {
        let mut source = ReplayBody::one_shot(Script::data(&["a", "b"])).into_source();
        let (unread, _) = attempt(&mut source);
        assert_eq!(source.state(), BodyState::Untouched);
        drop(unread);
        assert_eq!(source.state(), BodyState::Untouched);
        let (mut read, _) = attempt(&mut source);
        assert_eq!(text(&mut read), "a");
        assert_eq!(source.state(), BodyState::Consumed);
        let (mut late, witness) = attempt(&mut source);
        assert_eq!(error(&mut late), "the request body failed");
        assert!(witness.trace().failed());
    }

    #[test]
    fn a_poll_without_a_frame_consumes_a_one_shot() {
        let mut source = ReplayBody::one_shot(Script::new([Step::Hang])).into_source();
        let (mut body, _) = attempt(&mut source);
        assert!(poll(&mut body).is_pending());
        assert_eq!(source.state(), BodyState::Consumed);
    }

    #[test]
    fn a_one_shot_without_anything_to_send_is_empty() {
        let body = ReplayBody::one_shot(Script::new([]));
        assert_eq!(body.replayability(), Replayability::OneShot);
        let mut source = body.into_source();
        for _ in 0..2 {
            assert_eq!(source.state(), BodyState::Empty);
            let (mut body, _) = attempt(&mut source);
            assert!(body.is_end_stream());
            assert!(matches!(poll(&mut body), Poll::Ready(None)));
        }
    }

    #[test]
    fn a_cut_wakes_whoever_waits_and_gives_an_error() {
        let mut source =
            ReplayBody::buffered(Script::new([data("a"), Step::Hang]), 10).into_source();
        let (mut old, witness) = attempt(&mut source);
        assert_eq!(text(&mut old), "a");
        let (alarm, waker) = Alarm::new();
        let mut cx = std::task::Context::from_waker(&waker);
        assert!(Pin::new(&mut old).poll_frame(&mut cx).is_pending());
        source.cut();
        assert_eq!(alarm.rings(), 1);
        assert_eq!(source.state(), BodyState::Replayable);
        let (mut new, _) = attempt(&mut source);
        assert_eq!(error(&mut old), "the attempt is over: its body was cut off");
        assert!(!old.is_end_stream());
        assert!(!witness.trace().failed(), "the cut is ours, not the body's");
        assert_eq!(text(&mut new), "a");
        assert!(poll(&mut new).is_pending());
    }

    #[test]
    fn a_cut_reaches_bodies_in_memory() {
        let mut source = ReplayBody::bytes("abc").into_source();
        let (mut old, _) = attempt(&mut source);
        let (mut new, _) = attempt(&mut source);
        assert_eq!(error(&mut old), "the attempt is over: its body was cut off");
        assert_eq!(text(&mut new), "abc");
    }

    #[test]
    fn an_empty_body_that_was_cut_off_does_not_look_empty() {
        let mut source = ReplayBody::empty().into_source();
        let (body, _) = attempt(&mut source);
        assert_eq!(body.size_hint().exact(), Some(0));
        source.cut();
        assert_eq!(
            body.size_hint().exact(),
            None,
            "else nobody asks for the error"
        );
    }

    #[test]
    fn what_a_client_asked_stays_asked() {
        let body = ReplayBody::one_shot(Script::new([Step::Hang]));
        let (mut body, witness) = attempt(&mut body.into_source());
        assert!(!body.is_end_stream());
        assert!(poll(&mut body).is_pending());
        assert!(witness.trace().consulted() && witness.trace().polled());
    }

    #[test]
    fn a_body_knows_whose_attempt_it_is_of() {
        let body = ReplayBody::bytes("a");
        assert!(body.outer().is_none());
        let (body, witness) = attempt(&mut body.into_source());
        let outer = body.outer().expect("an attempt's");
        assert!(outer.is(&witness) && !outer.is(&Witness::new()));
    }

    #[cfg(feature = "reqwest")]
    #[test]
    fn a_body_is_sent_alone_where_its_client_says_so() {
        let (mut body, witness) = attempt(&mut ReplayBody::bytes("a").into_source());
        assert!(!witness.trace().is_alone());
        body.sent_alone();
        assert!(witness.trace().is_alone());
    }

    #[test]
    fn a_body_in_memory_is_watched_where_it_is() {
        let (mut body, witness) = (ReplayBody::bytes("abc"), Witness::new());
        assert!(matches!(
            body.watch(witness.clone(), Some(4)),
            Err(OpenError::Failed(_))
        ));
        assert!(body.watch(witness.clone(), Some(3)).is_ok());
        assert_eq!(text(&mut body), "abc");
        assert!(witness.trace().polled());
    }

    #[test]
    fn a_body_that_was_cut_off_is_never_at_its_end() {
        let mut source = ReplayBody::empty().into_source();
        let (mut old, witness) = attempt(&mut source);
        source.cut();
        assert!(
            !old.is_end_stream(),
            "else a client could send the request yet"
        );
        error(&mut old);
        assert!(witness.trace().polled() && !witness.trace().ended());
    }

    #[test]
    fn the_end_is_seen_in_trailers_or_in_the_last_answer() {
        let end = [
            Script::new([Step::Trailers(script::trailers())]).silent(),
            Script::new([]).silent(),
        ];
        for script in end {
            let (mut body, witness) = attempt(&mut ReplayBody::one_shot(script).into_source());
            assert!(!body.is_end_stream() && !witness.trace().ended());
            assert!(poll(&mut body).is_ready());
            assert!(witness.trace().ended());
        }
    }

    #[test]
    fn a_cut_reaches_through_an_inner_layer() {
        let mut outer = ReplayBody::buffered(Script::data(&["a", "b"]), 10).into_source();
        let (body, outer_witness) = attempt(&mut outer);
        let mut inner = body.into_source();
        let (mut first, _) = attempt(&mut inner);
        assert_eq!(text(&mut first), "a");
        let (mut second, inner_witness) = attempt(&mut inner);
        assert_eq!(
            error(&mut first),
            "the attempt is over: its body was cut off"
        );
        assert!(!outer_witness.trace().failed());
        outer.cut();
        assert_eq!(
            error(&mut second),
            "the attempt is over: its body was cut off"
        );
        assert!(!inner_witness.trace().failed());
        let (mut next, _) = attempt(&mut outer);
        assert_eq!(drain(&mut next).expect("whole").0, b"ab");
    }

    #[test]
    fn an_inner_layer_repeats_what_it_was_given_once() {
        let mut outer = ReplayBody::buffered(Script::data(&["a", "b"]), 2).into_source();
        let (body, witness) = attempt(&mut outer);
        let mut inner = body.into_source();
        assert_eq!(inner.replayability(), Replayability::Replayable);
        for _ in 0..3 {
            let (mut body, _) = attempt(&mut inner);
            assert_eq!(drain(&mut body).expect("whole").0, b"ab");
        }
        assert!(
            !witness.trace().dropped(),
            "the inner layer may start another"
        );
        drop(inner);
        assert!(witness.trace().dropped());
        assert_eq!(outer.state(), BodyState::Replayable);
    }

    #[test]
    fn the_witness_tells_a_question_from_a_poll_from_an_end() {
        let (body, witness) = attempt(&mut ReplayBody::bytes("abc").into_source());
        let mut body = body;
        assert_eq!(witness.trace(), crate::BodyTrace::default());
        body.sits_on_client();
        assert!(witness.trace().reached_client());
        let _ = body.size_hint();
        assert!(
            !witness.trace().consulted(),
            "clients ask for sizes long before they send"
        );
        let _ = body.is_end_stream();
        assert!(witness.trace().consulted() && !witness.trace().polled());
        assert_eq!(text(&mut body), "abc");
        assert!(witness.trace().polled() && !witness.trace().ended());
        assert!(body.is_end_stream() && witness.trace().ended());
        assert!(!witness.trace().dropped());
        drop(body);
        assert!(witness.trace().dropped() && !witness.trace().failed());
    }

    #[test]
    fn an_outer_witness_sees_what_the_inner_bodies_see() {
        let (body, outer) = attempt(&mut ReplayBody::bytes("abc").into_source());
        let mut inner = body.into_source();
        let (mut first, _) = attempt(&mut inner);
        first.sits_on_client();
        drop(first);
        assert!(outer.trace().reached_client() && !outer.trace().consulted());
        let (mut second, _) = attempt(&mut inner);
        second.sits_on_client();
        assert_eq!(text(&mut second), "abc");
        assert!(outer.trace().polled() && !outer.trace().dropped());
        drop(inner);
        assert!(!outer.trace().dropped(), "an inner body is still alive");
        drop(second);
        assert!(outer.trace().dropped() && outer.trace().reached_client());
    }

    #[test]
    fn an_inner_body_that_reached_no_client_takes_the_proof_away() {
        let (body, outer) = attempt(&mut ReplayBody::bytes("abc").into_source());
        let mut inner = body.into_source();
        let (mut first, _) = attempt(&mut inner);
        first.sits_on_client();
        drop(first);
        let (second, _) = attempt(&mut inner);
        drop(second);
        drop(inner);
        assert!(outer.trace().dropped() && !outer.trace().reached_client());
    }

    #[test]
    fn a_short_body_is_an_error_and_never_at_its_end() {
        for script in [
            Script::data(&["abc"]).exact(5),
            Script::data(&["abc"]).exact(5).silent(),
        ] {
            let (mut body, witness) = attempt(&mut ReplayBody::one_shot(script).into_source());
            assert_eq!(text(&mut body), "abc");
            assert!(!body.is_end_stream());
            assert_eq!(error(&mut body), "the request body failed");
            assert!(witness.trace().failed() && !witness.trace().ended());
            let cause = witness.take_failure().expect("kept for the caller");
            let cause = cause.source().expect("what was wrong").to_string();
            assert_eq!(cause, "the body ended after 3 of 5 bytes");
            assert!(witness.take_failure().is_none());
        }
    }

    #[test]
    fn trailers_do_not_hide_a_short_body() {
        let steps = [data("abc"), Step::Trailers(script::trailers())];
        let body = ReplayBody::one_shot(Script::new(steps).exact(5));
        let (mut body, witness) = attempt(&mut body.into_source());
        assert_eq!(text(&mut body), "abc");
        error(&mut body);
        assert!(witness.trace().failed());
    }

    #[test]
    fn a_body_is_held_to_its_content_length() {
        for (declared, sent) in [(5, vec!["abc"]), (2, vec!["a", "bc"])] {
            let mut source = ReplayBody::one_shot(Script::data(&sent)).into_source();
            let witness = Witness::new();
            let mut body = script::body(source.attempt(witness.clone(), Some(declared)));
            drain(&mut body).expect_err("not its length");
            assert!(witness.trace().failed());
            assert!(
                matches!(poll(&mut body), Poll::Ready(None)),
                "an error is told once"
            );
        }
    }

    #[test]
    fn a_known_length_that_is_not_the_declared_one_is_never_sent() {
        let bodies = [
            ReplayBody::bytes("abc"),
            ReplayBody::empty(),
            ReplayBody::one_shot(Script::data(&["abc"]).exact(3)),
        ];
        for body in bodies {
            let opened = body.into_source().attempt(Witness::new(), Some(4));
            assert!(matches!(opened, Opened::Failed(OpenError::Failed(_))));
        }
        let opened = ReplayBody::bytes("abc").witnessed(Witness::new(), Some(4));
        assert!(matches!(opened, Opened::Failed(OpenError::Failed(_))));
    }

    #[test]
    fn a_panic_of_the_source_is_recorded_as_it_happens() {
        let script = Script::new([data("a"), Step::Panic]);
        let mut source = ReplayBody::buffered(script, 10).into_source();
        let (mut body, witness) = attempt(&mut source);
        assert_eq!(text(&mut body), "a");
        let panic = std::panic::AssertUnwindSafe(|| poll(&mut body));
        std::panic::catch_unwind(panic).expect_err("it panics");
        assert!(witness.trace().failed());
        assert_eq!(source.state(), BodyState::Consumed);
        error(&mut body);
    }

    #[test]
    fn a_body_sent_once_keeps_nothing() {
        let dropped = std::sync::Arc::new(());
        struct Owner(#[allow(dead_code)] std::sync::Arc<()>);
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                b"abc"
            }
        }
        let chunk = Bytes::from_owner(Owner(dropped.clone()));
        let script = Script::new([Step::Data(chunk), Step::Hang]);
        let witness = Witness::new();
        let body = ReplayBody::buffered(script, 10).witnessed(witness.clone(), None);
        let mut body = script::body(body);
        assert_eq!(text(&mut body), "abc");
        assert_eq!(std::sync::Arc::strong_count(&dropped), 1);
        assert!(witness.trace().polled());
    }

    #[test]
    fn a_witness_is_used_again_once_its_body_is_gone() {
        let mut source = ReplayBody::bytes("abc").into_source();
        let (body, mut witness) = attempt(&mut source);
        source.cut();
        assert!(!witness.reset_if_unique());
        drop(body);
        assert!(witness.trace().dropped());
        assert!(witness.reset_if_unique());
        assert_eq!(witness.trace(), crate::BodyTrace::default());
        let body = script::body(source.attempt(witness, None));
        let mut body = body;
        assert_eq!(text(&mut body), "abc");
    }

    #[test]
    fn it_stays_small_and_goes_anywhere() {
        fn anywhere<T: Send + Sync + Unpin + 'static>() {}
        anywhere::<ReplayBody>();
        anywhere::<Source>();
        assert!(size_of::<ReplayBody>() <= 64, "{}", size_of::<ReplayBody>());
        assert!(size_of::<Source>() <= 64, "{}", size_of::<Source>());
    }
}
