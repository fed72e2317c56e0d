//! What several test files use. Each is a crate of its own and takes a part.
#![allow(
    dead_code,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm
)]

pub(crate) mod body;
pub(crate) mod measure;
pub(crate) mod page;
pub(crate) mod probe;
pub(crate) mod script;
pub(crate) mod upload;
pub(crate) mod upstream;
pub(crate) mod vectors;

/// Reproducible numbers, uniform from 0 up to but not including 1 (splitmix64).
pub(crate) fn randoms(seed: u64) -> impl Iterator<Item = f64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        (bits >> 11) as f64 / (1_u64 << 53) as f64
    })
}

/// 1 ms.
pub(crate) const MS: std::time::Duration = std::time::Duration::from_millis(1);

/// A layer with exact waits of 100, 200, 400 ms, 4 attempts, and 500 registered as transient: the
/// setup of the tables.
pub(crate) fn layer() -> tower_http_retry::RetryLayer {
    tower_http_retry::RetryLayer::new(policy().build().unwrap())
}

pub(crate) fn policy() -> tower_http_retry::StandardPolicyBuilder {
    let (base, max) = (100 * MS, 10_000 * MS);
    tower_http_retry::StandardPolicy::builder()
        .retries(3)
        .default_upstream(tower_http_retry::Upstream::new().transient_500())
        .backoff(
            tower_http_retry::Backoff::exponential(base, max)
                .with_throttled_base(base)
                .without_jitter()
                .without_hint_jitter(),
        )
}

pub(crate) fn request(
    method: http::Method,
    body: impl Into<tower_http_retry::ReplayBody>,
) -> http::Request<tower_http_retry::ReplayBody> {
    http::Request::builder()
        .method(method)
        .uri("http://shop.example/orders")
        .body(body.into())
        .unwrap()
}

/// Runs a future to its end under paused time, where a table's closure cannot be async.
pub(crate) fn paused<F: std::future::Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(future)
}
