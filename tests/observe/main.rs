//! Observers: what they are told and when, and the two that come with the crate.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)] // helpers of tests

mod contract;
#[cfg(feature = "tracing")]
mod logs;
#[cfg(feature = "metrics")]
mod numbers;
#[path = "../support/mod.rs"]
mod support;

use http::Method;
use support::request;
use support::script::{Reply, Script};
use tower::{Layer, ServiceExt};
use tower_http_retry::{Error, Failure, FailureKind, Policy, ResponseBody, RetryLayer};

type Answer = Result<http::Response<ResponseBody<support::body::TestBody>>, Error>;

fn reset() -> Reply {
    Reply::fails(Failure::sent_no_response(FailureKind::Reset))
}

async fn call<P: Policy>(
    layer: RetryLayer<P>,
    method: Method,
    replies: impl IntoIterator<Item = Reply>,
) -> Answer {
    let service = layer.layer(Script::new(replies));
    service.oneshot(request(method, ())).await
}

/// The names in the first column of the page's table under `heading`.
#[cfg(any(feature = "metrics", feature = "tracing"))]
fn documented(heading: &str) -> Vec<Vec<String>> {
    let page = include_str!("../../docs/operations.md");
    let section = page
        .split("\n### ")
        .find(|section| section.starts_with(heading))
        .unwrap_or_else(|| panic!("no section {heading}"));
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.trim_matches('|').split('|'));
    cells
        .map(|cells| cells.map(|cell| cell.trim().replace('`', "")).collect())
        .collect()
}
