//! Told once for each finished attempt, with the wait that follows, and once at the call's end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response, request, response};
use proptest::prelude::*;
use tokio::sync::Semaphore;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_http_retry::{
    AttemptEnded, BoxError, Budget, CallEnded, Drain, Execution, Failure, FailureKind, Observer,
    Outcome, Reconcile, Reconciled, Refresh, ReplayBody,
};

use super::support::probe::Probe;
use super::support::script::{Reply, Script};
use super::support::{MS, layer, request};
use super::{call, reset};

/// Writes down what it is told.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn write(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn read(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Observer for Notes {
    fn attempt_ended(&self, ended: &AttemptEnded<'_>) {
        self.write(format!(
            "{} {:?}: {:?} after {:?} in {:?}, next {:?}",
            ended.attempt().number(),
            ended.attempt().outcome(),
            ended.verdict().decision(),
            ended.waited_before(),
            ended.duration(),
            ended.next_wait(),
        ));
    }

    fn call_ended(&self, ended: &CallEnded<'_>) {
        let answer = match ended.answer() {
            Ok(head) => format!("{}", head.status.as_u16()),
            Err(error) if error.is_ambiguous() => "ambiguous".to_owned(),
            Err(_) => "failed".to_owned(),
        };
        self.write(format!(
            "{answer} after {} in {:?}, {} reported{}",
            ended.attempts(),
            ended.duration(),
            ended.report().map_or(0, |report| report.attempts().len()),
            if ended.is_cut_short() {
                ", cut short"
            } else {
                ""
            },
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn every_attempt_is_told_once_in_order_and_then_the_end() {
    let notes = Notes::default();
    let replies = [
        Reply::status(503).after(5 * MS),
        reset(),
        Reply::status(200).after(7 * MS),
    ];
    call(layer().with_observer(notes.clone()), Method::GET, replies)
        .await
        .unwrap();
    assert_eq!(
        notes.read(),
        [
            "1 Response(503): Retry after 0ns in 5ms, next Some(100ms)",
            "2 Failure(Failure { evidence: SentNoResponse, kind: Reset }): Retry after 100ms in 0ns, next Some(200ms)",
            "3 Response(200): Accept after 200ms in 7ms, next None",
            "200 after 3 in 312ms, 3 reported",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_first_attempt_success_has_no_report() {
    let notes = Notes::default();
    call(
        layer().with_observer(notes.clone()),
        Method::POST,
        [Reply::status(201)],
    )
    .await
    .unwrap();
    assert_eq!(
        notes.read(),
        [
            "1 Response(201): Accept after 0ns in 0ns, next None",
            "201 after 1 in 0ns, 0 reported",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_error_is_told_too() {
    let notes = Notes::default();
    call(
        layer().with_observer(notes.clone()),
        Method::POST,
        [reset()],
    )
    .await
    .unwrap_err();
    assert_eq!(
        notes.read(),
        [
            "1 Failure(Failure { evidence: SentNoResponse, kind: Reset }): Ambiguous after 0ns in 0ns, next None",
            "ambiguous after 1 in 0ns, 1 reported",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_says_nothing_more() {
    let notes = Notes::default();
    let observed = layer().with_observer(notes.clone());
    let in_flight = call(observed.clone(), Method::GET, [Reply::Hang]);
    tokio::time::timeout(50 * MS, in_flight).await.unwrap_err();
    assert_eq!(notes.read(), [""; 0]);

    let waiting = call(observed, Method::GET, [Reply::status(503)]);
    tokio::time::timeout(50 * MS, waiting).await.unwrap_err();
    assert_eq!(
        notes.read(),
        ["1 Response(503): Retry after 0ns in 0ns, next Some(100ms)"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_cut_short_does_not_look_like_a_retry() {
    let (notes, drain) = (Notes::default(), Drain::new());
    let observed = layer()
        .with_observer(notes.clone())
        .with_drain(drain.clone());
    let waiting = tokio::spawn(call(observed, Method::GET, [Reply::status(503)]));
    tokio::time::sleep(40 * MS).await;
    drain.start();
    waiting.await.unwrap().unwrap();
    assert_eq!(
        notes.read(),
        [
            "1 Response(503): Retry after 0ns in 0ns, next Some(100ms)",
            "503 after 1 in 40ms, 1 reported, cut short",
        ]
    );
}

struct NoToken;

impl Refresh for NoToken {
    async fn refresh(
        &self,
        _: &request::Parts,
        _: &response::Parts,
    ) -> Result<http::HeaderValue, BoxError> {
        Err("the identity provider is down".into())
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_refresh_cuts_a_call_short() {
    let notes = Notes::default();
    let observed = layer().with_observer(notes.clone()).with_refresh(NoToken);
    call(observed, Method::GET, [Reply::status(401)])
        .await
        .unwrap();
    assert_eq!(
        notes.read(),
        [
            "1 Response(401): Refresh after 0ns in 0ns, next Some(0ns)",
            "401 after 1 in 0ns, 1 reported, cut short",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_never_sent_is_told() {
    let notes = Notes::default();
    let semaphore = Arc::new(Semaphore::new(1));
    let service = ServiceBuilder::new()
        .layer(
            layer()
                .with_attempt_timeout(30 * MS)
                .with_observer(notes.clone()),
        )
        .layer(GlobalConcurrencyLimitLayer::with_semaphore(Arc::clone(
            &semaphore,
        )))
        .service(Script::new([Reply::status(503), Reply::status(200)]));
    let waiting = tokio::spawn(service.oneshot(request(Method::GET, ())));
    tokio::time::sleep(50 * MS).await;
    let permit = semaphore.acquire().await.unwrap();
    tokio::time::sleep(100 * MS).await;
    drop(permit);
    assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
    assert_eq!(
        notes.read(),
        [
            "1 Response(503): Retry after 0ns in 0ns, next Some(100ms)",
            "2 Failure(Failure { evidence: NotSent, kind: ResponseTimeout }): Retry after 100ms in 30ms, next Some(200ms)",
            "3 Response(200): Accept after 200ms in 0ns, next None",
            "200 after 3 in 330ms, 3 reported",
        ]
    );
}

struct Lost;

impl Reconcile for Lost {
    async fn reconcile(&self, _: &request::Parts, _: Outcome<'_>) -> Result<Reconciled, BoxError> {
        Ok(Reconciled::NotExecuted)
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_asked_about_is_told_once_with_what_was_found() {
    let found = Arc::new(Mutex::new(Vec::new()));
    let observer = Arc::clone(&found);
    let observed = layer()
        .with_reconcile(Lost)
        .with_observer(move |ended: &AttemptEnded<'_>| {
            observer.lock().unwrap().push(ended.reconciled());
        });
    call(observed, Method::POST, [reset(), Reply::status(201)])
        .await
        .unwrap();
    assert_eq!(*found.lock().unwrap(), [Some(Execution::NotExecuted), None]);
}

#[tokio::test(start_paused = true)]
async fn observers_are_told_in_the_order_they_were_added() {
    let notes = Notes::default();
    let say = |name: &'static str| {
        let notes = notes.clone();
        move |ended: &AttemptEnded<'_>| notes.write(format!("{name} {}", ended.attempt().number()))
    };
    let observed = layer().with_observer(say("a")).with_observer(say("b"));
    call(
        observed,
        Method::GET,
        [Reply::status(503), Reply::status(200)],
    )
    .await
    .unwrap();
    assert_eq!(notes.read(), ["a 1", "b 1", "a 2", "b 2"]);
}

#[tokio::test(start_paused = true)]
async fn the_budget_is_shown_with_the_withdrawal_of_the_verdict() {
    let balances = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&balances);
    let budget = Budget::builder()
        .capacity(5)
        .ratio(1.0)
        .floor_per_second(0.0)
        .build()
        .unwrap();
    let observed =
        layer()
            .with_budgets(budget.clone())
            .with_observer(move |ended: &AttemptEnded<'_>| {
                seen.lock().unwrap().push(ended.budget_balance().unwrap());
            });
    call(
        observed,
        Method::GET,
        [Reply::status(503), Reply::status(503), Reply::status(200)],
    )
    .await
    .unwrap();
    assert_eq!(*balances.lock().unwrap(), [4.0, 3.0, 3.0]);
    assert_eq!(budget.balance(), 4.0, "the deposit of the call follows");
}

#[tokio::test(start_paused = true)]
async fn the_callers_head_is_shown_not_what_layers_below_made_of_it() {
    struct Heads(Notes);
    impl Observer for Heads {
        fn attempt_ended(&self, ended: &AttemptEnded<'_>) {
            let head = ended.attempt().request();
            self.0
                .write(format!("{} {}", head.method, head.headers.len()));
        }
        fn call_ended(&self, ended: &CallEnded<'_>) {
            let head = ended.request();
            self.0
                .write(format!("{} {}", head.method, head.headers.len()));
        }
    }
    let notes = Notes::default();
    let service = ServiceBuilder::new()
        .layer(layer().with_observer(Heads(notes.clone())))
        .map_request(|mut request: Request<ReplayBody>| {
            request.headers_mut().clear();
            *request.method_mut() = Method::DELETE;
            request
        })
        .service(Script::new([Reply::status(503), Reply::status(200)]));
    let mut request = request(Method::PUT, "order");
    request
        .headers_mut()
        .insert("x-order", http::HeaderValue::from_static("7"));
    service.oneshot(request).await.unwrap();
    assert_eq!(notes.read(), ["PUT 1"; 3]);
}

/// Panics when told of an attempt, or of the end.
#[derive(Clone, Copy, PartialEq)]
enum Panics {
    AtAttempt,
    AtEnd,
}

impl Observer for Panics {
    fn attempt_ended(&self, _: &AttemptEnded<'_>) {
        assert!(*self != Self::AtAttempt, "the observer's own fault");
    }
    fn call_ended(&self, _: &CallEnded<'_>) {
        assert!(*self != Self::AtEnd, "the observer's own fault");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_an_observer_is_the_calls_and_sends_or_keeps_nothing() {
    for (panics, attempts) in [(Panics::AtAttempt, 1), (Panics::AtEnd, 2)] {
        let budget = Budget::builder()
            .capacity(5)
            .floor_per_second(0.0)
            .build()
            .unwrap();
        let script = Script::new([Reply::status(503), Reply::status(200), Reply::status(200)]);
        let probe = Probe::new(script.clone(), 1);
        let semaphore = probe.semaphore();
        let mut service = layer()
            .with_budgets(budget.clone())
            .with_observer(panics)
            .layer(probe.clone());
        let future = service
            .ready()
            .await
            .unwrap()
            .call(request(Method::GET, ()));
        let mut future = tokio_test::task::spawn(future);
        let mut poll = || catch_unwind(AssertUnwindSafe(|| future.poll().is_pending()));
        if panics == Panics::AtEnd {
            assert!(poll().unwrap());
            tokio::time::advance(100 * MS).await;
        }
        poll().unwrap_err();
        assert_eq!(script.attempts(), attempts);
        assert_eq!(semaphore.available_permits(), 1);
        // Polled once more, it sends nothing.
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(poll().unwrap());
        assert_eq!(script.attempts(), attempts);
        drop(future);
        let spent = (attempts - 1) as f64;
        assert!((budget.balance() - (5.0 - spent)).abs() < 0.3, "{budget:?}");
        // Other calls do not notice.
        let response: Response<_> = layer()
            .layer(probe)
            .oneshot(request(Method::GET, ()))
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
    }
}

/// A real transport's error says "not sent" of a request whose body was read.
#[cfg(feature = "hyper")]
#[tokio::test]
async fn a_proof_that_the_witness_contradicts_is_told() {
    use bytes::Bytes;
    use http_body_util::Empty;
    use hyper_util::client::legacy::Client;
    use hyper_util::rt::TokioExecutor;

    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let refused = client
        .get("http://127.0.0.1:1/".parse().unwrap())
        .await
        .unwrap_err();
    assert!(refused.is_connect());
    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&told);
    let observed = layer().with_observer(move |ended: &AttemptEnded<'_>| {
        seen.lock().unwrap().push(ended.is_contradicted());
    });
    let replies = [Reply::Error(refused.into())];
    let answer = call(observed.clone(), Method::POST, replies).await;
    assert!(answer.unwrap_err().is_ambiguous());
    call(observed.clone(), Method::POST, [Reply::status(200)])
        .await
        .unwrap();
    assert_eq!(*told.lock().unwrap(), [true, false]);
    assert_eq!(observed.contradictions(), 1);
}

/// What an observer is told of one call, and what the caller's report says of it.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<(Vec<Attempted>, Vec<Ended>)>>);

#[derive(Debug, Clone, PartialEq)]
struct Attempted {
    number: u32,
    waited: Duration,
    next: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
struct Ended {
    attempts: u32,
    reported: Option<Vec<(u32, Duration)>>,
    cut_short: bool,
    told_before: usize,
}

impl Observer for Told {
    fn attempt_ended(&self, ended: &AttemptEnded<'_>) {
        self.0.lock().unwrap().0.push(Attempted {
            number: ended.attempt().number().get(),
            waited: ended.waited_before(),
            next: ended.next_wait(),
        });
    }

    fn call_ended(&self, ended: &CallEnded<'_>) {
        let mut told = self.0.lock().unwrap();
        let told_before = told.0.len();
        let reported = ended.report().map(|report| {
            let attempts = report.attempts().iter();
            attempts
                .map(|attempt| (attempt.number().get(), attempt.waited_before()))
                .collect()
        });
        told.1.push(Ended {
            attempts: ended.attempts(),
            reported,
            cut_short: ended.is_cut_short(),
            told_before,
        });
    }
}

fn reply() -> impl Strategy<Value = u16> {
    // 0 is a lost answer, 1 a refused connection.
    prop_oneof![
        Just(200_u16),
        Just(503),
        Just(429),
        Just(500),
        Just(404),
        Just(0),
        Just(1)
    ]
}

proptest! {
    /// Whatever happens: once an attempt, in order, each wait told before and after; once at the
    /// end, after all attempts, with the report that the caller gets.
    #[test]
    fn what_is_told_is_what_happened(
        replies in prop::collection::vec(reply(), 4),
        post in any::<bool>(),
        drains_at in prop::option::of(1..800_u32),
    ) {
        let (told, drain) = (Told::default(), Drain::new());
        let observed = layer().with_observer(told.clone()).with_drain(drain.clone());
        let replies: Vec<_> = replies.into_iter().map(|reply| match reply {
            0 => reset(),
            1 => Reply::fails(Failure::not_sent(FailureKind::Connect)),
            status => Reply::status(status),
        }).collect();
        let method = if post { Method::POST } else { Method::GET };
        super::support::paused(async {
            let drains = async {
                if let Some(at) = drains_at {
                    tokio::time::sleep(at * MS).await;
                    drain.start();
                }
            };
            let _ = tokio::join!(call(observed, method, replies), drains);
        });
        let (attempts, ends) = told.0.lock().unwrap().clone();
        prop_assert_eq!(ends.len(), 1);
        let end = &ends[0];
        prop_assert_eq!(end.told_before, attempts.len());
        prop_assert_eq!(end.attempts as usize, attempts.len());
        let facts: Vec<_> = attempts.iter().map(|told| (told.number, told.waited)).collect();
        prop_assert_eq!(end.reported.clone().unwrap_or_else(|| vec![(1, Duration::ZERO)]), facts);
        for (index, pair) in attempts.windows(2).enumerate() {
            prop_assert_eq!(pair[0].number as usize, index + 1);
            prop_assert_eq!(pair[0].next, Some(pair[1].waited));
        }
        prop_assert_eq!(attempts.last().unwrap().next.is_some(), end.cut_short);
    }
}
