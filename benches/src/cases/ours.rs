//! The layer itself.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tower::Layer;
use tower_http_retry::{
    Backoff, Budgets, ReplayBody, Retry, RetryLayer, StandardPolicy, Upstream as Known,
};

use super::{BARE, Case, OURS, OURS_ONCE, service};
use crate::inner::{Inner, Upstream};
use crate::request::Profile;

pub(super) fn cases(profile: Profile, upstream: Upstream) -> Vec<Box<dyn Case>> {
    let make = move || ours(profile.request());
    let inner = Inner(upstream);
    // To repeat a POST after a 503, its key must mean something.
    let known = match upstream {
        Upstream::Well => Known::new(),
        Upstream::FailsOnce | Upstream::Fails => Known::new().honours_idempotency_key(),
    };
    let layer = retrying(inner.clone(), 2, known.clone());
    let mut cases: Vec<Box<dyn Case>> = vec![Box::new(service(OURS, BARE, layer, make))];
    if upstream == Upstream::Well {
        let layer = retrying(inner, 0, known);
        cases.push(Box::new(service(OURS_ONCE, BARE, layer, make)));
    }
    cases
}

/// The same request, with a body of ours.
pub fn ours(request: Request<Bytes>) -> Request<ReplayBody> {
    request.map(ReplayBody::from)
}

/// The layer as it is by default, with a budget for each upstream; but its waits are zero and its
/// budgets never run dry.
pub fn retrying<S: Clone>(inner: S, retries: u32, known: Known) -> Retry<S> {
    let zero = Duration::ZERO;
    let policy = StandardPolicy::builder()
        .retries(retries)
        .backoff(Backoff::exponential(zero, zero).with_throttled_base(zero))
        .default_upstream(known)
        .build()
        .expect("a valid policy");
    let budgets = Budgets::builder()
        .ratio(1000.0)
        .capacity(u32::MAX)
        .build()
        .expect("valid budgets");
    RetryLayer::new(policy).with_budgets(budgets).layer(inner)
}
