//! `docs/decision-order.md`, as the tests read it that hold it to the code.

use tower_http_retry::Decision;

pub(crate) const PAGE: &str = include_str!("../../docs/decision-order.md");

/// The rows of the table under a heading, cell by cell.
pub(crate) fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let section = PAGE.split_once(heading).unwrap().1;
    section
        .lines()
        .skip_while(|line| !line.starts_with("|---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

/// A decision as the page names it.
pub(crate) fn name(decision: Decision) -> String {
    match decision {
        Decision::Denied(reason) => {
            let reason = format!("{reason:?}");
            format!("`RetryDenied::{}`", reason.split('(').next().unwrap())
        }
        other @ (Decision::Accept | Decision::Retry | Decision::Refresh | Decision::Ambiguous) => {
            format!("`Decision::{other:?}`")
        }
    }
}
