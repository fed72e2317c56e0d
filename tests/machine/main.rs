//! The state machine against a reference model: random behaviour of the inner service, panics,
//! limits, drains and drops, under paused time. The model is a page of straight code that knows
//! nothing of the machine.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // helpers of tests
#![allow(clippy::wildcard_enum_match_arm)]

mod inner;
mod model;
mod scenario;
#[path = "../support/mod.rs"]
mod support;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt};
use tower_http_retry::{
    AttemptEnded, Budget, CallEnded, Delivery, Discard, Drain, Error, Observer, ReplayBody, Retry,
    RetryLayer,
};

use inner::{Inner, Panicked, World, caught, panics};
use model::model;
use scenario::{
    Answer, Behaviour, DISCARD, Delivered, Ends, Ms, Observed, Read, Ready, Scenario, Seen, Upload,
    scenarios,
};
use support::{MS, policy, request};

type Stack = Retry<ConcurrencyLimit<Inner>>;

async fn machine(s: &Scenario) -> Seen {
    let budget = Budget::builder()
        .ratio(0.0)
        .floor_per_second(0.0)
        .capacity(10)
        .build()
        .unwrap();
    for _ in s.tokens..10 {
        budget.try_withdraw().unwrap().spend();
    }
    let drain = Drain::new();
    let observer = Arc::new(Told::new(s.observed));
    let layer = layer(s, &budget, &drain, &observer);
    let world = World::new(s.behaviours.clone());
    // One is enough for a call, however often it is sent.
    let permits = Arc::new(Semaphore::new(1));
    let inner = ConcurrencyLimit::with_semaphore(Inner::new(Arc::clone(&world)), permits.clone());
    let service = layer.layer(inner);
    let next = service.clone();

    let start = Instant::now();
    let ms = move |at: Ms| start + Duration::from_millis(at);
    let drainer = s.drain.map(|at| {
        tokio::spawn(async move {
            sleep_until(ms(at)).await;
            drain.start();
        })
    });
    let answered = Mutex::new(None);
    let call = call(s, service, start, &answered);
    let in_time = match s.drop {
        Some(at) => timeout_at(ms(at), call).await.is_ok(),
        None => {
            call.await;
            true
        }
    };
    let (mut answer, at) = answered
        .lock()
        .unwrap()
        .take()
        .unwrap_or((Answer::Dropped, since(start)));
    if let Answer::Ok(_, read, read_at) = &mut answer {
        *read_at = since(start);
        assert_eq!(*read == Read::Dropped, !in_time);
    }

    // Nothing goes on behind an answer, a panic or a drop, and nothing is left.
    let seen = Seen {
        answer,
        at,
        sent: world.sent(),
        tokens: budget.balance() as u32,
        told: observer.told(),
    };
    sleep(100_000 * MS).await;
    assert_eq!(world.sent(), seen.sent);
    assert_eq!(budget.balance(), f64::from(seen.tokens));
    assert_eq!(observer.told(), seen.told);
    assert!(!world.is_abused(), "polled after it failed or panicked");
    assert_eq!(world.alive(), 0, "something of an attempt is left");
    assert_eq!(permits.available_permits(), 1);
    if let Some(drainer) = drainer {
        drainer.await.unwrap();
    }

    // The next call notices nothing of it.
    world.heal();
    observer.calm.store(true, Ordering::SeqCst);
    let put = request(Method::PUT, "order");
    assert_eq!(next.oneshot(put).await.unwrap().status(), 200);
    assert_eq!(permits.available_permits(), 1);
    let more = u32::from(s.observed != Observed::ByNobody);
    assert_eq!(
        observer.told(),
        (seen.told.0 + more, seen.told.1 + more),
        "once for the attempt, once for the call"
    );
    seen
}

fn layer(s: &Scenario, budget: &Budget, drain: &Drain, observer: &Arc<Told>) -> RetryLayer {
    let mut layer = RetryLayer::new(policy().retries(s.retries).build().unwrap())
        .with_budgets(budget.clone())
        .with_drain(drain.clone())
        .with_discard(Discard::default().within(Duration::from_millis(DISCARD)))
        .with_delivery(match s.delivered {
            Delivered::AtHeaders => Delivery::AtHeaders,
            Delivered::AtFirstByte => Delivery::AtFirstByte,
            Delivered::Whole => Delivery::Whole { limit: 1024 },
        });
    if let Some(timeout) = s.attempt_timeout {
        layer = layer.with_attempt_timeout(Duration::from_millis(timeout));
    }
    if let Some(deadline) = s.deadline {
        layer = layer.with_deadline(Duration::from_millis(deadline));
    }
    if s.observed != Observed::ByNobody {
        layer = layer.with_observer(Arc::clone(observer));
    }
    layer
}

