//! Streams under every order of events that a call can bring about.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Body, SizeHint};
use proptest::prelude::*;

use super::super::{
    BodyState, ReplayBody, Source, Witness, script,
    script::{Script, Step, data, drain, error, poll, text},
};

fn attempt(source: &mut Source) -> ReplayBody {
    script::body(source.attempt(Witness::new(), None))
}

/// A stream: what it gives, and what it says about itself.
#[derive(Debug, Clone)]
struct Plan {
    chunks: Vec<Vec<u8>>,
    waits: Vec<bool>,
    trailers: bool,
    fails: bool,
    tells_end: bool,
    hint: Hint,
    limit: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
enum Hint {
    Unknown,
    Exact,
    AtLeastAByte,
}

/// What happens to a call's bodies, in this order.
#[derive(Debug, Clone, Copy)]
enum Event {
    Poll,
    PollOlder(usize),
    DropOlder(usize),
    Next,
}

impl Plan {
    fn whole(&self) -> Vec<u8> {
        self.chunks.concat()
    }

    fn hint(&self) -> SizeHint {
        let len = self.whole().len() as u64;
        match self.hint {
            Hint::Unknown => SizeHint::new(),
            Hint::Exact => SizeHint::with_exact(len),
            Hint::AtLeastAByte => {
                let mut hint = SizeHint::new();
                hint.set_lower(len.min(1));
                hint
            }
        }
    }

    fn body(&self) -> ReplayBody {
        let mut steps = Vec::new();
        for (at, chunk) in self.chunks.iter().enumerate() {
            if self.waits.get(at).copied().unwrap_or_default() {
                steps.push(Step::Wait);
            }
            steps.push(Step::Data(Bytes::from(chunk.clone())));
        }
        if self.fails {
            steps.push(Step::Fail("source"));
        } else if self.trailers {
            steps.push(Step::Trailers(script::trailers()));
        }
        let script = Script::new(steps).hint(self.hint());
        let script = if self.tells_end {
            script
        } else {
            script.silent()
        };
        match self.limit {
            Some(limit) => ReplayBody::buffered(script, limit),
            None => ReplayBody::one_shot(script),
        }
    }
}

fn plan() -> impl Strategy<Value = Plan> {
    let chunks = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 0..7);
    let hint = prop_oneof![
        Just(Hint::Unknown),
        Just(Hint::Exact),
        Just(Hint::AtLeastAByte)
    ];
    (
        chunks,
        prop::collection::vec(any::<bool>(), 7),
        any::<bool>(),
        prop::bool::weighted(0.2),
        any::<bool>(),
        hint,
        prop::option::weighted(0.8, 0_usize..30),
    )
        .prop_map(
            |(chunks, waits, trailers, fails, tells_end, hint, limit)| Plan {
                chunks,
                waits,
                trailers,
                fails,
                tells_end,
                hint,
                limit,
            },
        )
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => Just(Event::Poll),
        2 => (0_usize..4).prop_map(Event::PollOlder),
        1 => (0_usize..4).prop_map(Event::DropOlder),
        2 => Just(Event::Next),
    ]
}

/// What the client of one attempt has seen.
struct Client {
    body: ReplayBody,
    got: Vec<u8>,
    trailers: bool,
    over: bool,
}

impl Client {
    fn new(body: ReplayBody) -> Self {
        Self {
            body,
            got: Vec::new(),
            trailers: false,
            over: false,
        }
    }

    /// One poll; the error, if there was one.
    fn step(&mut self, plan: &Plan) -> Option<String> {
        if self.over {
            return None;
        }
        match poll(&mut self.body) {
            Poll::Pending => None,
            Poll::Ready(None) => {
                assert!(!plan.fails, "a failed stream looks whole");
                assert_eq!(self.got, plan.whole());
                assert_eq!(self.trailers, plan.trailers);
                self.over = true;
                None
            }
            Poll::Ready(Some(Ok(frame))) => {
                assert!(!self.trailers, "nothing follows trailers");
                match frame.into_data() {
                    Ok(data) => self.got.extend_from_slice(&data),
                    Err(_) => self.trailers = true,
                }
                assert!(
                    plan.whole().starts_with(&self.got),
                    "no byte lost, doubled or mixed"
                );
                None
            }
            Poll::Ready(Some(Err(error))) => {
                self.over = true;
                let error = error
                    .source()
                    .map_or_else(|| error.to_string(), |e| e.to_string());
                Some(error)
            }
        }
    }
}

