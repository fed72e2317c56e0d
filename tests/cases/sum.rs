//! Every case is a test, or is skipped by name with the reason.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

#[derive(Deserialize)]
struct Suite {
    schema: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
}

/// Cases that are no test, and why.
const SKIPPED: [(&str, &str); 1] = [(
    "BU-11",
    "budgets are built once and never changed: there is no registration to replace",
)];

#[test]
fn every_case_is_named_by_a_test_or_skipped_with_a_reason() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let file = tests.join("cases/bug-reports.json");
    let suite: Suite = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(suite.schema, "retry-cases/1");
    let ids: BTreeSet<_> = suite.cases.iter().map(|case| case.id.as_str()).collect();
    assert_eq!(ids.len(), 154);

    let mut sources = String::new();
    read(&tests, &mut sources);
    // `PO-01` in a comment or a table, `po_01` in the name of a test.
    let named = |id: &str| {
        let function = id.to_lowercase().replace('-', "_");
        mentions(&sources, id) || mentions(&sources, &function)
    };
    let skipped: BTreeSet<_> = SKIPPED.iter().map(|(id, _)| *id).collect();
    assert!(skipped.is_subset(&ids), "a skipped case does not exist");
    let missing: Vec<_> = ids
        .iter()
        .filter(|id| !skipped.contains(*id) && !named(id))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// `BU-10` is not mentioned by `BU-101`, nor by `XBU-10`.
fn mentions(text: &str, id: &str) -> bool {
    let whole = |byte: Option<&u8>| !byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    text.match_indices(id).any(|(at, _)| {
        whole(at.checked_sub(1).and_then(|before| bytes.get(before)))
            && whole(bytes.get(at + id.len()))
    })
}

/// The sources of all tests but this one, which names what is skipped.
fn read(folder: &Path, sources: &mut String) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, sources);
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("sum.rs") {
            sources.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}
