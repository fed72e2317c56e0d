//! `docs/evidence.md` and the tests of its rows are held together.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The ids in the first column of the page's tables: a letter and a digit begin each.
fn rows() -> BTreeSet<String> {
    let is_id = |cell: &str| {
        let mut chars = cell.chars();
        chars.next().is_some_and(|c| c.is_ascii_uppercase())
            && chars.next().is_some_and(|c| c.is_ascii_digit())
    };
    read("docs/evidence.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
        .filter(|cell| is_id(cell))
        .map(str::to_lowercase)
        .collect()
}

/// The first words of the names of the tests.
fn tests() -> BTreeSet<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut tests = BTreeSet::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("evidence_") || name == "evidence_page.rs" {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        let mut previous = "";
        for line in source.lines() {
            let function = line.strip_prefix("async ").unwrap_or(line);
            if let Some(name) = function.strip_prefix("fn ")
                && previous.starts_with("#[")
            {
                tests.insert(name.split('_').next().unwrap().to_owned());
            }
            previous = line;
        }
    }
    tests
}

#[test]
fn every_row_has_a_test() {
    let (rows, tests) = (rows(), tests());
    assert!(rows.len() > 80, "{}", rows.len());
    let missing: Vec<_> = rows.difference(&tests).collect();
    assert!(missing.is_empty(), "rows without a test: {missing:?}");
}

#[test]
fn every_test_of_a_row_has_its_row() {
    let rows = rows();
    let is_id = |name: &&String| name.chars().nth(1).is_some_and(|c| c.is_ascii_digit());
    // A handshake that works is no row.
    let tests: BTreeSet<_> = tests().into_iter().filter(|name| name != "a4").collect();
    let missing: Vec<_> = tests
        .iter()
        .filter(is_id)
        .filter(|name| !rows.contains(*name))
        .collect();
    assert!(missing.is_empty(), "tests without a row: {missing:?}");
}

#[test]
fn the_versions_are_those_that_are_tested() {
    let (page, lock) = (read("docs/evidence.md"), read("Cargo.lock"));
    let (_, table) = page.split_once("| crate | version |").unwrap();
    let mut compared = 0;
    for line in table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
    {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let entry = format!("name = \"{}\"\nversion = \"{}\"\n", cells[1], cells[2]);
        assert!(lock.contains(&entry), "not what is locked: {line}");
        compared += 1;
    }
    assert_eq!(compared, 10);
}
