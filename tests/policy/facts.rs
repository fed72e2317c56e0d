//! Attempts by hand: what `Facts` sets is what a policy sees.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use tower::{Layer, ServiceExt};
use tower_http_retry::{
    AttemptEnded, BodyState, Evidence, Facts, Failure, Idempotency, ReplayBody, Replayability,
    RetryDenied, RetryLayer, StandardPolicy, Upstream, decide,
};

use crate::{TRANSIENT, answered, get, post};

#[test]
fn a_hand_made_attempt_is_the_layers() {
    let policy = StandardPolicy::builder().retries(6).build().unwrap();
    let (request, ok) = (post(), answered(200));
    let facts = Facts::response(&request, &ok);
    let attempt = facts.attempt_for(&policy);
    assert_eq!(
        (attempt.number().get(), attempt.max_attempts().get()),
        (1, 7)
    );
    assert_eq!(attempt.idempotency(), Idempotency::NonIdempotent);
    // Without a policy: 3, and the method's promise.
    assert_eq!(facts.attempt().max_attempts().get(), 3);
    // What was set by hand stands.
    let two = NonZeroU32::new(2).unwrap();
    let by_hand = facts.max_attempts(two).idempotency(Idempotency::Keyed);
    assert_eq!(by_hand.attempt_for(&policy).max_attempts(), two);
    assert_eq!(
        by_hand.attempt_for(&policy).idempotency(),
        Idempotency::Keyed
    );
    assert_eq!(by_hand.attempt().max_attempts(), two);
    assert_eq!(by_hand.attempt().idempotency(), Idempotency::Keyed);
}

#[test]
fn an_attempt_tells_all_its_facts() {
    let (request, busy) = (get(), answered(503));
    let cut = Failure::partial_response(TRANSIENT);
    let ms = Duration::from_millis;
    let attempt = Facts::response(&request, &busy)
        .partial(&cut)
        .replayability(Replayability::OneShot)
        .body_state(BodyState::Untouched)
        .budget_empty()
        .delivered()
        .draining()
        .refresh_available()
        .prior_unknown()
        .remaining(ms(30))
        .min_attempt(ms(20))
        .retry_after(ms(10))
        .response_body(b"busy")
        .attempt();
    assert_eq!(attempt.request().uri, request.uri);
    assert_eq!(
        attempt.response().unwrap().status,
        attempt.status().unwrap()
    );
    assert_eq!(attempt.failure(), Some(&cut));
    assert_eq!(attempt.outcome().failure(), Some(&cut));
    assert_eq!(
        format!("{:?}", attempt.outcome()),
        "Broken(503, Failure { evidence: PartialResponse, kind: Reset })"
    );
    assert_eq!(attempt.evidence(), cut.evidence());
    assert_eq!(attempt.replayability(), Replayability::OneShot);
    assert_eq!(attempt.body_state(), BodyState::Untouched);
    assert!(attempt.is_budget_empty() && attempt.is_delivered() && attempt.is_draining());
    assert!(attempt.can_refresh() && attempt.prior_unknown());
    assert_eq!(attempt.remaining(), Some(ms(30)));
    assert_eq!(
        (attempt.min_attempt(), attempt.retry_after()),
        (ms(20), Some(ms(10)))
    );
    assert_eq!(attempt.body(), Some(&b"busy"[..]));

    // A head in hand is never less than a response, whatever the failure says.
    let vague = Failure::sent_no_response(TRANSIENT);
    let attempt = Facts::response(&request, &busy).partial(&vague).attempt();
    assert_eq!(attempt.evidence(), Evidence::ResponseReceived);
    // Without a head there is only a failure.
    let attempt = Facts::failure(&request, &vague).partial(&cut).attempt();
    assert_eq!((attempt.status(), attempt.failure()), (None, Some(&cut)));

    let attempt = Facts::response(&request, &busy).attempt();
    assert!(!(attempt.is_budget_empty() || attempt.is_delivered() || attempt.is_draining()));
    assert!(!(attempt.can_refresh() || attempt.prior_unknown()));
    assert_eq!(
        (attempt.remaining(), attempt.retry_after(), attempt.body()),
        (None, None, None)
    );
}

/// The same call, by the layer and by hand.
#[tokio::test(start_paused = true)]
async fn the_layer_judges_what_can_be_made_by_hand() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let observer = move |ended: &AttemptEnded<'_>| {
        let facts = format!("{:?}", ended.attempt());
        told.lock().unwrap().push((facts, *ended.verdict()));
    };
    let upstream = Upstream::new().generates_key(http::header::ETAG);
    let policy = StandardPolicy::builder()
        .default_upstream(upstream)
        .retries(1)
        .build()
        .unwrap();
    let service = RetryLayer::new(policy.clone())
        .with_observer(observer)
        .with_deadline(Duration::from_secs(60))
        .with_min_attempt(Duration::from_secs(1))
        .layer(tower::service_fn(async |_: Request<ReplayBody>| {
            let busy = Response::builder().status(503).header("retry-after", "7");
            Ok::<_, Infallible>(
                busy.body(http_body_util::Empty::<bytes::Bytes>::new())
                    .unwrap(),
            )
        }));
    let body = ReplayBody::bytes("order");
    let response = service
        .oneshot(Request::from_parts(post(), body))
        .await
        .unwrap();
    assert_eq!(response.status(), 503);

    let (request, busy) = (post(), answered(503));
    let first = Facts::response(&request, &busy)
        .body_state(BodyState::Replayable)
        .remaining(Duration::from_secs(60))
        .min_attempt(Duration::from_secs(1))
        .retry_after(Duration::from_secs(7))
        .attempt_for(&policy);
    let by_hand = (format!("{first:?}"), decide(&policy, &first));
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0], by_hand);
    assert_eq!(
        by_hand.0,
        "Attempt { number: 1, max_attempts: 2, outcome: Response(503), idempotency: Keyed, \
         replayability: Replayable, body_state: Replayable, budget_empty: false, delivered: false, \
         draining: false, can_refresh: false, prior_unknown: false, remaining: Some(60s), \
         min_attempt: 1s, retry_after: Some(7s), .. }"
    );
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1].1.denied(), Some(RetryDenied::MaxAttempts));
}
