//! Limits of attempts, waits between them, and what calls share: kinds attempts-config,
//! backoff-maths, metrics, thread-safety.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_http_retry::{
    Attempt, AttemptNumber, Backoff, BoxError, Budget, Policy, ReplayBody, Replayability, Report,
    RetryDenied, RetryLayer, Rule, StandardPolicy,
};

use super::support::body::TestBody;
use super::support::{MS, layer, policy, request};
use super::{Reply, busy, get, ok, run, times};

/// Zero retries are one attempt, and never "without limit".
#[tokio::test(start_paused = true)]
async fn ac_02_no_retries_are_one_attempt() {
    let once = RetryLayer::new(policy().retries(0).build().unwrap());
    let ran = run(&once, get(), [busy()]).await;
    ran.waited([]);
    assert_eq!(ran.status(), 503);
    assert_eq!(ran.denied(), Some(RetryDenied::MaxAttempts));
}

/// Says "retry" to everything, and counts how often a wait is asked for.
struct Insists {
    standard: StandardPolicy,
    waits: Arc<AtomicU32>,
}

impl Insists {
    fn new() -> (Self, Arc<AtomicU32>) {
        let waits = Arc::default();
        let insists = Self {
            standard: policy().build().unwrap(),
            waits: Arc::clone(&waits),
        };
        (insists, waits)
    }
}

impl Policy for Insists {
    fn rule(&self, attempt: &Attempt<'_>) -> Rule {
        match attempt.status() {
            Some(status) if status.is_success() => Rule::Accept,
            _ => Rule::Retry,
        }
    }

    fn defaults(&self) -> &StandardPolicy {
        &self.standard
    }

    fn backoff(&self, attempt: &Attempt<'_>, previous: Duration, random: f64) -> Duration {
        let index = self.waits.fetch_add(1, Ordering::SeqCst);
        assert_eq!(attempt.number().get(), index + 1);
        self.standard.backoff(attempt, previous, random)
    }
}

#[tokio::test(start_paused = true)]
async fn ac_05_a_policy_that_always_says_retry_is_stopped_by_the_limit() {
    let (insists, _) = Insists::new();
    let ran = run(&RetryLayer::new(insists), get(), times(4, busy)).await;
    ran.waited([100, 200, 400]);
    assert_eq!(ran.status(), 503);
    assert_eq!(ran.denied(), Some(RetryDenied::MaxAttempts));
}

#[tokio::test(start_paused = true)]
async fn ac_06_one_replay_after_425_is_one_also_without_a_limit_of_attempts() {
    let endless = RetryLayer::new(policy().retries(u32::MAX).build().unwrap());
    let ran = run(&endless, get(), times(2, || Reply::status(425))).await;
    ran.waited([0]);
    assert_eq!(ran.status(), 425);
    assert_eq!(ran.denied(), Some(RetryDenied::TooEarly));
}

#[tokio::test(start_paused = true)]
async fn bo_01_two_thousand_attempts() {
    let many = policy()
        .retries(1999)
        .backoff(Backoff::exponential(100 * MS, 1000 * MS).without_jitter())
        .build()
        .unwrap();
    let ran = run(
        &RetryLayer::new(many).without_budgets(),
        get(),
        times(2000, || Reply::status(502)),
    )
    .await;
    let waits = ran.waits_ms();
    assert_eq!(waits[..5], [100, 200, 400, 800, 1000]);
    assert!(waits[4..].iter().all(|wait| *wait == 1000));
    assert_eq!(waits.len(), 1999);
    assert_eq!(ran.script.attempts(), 2000);
    assert_eq!(ran.denied(), Some(RetryDenied::MaxAttempts));
}

