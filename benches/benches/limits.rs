//! Fails where a call takes more instructions, more allocations or a larger future than
//! `limits.txt` permits: `cargo bench -p tower-http-retry-benches --bench limits`.
//!
//! These are counts, the same on a busy machine. Times are never asserted. Without valgrind the
//! instructions are left out.

use std::fmt::Display;
use std::process::ExitCode;

use tower_http_retry_benches::callgrind;
use tower_http_retry_benches::cases::{self, OURS, OURS_ONCE};
use tower_http_retry_benches::inner::Upstream;
use tower_http_retry_benches::request::PROFILES;
use tower_http_retry_benches::{rounds, waiting};

const LIMITS: &str = include_str!("../limits.txt");

fn main() -> ExitCode {
    callgrind::child();
    let mut kept = true;
    let mut check = |what: String, count: f64| kept &= holds(&what, count);

    for profile in PROFILES {
        let names = [OURS, OURS_ONCE];
        for (name, short) in names.iter().zip(["", ", one attempt"]) {
            let mut all = cases::all(profile, Upstream::Well);
            let at = rounds::position(&all, name);
            let base = rounds::position(&all, all[at].base());
            let allocations =
                rounds::allocations(&mut *all[at]) - rounds::allocations(&mut *all[base]);
            let future = all[at].future_bytes() as f64 - all[base].future_bytes() as f64;
            check(
                format!("allocations, {}{short}", profile.name()),
                allocations,
            );
            check(format!("future, {}{short}", profile.name()), future);
        }
        if callgrind::is_available() {
            for (short, count) in ["", ", one attempt"]
                .iter()
                .zip(callgrind::net(profile, &names))
            {
                check(
                    format!("instructions, {}{short}", profile.name()),
                    count as f64,
                );
            }
        } else {
            println!("no valgrind: instructions are not counted");
        }
    }
    check(
        "bytes of a waiting call".into(),
        waiting::bytes_each(10_000),
    );
    if kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Compares with the limit, and says so.
fn holds(what: &str, count: impl Display + PartialOrd<f64>) -> bool {
    let limit: f64 = LIMITS
        .lines()
        .find_map(|line| line.strip_prefix(what)?.strip_prefix(':'))
        .and_then(|limit| limit.trim().parse().ok())
        .unwrap_or_else(|| panic!("no limit for {what}"));
    let holds = count <= limit;
    let verdict = if holds { "" } else { "  <- over the limit" };
    println!("{what}: {count:.0} of {limit}{verdict}");
    holds
}
