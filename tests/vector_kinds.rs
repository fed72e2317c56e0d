//! No fact of the tables is left out in silence: each kind is checked by a test, which counts its
//! cases and names those it skips, or is skipped here with the reason.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)] // helpers of tests

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use support::vectors;

enum By {
    /// The file whose test checks the kind.
    Test(&'static str),
    /// Why there is nothing to check.
    Skipped(&'static str),
}

use By::{Skipped, Test};

const KINDS: [(&str, usize, By); 41] = [
    ("attempt_cap", 3, Test("call_vectors.rs")),
    ("attempt_counters", 6, Test("call_vectors.rs")),
    ("attempt_header", 2, Test("call_vectors.rs")),
    ("attempt_sequence", 1, Test("call_vectors.rs")),
    ("backoff_cap_order", 1, Test("backoff.rs")),
    ("backoff_distribution", 1, Test("backoff.rs")),
    ("backoff_first", 1, Test("backoff.rs")),
    ("backoff_point", 5, Test("backoff.rs")),
    ("backoff_range", 11, Test("backoff.rs")),
    ("backoff_raw_random", 2, Test("backoff.rs")),
    ("backoff_reset", 1, Test("backoff.rs")),
    ("backoff_series", 20, Test("backoff.rs")),
    ("bucket_ops", 8, Test("budget.rs")),
    ("budget_concurrent", 1, Test("budget.rs")),
    ("budget_constant", 1, Test("budget.rs")),
    ("budget_limit", 10, Test("budget.rs")),
    ("budget_ratio", 11, Test("budget.rs")),
    ("budget_sequence", 20, Test("budget.rs")),
    ("budget_walk", 1, Test("budget.rs")),
    ("classify", 6, Test("policy_vectors.rs")),
    ("config_validation", 10, Test("budget.rs")),
    (
        "cubic_rate",
        1,
        Skipped(
            "a limit on what is sent at all belongs to a rate-limit layer: a first attempt is never delayed",
        ),
    ),
    ("decision", 80, Test("decision_vectors.rs")),
    ("defaults", 1, Test("backoff.rs")),
    ("drain", 1, Test("call_vectors.rs")),
    ("header_list_parse", 6, Test("policy_vectors.rs")),
    (
        "hedge",
        1,
        Skipped("no hedging: a call has one attempt in flight"),
    ),
    ("hint_precedence", 3, Test("retry_after.rs")),
    ("idempotency_class", 35, Test("policy_vectors.rs")),
    ("layering", 1, Test("call_vectors.rs")),
    ("method_class", 10, Test("policy_vectors.rs")),
    ("per_request_cap", 3, Test("budget.rs")),
    ("pushback_header", 5, Test("retry_after.rs")),
    (
        "request_header",
        1,
        Skipped(
            "no header tells the server whether the body is kept; a server that refuses says so where it is registered",
        ),
    ),
    ("retry_after_cap", 5, Test("retry_after.rs")),
    ("retry_after_parse", 28, Test("retry_after.rs")),
    (
        "send_rate",
        1,
        Skipped(
            "a limit on what is sent at all belongs to a rate-limit layer: a first attempt is never delayed",
        ),
    ),
    ("server_hint", 12, Test("retry_after.rs")),
    ("server_hint_range", 3, Test("backoff.rs")),
    ("throttle_tokens", 9, Test("budget.rs")),
    ("wait_vs_limit", 1, Test("call_vectors.rs")),
];

#[test]
fn every_fact_is_checked_or_skipped_by_name() {
    let mut found = BTreeMap::<String, usize>::new();
    for case in vectors::all() {
        *found.entry(case.kind).or_default() += 1;
    }
    let listed = KINDS
        .iter()
        .map(|(kind, count, _)| ((*kind).to_owned(), *count));
    assert_eq!(found, listed.collect(), "the tables, and the list above");

    let (mut checked, mut skipped) = (0, 0);
    for (kind, count, by) in KINDS {
        match by {
            // `vectors::check` fails unless it runs or skips by name every case of the kind.
            Test(file) => {
                let file = Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join("tests")
                    .join(file);
                let text = std::fs::read_to_string(&file).unwrap();
                let text: String = text.split_whitespace().collect();
                let call = format!("vectors::check(\"{kind}\",");
                assert!(text.contains(&call), "{kind} is not checked in {file:?}");
                checked += count;
            }
            Skipped(reason) => {
                eprintln!("{kind}, {count} skipped: {reason}");
                skipped += count;
            }
        }
    }
    assert_eq!((checked, skipped), (325, 4));
    assert_eq!(checked + skipped, 329);
}