#[tokio::test(start_paused = true)]
async fn pa_05_a_backoff_of_zero_draws_from_no_empty_range() {
    let zero = Backoff::exponential(Duration::ZERO, Duration::ZERO);
    for backoff in [zero, zero.with_decorrelated_jitter()] {
        let policy = policy()
            .backoff(backoff.with_throttled_base(Duration::ZERO))
            .build()
            .unwrap();
        let ran = run(
            &RetryLayer::new(policy),
            get(),
            times(3, busy).chain([ok()]),
        )
        .await;
        ran.waited([0, 0, 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn me_04_a_wait_and_a_token_for_each_retry_and_no_more() {
    let (insists, asked) = Insists::new();
    let budget = Budget::builder()
        .capacity(9)
        .floor_per_second(0.0)
        .build()
        .unwrap();
    let ran = run(
        &RetryLayer::new(insists).with_budgets(budget.clone()),
        get(),
        times(4, busy),
    )
    .await;
    ran.waited([100, 200, 400]);
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    assert_eq!(budget.balance(), 6.0);
}

/// Answers 200 to attempt `good` of a call, 503 before.
async fn good_at(request: Request<ReplayBody>) -> Result<Response<TestBody>, BoxError> {
    let number = request
        .extensions()
        .get::<AttemptNumber>()
        .map_or(1, |number| number.number().get());
    let good = *request.extensions().get::<u32>().unwrap();
    let status = if number == good { 200 } else { 503 };
    Ok(Response::builder()
        .status(status)
        .body(TestBody::from(&[][..]))
        .unwrap())
}

fn get_good_at(attempt: u32) -> Request<ReplayBody> {
    let mut request = get();
    request.extensions_mut().insert(attempt);
    request
}

fn waits<B>(response: &Response<B>) -> Vec<Duration> {
    let report = response.extensions().get::<Report>().unwrap();
    let waits = report.attempts().iter().map(|a| a.waited_before());
    waits.skip(1).collect()
}

#[tokio::test(start_paused = true)]
async fn ts_01_fifty_parallel_calls_do_not_use_up_each_others_attempts() {
    let three = RetryLayer::new(policy().retries(2).build().unwrap()).without_budgets();
    let service = three.layer(service_fn(good_at));
    let calls: Vec<_> = (0..50)
        .map(|_| tokio::spawn(service.clone().oneshot(get_good_at(3))))
        .collect();
    for call in calls {
        let response = call.await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(waits(&response), [100 * MS, 200 * MS]);
    }
}

#[tokio::test(start_paused = true)]
async fn ts_02_interleaved_calls_count_for_themselves() {
    let service = RetryLayer::new(Arc::new(policy().build().unwrap())).layer(service_fn(good_at));
    let (a, b) = tokio::join!(
        service.clone().oneshot(get_good_at(3)),
        service.clone().oneshot(get_good_at(2)),
    );
    assert_eq!(waits(&a.unwrap()), [100 * MS, 200 * MS]);
    assert_eq!(waits(&b.unwrap()), [100 * MS]);
}

/// The first attempt answers early and its upload goes on in a task; the second must not move the
/// place at which the first one reads, nor the other way round.
#[tokio::test(start_paused = true)]
async fn ts_03_each_attempt_reads_for_itself() {
    let early = service_fn(|request: Request<ReplayBody>| async move {
        let first = request.extensions().get::<AttemptNumber>().is_none();
        let mut body = request.into_body();
        let (status, echo) = if first {
            body.frame().await.unwrap().unwrap();
            tokio::spawn(body.collect());
            (503, Default::default())
        } else {
            (200, body.collect().await?.to_bytes())
        };
        let echo = http_body_util::Full::new(echo);
        Ok::<_, BoxError>(Response::builder().status(status).body(echo).unwrap())
    });
    let chunks = || {
        let chunks = [&b"first "[..], b"second ", b"third"];
        super::support::upload::Chunks::new(chunks)
    };
    let body = ReplayBody::factory(Replayability::Reopenable, chunks);
    let service = layer().layer(early);
    let response = service.oneshot(request(Method::PUT, body)).await.unwrap();
    assert_eq!(waits(&response), [100 * MS]);
    let echo = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(echo, "first second third");
}

#[tokio::test(start_paused = true)]
async fn ts_05_the_previous_wait_of_decorrelated_jitter_is_the_calls_own() {
    let backoff = Backoff::exponential(100 * MS, 10_000 * MS)
        .with_decorrelated_jitter()
        .with_throttled_base(100 * MS);
    let shared = RetryLayer::new(policy().backoff(backoff).build().unwrap())
        .without_budgets()
        .with_seed(7);
    let service = shared.layer(service_fn(good_at));
    let start = Instant::now();
    for _ in 0..50 {
        let a = service.clone().oneshot(get_good_at(4)).await.unwrap();
        assert_eq!(waits(&a).len(), 3);
        let b = service.clone().oneshot(get_good_at(2)).await.unwrap();
        // Without a previous wait the range is that of the base alone: base to 3 x base.
        assert!((100 * MS..=300 * MS).contains(&waits(&b)[0]));
    }
    assert!(start.elapsed() > 50 * 400 * MS);
}
