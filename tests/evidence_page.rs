//! `docs/evidence.md` and the tests of its rows are held together.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Every experiment that was made, of those that the page tells of.
const EXPERIMENTS: &str = "
    A1 A2 A3 A3t A3r A3o A4a A4b A4c A4d A4e A4f A4g A5 A5b A6 A6r A6u A6l A6h A7 A7b A8 A10 A10h
    B1 B2 B2d B3 B3p B4 B5 B5f B5e B6 B6h B6r B7 B8 B8z B9 B9m B10 B11 B11b B12 B12n B13 B13c B14
    B16 B16i B16s B16t B16z B17 B18 B19 C1 C2 C3
    D1 D1x D3 D3c D4 D4g D4m D4o D5 D5b D5c D5d D6 D6l D6r D7 D8 D8p D8r D8s D9 D10 D10r
    D11 D11c D11e D11g D11h D11m D11n D12 D13 D14 D16 D17 D18 D20
    E1 E2 E3 E4 E4b E5 E6 E7 E8 F1 F1b F2 F3 F4 F5 G1 G2 G3 G4
    R1 R2 R3 R4 R5 R6 R7 R8 R8b R9 R10 R11";

fn experiments() -> BTreeSet<String> {
    let ids = EXPERIMENTS.split_whitespace();
    ids.map(str::to_lowercase).collect()
}

/// The ids in the first column of the page's tables: a letter and a digit begin each. The first of a
/// row is that of its test, the others are variants.
fn ids_of(tables: &str) -> Vec<Vec<String>> {
    let is_id = |cell: &str| {
        let mut chars = cell.chars();
        chars.next().is_some_and(|c| c.is_ascii_uppercase())
            && chars.next().is_some_and(|c| c.is_ascii_digit())
    };
    tables
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
        .filter(|cell| is_id(cell))
        .map(|cell| cell.to_lowercase().split(", ").map(str::to_owned).collect())
        .collect()
}

/// The rows of the table.
fn rows() -> Vec<Vec<String>> {
    let page = read("docs/evidence.md");
    ids_of(page.split_once(WITHOUT_A_TEST).unwrap().0)
}

const WITHOUT_A_TEST: &str = "### Without a test";

/// Experiments that have a reason instead.
fn reasons() -> Vec<Vec<String>> {
    let page = read("docs/evidence.md");
    ids_of(page.split_once(WITHOUT_A_TEST).unwrap().1)
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
    let rows: BTreeSet<_> = rows().into_iter().map(|ids| ids[0].clone()).collect();
    assert!(rows.len() > 80, "{}", rows.len());
    let tests = tests();
    let missing: Vec<_> = rows.difference(&tests).collect();
    assert!(missing.is_empty(), "rows without a test: {missing:?}");
}

#[test]
fn every_experiment_has_a_row_or_a_reason_and_only_one() {
    let mut told = BTreeSet::new();
    for id in rows().into_iter().chain(reasons()).flatten() {
        assert!(told.insert(id.clone()), "told twice: {id}");
    }
    let experiments = experiments();
    let untold: Vec<_> = experiments.difference(&told).collect();
    assert!(untold.is_empty(), "neither row nor reason: {untold:?}");
    let unknown: Vec<_> = told.difference(&experiments).collect();
    assert!(unknown.is_empty(), "no such experiment: {unknown:?}");
}

#[test]
fn what_has_a_test_needs_no_reason() {
    let tests = tests();
    for id in reasons().into_iter().flatten() {
        assert!(!tests.contains(&id), "{id}");
    }
}

#[test]
fn every_test_of_a_row_has_its_row() {
    let rows: BTreeSet<_> = rows().into_iter().flatten().collect();
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
