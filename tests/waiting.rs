//! Between two attempts nothing is held, and whatever ends the call there, the caller gets the last
//! real outcome.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use support::body::Step;
use support::probe::Probe;
use support::script::{Reply, Script};
use support::{MS, layer, request};
use tokio::time::Instant;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_http_retry::{
    Backoff, Budget, Deadline, Delivery, Discard, Drain, Error, Evidence, Failure, FailureKind,
    Report, RetryDenied, RetryLayer, StandardPolicy,
};

#[tokio::test(start_paused = true)]
async fn no_permit_is_held_during_a_backoff() {
    let script = Script::new([Reply::status(503), Reply::status(200), Reply::status(200)]);
    let service = ServiceBuilder::new()
        .layer(layer())
        .layer(ConcurrencyLimitLayer::new(1))
        .service(script.clone());
    let first = tokio::spawn(service.clone().oneshot(request(Method::GET, ())));
    tokio::time::sleep(50 * MS).await;
    let start = Instant::now();
    service.oneshot(request(Method::GET, ())).await.unwrap();
    assert_eq!(
        start.elapsed(),
        Duration::ZERO,
        "the permit was free during the backoff"
    );
    first.await.unwrap().unwrap();
    assert_eq!(script.attempts(), 3);
}

#[tokio::test(start_paused = true)]
async fn no_permit_is_held_for_a_call_that_was_never_sent() {
    let mut late = request(Method::GET, ());
    late.extensions_mut()
        .insert(Deadline::after(Duration::ZERO));
    let mut misdeclared = request(Method::PUT, "four");
    misdeclared
        .headers_mut()
        .insert("content-length", 10.into());
    for unsent in [late, misdeclared] {
        let probe = Probe::new(Script::new([]), 1);
        let semaphore = probe.semaphore();
        let mut service = layer().layer(probe);
        let call = service.ready().await.unwrap().call(unsent);
        assert!(call.await.is_err());
        assert_eq!(semaphore.available_permits(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn readiness_is_asked_after_the_wait_on_the_instance_that_is_called() {
    let script = Script::new([Reply::status(503), Reply::status(503), Reply::status(200)]);
    let probe = Probe::new(script.clone(), 1);
    let (semaphore, polls) = (probe.semaphore(), probe.ready_polls.clone());
    let call = tokio::spawn(layer().layer(probe).oneshot(request(Method::GET, ())));
    tokio::time::sleep(50 * MS).await;
    assert_eq!(semaphore.available_permits(), 1);
    assert_eq!(
        polls.load(Ordering::SeqCst),
        1,
        "the second readiness belongs after the wait"
    );
    assert_eq!(call.await.unwrap().unwrap().status(), 200);
    assert_eq!(polls.load(Ordering::SeqCst), 3);
    assert_eq!(semaphore.available_permits(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_response_is_let_go_before_the_wait() {
    let replies = [
        Reply::status(503).body(b"0123456789abcdef"),
        Reply::status(200),
    ];
    let alive = replies[0].alive();
    let call = tokio::spawn(
        layer()
            .layer(Script::new(replies))
            .oneshot(request(Method::GET, ())),
    );
    tokio::time::sleep(MS).await;
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    call.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stalled_failed_response_is_read_for_25_ms_which_count_into_the_backoff() {
    let replies = [
        Reply::status(503).steps([Step::Data(b"a"), Step::Hang]),
        Reply::status(200),
    ];
    let alive = replies[0].alive();
    let script = Script::new(replies);
    let call = tokio::spawn(
        layer()
            .layer(script.clone())
            .oneshot(request(Method::GET, ())),
    );
    tokio::time::sleep(24 * MS).await;
    assert_eq!(alive.load(Ordering::SeqCst), 1);
    tokio::time::sleep(2 * MS).await;
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    call.await.unwrap().unwrap();
    assert_eq!(script.waits(), [100 * MS]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_response_is_not_read_where_that_is_turned_off() {
    let replies = [
        Reply::status(503).steps([Step::Pause(5 * MS), Step::Data(b"a")]),
        Reply::status(200),
    ];
    let alive = replies[0].alive();
    let service = layer()
        .with_discard(Discard::none())
        .layer(Script::new(replies));
    let call = tokio::spawn(service.oneshot(request(Method::GET, ())));
    tokio::time::sleep(MS).await;
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    call.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_limit_of_a_failed_response_is_read() {
    static CHUNK: [u8; 1024] = [b'x'; 1024];
    let steps = (0..100).map(|_| Step::Data(&CHUNK)).chain([Step::Hang]);
    let replies = [Reply::status(503).steps(steps), Reply::status(200)];
    let alive = replies[0].alive();
    let service = layer()
        .with_discard(Discard::default().up_to(4096))
        .layer(Script::new(replies));
    let call = tokio::spawn(service.oneshot(request(Method::GET, ())));
    tokio::time::sleep(MS).await;
    assert_eq!(
        alive.load(Ordering::SeqCst),
        0,
        "cut at the bytes, not at the time"
    );
    call.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_final_response_is_delivered_unread() {
    // RL-08: two stalled 503, two attempts.
    let stalled = || Reply::status(503).steps([Step::Data(b"a"), Step::Hang]);
    let policy = support::policy().retries(1).build().unwrap();
    let script = Script::new([stalled(), stalled()]);
    let start = Instant::now();
    let response = RetryLayer::new(policy)
        .with_deadline(1000 * MS)
        .layer(script)
        .oneshot(request(Method::GET, ()))
        .await
        .unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(start.elapsed(), 100 * MS);
    assert_eq!(last_denial(&response), RetryDenied::MaxAttempts);
}

#[tokio::test(start_paused = true)]
async fn draining_ends_a_wait_at_once_with_the_kept_response() {
    let drain = Drain::new();
    let replies = [Reply::status(503).header("x-kept", "yes").body(b"busy")];
    let service = layer()
        .with_drain(drain.clone())
        .layer(Script::new(replies));
    let start = Instant::now();
    let call = tokio::spawn(service.oneshot(request(Method::GET, ())));
    tokio::time::sleep(10 * MS).await;
    drain.start();
    let response = call.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), 10 * MS);
    assert_eq!(response.headers()["x-kept"], "yes");
    assert_eq!(last_denial(&response), RetryDenied::RuntimeDraining);
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "busy"
    );
}

#[tokio::test(start_paused = true)]
async fn draining_ends_a_wait_with_the_error_that_was_to_be_retried() {
    let drain = Drain::new();
    let replies = [Reply::fails(Failure::not_sent(FailureKind::Connect))];
    let service = layer()
        .with_drain(drain.clone())
        .layer(Script::new(replies));
    let call = tokio::spawn(service.oneshot(request(Method::POST, "order")));
    tokio::time::sleep(10 * MS).await;
    drain.start();
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Failed(_)));
    assert_eq!(error.failure().unwrap().kind(), FailureKind::Connect);
    assert_eq!(error.denied(), Some(RetryDenied::RuntimeDraining));
    assert!(std::error::Error::source(&error).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_cut_response_ends_a_wait_as_an_error_with_its_head() {
    let drain = Drain::new();
    let replies = [Reply::status(503)
        .header("x-head", "yes")
        .steps([Step::Hang])];
    let service = layer()
        .with_drain(drain.clone())
        .layer(Script::new(replies));
    let call = tokio::spawn(service.oneshot(request(Method::GET, ())));
    tokio::time::sleep(50 * MS).await;
    drain.start();
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Failed(_)));
    assert_eq!(error.status().unwrap(), 503);
    assert_eq!(error.response_parts().unwrap().headers["x-head"], "yes");
    assert_eq!(error.denied(), Some(RetryDenied::RuntimeDraining));
}

#[tokio::test(start_paused = true)]
async fn draining_while_the_failed_response_is_read_delivers_it_whole() {
    let drain = Drain::new();
    let replies = [Reply::status(503).steps([
        Step::Data(b"one "),
        Step::Pause(20 * MS),
        Step::Data(b"two"),
    ])];
    let service = layer()
        .with_drain(drain.clone())
        .layer(Script::new(replies));
    let call = tokio::spawn(service.oneshot(request(Method::GET, ())));
    tokio::time::sleep(10 * MS).await;
    drain.start();
    let response = call.await.unwrap().unwrap();
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "one two"
    );
}

#[tokio::test(start_paused = true)]
async fn an_attempt_in_flight_runs_on_while_draining() {
    let drain = Drain::new();
    let replies = [Reply::status(200).after(100 * MS)];
    let service = layer()
        .with_drain(drain.clone())
        .layer(Script::new(replies));
    let call = tokio::spawn(service.oneshot(request(Method::GET, ())));
    tokio::time::sleep(10 * MS).await;
    drain.start();
    assert_eq!(call.await.unwrap().unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn there_is_no_retry_once_draining() {
    // CA-05: the drain starts while the attempt is in flight. The contract differs: the answer is the
    // response, not an error of the cancellation.
    let drain = Drain::new();
    let script = Script::new([Reply::status(503).after(100 * MS)]);
    let service = layer().with_drain(drain.clone()).layer(script.clone());
    let call = tokio::spawn(service.oneshot(request(Method::GET, ())));
    tokio::time::sleep(10 * MS).await;
    drain.start();
    let response = call.await.unwrap().unwrap();
    assert_eq!(last_denial(&response), RetryDenied::RuntimeDraining);
    assert_eq!(script.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_readiness_error_never_takes_the_place_of_the_last_outcome() {
    // PO-04. The contract differs: its error gives way to the 503, and stands in the report.
    let script = Script::new([Reply::status(503).body(b"busy")]);
    let probe = Probe::new(script.clone(), 1);
    let semaphore = probe.semaphore();
    let call = tokio::spawn(layer().layer(probe).oneshot(request(Method::GET, ())));
    tokio::time::sleep(50 * MS).await;
    semaphore.close();
    let response = call.await.unwrap().unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(
        last_denial(&response),
        RetryDenied::Failure(FailureKind::Readiness)
    );
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!(report.attempts().len(), 1);
    assert_eq!(
        report.attempts()[0].readiness_error().unwrap().to_string(),
        "closed"
    );
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "busy"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_while_waiting_for_readiness_gives_the_last_outcome() {
    let script = Script::new([Reply::status(503).body(b"busy")]);
    let probe = Probe::new(script, 1);
    let semaphore = probe.semaphore();
    let service = layer().with_deadline(500 * MS).layer(probe);
    let start = Instant::now();
    let call = tokio::spawn(service.oneshot(request(Method::GET, ())));
    tokio::time::sleep(50 * MS).await;
    let _taken = semaphore.acquire().await.unwrap();
    let response = call.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), 500 * MS);
    assert_eq!(response.status(), 503);
    assert_eq!(last_denial(&response), RetryDenied::Deadline);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_timeout_while_waiting_for_readiness_is_an_attempt_that_was_not_sent() {
    let policy = support::policy().retries(1).build().unwrap();
    let probe = Probe::new(Script::new([Reply::status(503).body(b"busy")]), 1);
    let semaphore = probe.semaphore();
    let service = RetryLayer::new(policy)
        .with_attempt_timeout(200 * MS)
        .layer(probe);
    let start = Instant::now();
    let call = tokio::spawn(service.oneshot(request(Method::GET, ())));
    tokio::time::sleep(50 * MS).await;
    let _taken = semaphore.acquire().await.unwrap();
    let response = call.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), 300 * MS);
    assert_eq!(response.status(), 503, "the last real outcome");
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!(report.attempts().len(), 2);
    let second = &report.attempts()[1];
    assert_eq!(
        second.failure(),
        Some(&Failure::not_sent(FailureKind::ResponseTimeout))
    );
    assert_eq!(second.verdict().denied(), Some(RetryDenied::MaxAttempts));
}

#[tokio::test(start_paused = true)]
async fn a_retry_without_a_wait_touches_no_timer() {
    let zero =
        Backoff::exponential(Duration::ZERO, Duration::ZERO).with_throttled_base(Duration::ZERO);
    let policy = StandardPolicy::builder().backoff(zero).build().unwrap();
    let script = Script::new([Reply::status(503), Reply::status(503), Reply::status(200)]);
    let mut call = tokio_test::task::spawn(
        RetryLayer::new(policy)
            .layer(script)
            .oneshot(request(Method::GET, ())),
    );
    let response = match call.poll() {
        std::task::Poll::Ready(response) => response.unwrap(),
        std::task::Poll::Pending => panic!("a zero delay waited"),
    };
    assert_eq!(response.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_race_for_the_last_token_is_lost_by_one() {
    let budget = Budget::builder()
        .floor_per_second(0.0)
        .ratio(0.0)
        .capacity(1)
        .build()
        .unwrap();
    let layer = layer().with_budgets(budget);
    let script = Script::new([Reply::status(503), Reply::status(503), Reply::status(200)]);
    let service = layer.layer(script.clone());
    let calls = [0, 1].map(|_| tokio::spawn(service.clone().oneshot(request(Method::GET, ()))));
    let mut statuses = Vec::new();
    for call in calls {
        let response = call.await.unwrap().unwrap();
        if response.status() == 503 {
            assert_eq!(last_denial(&response), RetryDenied::BudgetExhausted);
        }
        statuses.push(response.status().as_u16());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503]);
    assert_eq!(script.attempts(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_a_floor_and_one_that_is_too_long_ends_the_call_at_once() {
    let script = Script::new([
        Reply::status(429).header("retry-after", "3"),
        Reply::status(200),
    ]);
    layer()
        .layer(script.clone())
        .oneshot(request(Method::POST, "order"))
        .await
        .unwrap();
    assert_eq!(script.waits(), [3000 * MS]);

    let script = Script::new([Reply::status(429)
        .header("retry-after", "11")
        .body(b"later")]);
    let start = Instant::now();
    let response = layer()
        .layer(script)
        .oneshot(request(Method::GET, ()))
        .await
        .unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(
        last_denial(&response),
        RetryDenied::RetryAfter(Duration::from_secs(11))
    );
    assert_eq!(response.headers()["retry-after"], "11");
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "later"
    );
}

#[tokio::test(start_paused = true)]
async fn the_jitter_of_a_hint_gives_way_to_the_deadline_and_the_hint_does_not() {
    let policy = || {
        StandardPolicy::builder()
            .backoff(Backoff::exponential(100 * MS, Duration::from_secs(10)))
            .build()
            .unwrap()
    };
    for seed in 0..20 {
        let script = Script::new([
            Reply::status(429).header("retry-after", "4"),
            Reply::status(200),
        ]);
        let service = RetryLayer::new(policy())
            .with_seed(seed)
            .with_deadline(4001 * MS)
            .layer(script.clone());
        service.oneshot(request(Method::GET, ())).await.unwrap();
        assert!(script.waits()[0] >= 4000 * MS && script.waits()[0] <= 4001 * MS);

        let script = Script::new([Reply::status(429).header("retry-after", "4")]);
        let service = RetryLayer::new(policy())
            .with_deadline(3999 * MS)
            .layer(script);
        let response = service.oneshot(request(Method::GET, ())).await.unwrap();
        assert_eq!(last_denial(&response), RetryDenied::Deadline);
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_inner_service_is_the_one_that_is_retried() {
    let mut service = layer().layer(Script::new([]));
    let script = Script::new([Reply::status(503), Reply::status(200)]);
    *service.get_mut() = script.clone();
    let response = service
        .ready()
        .await
        .unwrap()
        .call(request(Method::GET, ()))
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(script.attempts(), 2);
}

fn last_denial<B>(response: &http::Response<B>) -> RetryDenied {
    let report = response.extensions().get::<Report>().unwrap();
    report.verdict().unwrap().denied().unwrap()
}

#[tokio::test(start_paused = true)]
async fn where_only_the_head_is_left_the_source_is_what_broke_the_body() {
    let drain = Drain::new();
    let broken = Reply::status(200).steps([Step::Data(b"{"), Step::Fail("reset")]);
    let service = layer()
        .with_delivery(Delivery::Whole { limit: 16 })
        .with_drain(drain.clone())
        .layer(Script::new([broken]));
    let call = tokio::spawn(service.oneshot(request(Method::GET, ())));
    tokio::time::sleep(10 * MS).await;
    drain.start();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.status(), Some(http::StatusCode::OK));
    let failure = error.failure().unwrap();
    assert_eq!(failure.evidence(), Evidence::PartialResponse);
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "reset");
}
