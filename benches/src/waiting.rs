//! What a call holds while it waits for its next attempt.

use std::task::{Context, Waker};
use std::time::Duration;

use http::Request;
use tokio::runtime::Builder;
use tower::{Layer as _, Service};
use tower_http_retry::{Backoff, RetryLayer, StandardPolicy};

use crate::alloc;
use crate::cases::ours;
use crate::inner::{Inner, Upstream};
use crate::request::Profile;

/// Bytes of each of so many calls in backoff: the future on the heap, and everything behind it. The
/// request's own bytes are left out.
pub fn bytes_each(calls: usize) -> f64 {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let _entered = runtime.enter();
    let hour = Duration::from_secs(3600);
    let policy = StandardPolicy::builder()
        .backoff(
            Backoff::exponential(hour, hour)
                .with_throttled_base(hour)
                .without_jitter(),
        )
        .build()
        .expect("a valid policy");
    let mut service = RetryLayer::new(policy)
        .without_budgets()
        .layer(Inner(Upstream::Fails));
    let mut cx = Context::from_waker(Waker::noop());
    let (waiting, count) = alloc::count(|| {
        let mut waiting = Vec::with_capacity(calls);
        for _ in 0..calls {
            assert!(service.poll_ready(&mut cx).is_ready());
            let mut call = Box::pin(service.call(ours(Profile::Get.request())));
            assert!(call.as_mut().poll(&mut cx).is_pending());
            waiting.push(call);
        }
        waiting
    });
    drop(waiting);
    count.held as f64 / calls as f64 - bytes_of(&Profile::Get.request()) as f64
}

/// What is kept of a request itself: names, values, and the URI.
fn bytes_of<B>(request: &Request<B>) -> usize {
    let headers = request.headers().iter();
    headers
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum::<usize>()
        + request.uri().to_string().len()
}
