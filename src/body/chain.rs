//! Several bodies as one.

use std::{
    collections::VecDeque,
    task::{Context, Poll, ready},
};

use http::HeaderMap;
use http_body::{Frame, SizeHint};

use super::{
    BodyState, PolledFrame, ReplayBody, Replayability, content::Content, erased::erase,
    source::Kept, template::Open, trace::Recorder,
};

/// What is left of the parts.
pub(super) struct Chain {
    mark: Replayability,
    parts: VecDeque<Content>,
    /// Those of all parts, which can only come after the last one's data.
    trailers: Option<HeaderMap>,
}

impl Chain {
    pub(super) fn content(parts: impl IntoIterator<Item = ReplayBody>) -> Content {
        let parts: VecDeque<Content> = parts.into_iter().map(part).collect();
        match parts.iter().map(Content::replayability).min() {
            None => Content::Empty(Replayability::Replayable),
            Some(mark) => Content::Chain(Box::new(Self {
                mark,
                parts,
                trailers: None,
            })),
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        recorder: Option<&Recorder>,
    ) -> PolledFrame {
        while let Some(part) = self.parts.front_mut() {
            match ready!(part.poll_frame(cx, recorder)) {
                Some(Ok(frame)) => match frame.into_trailers() {
                    Ok(trailers) => {
                        self.trailers.get_or_insert_default().extend(trailers);
                        self.parts.pop_front();
                    }
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    self.parts.pop_front();
                }
            }
        }
        Poll::Ready(
            self.trailers
                .take()
                .map(|trailers| Ok(Frame::trailers(trailers))),
        )
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.trailers.is_none() && self.parts.iter().all(Content::is_end_stream)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let hints = || self.parts.iter().map(Content::size_hint);
        let lower = hints()
            .map(|hint| hint.lower())
            .fold(0, u64::saturating_add);
        let upper = hints().try_fold(0_u64, |sum, hint| sum.checked_add(hint.upper()?));
        let mut hint = SizeHint::new();
        if let Some(upper) = upper {
            hint.set_upper(upper);
        }
        hint.set_lower(lower);
        hint
    }

    pub(super) fn replayability(&self) -> Replayability {
        self.mark
    }

    pub(super) fn state(&self) -> BodyState {
        self.parts
            .iter()
            .map(Content::state)
            .max_by_key(|state| state.weakness())
            .unwrap_or(BodyState::Empty)
    }

    pub(super) fn keep(self) -> KeptChain {
        let parts = self.parts.into_iter().map(Content::keep).collect();
        KeptChain {
            mark: self.mark,
            parts,
        }
    }
}

/// A part that is itself an attempt's body answers to its own witness, so it stays as it is: a stream.
fn part(body: ReplayBody) -> Content {
    if body.repr.recorder().is_some() {
        Content::one_shot(erase(body))
    } else {
        body.repr.into_parts().0
    }
}

/// What a call keeps of the parts.
pub(super) struct KeptChain {
    mark: Replayability,
    parts: Vec<Kept>,
}

impl KeptChain {
    pub(super) fn replayability(&self) -> Replayability {
        self.mark
    }

    pub(super) fn state(&self) -> BodyState {
        self.parts
            .iter()
            .map(Kept::state)
            .max_by_key(|state| state.weakness())
            .unwrap_or(BodyState::Empty)
    }

