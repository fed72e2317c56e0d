//! The retry storm of `examples/storm`, held to its targets and to its page.
#![allow(clippy::unwrap_used)]

mod support;

#[allow(dead_code)]
#[path = "../examples/storm/main.rs"]
mod storm;

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use storm::chart;
use storm::client::Limit;
use storm::report::{self, FAILING, FLEETS, SETTLED};
use storm::sim::{Figures, Run};
use storm::stacked;

static FAILURES: LazyLock<Vec<Run>> =
    LazyLock::new(|| support::paused(report::failing(&FLEETS, &Limit::ALL)).unwrap());

static OUTAGES: LazyLock<Vec<Run>> =
    LazyLock::new(|| support::paused(report::outages(&FLEETS, &Limit::ALL)).unwrap());

/// At a share of failures, in percent, once the start-up burst is spent.
fn at(percent: u32, fleet: u32, limit: Limit) -> Figures {
    let share = f64::from(percent) / 100.0;
    let column = FAILING.iter().position(|&failing| failing == share);
    let mut runs = report::of(&FAILURES, fleet, limit);
    runs.nth(column.unwrap()).unwrap().figures(SETTLED)
}

#[test]
fn few_failures_are_retried_as_if_there_were_no_budget() {
    for (fleet, limit) in [
        (1, Limit::Default),
        (10, Limit::Default),
        (10, Limit::Sized),
        (1_000, Limit::Sized),
    ] {
        for percent in [1, 10] {
            let (ours, unlimited) = (at(percent, fleet, limit), at(percent, fleet, Limit::None));
            assert!(ours.load <= 1.12, "{fleet} {limit:?} {ours:?}");
            let lost = unlimited.success - ours.success;
            assert!(lost <= 0.1, "{fleet} {limit:?} {ours:?} {unlimited:?}");
        }
    }
}

#[test]
fn many_failures_add_a_bounded_load() {
    for (fleet, limit) in [
        (1, Limit::Default),
        (10, Limit::Default),
        (10, Limit::Sized),
        (1_000, Limit::Sized),
    ] {
        for percent in [30, 50] {
            let ours = at(percent, fleet, limit);
            let most = if percent == 50 { 1.25 } else { 1.3 };
            assert!(ours.load <= most, "{fleet} {limit:?} {ours:?}");
            // And buys something with it.
            let alone = 100.0 - f64::from(percent);
            assert!(ours.success > 1.1 * alone, "{fleet} {limit:?} {ours:?}");
        }
    }
}

#[test]
fn a_dead_upstream_gets_hardly_more_load_once_the_burst_is_spent() {
    for (fleet, limit) in [
        (1, Limit::Default),
        (10, Limit::Sized),
        (1_000, Limit::Sized),
    ] {
        let ours = at(100, fleet, limit);
        assert!(ours.load <= 1.02, "{fleet} {limit:?} {ours:?}");
    }
    let unlimited = at(100, 1, Limit::None);
    assert_eq!(unlimited.load, 3.0, "what the budget is for");
}

#[test]
fn a_fleet_needs_no_coordination() {
    // Each client knows its own calls alone. Their sum behaves as one client with all the calls.
    for percent in [1, 10, 30, 50, 100] {
        let (one, fleet) = (
            at(percent, 1, Limit::Sized),
            at(percent, 1_000, Limit::Sized),
        );
        let apart = (one.load - fleet.load).abs();
        assert!(apart <= 0.015, "{percent} %: {one:?} {fleet:?}");
    }
}

#[test]
fn a_floor_above_the_clients_traffic_is_no_budget() {
    // What the page warns of: 1 000 clients with a floor of 10/s each may retry 10 000 times a
    // second, whatever they send.
    for percent in [1, 10, 30, 50, 100] {
        let (default, unlimited) = (
            at(percent, 1_000, Limit::Default),
            at(percent, 1_000, Limit::None),
        );
        assert_eq!(default.load, unlimited.load);
    }
}

#[test]
fn an_upstream_recovers_under_a_budget_and_not_under_a_storm() {
    for (fleet, limit, recovers) in [
        (1, Limit::None, false),
        (1, Limit::Default, true),
        (10, Limit::Sized, true),
        (1_000, Limit::Sized, true),
        (1_000, Limit::Default, false),
    ] {
        let run = report::of(&OUTAGES, fleet, limit).nth(1).unwrap();
        let last = run.figures(170..180);
        let answered = if recovers { 100.0 } else { 0.0 };
        assert_eq!(last.success, answered, "{fleet} {limit:?}");
    }
}

#[test]
fn after_an_outage_retries_work_again_at_once() {
    for (fleet, limit) in [(1, Limit::Default), (1_000, Limit::Sized)] {
        let run = report::of(&OUTAGES, fleet, limit).next().unwrap();
        let after = run.figures(90..100);
        assert!(after.success >= 99.7, "{fleet} {after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn five_layers_add_as_much_as_one() {
    let load = stacked::load(5).await.unwrap();
    assert!(load <= 1.1, "{load}");
    // The start-up burst of one bucket, and its floor: somebody did retry.
    assert!(load > 1.02, "{load}");
}

#[test]
fn the_page_and_its_picture_are_what_the_example_prints() {
    let read = |path: &str| {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
            .unwrap()
            .replace('\r', "")
    };
    let page = read("docs/budgets-and-backoff.md");
    let tables = report::tables(&FAILURES, &OUTAGES).unwrap();
    let capacities = support::paused(report::capacities()).unwrap();
    for table in tables.split("\n\n").chain([capacities.as_str()]) {
        assert!(page.contains(table.trim()), "not in the page:\n{table}");
    }
    let stack = support::paused(report::stack()).unwrap();
    assert!(page.contains(&stack), "not in the page:\n{stack}");
    assert_eq!(read("docs/storm.svg"), chart::draw(&OUTAGES).unwrap());
}
