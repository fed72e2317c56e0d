//! What the process holds, and what a map of budgets does.

use tower_http_retry::Budgets;

/// Resident memory in KiB; there is no other count without unsafe code.
#[cfg(target_os = "linux")]
pub(crate) fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    let kib = line.unwrap().split_whitespace().nth(1);
    kib.unwrap().parse().unwrap()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn resident_kib() -> i64 {
    0
}

/// How many upstreams have a bucket of their own.
pub(crate) fn known(budgets: &Budgets) -> usize {
    let text = format!("{budgets:?}");
    let known = text.split("known: ").nth(1).unwrap();
    known.split([',', ' ']).next().unwrap().parse().unwrap()
}