proptest! {
    #[test]
    fn no_order_of_events_loses_doubles_or_mixes_a_byte(
        plan in plan(),
        events in prop::collection::vec(event(), 0..40),
    ) {
        let mut source = plan.body().into_source();
        let begins_empty = source.state() == BodyState::Empty;
        let hopeless = plan.limit.is_some_and(|limit| plan.hint().lower() > limit as u64);
        let mut current = Client::new(attempt(&mut source));
        let mut older: Vec<Client> = Vec::new();
        let (mut polled, mut failed, mut most) = (false, false, 0);
        for event in events {
            match event {
                Event::Poll => {
                    polled |= !current.over;
                    if let Some(error) = current.step(&plan) {
                        prop_assert_eq!(error, "source");
                        prop_assert!(plan.fails);
                        failed = true;
                    }
                    most = most.max(current.got.len());
                }
                Event::PollOlder(index) => {
                    if let Some(client) = older.get_mut(index) {
                        let (over, got) = (client.over, client.got.len());
                        let error = client.step(&plan);
                        prop_assert_eq!(client.got.len(), got, "a body that was cut off takes nothing");
                        prop_assert!(over || error.is_some_and(|error| error.contains("cut off")));
                    }
                }
                Event::DropOlder(index) => {
                    if index < older.len() {
                        older.remove(index);
                    }
                }
                Event::Next => {
                    source.cut();
                    // As the layer does: what may not be sent again is not.
                    if source.state().is_replayable() {
                        older.push(std::mem::replace(&mut current, Client::new(attempt(&mut source))));
                    } else {
                        current.over = true;
                    }
                }
            }
            let expected = match plan.limit {
                _ if begins_empty => BodyState::Empty,
                _ if failed => BodyState::Consumed,
                None if polled => BodyState::Consumed,
                Some(_) if hopeless && polled => BodyState::Overflowed,
                None => BodyState::Untouched,
                Some(_) if hopeless => BodyState::Untouched,
                Some(limit) if most > limit => BodyState::Overflowed,
                Some(_) => BodyState::Replayable,
            };
            prop_assert_eq!(source.state(), expected);
        }
        // Whatever happened: a body that says it can be sent again is whole.
        source.cut();
        if source.state().is_replayable() {
            let whole = drain(&mut attempt(&mut source));
            match plan.fails && !begins_empty {
                true => { whole.expect_err("its source fails"); }
                false => prop_assert_eq!(whole.expect("whole").0, plan.whole()),
            }
        }
    }

    #[test]
    fn every_attempt_says_of_itself_what_the_first_said(plan in plan(), stops in prop::collection::vec(0_usize..20, 1..4)) {
        let plan = Plan { limit: Some(100), fails: false, ..plan };
        // Frame by frame: the data or trailers, the size that is left, and whether it is at its end.
        let read = |body: &mut ReplayBody, stop: usize| {
            let mut seen = vec![(None, format!("{:?}", body.size_hint()), body.is_end_stream())];
            while seen.len() <= stop {
                let frame = match poll(body) {
                    Poll::Pending => continue,
                    Poll::Ready(None) => break,
                    Poll::Ready(Some(frame)) => frame.expect("it does not fail"),
                };
                seen.push((Some(format!("{frame:?}")), format!("{:?}", body.size_hint()), body.is_end_stream()));
            }
            seen
        };
        let mut alone = attempt(&mut plan.body().into_source());
        let first = read(&mut alone, usize::MAX);
        let mut source = plan.body().into_source();
        for stop in stops {
            let seen = read(&mut attempt(&mut source), stop);
            prop_assert_eq!(&seen[..], &first[..seen.len()]);
        }
        prop_assert_eq!(read(&mut attempt(&mut source), usize::MAX), first);
    }

    #[test]
    fn tiny_frames_do_not_outgrow_the_limit(len in 1_usize..6000, stop in 0_usize..6000) {
        let whole: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let steps = whole.iter().map(|byte| Step::Data(Bytes::copy_from_slice(&[*byte])));
        let mut source = ReplayBody::buffered(Script::new(steps), len).into_source();
        let mut first = attempt(&mut source);
        for _ in 0..stop {
            let _ = poll(&mut first);
        }
        prop_assert_eq!(drain(&mut attempt(&mut source)).expect("whole").0, whole);
        let mut body = attempt(&mut source);
        let frames = std::iter::from_fn(|| match poll(&mut body) {
            Poll::Ready(frame) => frame,
            Poll::Pending => None,
        });
        let frames = frames.count();
        prop_assert!(frames <= 512 + len / 512, "{frames} frames of {len} bytes");
    }

    /// Calls within calls: each reads some of an attempt, gives it up, reads some of the next, and passes that one
    /// on to a call further in.
    #[test]
    fn no_call_within_a_call_loses_a_byte_of_the_rest(
        lens in prop::collection::vec(prop_oneof![199 => 0_usize..3, 1 => 0_usize..2000], 0..1500),
        exact in any::<bool>(),
        calls in prop::collection::vec((0_usize..900, 0_usize..500), 1..4),
        stops in prop::collection::vec(0_usize..1200, 0..3),
    ) {
        let whole: Vec<u8> = (0..lens.iter().sum()).map(|at| (at % 251) as u8).collect();
        let mut rest = Bytes::from(whole.clone());
        let script = Script::new(lens.iter().map(|len| Step::Data(rest.split_to(*len))));
        let script = if exact { script.exact(whole.len() as u64) } else { script };
        let mut body = ReplayBody::buffered(script, whole.len());
        let mut read = 0;
        let mut outer = Vec::new();
        for (stop, peek) in calls {
            let from = &whole[read..];
            let mut source = body.into_source();
            let given_up = frames(&mut attempt(&mut source), stop);
            prop_assert_eq!(&given_up, &from[..given_up.len()]);
            body = attempt(&mut source);
            let peeked = frames(&mut body, peek);
            prop_assert_eq!(&peeked, &from[..peeked.len()]);
            outer.push((source, read));
            read += peeked.len();
        }
        let mut source = body.into_source();
        for stop in stops {
            let got = frames(&mut attempt(&mut source), stop);
            prop_assert_eq!(&got, &whole[read..][..got.len()]);
        }
        prop_assert_eq!(drain(&mut attempt(&mut source)).expect("whole").0, &whole[read..]);
        drop(source);
        while let Some((mut source, read)) = outer.pop() {
            prop_assert_eq!(drain(&mut attempt(&mut source)).expect("whole").0, &whole[read..]);
        }
    }
}

