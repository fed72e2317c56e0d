//! The truth under fire: random operations against servers that fail at every point, over real
//! sockets, and every answer held against what the servers really did.
//!
//! The long form: `CHAOS_CALLS=1000000 cargo test --release --all-features --test chaos -- --nocapture`.
//! A run is reproduced, as far as the network allows, by `CHAOS_SEED`.
#![cfg(all(feature = "hyper", feature = "fs", feature = "multipart", unix))]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // helpers of tests
#![allow(clippy::wildcard_enum_match_arm)]

mod arena;
mod body;
mod fault;
mod h1;
mod h2;
mod judge;
mod ledger;
mod op;
mod ours;
mod serve;
mod tls;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;
use tower_http_retry::{Drain, IdempotentMethods};

use crate::arena::Arena;
use crate::judge::Verdicts;
use crate::op::Shape;
use crate::ours::{PERMITS, TOKENS, ours};

fn setting(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
}

fn storm(methods: IdempotentMethods, seed: u64, calls: u64) -> Verdicts {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async move {
        let mut arena = Arena::open(seed);
        let trust = tls::add_to(&mut arena);
        let ours = ours(methods, Drain::new(), |http2| trust.connector(http2));
        let books = ours.books.clone();
        let verdicts = arena.run(ours, calls, 300, seed).await;

        // Everything that was lent comes back.
        let spent = f64::from(books.retries.load(Ordering::SeqCst));
        let missing = f64::from(TOKENS) - books.budget.balance();
        assert_eq!(
            missing, spent,
            "a token for each retry that went out, and no other"
        );
        assert_eq!(books.permits.available_permits(), PERMITS);
        assert_eq!(
            books.layer.contradictions(),
            0,
            "a proof by type that the witness contradicts"
        );
        // Connections end, and with them the client's tasks and the servers': all but the listeners.
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let mut patience = 1000;
        while (arena.open_connections(), tasks()) != (0, arena.servers()) && patience > 0 {
            patience -= 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(
            arena.open_connections(),
            0,
            "connections outlive the client"
        );
        assert_eq!(tasks(), arena.servers(), "tasks outlive the client");
        verdicts
    })
}

fn check(seed: u64, calls: u64) {
    let verdicts = storm(IdempotentMethods::Rfc9110, seed, calls);
    println!("seed {seed}: {verdicts}");
    assert_eq!(verdicts.violations(), 0, "seed {seed}: {verdicts}");
    assert_eq!(verdicts.calls, calls);
    assert_eq!(verdicts.at.len(), 4, "TLS and not, of each protocol");
    // All that a body can be; half of one is never whole.
    let whole = Shape::FULL
        .into_iter()
        .filter(|shape| *shape != Shape::Broken);
    let expected: BTreeSet<_> = whole.chain([Shape::Empty]).collect();
    let arrived: BTreeSet<_> = verdicts.arrived.keys().copied().collect();
    assert_eq!(arrived, expected, "{verdicts}");
    // On a machine that has no time for it, most attempts run into their timeout.
    assert!(
        verdicts.succeeded > calls / 20,
        "the storm drowned everything: {verdicts}"
    );
}

#[test]
fn no_answer_is_untrue_in_a_storm() {
    for seed in [1, 2] {
        check(seed, 3000);
    }
}

#[test]
fn the_judge_sees_what_a_careless_client_does() {
    // The same client, told that every method may be repeated.
    let verdicts = storm(IdempotentMethods::All, 3, 1500);
    assert!(verdicts.duplicates > 0, "{verdicts}");
    assert!(verdicts.untrue > 0, "{verdicts}");
    assert_eq!(verdicts.corrupted, 0, "{verdicts}");
}

#[test]
fn a_drain_in_the_storm_ends_every_wait() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let verdicts = runtime.block_on(async {
        let mut arena = Arena::open(4);
        let drain = Drain::new();
        let trust = tls::add_to(&mut arena);
        let connector = |http2| trust.connector(http2);
        let ours = ours(IdempotentMethods::Rfc9110, drain.clone(), connector);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            drain.start();
        });
        arena.run(ours, 1500, 300, 4).await
    });
    assert_eq!(verdicts.violations(), 0, "{verdicts}");
}

#[test]
fn no_answer_is_untrue_in_a_storm_nobody_has_seen() {
    let now = std::time::UNIX_EPOCH
        .elapsed()
        .map_or(0, |now| now.as_secs());
    let seed = setting("CHAOS_SEED").unwrap_or(now);
    check(seed, setting("CHAOS_CALLS").unwrap_or(3000));
}