    /// All parts are opened before the first is sent.
    pub(super) fn open(&mut self) -> Open {
        let mark = self.mark;
        let content = move |parts| {
            Content::Chain(Box::new(Chain {
                mark,
                parts,
                trailers: None,
            }))
        };
        let opens: Vec<Open> = self.parts.iter_mut().map(Kept::open).collect();
        if opens.iter().all(|open| matches!(open, Open::Now(_))) {
            let now = opens.into_iter().filter_map(|open| match open {
                Open::Now(part) => Some(part),
                Open::Later(_) => None,
            });
            return Open::Now(now.collect::<Result<_, _>>().map(content));
        }
        Open::Later(Box::pin(async move {
            let mut parts = VecDeque::with_capacity(opens.len());
            for open in opens {
                parts.push_back(match open {
                    Open::Now(part) => part?,
                    Open::Later(opening) => opening.await?,
                });
            }
            Ok(content(parts))
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, task::Poll};

    use http_body::Body;
    use proptest::prelude::*;

    use super::{
        super::{
            OpenError, Opened, Source, Witness, script,
            script::{Script, Step, collect, data, drain, next, poll, text},
        },
        *,
    };

    fn attempt(source: &mut Source) -> ReplayBody {
        script::body(source.attempt(Witness::new(), None))
    }

    fn stream(chunks: &[&'static str]) -> ReplayBody {
        ReplayBody::one_shot(Script::data(chunks))
    }

    fn supplied() -> ReplayBody {
        ReplayBody::reopenable(async || Ok::<_, Infallible>(Script::data(&["s"]).exact(1)))
    }

    #[test]
    fn a_chain_is_its_weakest_part() {
        let cases: [(Vec<ReplayBody>, _, _); 6] = [
            (vec![], Replayability::Replayable, BodyState::Empty),
            (
                vec![ReplayBody::empty()],
                Replayability::Replayable,
                BodyState::Empty,
            ),
            (
                vec!["a".into(), "b".into()],
                Replayability::Replayable,
                BodyState::Replayable,
            ),
            (
                vec!["a".into(), supplied()],
                Replayability::Reopenable,
                BodyState::Reopenable,
            ),
            (
                vec!["a".into(), stream(&["b"])],
                Replayability::OneShot,
                BodyState::Untouched,
            ),
            (
                vec![supplied(), stream(&["b"]), "a".into()],
                Replayability::OneShot,
                BodyState::Untouched,
            ),
        ];
        for (parts, mark, state) in cases {
            let body = ReplayBody::chain(parts);
            assert_eq!((body.replayability(), body.state()), (mark, state));
            let source = body.into_source();
            assert_eq!((source.replayability(), source.state()), (mark, state));
        }
    }

    #[test]
    fn a_chain_goes_out_again_until_its_stream_is_polled() {
        let mut source = ReplayBody::chain(["a".into(), stream(&["b", "c"])]).into_source();
        assert_eq!(text(&mut attempt(&mut source)), "a");
        assert_eq!(source.state(), BodyState::Untouched);
        assert_eq!(drain(&mut attempt(&mut source)).expect("whole").0, b"abc");
        assert_eq!(source.state(), BodyState::Consumed);
    }

    #[test]
    fn a_chain_overflows_with_its_part() {
        let buffered = ReplayBody::buffered(Script::data(&["bc"]), 1);
        let mut source = ReplayBody::chain(["a".into(), buffered]).into_source();
        drain(&mut attempt(&mut source)).expect("unharmed");
        assert_eq!(source.state(), BodyState::Overflowed);
    }

    #[test]
    fn the_length_is_exact_where_every_part_has_one() {
        let exact = || ReplayBody::one_shot(Script::data(&["bcd"]).exact(3));
        let chain = ReplayBody::chain(["a".into(), exact(), "e".into()]);
        let mut body = attempt(&mut chain.into_source());
        for left in [5, 4, 1] {
            assert_eq!(body.size_hint().exact(), Some(left));
            assert!(!body.is_end_stream());
            assert!(poll(&mut body).is_ready());
        }
        assert_eq!(body.size_hint().exact(), Some(0));
        assert!(body.is_end_stream());
        let chain = ReplayBody::chain([exact(), stream(&["b"])]);
        assert_eq!(chain.size_hint().exact(), None);
        assert_eq!(chain.size_hint().lower(), 3);
    }

    #[test]
    fn trailers_of_all_parts_come_at_the_end() {
        let first = Script::new([data("a"), Step::Trailers(script::trailers())]);
        let mut source =
            ReplayBody::chain([ReplayBody::buffered(first, 10), "b".into()]).into_source();
        for _ in 0..2 {
            let mut body = attempt(&mut source);
            assert_eq!(text(&mut body), "a");
            assert_eq!(text(&mut body), "b");
            assert!(!body.is_end_stream(), "trailers follow");
            let (rest, trailers) = drain(&mut body).expect("whole");
            assert!(rest.is_empty());
            assert_eq!(trailers, Some(script::trailers()));
            assert!(body.is_end_stream());
        }
    }

    #[test]
    fn an_error_of_a_part_is_the_chains() {
        let broken = ReplayBody::one_shot(Script::new([Step::Fail("broken")]));
        let mut source = ReplayBody::chain(["a".into(), broken, "b".into()]).into_source();
        let witness = Witness::new();
        let mut body = script::body(source.attempt(witness.clone(), None));
        assert_eq!(text(&mut body), "a");
        script::error(&mut body);
        assert!(witness.trace().failed());
        assert!(
            matches!(poll(&mut body), Poll::Ready(None)),
            "nothing follows an error"
        );
        assert_eq!(source.state(), BodyState::Consumed);
    }

    #[test]
    fn a_cut_reaches_the_part_that_is_sent() {
        let buffered = ReplayBody::buffered(Script::new([data("b"), Step::Hang]), 10);
        let mut source = ReplayBody::chain(["a".into(), buffered]).into_source();
        let mut old = attempt(&mut source);
        assert_eq!((text(&mut old), text(&mut old)), ("a".into(), "b".into()));
        let (alarm, waker) = script::Alarm::new();
        let mut cx = Context::from_waker(&waker);
        assert!(
            std::pin::Pin::new(&mut old)
                .poll_frame(&mut cx)
                .is_pending()
        );
        source.cut();
        assert_eq!(alarm.rings(), 1);
        assert!(script::error(&mut old).contains("cut off"));
        let mut new = attempt(&mut source);
        assert_eq!((text(&mut new), text(&mut new)), ("a".into(), "b".into()));
    }

    #[test]
    fn an_attempts_body_within_a_chain_still_answers_to_its_own_call() {
        let mut outer = ReplayBody::bytes("abc").into_source();
        let witness = Witness::new();
        let body = script::body(outer.attempt(witness.clone(), None));
        let mut inner = ReplayBody::chain(["x".into(), body]).into_source();
        let mut sent = attempt(&mut inner);
        assert_eq!(
            (text(&mut sent), text(&mut sent)),
            ("x".into(), "abc".into())
        );
        assert!(witness.trace().polled());
        assert!(!witness.trace().reached_client());
        let body = script::body(outer.attempt(Witness::new(), None));
        let mut inner = ReplayBody::chain(["x".into(), body]).into_source();
        let mut sent = attempt(&mut inner);
        outer.cut();
        assert_eq!(text(&mut sent), "x");
        script::error(&mut sent);
    }

    #[tokio::test]
    async fn all_parts_are_opened_before_the_first_is_sent() {
        let mut source = ReplayBody::chain(["a".into(), supplied(), supplied()]).into_source();
        for _ in 0..2 {
            let body = next(&mut source).await.expect("opened");
            assert_eq!(body.size_hint().exact(), Some(3));
            assert_eq!(collect(body).await.expect("whole"), "ass");
        }
        let broken = ReplayBody::reopenable(async || Err::<Script, _>("gone"));
        let mut source = ReplayBody::chain(["a".into(), supplied(), broken]).into_source();
        assert!(matches!(next(&mut source).await, Err(OpenError::Failed(_))));
        let broken = ReplayBody::encoded((), |()| Err::<String, _>("no"));
        let mut source = ReplayBody::chain(["a".into(), broken]).into_source();
        assert!(matches!(
            source.attempt(Witness::new(), None),
            Opened::Failed(_)
        ));
    }

    proptest! {
        #[test]
        fn every_attempt_of_a_chain_carries_the_same(
            parts in prop::collection::vec((0..4, prop::collection::vec("[a-z]{0,3}", 0..4)), 0..5),
            stops in prop::collection::vec(0_usize..12, 0..3),
        ) {
            let whole: String = parts.iter().flat_map(|(_, chunks)| chunks.concat().chars().collect::<Vec<_>>()).collect();
            let parts = parts.into_iter().map(|(kind, chunks)| {
                let bytes = chunks.concat();
                let script = move || Script::new(chunks.clone().into_iter().map(|chunk| Step::Data(chunk.into())));
                match kind {
                    0 => ReplayBody::bytes(bytes),
                    1 => ReplayBody::buffered(script(), 100),
                    2 => ReplayBody::factory(Replayability::Replayable, script),
                    _ => ReplayBody::encoded(bytes, |text| Ok::<_, Infallible>(text.clone())),
                }
            });
            let mut source = ReplayBody::chain(parts.collect::<Vec<_>>()).into_source();
            for stop in stops {
                let mut body = attempt(&mut source);
                for _ in 0..stop {
                    let _ = poll(&mut body);
                }
                prop_assert!(source.state().is_replayable());
            }
            prop_assert_eq!(drain(&mut attempt(&mut source)).expect("whole").0, whole.as_bytes());
        }
    }
}