/// Makes the call, and reads what comes of it.
async fn call(
    s: &Scenario,
    mut service: Stack,
    start: Instant,
    answered: &Mutex<Option<(Answer, Ms)>>,
) {
    let answers = |answer| *answered.lock().unwrap() = Some((answer, since(start)));
    match unless_it_panics(Box::pin(service.ready()).as_mut()).await {
        Err(Panicked) => return answers(Answer::Panicked),
        Ok(Err(Error::Failed(_))) => return answers(Answer::NotReady),
        Ok(Err(error @ Error::Ambiguous(_))) => panic!("{error:?}"),
        Ok(Ok(_)) => {}
    }
    let body = match s.upload {
        Upload::Bytes => ReplayBody::from("order"),
        Upload::OneShot => ReplayBody::one_shot(Full::<Bytes>::from("order")),
    };
    let method = if s.post { Method::POST } else { Method::PUT };
    let Ok(call) = caught(|| service.call(request(method, body))) else {
        return answers(Answer::Panicked);
    };
    drop(service);
    let mut call = Box::pin(call);
    let response = match unless_it_panics(call.as_mut()).await {
        Err(Panicked) => {
            // Polled once more, it polls nothing.
            let polled = caught(|| call.as_mut().poll(&mut Context::from_waker(Waker::noop())));
            assert!(polled.unwrap().is_pending());
            return answers(Answer::Panicked);
        }
        Ok(Err(Error::Failed(_))) => return answers(Answer::Failed),
        Ok(Err(Error::Ambiguous(_))) => return answers(Answer::Ambiguous),
        Ok(Ok(response)) => response,
    };
    let status = response.status().as_u16();
    answers(Answer::Ok(status, Read::Dropped, 0));
    let read = match unless_it_panics(Box::pin(response.into_body().collect()).as_mut()).await {
        Err(Panicked) => Read::Panicked,
        Ok(Err(_)) => Read::Broken,
        Ok(Ok(_)) => Read::Whole,
    };
    if let Some((Answer::Ok(_, how, _), _)) = &mut *answered.lock().unwrap() {
        *how = read;
    }
}

async fn unless_it_panics<F: Future>(mut future: Pin<&mut F>) -> Result<F::Output, Panicked> {
    poll_fn(|cx| match caught(|| future.as_mut().poll(cx)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}

fn since(start: Instant) -> Ms {
    start.elapsed().as_millis() as Ms
}

/// Counts, and panics where it should.
struct Told {
    how: Observed,
    attempts: AtomicU32,
    calls: AtomicU32,
    calm: AtomicBool,
}

impl Told {
    fn new(how: Observed) -> Self {
        Self {
            how,
            attempts: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            calm: AtomicBool::new(false),
        }
    }

    fn told(&self) -> (u32, u32) {
        let count = |of: &AtomicU32| of.load(Ordering::SeqCst);
        (count(&self.attempts), count(&self.calls))
    }

    fn panics_if(&self, so: bool) {
        if so && !self.calm.load(Ordering::SeqCst) {
            panics();
        }
    }
}

impl Observer for Told {
    fn attempt_ended(&self, _: &AttemptEnded<'_>) {
        let told = self.attempts.fetch_add(1, Ordering::SeqCst) + 1;
        self.panics_if(self.how == Observed::PanicsAtAttempt(told));
    }

    fn call_ended(&self, _: &CallEnded<'_>) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.panics_if(self.how == Observed::PanicsAtEnd);
    }
}

/// More of them: `PROPTEST_CASES=1000000 cargo test --release --test machine`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(8000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]
    #[test]
    fn the_machine_does_what_the_model_says(scenario in scenarios()) {
        prop_assert_eq!(run(&scenario), model(&scenario));
    }
}

fn run(scenario: &Scenario) -> Seen {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(machine(scenario))
}

/// Found by chance once: the retry's readiness takes longer than the attempt may, and what is left
/// is the outcome of the first attempt.
#[test]
fn a_retry_that_is_never_sent_leaves_the_last_real_outcome() {
    let behaviour = |time, ends| Behaviour {
        ready: Ready::After(time),
        takes: 0,
        ends,
    };
    let scenario = Scenario {
        post: false,
        upload: Upload::Bytes,
        delivered: Delivered::AtHeaders,
        observed: Observed::Quietly,
        retries: 2,
        tokens: 1,
        attempt_timeout: Some(3),
        deadline: None,
        drain: None,
        drop: None,
        behaviours: vec![
            behaviour(0, Ends::Reset),
            behaviour(10, Ends::Status(200, None)),
            behaviour(0, Ends::Status(200, None)),
            behaviour(0, Ends::Status(200, None)),
        ],
    };
    assert_eq!(run(&scenario), model(&scenario));
}

/// The scenarios would prove little if most of them ended alike.
#[test]
fn the_scenarios_come_to_every_end_often() {
    let mut runner = TestRunner::deterministic();
    let mut ends = std::collections::BTreeMap::<_, u32>::new();
    for _ in 0..4000 {
        let scenario = scenarios().new_tree(&mut runner).unwrap().current();
        let seen = model(&scenario);
        let end = match seen.answer {
            Answer::Ok(_, read, _) => format!("Ok, {read:?}"),
            other => format!("{other:?}"),
        };
        for end in [end, format!("{} sent", seen.sent)] {
            *ends.entry(end).or_default() += 1;
        }
    }
    println!("{ends:#?}");
    assert_eq!(ends.len(), 9 + 5, "{ends:?}");
    assert!(ends.values().all(|count| *count >= 10), "{ends:?}");
}