/// The data of so many frames, or of all that are left.
fn frames(body: &mut ReplayBody, count: usize) -> Vec<u8> {
    let mut data = Vec::new();
    for _ in 0..count {
        match poll(body) {
            Poll::Ready(Some(Ok(frame))) => {
                data.extend_from_slice(&frame.into_data().expect("data"))
            }
            Poll::Ready(None) => break,
            other @ (Poll::Pending | Poll::Ready(Some(Err(_)))) => panic!("no frame: {other:?}"),
        }
    }
    data
}

#[test]
fn the_limit_is_exact() {
    for (limit, state) in [
        (7, BodyState::Replayable),
        (6, BodyState::Replayable),
        (5, BodyState::Overflowed),
        (0, BodyState::Overflowed),
    ] {
        let body = ReplayBody::buffered(Script::data(&["ab", "cd", "ef"]), limit);
        let mut source = body.into_source();
        assert_eq!(source.state(), BodyState::Replayable);
        let mut first = attempt(&mut source);
        assert_eq!(drain(&mut first).expect("unharmed").0, b"abcdef");
        assert_eq!(source.state(), state, "limit {limit}");
    }
}

#[test]
fn it_overflows_in_a_later_attempt_too() {
    let mut source = ReplayBody::buffered(Script::data(&["ab", "cd", "ef"]), 5).into_source();
    let mut first = attempt(&mut source);
    assert_eq!(text(&mut first), "ab");
    let mut second = attempt(&mut source);
    assert_eq!(text(&mut second), "ab");
    assert_eq!(text(&mut second), "cd");
    let mut third = attempt(&mut source);
    assert_eq!(drain(&mut third).expect("unharmed").0, b"abcdef");
    assert_eq!(source.state(), BodyState::Overflowed);
    // Nothing asks for it after that; if somebody did, it would not get a part for the whole.
    error(&mut attempt(&mut source));
}

