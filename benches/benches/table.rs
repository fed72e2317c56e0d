//! Prints the tables of docs/performance.md: `cargo bench -p tower-http-retry-benches --bench table`.

use tower_http_retry_benches::callgrind;
use tower_http_retry_benches::cases::{self, BARE, BARE_CHAIN, TOWER};
use tower_http_retry_benches::exchange::{self, Exchange};
use tower_http_retry_benches::inner::Upstream;
use tower_http_retry_benches::request::Profile;
use tower_http_retry_benches::rounds::{self, Row};
use tower_http_retry_benches::{lookup, parts, waiting};

const ROUNDS: usize = 2000;

fn main() {
    callgrind::child();
    first_attempts();
    retries();
    whole_exchanges();
    single_parts();
}

fn first_attempts() {
    let [post, get] = [Profile::Post, Profile::Get].map(|profile| {
        let rows = rounds::run(&mut cases::all(profile, Upstream::Well), ROUNDS);
        let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
        let counts = if callgrind::is_available() {
            callgrind::net(profile, &names)
        } else {
            vec![0; names.len()]
        };
        (rows, counts)
    });
    let (tower_post, tower_get) = (row(&post.0, TOWER).net, row(&get.0, TOWER).net);
    println!("### The first attempt succeeds\n");
    println!(
        "| | POST | GET | of tower::retry | allocations | instructions | future |\n\
         |---|---|---|---|---|---|---|"
    );
    for (index, (to_post, to_get)) in post.0.iter().zip(&get.0).enumerate() {
        if [BARE, BARE_CHAIN].contains(&to_post.name) {
            continue;
        }
        println!(
            "| {} | {:+.0} ns | {:+.0} ns | {:.2}, {:.2} | {}, {} | {}, {} | {:+} B |",
            to_post.name,
            to_post.net,
            to_get.net,
            to_post.net / tower_post,
            to_get.net / tower_get,
            to_post.allocations,
            to_get.allocations,
            post.1[index],
            get.1[index],
            to_post.future,
        );
    }
    println!();
}

/// Real time: a wait of zero that goes through tokio's timer takes a millisecond.
fn retries() {
    let rows = rounds::run(&mut cases::all(Profile::Post, Upstream::FailsOnce), 10);
    println!("### A 503, then a 200, without a wait\n");
    println!("| | POST |\n|---|---|");
    for row in rows {
        if ![BARE, BARE_CHAIN].contains(&row.name) {
            println!("| {} | {:.1} µs |", row.name, row.whole / 1e3);
        }
    }
    println!();
}

fn whole_exchanges() {
    println!("### A whole exchange, hyper's client and server\n");
    println!("| | without | the layer adds | share | allocations |\n|---|---|---|---|---|");
    let print = |name, exchange: Exchange| {
        println!(
            "| {name} | {:.1} µs | {:+.0} ns | {:.1} % | {:+} |",
            exchange.bare / 1e3,
            exchange.added,
            100.0 * exchange.added / exchange.bare,
            exchange.allocations,
        );
    };
    print("in memory", exchange::in_memory(600));
    print("over loopback", exchange::over_loopback(200));
    println!();
}

fn single_parts() {
    println!("### Parts\n");
    println!("| | |\n|---|---|");
    let (success, failure) = parts::decide_alone();
    println!("| `decide`, a 200 | {success:.1} ns |");
    println!("| `decide`, a 503 to a GET | {failure:.1} ns |");
    println!(
        "| budget: deposit when full, 1 and 2 threads | {:.1}, {:.1} ns |",
        parts::deposit(1),
        parts::deposit(2)
    );
    println!(
        "| budgets: one of 1000 upstreams, by its key, 1 and 2 threads | {:.1}, {:.1} ns |",
        lookup::by_key(1),
        lookup::by_key(2)
    );
    let (before, after) = lookup::before_and_after_a_million();
    println!(
        "| the same, before and after a million others passed through | {before:.1}, {after:.1} ns |"
    );
    for hot in [4, 1000] {
        println!(
            "| a call's budget, {hot} of 1000 upstreams in turn, over always the same one; 1 and 2 threads | {:.1}, {:.1} ns |",
            lookup::in_turn(1, hot),
            lookup::in_turn(2, hot)
        );
    }
    let (raw, buffered) = parts::buffered();
    println!("| 64 KiB in 16 KiB frames, as a stream | {raw:.2} µs |");
    println!(
        "| the same, `buffered` | {buffered:.2} µs, {:.2}x |",
        buffered / raw
    );
    println!(
        "| each of 10 000 calls in backoff, beside its request | {:.0} B |",
        waiting::bytes_each(10_000)
    );
}

fn row<'a>(rows: &'a [Row], name: &str) -> &'a Row {
    rows.iter()
        .find(|row| row.name == name)
        .expect("it is among the cases")
}
