//! What the README says in numbers and names is so.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // helpers of tests

use std::time::Duration;

use http::{Method, StatusCode};
use tower_http_retry::{Backoff, Budget, Discard, Policy, ReplayBody, StandardPolicy};

const PAGE: &str = include_str!("../README.md");

/// The cells of the table's row that begins with `name`.
fn row(name: &str) -> Vec<&'static str> {
    let start = format!("| {name}");
    let line = PAGE.lines().find(|line| line.starts_with(&start));
    let line = line.unwrap_or_else(|| unreachable!("no row {name}"));
    line.split('|').map(str::trim).collect()
}

fn says(name: &str, text: &str) {
    let row = row(name);
    assert!(
        row.iter().any(|cell| cell.contains(text)),
        "{row:?}: {text}"
    );
}

#[test]
fn it_is_read_in_a_few_minutes() {
    assert!(PAGE.lines().count() <= 150);
}

#[test]
fn the_defaults_are_those_of_the_code() {
    let policy = StandardPolicy::default();
    assert_eq!(policy.retries(), 2);
    says("attempts", "3, the first included");

    let backoff = Backoff::default();
    assert_eq!(backoff.base(), Duration::from_millis(50));
    assert_eq!(backoff.max(), Duration::from_secs(20));
    says(
        "wait before retry",
        "0 to 50 ms × 2^(*n* − 1), at most 20 s",
    );
    assert_eq!(backoff.throttled_base(), Duration::from_secs(1));
    says("the same after 429 and 503", "0 to 1 s × 2^(*n* − 1)");

    assert_eq!(policy.max_retry_after(), Duration::from_secs(20));
    says("`Retry-After`", "above 20 s no retry");

    assert_eq!(Budget::default().balance(), 100.0);
    says(
        "retry budget",
        "100 tokens, + 0.2 a good call, + 10 a second, − 1 a retry",
    );

    let discard = Discard::none()
        .within(Duration::from_millis(25))
        .up_to(64 * 1024);
    assert_eq!(Discard::default(), discard);
    says("failed response", "at most 25 ms and 64 KiB");

    assert_eq!(ReplayBody::DEFAULT_BUFFER_LIMIT, 64 * 1024);
    says("stream kept", "usually 64 KiB");
}

#[test]
fn every_feature_is_named() {
    let manifest = include_str!("../Cargo.toml");
    let features = manifest.split("\n[features]\n").nth(1).unwrap();
    let features = features.split("\n[").next().unwrap();
    let names = features
        .lines()
        .filter(|line| line.contains(" = ") && !line.starts_with('#'));
    for name in names.map(|line| line.split(' ').next().unwrap()) {
        if name != "default" {
            row(&format!("`{name}`"));
        }
    }
}

/// The first column is for operations that may be repeated, the second for those that may not.
#[test]
fn the_table_of_statuses_is_the_standard_policys() {
    let policy = StandardPolicy::default();
    let retryable = |status, method| policy.is_retryable(status, Some(&method));
    for status in [408, 429, 425] {
        let status = StatusCode::from_u16(status).unwrap();
        says("408, 429, and 425 once", "again");
        assert!(retryable(status, Method::GET) && retryable(status, Method::POST));
    }
    for status in [502, 503, 504] {
        let status = StatusCode::from_u16(status).unwrap();
        assert!(retryable(status, Method::PUT) && !retryable(status, Method::POST));
    }
    assert_eq!(row("502, 503, 504")[2], "again");
    assert!(!retryable(StatusCode::INTERNAL_SERVER_ERROR, Method::GET));
    assert_eq!(row("500, any other")[2], "the answer");
}

/// Times and allocations of the peers are those of one run, on the page that tells how.
#[test]
fn the_figures_are_those_of_the_page_on_performance() {
    let run = include_str!("../docs/performance.md");
    let cells = row("a POST that succeeds at once");
    let cases = [
        "tower-http-retry |",
        "tower::retry, Tps",
        "reqwest-retry,",
        "tower-resilience-retry,",
    ];
    for (case, cell) in cases.iter().zip(&cells[2..]) {
        let line = run
            .lines()
            .find(|line| line.starts_with(&format!("| {case}")));
        let measured: Vec<_> = line.unwrap().split('|').map(str::trim).collect();
        let (time, allocations) = cell.split_once(", ").unwrap();
        assert_eq!(measured[2], time, "{case}");
        assert!(
            measured[5].starts_with(&format!("{allocations},")),
            "{case}"
        );
    }
}
