//! What a server asks for: kind retry-after. Parsing has its own tests; here are whole calls, under
//! hints without jitter unless said otherwise.

use std::collections::BTreeSet;

use http::StatusCode;
use tower_http_retry::{Backoff, RetryAfterHints, RetryDenied, RetryLayer};

use super::support::{MS, layer, policy};
use super::{Ran, Reply, get, ok, run, times};

fn asks(status: u16, value: &str) -> Reply {
    Reply::status(status).header("retry-after", value)
}

/// One hint, and what becomes of the call.
async fn hinted(reply: Reply) -> Ran {
    run(&layer(), get(), [reply, ok()]).await
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_is_longer_than_agreed_to_denies_at_once_and_leaves_the_response() {
    for (id, status, value) in [
        ("RA-01", 429, "9223372037"),
        ("RA-02", 503, "99999999999999999999"),
        ("RA-12", 429, "3600"),
        ("RA-14", 503, "Fri, 31 Dec 9999 23:59:59 GMT"),
    ] {
        let ran = hinted(asks(status, value)).await;
        ran.waited([]);
        assert_eq!(ran.status().as_u16(), status, "{id}");
        assert!(ran.took.is_zero(), "{id}");
        let denied = ran.denied().unwrap();
        assert!(
            matches!(denied, RetryDenied::RetryAfter(_)),
            "{id}: {denied}"
        );
        assert_eq!(ran.answer.unwrap().headers()["retry-after"], value, "{id}");
    }
}

/// The hint is judged before the deadline, and both at once.
#[tokio::test(start_paused = true)]
async fn ra_13_also_where_it_would_not_fit_into_the_deadline() {
    let layer = layer().with_deadline(30_000 * MS);
    let ran = run(&layer, get(), [asks(429, "600")]).await;
    ran.waited([]);
    assert!(ran.took.is_zero());
    assert_eq!(ran.denied(), Some(RetryDenied::RetryAfter(600_000 * MS)));
}

#[tokio::test(start_paused = true)]
async fn what_is_no_hint_leaves_the_ordinary_backoff() {
    for (id, status, value) in [
        ("RA-05", 503, "Sat, 31 Feb 2026 00:00:00 GMT"),
        ("RA-08", 429, "0"),
        ("RA-14", 503, "Fri, 31 Dec 99999 23:59:59 GMT"),
        ("RA-15", 429, "7, 2"),
        ("RA-16", 429, "nan"),
        ("RA-16", 429, "inf"),
        ("RA-16", 429, "-inf"),
        ("RA-16", 429, "1e400"),
        ("RA-16", 429, "-5"),
    ] {
        let ran = hinted(asks(status, value)).await;
        ran.waited([100]);
        assert_eq!(ran.status(), 200, "{id} {value}");
    }
}

/// The response's own `Date` is its now, whatever the local clock says.
#[tokio::test(start_paused = true)]
async fn dates_are_taken_relative_to_the_responses_own() {
    let dated = |now: &str, value: &str| asks(503, value).header("date", now);
    for (id, now, value, wait) in [
        (
            "RA-05",
            "Fri, 20 Feb 2026 00:00:00 GMT",
            "Friday, 20-Feb-26 00:00:05 GMT",
            5000,
        ),
        (
            "RA-05",
            "Fri, 20 Feb 2026 00:00:00 GMT",
            "Fri Feb 20 00:00:05 2026",
            5000,
        ),
        (
            "RA-06",
            "Thu, 01 Jan 2026 00:00:10 GMT",
            "Thu, 01 Jan 2026 00:00:00 GMT",
            100,
        ),
        (
            "RA-07",
            "Thu, 01 Jan 2026 00:00:00 GMT",
            "Thu, 01 Jan 2026 00:00:06 GMT",
            6000,
        ),
        (
            "RA-20",
            "Tue, 01 Jan 2030 00:00:00 GMT",
            "Tue, 01 Jan 2030 00:00:05 GMT",
            5000,
        ),
    ] {
        let ran = hinted(dated(now, value)).await;
        ran.waited([wait]);
        assert_eq!(ran.status(), 200, "{id} {value}");
    }
}

#[tokio::test(start_paused = true)]
async fn ra_10_hints_that_are_switched_off_do_not_control_the_wait() {
    let deaf = policy()
        .retry_after_hints(RetryAfterHints::Ignore)
        .build()
        .unwrap();
    let ran = run(&RetryLayer::new(deaf), get(), [asks(429, "8"), ok()]).await;
    ran.waited([100]);
}

#[tokio::test(start_paused = true)]
async fn ra_15_of_two_lines_the_longest_counts() {
    let two = asks(429, "7").header("retry-after", "2");
    hinted(two).await.waited([7000]);
    let two = asks(429, "2").header("retry-after", "7");
    hinted(two).await.waited([7000]);
}

#[tokio::test(start_paused = true)]
async fn ra_17_every_wait_is_as_long_as_asked() {
    let ten = RetryLayer::new(policy().retries(9).build().unwrap());
    let ran = run(&ten, get(), times(10, || asks(429, "1"))).await;
    assert_eq!(ran.script.attempts(), 10);
    let waits = ran.waits_ms();
    assert_eq!(waits.len(), 9);
    assert!(waits.iter().all(|wait| *wait >= 1000));
    assert!(ran.took >= 9000 * MS);
    assert_eq!(ran.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(ran.denied(), Some(RetryDenied::MaxAttempts));
}

#[tokio::test(start_paused = true)]
async fn ra_23_a_fleet_with_one_hint_does_not_return_in_one_instant() {
    let jittered = policy()
        .backoff(Backoff::exponential(100 * MS, 10_000 * MS))
        .build()
        .unwrap();
    let layer = RetryLayer::new(jittered).without_budgets().with_seed(1);
    let calls = (0..100).map(|_| {
        let layer = layer.clone();
        tokio::spawn(async move { run(&layer, get(), [asks(429, "6"), ok()]).await })
    });
    let mut waits = BTreeSet::new();
    for call in calls.collect::<Vec<_>>() {
        let ran = call.await.unwrap();
        assert_eq!(ran.status(), 200);
        let [wait] = ran.waits_ms()[..] else {
            panic!("one wait")
        };
        assert!((6000..=9000).contains(&wait), "{wait}");
        waits.insert(wait);
    }
    assert!(waits.len() >= 50, "{waits:?}");
}
