//! The tables under `tests/vectors`: public facts about other retry systems, in the schema
//! `retry-vectors/1`.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// One fact.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) source: String,
    pub(crate) kind: String,
    pub(crate) given: Value,
    /// What the named system does.
    pub(crate) expected: Value,
    /// What the contract says; of decisions only.
    pub(crate) ours: Option<Value>,
    /// Why ours differs from `expected`, and what it does instead.
    pub(crate) intentional_difference: Option<Difference>,
    pub(crate) adopt: Adopt,
    pub(crate) note: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Difference {
    pub(crate) step: String,
    pub(crate) reason: String,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) refines: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Adopt {
    Must,
    Should,
    /// Documentation.
    Reference,
}

impl Case {
    pub(crate) fn differs(&self) -> bool {
        self.intentional_difference.is_some()
    }
}

#[derive(Deserialize)]
struct Suite {
    schema: String,
    cases: Vec<Case>,
}

/// Every case of all tables.
pub(crate) fn all() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut files: Vec<_> = folder
        .read_dir()
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    let cases = files.iter().flat_map(|file| {
        let text = std::fs::read_to_string(file).unwrap();
        let suite: Suite = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{file:?}: {e}"));
        assert_eq!(suite.schema, "retry-vectors/1", "{file:?}");
        suite.cases
    });
    cases.collect()
}

/// Every case of `kind`, of all tables.
pub(crate) fn of_kind(kind: &str) -> Vec<Case> {
    let mut cases = all();
    cases.retain(|case| case.kind == kind);
    cases
}

/// Checks every case of `kind` but the `skipped`, which are named with the reason. There must be
/// `checked` others: a case that appears, disappears or is left out in silence fails the test.
pub(crate) fn check(kind: &str, checked: usize, skipped: &[(&str, &str)], test: impl Fn(&Case)) {
    let cases = of_kind(kind);
    for (id, _) in skipped {
        assert!(
            cases.iter().any(|case| case.id == *id),
            "{kind} has no case {id} to skip"
        );
    }
    let cases: Vec<_> = cases
        .iter()
        .filter(|case| skipped.iter().all(|(id, _)| case.id != *id))
        .collect();
    for case in &cases {
        eprintln!("{kind}: {case:?}"); // shown where one fails
        test(case);
    }
    assert_eq!(cases.len(), checked, "cases of {kind} that are checked");
}
