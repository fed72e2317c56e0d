//! The state machine against a reference model: random behaviour of the inner service, limits,
//! drains and drops, under paused time. The model is a page of straight code that knows nothing of
//! the machine.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // helpers of tests

mod support;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use proptest::prelude::*;
use support::body::TestBody;
use support::{policy, request};
use tokio::time::{Instant, Sleep};
use tower::{Layer, Service, ServiceExt};
use tower_http_retry::{
    BoxError, Budget, Drain, Error, EvidenceError, Failure, FailureKind, ReplayBody, RetryLayer,
};

/// Milliseconds. Behaviours take multiples of 10; the limits end in other digits, so that no two
/// things happen at one instant: attempt timeouts in 3 (up to three of them add up to 9), drops in
/// 1, drains in 5, deadlines in 7.
type Ms = u64;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ready {
    After(Ms),
    Fails,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ends {
    Status(u16),
    NotSent,
    NotSentUnread,
    Certificate,
    Reset,
    Never,
}

#[derive(Debug, Clone, Copy)]
struct Behaviour {
    ready: Ready,
    takes: Ms,
    ends: Ends,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Body {
    Bytes,
    OneShot,
}

#[derive(Debug, Clone)]
struct Scenario {
    post: bool,
    body: Body,
    retries: u32,
    tokens: u32,
    attempt_timeout: Option<Ms>,
    deadline: Option<Ms>,
    drain: Option<Ms>,
    drop: Option<Ms>,
    behaviours: Vec<Behaviour>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Answer {
    Ok(u16),
    Failed,
    Ambiguous,
    Dropped,
}

#[derive(Debug, PartialEq)]
struct Result {
    answer: Answer,
    at: Ms,
    sent: u32,
    tokens: u32,
}

// ------------------------------------------------------------------ the model

#[derive(Clone, Copy)]
enum Outcome {
    Status(u16),
    NotSent { permanent: bool },
    Reset,
}

fn model(s: &Scenario) -> Result {
    let until = |limit: Option<Ms>| limit.unwrap_or(Ms::MAX);
    let (deadline, drain, drop) = (until(s.deadline), until(s.drain), until(s.drop));
    let safe = !s.post;
    let mut now = 0;
    let mut sent = 0;
    let mut tokens = s.tokens;
    let mut consumed = false;
    let mut prior_unknown = false;
    let mut last: Option<Outcome> = None;
    let answer = |outcome: Outcome, prior_unknown: bool| match outcome {
        Outcome::Status(503) if !safe => Answer::Ambiguous,
        Outcome::Status(_) if prior_unknown && !safe => Answer::Ambiguous,
        Outcome::Status(status) => Answer::Ok(status),
        Outcome::NotSent { .. } if prior_unknown && !safe => Answer::Ambiguous,
        Outcome::NotSent { .. } => Answer::Failed,
        Outcome::Reset if safe => Answer::Failed,
        Outcome::Reset => Answer::Ambiguous,
    };
    for (index, behaviour) in s.behaviours.iter().enumerate() {
        let number = index as u32 + 1;
        let timeout = s.attempt_timeout.map_or(Ms::MAX, |timeout| now + timeout);
        let mut real = true;
        // Readiness, of retries only: the first was the caller's.
        let mut outcome = None;
        if number > 1 {
            let earlier = last.unwrap();
            match behaviour.ready {
                Ready::Fails => {
                    return end(answer(earlier, prior_unknown), now, sent, tokens + 1);
                }
                Ready::After(time) => {
                    let first = (now + time).min(timeout).min(deadline).min(drain);
                    if first >= drop {
                        return end(Answer::Dropped, drop, sent, tokens + 1);
                    }
                    now = first;
                    if first == deadline || first == drain {
                        return end(answer(earlier, prior_unknown), now, sent, tokens + 1);
                    }
                    if first == timeout {
                        outcome = Some(Outcome::NotSent { permanent: false });
                        real = false;
                        tokens += 1;
                    }
                }
            }
        }
        // The call.
        if outcome.is_none() {
            sent += 1;
            consumed |= s.body == Body::OneShot && behaviour.ends != Ends::NotSentUnread;
            let takes = if behaviour.ends == Ends::Never {
                Ms::MAX
            } else {
                now + behaviour.takes
            };
            let first = takes.min(timeout).min(deadline);
            if first >= drop {
                return end(Answer::Dropped, drop, sent, tokens);
            }
            now = first;
            outcome = Some(if first == takes {
                match behaviour.ends {
                    Ends::Status(status) => Outcome::Status(status),
                    Ends::NotSent | Ends::NotSentUnread => Outcome::NotSent { permanent: false },
                    Ends::Certificate => Outcome::NotSent { permanent: true },
                    Ends::Reset | Ends::Never => Outcome::Reset,
                }
            } else {
                Outcome::Reset
            });
        }
        let outcome = outcome.unwrap();
        let stays = if real { outcome } else { last.unwrap() };
        let retryable = match outcome {
            Outcome::Status(429) => true,
            Outcome::Status(500 | 503) => safe,
            Outcome::Status(_) => false,
            Outcome::NotSent { permanent } => !permanent,
            Outcome::Reset => safe,
        };
        let wait = 100 << (number - 1);
        if !retryable
            || number > s.retries
            || tokens == 0
            || consumed
            || drain <= now
            || deadline <= now
            || now + wait > deadline
        {
            return end(answer(stays, prior_unknown), now, sent, tokens);
        }
        prior_unknown |= match outcome {
            Outcome::Reset | Outcome::Status(503) => true,
            Outcome::Status(_) | Outcome::NotSent { .. } => false,
        };
        tokens -= 1;
        last = Some(stays);
        let wake = now + wait;
        if drop < wake && drop < drain {
            return end(Answer::Dropped, drop, sent, tokens + 1);
        }
        if drain < wake {
            return end(answer(stays, prior_unknown), drain, sent, tokens + 1);
        }
        now = wake;
    }
    unreachable!("one behaviour for each attempt")
}

fn end(answer: Answer, at: Ms, sent: u32, tokens: u32) -> Result {
    Result {
        answer,
        at,
        sent,
        tokens,
    }
}

// ------------------------------------------------------------------ the machine

struct Inner {
    behaviours: Arc<Vec<Behaviour>>,
    /// Attempts begun: by readiness for retries, by the call for the first.
    begun: Arc<Mutex<usize>>,
    sent: Arc<Mutex<u32>>,
    waiting: Option<Pin<Box<Sleep>>>,
    ready: bool,
}

impl Clone for Inner {
    fn clone(&self) -> Self {
        Self {
            behaviours: Arc::clone(&self.behaviours),
            begun: Arc::clone(&self.begun),
            sent: Arc::clone(&self.sent),
            waiting: None,
            ready: false,
        }
    }
}

impl Service<Request<ReplayBody>> for Inner {
    type Response = Response<TestBody>;
    type Error = BoxError;
    type Future =
        Pin<Box<dyn Future<Output = std::result::Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<std::result::Result<(), BoxError>> {
        if self.ready {
            return Poll::Ready(Ok(()));
        }
        if self.waiting.is_none() {
            let mut begun = self.begun.lock().unwrap();
            let behaviour = self.behaviours[*begun];
            *begun += 1;
            match behaviour.ready {
                Ready::Fails if *begun > 1 => return Poll::Ready(Err("closed".into())),
                Ready::After(time) if *begun > 1 && time > 0 => {
                    self.waiting = Some(Box::pin(tokio::time::sleep(Duration::from_millis(time))));
                }
                Ready::Fails | Ready::After(_) => {}
            }
        }
        if let Some(waiting) = &mut self.waiting
            && waiting.as_mut().poll(cx).is_pending()
        {
            return Poll::Pending;
        }
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReplayBody>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.ready),
            "called without being ready"
        );
        *self.sent.lock().unwrap() += 1;
        let behaviour = self.behaviours[*self.begun.lock().unwrap() - 1];
        Box::pin(async move {
            let body = request.into_body();
            if behaviour.ends == Ends::NotSentUnread {
                drop(body);
            } else {
                assert_eq!(body.collect().await?.to_bytes(), "order");
            }
            if behaviour.takes > 0 {
                tokio::time::sleep(Duration::from_millis(behaviour.takes)).await;
            }
            let failure = match behaviour.ends {
                Ends::Status(status) => {
                    return Ok(Response::builder()
                        .status(status)
                        .body(TestBody::from(&[][..]))?);
                }
                Ends::NotSent | Ends::NotSentUnread => Failure::not_sent(FailureKind::Connect),
                Ends::Certificate => Failure::not_sent(FailureKind::Certificate),
                Ends::Reset => Failure::sent_no_response(FailureKind::Reset),
                Ends::Never => std::future::pending().await,
            };
            Err(EvidenceError::new(failure, "scripted").into())
        })
    }
}

async fn machine(s: &Scenario) -> Result {
    let ms = Duration::from_millis;
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
    let mut layer = RetryLayer::new(policy().retries(s.retries).build().unwrap())
        .with_budgets(budget.clone())
        .with_drain(drain.clone());
    if let Some(timeout) = s.attempt_timeout {
        layer = layer.with_attempt_timeout(ms(timeout));
    }
    if let Some(deadline) = s.deadline {
        layer = layer.with_deadline(ms(deadline));
    }
    let inner = Inner {
        behaviours: Arc::new(s.behaviours.clone()),
        begun: Arc::default(),
        sent: Arc::default(),
        waiting: None,
        ready: false,
    };
    let sent = Arc::clone(&inner.sent);
    let body = match s.body {
        Body::Bytes => ReplayBody::from("order"),
        Body::OneShot => ReplayBody::one_shot(TestBody::from(&b"order"[..])),
    };
    let method = if s.post { Method::POST } else { Method::PUT };
    let start = Instant::now();
    if let Some(at) = s.drain {
        tokio::spawn(async move {
            tokio::time::sleep_until(start + ms(at)).await;
            drain.start();
        });
    }
    let call = layer.layer(inner).oneshot(request(method, body));
    let answered = match s.drop {
        Some(at) => tokio::time::timeout_at(start + ms(at), call).await.ok(),
        None => Some(call.await),
    };
    let answer = match answered {
        None => Answer::Dropped,
        Some(Ok(response)) => Answer::Ok(response.status().as_u16()),
        Some(Err(Error::Failed(_))) => Answer::Failed,
        Some(Err(Error::Ambiguous(_))) => Answer::Ambiguous,
    };
    let at = start.elapsed().as_millis() as Ms;
    // Nothing goes on behind an answer.
    let sent_by_then = *sent.lock().unwrap();
    tokio::time::sleep(ms(100_000)).await;
    assert_eq!(*sent.lock().unwrap(), sent_by_then);
    end(answer, at, sent_by_then, budget.balance() as u32)
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let tens = |max: Ms| (0..=max).prop_map(|n| n * 10);
    let ready = prop_oneof![
        6 => Just(Ready::After(0)),
        3 => tens(20).prop_map(Ready::After),
        1 => Just(Ready::Fails),
    ];
    let ends = prop_oneof![
        6 => prop::sample::select(vec![200, 404, 429, 500, 503]).prop_map(Ends::Status),
        2 => Just(Ends::NotSent),
        2 => Just(Ends::NotSentUnread),
        1 => Just(Ends::Certificate),
        2 => Just(Ends::Reset),
        1 => Just(Ends::Never),
    ];
    let behaviour =
        (ready, tens(20), ends).prop_map(|(ready, takes, ends)| Behaviour { ready, takes, ends });
    let some =
        |max: Ms, digit: Ms| proptest::option::of((0..max).prop_map(move |n| n * 10 + digit));
    (
        any::<bool>(),
        prop::sample::select(vec![Body::Bytes, Body::OneShot]),
        0_u32..4,
        0_u32..4,
        (some(30, 3), some(150, 7), some(150, 5), some(150, 1)),
        proptest::collection::vec(behaviour, 4),
    )
        .prop_map(
            |(post, body, retries, tokens, (timeout, deadline, drain, drop), behaviours)| {
                // Something must end an attempt that never answers.
                let attempt_timeout = timeout.or(deadline.is_none().then_some(203));
                Scenario {
                    post,
                    body,
                    retries,
                    tokens,
                    attempt_timeout,
                    deadline,
                    drain,
                    drop,
                    behaviours,
                }
            },
        )
}

/// More of them: `PROPTEST_CASES=1000000 cargo test --release --test machine`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(4000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]
    #[test]
    fn the_machine_does_what_the_model_says(scenario in scenarios()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let result = runtime.block_on(machine(&scenario));
        prop_assert_eq!(result, model(&scenario));
    }
}
