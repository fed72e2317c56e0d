//! Deadlines and attempt timeouts: kinds deadline, timeouts.

use http_body_util::BodyExt;
use tower_http_retry::{
    Backoff, Evidence, Failure, FailureKind, ReplayBody, RetryDenied, RetryLayer,
};

use super::support::body::Step;
use super::support::{MS, layer, policy};
use super::{Reply, busy, get, ok, post, run};

#[tokio::test(start_paused = true)]
async fn dl_01_a_wait_that_does_not_fit_is_not_begun() {
    let backoff = Backoff::exponential(1000 * MS, 10_000 * MS)
        .with_throttled_base(1000 * MS)
        .without_jitter();
    let slow = RetryLayer::new(policy().backoff(backoff).build().unwrap());
    let ran = run(&slow.with_deadline(500 * MS), get(), [busy()]).await;
    ran.waited([]);
    assert!(ran.took.is_zero());
    assert_eq!(ran.status(), 503);
    assert_eq!(ran.denied(), Some(RetryDenied::Deadline));
}

#[tokio::test(start_paused = true)]
async fn dl_02_nor_is_a_hint_that_does_not_fit() {
    let later = Reply::status(429).header("retry-after", "5");
    let ran = run(&layer().with_deadline(3000 * MS), get(), [later]).await;
    ran.waited([]);
    assert!(ran.took.is_zero());
    assert_eq!(ran.status(), 429);
    assert_eq!(ran.denied(), Some(RetryDenied::Deadline));
}

/// Nothing steps the wall clock here; but tokio's is paused, so that the two part: the wall clock
/// stands still while a call waits a minute, and the wait is as long as it should be.
#[allow(clippy::disallowed_methods, reason = "the clock that is not paused")]
#[tokio::test(start_paused = true)]
async fn dl_04_waits_do_not_depend_on_the_wall_clock() {
    let start = std::time::Instant::now();
    let minute = Backoff::exponential(60_000 * MS, 60_000 * MS)
        .with_throttled_base(60_000 * MS)
        .without_jitter();
    let slow = RetryLayer::new(policy().backoff(minute).build().unwrap());
    let ran = run(&slow.with_deadline(600_000 * MS), get(), [busy(), ok()]).await;
    ran.waited([60_000]);
    assert_eq!(ran.took, 60_000 * MS);
    assert!(start.elapsed() < 30_000 * MS);
}

#[tokio::test(start_paused = true)]
async fn dl_06_the_deadline_does_not_replace_the_error_that_caused_the_retry() {
    let reset = tower_http_retry::EvidenceError::new(
        Failure::not_sent(FailureKind::Reset),
        std::io::Error::other("reset by the peer"),
    );
    let replies = [Reply::Error(reset.into()), Reply::Hang];
    let ran = run(&layer().with_deadline(150 * MS), get(), replies).await;
    ran.waited([100]);
    assert_eq!(ran.took, 150 * MS);
    ran.failed(FailureKind::DeadlineReached);
    assert_eq!(ran.denied(), Some(RetryDenied::Deadline));
    let causes = ran.causes();
    assert!(
        causes.iter().any(|said| said == "reset by the peer"),
        "{causes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn to_01_two_limits_of_which_one_is_for_each_attempt() {
    let layer = layer()
        .with_attempt_timeout(1000 * MS)
        .with_deadline(10_000 * MS);
    let ran = run(&layer, get(), [Reply::Hang, ok()]).await;
    ran.waited([100]);
    assert_eq!(ran.took, 1100 * MS);
    assert_eq!(ran.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn to_02_a_deadline_alone_ends_a_first_attempt_that_hangs_and_names_itself() {
    let ran = run(&layer().with_deadline(1000 * MS), get(), [Reply::Hang]).await;
    ran.waited([]);
    assert_eq!(ran.took, 1000 * MS);
    ran.failed(FailureKind::DeadlineReached);
    assert_eq!(ran.error().evidence(), Evidence::SentNoResponse);
    assert_eq!(ran.denied(), Some(RetryDenied::Deadline));
    assert!(ran.error().to_string().contains("deadline"));
}

#[tokio::test(start_paused = true)]
async fn to_03_a_short_backoff_is_no_time_limit() {
    let short = Backoff::exponential(MS, 2 * MS).with_throttled_base(MS);
    let layer = RetryLayer::new(policy().backoff(short).build().unwrap());
    let ran = run(&layer, get(), [ok().after(50 * MS)]).await;
    ran.waited([]);
    assert_eq!(ran.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn to_04_an_attempt_timeout_needs_no_deadline() {
    let twice = RetryLayer::new(policy().retries(1).build().unwrap());
    let slow = || ok().after(500 * MS);
    let layer = twice.with_attempt_timeout(200 * MS);
    let ran = run(&layer, get(), [slow(), slow()]).await;
    ran.waited([100]);
    assert_eq!(ran.took, 500 * MS);
    ran.failed(FailureKind::ResponseTimeout);
    assert_eq!(ran.error().evidence(), Evidence::SentNoResponse);
    assert_eq!(ran.denied(), Some(RetryDenied::MaxAttempts));
}

#[tokio::test(start_paused = true)]
async fn to_05_the_attempt_timeout_does_not_cut_a_body() {
    let steps = [
        Step::Data(b"head "),
        Step::Pause(40 * MS),
        Step::Data(b"and tail"),
    ];
    let reply = ok().steps(steps).after(40 * MS);
    let ran = run(&layer().with_attempt_timeout(50 * MS), get(), [reply]).await;
    ran.waited([]);
    let body = ran.answer.unwrap().into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "head and tail");
}

#[tokio::test(start_paused = true)]
async fn to_06_the_text_says_why_there_was_no_retry() {
    let timeout = Reply::fails(Failure::sent_no_response(FailureKind::ResponseTimeout));
    let ran = run(&layer(), post(), [timeout]).await;
    ran.waited([]);
    ran.is_ambiguous();
    let said = ran.error().to_string();
    assert!(said.contains("no response headers in time"), "{said}");
    assert!(
        said.contains("(step 8)") && said.contains("AMBIGUOUS"),
        "{said}"
    );
}

/// Opening a body counts as the attempt's time, in its report as well as against its limits.
#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_open_in_time_is_reported_with_that_time() {
    let hangs = ReplayBody::reopenable(|| async {
        std::future::pending::<()>().await;
        Ok::<_, std::io::Error>(http_body_util::Empty::<bytes::Bytes>::new())
    });
    let put = super::support::request(http::Method::PUT, hangs);
    let ran = run(&layer().with_deadline(150 * MS), put, []).await;
    ran.failed(FailureKind::DeadlineReached);
    assert_eq!(ran.error().evidence(), Evidence::NotSent);
    assert_eq!(ran.script.attempts(), 0);
    assert_eq!(ran.report().unwrap().attempts()[0].duration(), 150 * MS);
}