#[test]
fn a_size_above_the_limit_keeps_nothing_but_an_unread_body_goes_out_again() {
    let chunk = Bytes::from(vec![1; 10]);
    let seen = chunk.clone();
    let script = Script::new([Step::Data(chunk), Step::Hang]).exact(11);
    let mut source = ReplayBody::buffered(script, 10).into_source();
    drop(attempt(&mut source));
    assert_eq!(source.state(), BodyState::Untouched);
    let mut body = attempt(&mut source);
    drop(poll(&mut body));
    assert_eq!(source.state(), BodyState::Overflowed);
    assert!(seen.is_unique(), "nothing holds a share of it");
}

#[test]
fn bytes_are_shared_with_the_stream_that_gave_them() {
    let chunks = [Bytes::from(vec![1; 2000]), Bytes::from(vec![2; 5])];
    let at: Vec<_> = chunks.iter().map(|chunk| chunk.as_ptr()).collect();
    let script = Script::new(chunks.map(Step::Data));
    let mut source = ReplayBody::buffered(script, 4000).into_source();
    for _ in 0..3 {
        let mut body = attempt(&mut source);
        for at in &at {
            let Poll::Ready(Some(Ok(frame))) = poll(&mut body) else {
                panic!("no frame")
            };
            assert_eq!(frame.data_ref().expect("data").as_ptr(), *at);
        }
    }
}

#[test]
fn what_is_kept_is_let_go_when_the_call_is_over_and_the_upload_goes_on() {
    let chunk = Bytes::from(vec![1; 10]);
    let seen = chunk.clone();
    let script = Script::new([Step::Data(chunk), Step::Wait, data("rest")]);
    let mut source = ReplayBody::buffered(script, 100).into_source();
    let mut body = attempt(&mut source);
    drop(poll(&mut body));
    assert!(!seen.is_unique(), "it is kept for another attempt");
    drop(source);
    assert!(seen.is_unique(), "no other attempt can follow");
    assert_eq!(drain(&mut body).expect("whole").0, b"rest");
}

#[test]
fn a_replay_that_outlives_its_call_lets_go_as_it_sends() {
    let chunks = [Bytes::from(vec![1; 10]), Bytes::from(vec![2; 10])];
    let seen = chunks.clone();
    let steps = chunks.map(Step::Data).into_iter().chain([Step::Hang]);
    let mut source = ReplayBody::buffered(Script::new(steps), 100).into_source();
    let mut first = attempt(&mut source);
    drop((poll(&mut first), poll(&mut first)));
    let mut second = attempt(&mut source);
    drop(source);
    assert!(!seen[0].is_unique());
    drop(poll(&mut second));
    assert!(seen[0].is_unique() && !seen[1].is_unique());
    drop(poll(&mut second));
    assert!(seen[1].is_unique());
    assert!(poll(&mut second).is_pending());
}

#[test]
fn an_error_of_the_source_is_told_once() {
    let script = Script::new([data("a"), Step::Fail("broken")]);
    let mut source = ReplayBody::buffered(script, 10).into_source();
    let witness = Witness::new();
    let mut body = script::body(source.attempt(witness.clone(), None));
    assert_eq!(text(&mut body), "a");
    let Poll::Ready(Some(Err(told))) = poll(&mut body) else {
        panic!("no error")
    };
    assert_eq!(told.source().expect("the cause").to_string(), "broken");
    assert!(matches!(poll(&mut body), Poll::Ready(None)));
    assert!(witness.trace().failed());
    let kept = witness.take_failure().expect("for a client that loses it");
    assert_eq!(kept.source().expect("the cause").to_string(), "broken");
    assert_eq!(source.state(), BodyState::Consumed);
}

#[test]
fn a_body_that_goes_through_no_layer_keeps_nothing() {
    let chunk = Bytes::from(vec![1; 10]);
    let seen = chunk.clone();
    let mut body = ReplayBody::buffered(Script::new([Step::Data(chunk), data("b")]), 100);
    assert_eq!(body.state(), BodyState::Replayable);
    drop(poll(&mut body));
    assert!(seen.is_unique());
    assert_eq!(body.state(), BodyState::Consumed);
    assert_eq!(text(&mut body), "b");
    assert!(body.is_end_stream());
}

