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
use storm::report::{self, FAILING, FLEETS, LARGE_FLEETS, SETTLED, SOON_SETTLED};
use storm::sim::{Figures, Run};
use storm::stacked;

static FAILURES: LazyLock<Vec<Run>> =
    LazyLock::new(|| support::paused(report::failing(&FLEETS, &Limit::ALL)).unwrap());

static OUTAGES: LazyLock<Vec<Run>> =
    LazyLock::new(|| support::paused(report::outages(&FLEETS, &Limit::ALL)).unwrap());

static LARGE: LazyLock<Vec<Run>> =
    LazyLock::new(|| support::paused(report::large_fleets(&Limit::FOR_LARGE_FLEETS)).unwrap());

/// At a share of failures, in percent, once the start-up burst is spent.
fn at(percent: u32, fleet: u32, limit: Limit) -> Figures {
    column(&FAILURES, percent, fleet, limit).figures(SETTLED)
}

/// The same where each client makes 1 000 calls a second.
fn at_large(percent: u32, fleet: u32, limit: Limit) -> Figures {
    column(&LARGE, percent, fleet, limit).figures(SOON_SETTLED)
}

fn column(runs: &[Run], percent: u32, fleet: u32, limit: Limit) -> &Run {
    let share = f64::from(percent) / 100.0;
    let column = FAILING.iter().position(|&failing| failing == share);
    let mut runs = report::of(runs, fleet, limit);
    runs.nth(column.unwrap()).unwrap()
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
fn the_defaults_hold_for_any_number_of_clients_of_the_size_they_are_meant_for() {
    for fleet in LARGE_FLEETS {
        let ours = |percent| at_large(percent, fleet, Limit::Default);
        let lost = at_large(10, fleet, Limit::None).success - ours(10).success;
        assert!(lost <= 0.1, "{fleet}: {lost}");
        for (percent, most) in [(1, 1.12), (10, 1.12), (30, 1.25), (50, 1.25), (100, 1.02)] {
            assert!(ours(percent).load <= most, "{fleet} {percent} %");
            // As one of them alone, but for the luck of few calls.
            let alone = at(percent, 1, Limit::Default);
            let apart = (alone.load - ours(percent).load).abs();
            assert!(apart <= 0.015, "{fleet} {percent} %: {apart}");
        }
    }
}

#[test]
fn ten_clients_pay_ten_floors() {
    let load = at(100, 10, Limit::Default).load;
    assert!((1.09..=1.11).contains(&load), "{load}");
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
    let tables = report::tables(&FAILURES, &LARGE, &OUTAGES).unwrap();
    let capacities = support::paused(report::capacities()).unwrap();
    for table in tables.split("\n\n").chain([capacities.as_str()]) {
        assert!(page.contains(table.trim()), "not in the page:\n{table}");
    }
    let stack = support::paused(report::stack()).unwrap();
    assert!(page.contains(&stack), "not in the page:\n{stack}");
    assert_eq!(read("docs/storm.svg"), chart::draw(&OUTAGES).unwrap());
}
