//! Attempts by hand: what `Facts` sets is what a policy sees.

use std::num::NonZeroU32;
use std::time::Duration;

use tower_http_retry::{
    BodyState, Evidence, Facts, Failure, Idempotency, Replayability, StandardPolicy,
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