#[test]
fn a_reader_that_was_about_to_read_when_it_was_cut_off_takes_nothing() {
    let mut source = ReplayBody::one_shot(Script::data(&["a", "b"])).into_source();
    let (mut content, recorder) = attempt(&mut source).repr.into_parts();
    source.cut();
    // Past the first look for a cut, as a poll on another thread would be that waits for the stream's lock.
    let mut cx = Context::from_waker(Waker::noop());
    let late = content.poll_frame(&mut cx, recorder.as_ref());
    assert!(matches!(late, Poll::Ready(Some(Err(_)))));
    assert_eq!(source.state(), BodyState::Untouched);
}

#[test]
fn trailers_are_the_end() {
    let script = Script::new([Step::Trailers(script::trailers()), data("never")]).silent();
    let mut body = ReplayBody::buffered(script, 10);
    assert!(poll(&mut body).is_ready());
    assert!(body.is_end_stream());
    assert!(matches!(poll(&mut body), Poll::Ready(None)));
}

#[test]
fn large_frames_among_many_tiny_ones_are_still_shared() {
    let large = Bytes::from(vec![1; 4000]);
    let tiny = || (0..500).map(|_| data("a"));
    let steps = tiny().chain([Step::Data(large.clone())]).chain(tiny());
    let mut source = ReplayBody::buffered(Script::new(steps), 10_000).into_source();
    assert_eq!(
        drain(&mut attempt(&mut source)).expect("whole").0.len(),
        5000
    );
    let mut body = attempt(&mut source);
    let mut frames = Vec::new();
    while let Poll::Ready(Some(Ok(frame))) = poll(&mut body) {
        frames.push(frame.into_data().expect("data"));
    }
    assert!(frames.len() < 500, "they were folded");
    let at = large.as_ptr();
    assert!(frames.iter().any(|frame| frame.as_ptr() == at));
}

#[test]
fn a_body_polled_on_another_thread_while_it_is_cut_off_takes_nothing_from_the_next() {
    let chunks: Vec<Bytes> = (0..64_u8).map(|at| Bytes::from(vec![at; 3])).collect();
    let whole = chunks.concat();
    for round in 0..200_u32 {
        let script = Script::new(chunks.iter().cloned().map(Step::Data));
        let mut source = ReplayBody::buffered(script, 1000).into_source();
        let mut old = attempt(&mut source);
        let start = Arc::new(std::sync::Barrier::new(2));
        let thread = std::thread::spawn({
            let start = Arc::clone(&start);
            move || {
                start.wait();
                drain(&mut old)
            }
        });
        start.wait();
        for _ in 0..round {
            std::hint::spin_loop();
        }
        source.cut();
        assert_eq!(source.state(), BodyState::Replayable);
        let got = drain(&mut attempt(&mut source)).expect("whole").0;
        assert_eq!(got, whole);
        match thread.join().expect("no panic") {
            Ok((got, _)) => assert_eq!(got, whole, "it was faster than the cut"),
            Err(error) => assert!(error.contains("cut off"), "{error}"),
        }
    }
}

#[test]
fn a_one_shot_polled_while_it_is_cut_off_is_never_sent_in_part() {
    for round in 0..200_u32 {
        let mut source = ReplayBody::one_shot(Script::data(&["a", "b", "c"])).into_source();
        let mut old = attempt(&mut source);
        let start = Arc::new(std::sync::Barrier::new(2));
        let thread = std::thread::spawn({
            let start = Arc::clone(&start);
            move || {
                start.wait();
                drain(&mut old)
            }
        });
        start.wait();
        for _ in 0..round {
            std::hint::spin_loop();
        }
        source.cut();
        let state = source.state();
        let sent = drain(&mut attempt(&mut source));
        let old = thread.join().expect("no panic");
        if state == BodyState::Untouched {
            assert_eq!(sent.expect("whole").0, b"abc");
            old.expect_err("it was cut off in time");
        } else {
            assert_eq!(state, BodyState::Consumed);
            sent.expect_err("never a part");
        }
    }
}
