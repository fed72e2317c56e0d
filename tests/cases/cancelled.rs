//! Callers that go away, bodies that give up, panics of other people's code: kinds cancellation,
//! panics.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use tower_http_retry::{Budget, Drain, FailureKind, ReplayBody, RetryDenied, RetryLayer};

use super::support::upload::Chunks;
use super::support::{MS, layer, policy, request};
use super::{Reply, busy, get, ok, run};

/// The handle is `Drain`. The contract differs: the caller gets the last real outcome, not an error
/// of the cancellation, and the reason is in the report.
#[tokio::test(start_paused = true)]
async fn ca_02_pa_04_a_wait_ends_at_once_with_the_response_that_was_there() {
    for reply in [Reply::status(429).header("retry-after", "3"), busy()] {
        let drain = Drain::new();
        let layer = layer().with_drain(drain.clone());
        let (ran, ()) = tokio::join!(run(&layer, get(), [reply.body(b"later")]), async {
            tokio::time::sleep(60 * MS).await;
            drain.start();
        });
        ran.waited([]);
        assert_eq!(ran.took, 60 * MS);
        assert!(matches!(ran.status().as_u16(), 429 | 503));
        assert_eq!(ran.denied(), Some(RetryDenied::RuntimeDraining));
    }
}

#[tokio::test(start_paused = true)]
async fn ca_03_a_body_that_its_sender_aborts_ends_the_call() {
    let body = ReplayBody::one_shot(Chunks::new(["half"]).fails("the caller aborted"));
    let ran = run(&layer(), request(Method::PUT, body), [ok()]).await;
    ran.waited([]);
    ran.failed(FailureKind::RequestBody);
    let causes = ran.causes();
    assert!(
        causes.iter().any(|said| said == "the caller aborted"),
        "{causes:?}"
    );
    // Read to its error, it cannot be sent again: step 3 comes before step 7.
    let denied = ran.denied().unwrap();
    assert!(matches!(denied, RetryDenied::BodyNotReplayable(_)));

    // Where it could be sent again, the failure is permanent.
    let body = ReplayBody::factory(tower_http_retry::Replayability::Reopenable, || {
        Chunks::new(["half"]).fails("the caller aborted")
    });
    let ran = run(&layer(), request(Method::PUT, body), [ok()]).await;
    ran.waited([]);
    let permanent = RetryDenied::PermanentFailure(FailureKind::RequestBody);
    assert_eq!(ran.denied(), Some(permanent));
}

#[tokio::test(start_paused = true)]
async fn ca_04_the_timeout_of_one_attempt_does_not_end_the_next() {
    let layer = layer().with_attempt_timeout(50 * MS);
    let ran = run(&layer, get(), [Reply::Hang, ok().after(10 * MS)]).await;
    ran.waited([100]);
    assert_eq!(ran.status(), 200);
    assert_eq!(ran.took, 160 * MS);
}

/// Waits are counted by tokio's clock, which is paused in tests; the wall clock is read for dates
/// alone, and in one file.
#[test]
fn pa_02_no_file_but_one_reads_an_ambient_clock() {
    let mut read = Vec::new();
    visit(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut |path, text| {
            if text.contains("SystemTime::now") || text.contains("time::Instant::now") {
                read.push(path.file_name().unwrap().to_owned());
            }
        },
    );
    assert_eq!(read, ["retry_after.rs"]);
}

fn visit(folder: &Path, see: &mut impl FnMut(&Path, &str)) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            visit(&path, see);
        } else {
            see(&path, &std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// A thread that panics in the policy leaves no lock behind that fails the others.
#[test]
fn pa_03_a_panic_in_the_policy_does_not_reach_other_calls() {
    let panics = Arc::new(AtomicBool::new(true));
    let now = Arc::clone(&panics);
    let budget = Budget::builder().capacity(5).build().unwrap();
    let careless = policy()
        .rule(move |_| {
            assert!(!now.load(Ordering::SeqCst), "the policy's own fault");
            None
        })
        .build()
        .unwrap();
    let shared = RetryLayer::new(careless).with_budgets(budget.clone());
    let other = shared.clone();
    let panicked = std::thread::spawn(move || {
        super::support::paused(async { run(&other, get(), [busy()]).await.status() })
    });
    panicked.join().unwrap_err();
    panics.store(false, Ordering::SeqCst);
    super::support::paused(async {
        let ran = run(&shared, get(), [busy(), ok()]).await;
        ran.waited([100]);
        assert_eq!(ran.status(), 200);
        assert!(budget.balance() > 3.9, "one token spent, none lost");
    });
}
