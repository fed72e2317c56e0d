//! A retry storm: what retries add to an upstream's load, and what they bring, with this crate's
//! budget and with others'. Virtual time, nothing is sent; the figures are the same in every run.
//!
//! `cargo run --release --example storm [-- docs/storm.svg]`: prints tables, and draws the picture
//! into the file if there is one. They are those of `docs/budgets-and-backoff.md`.

pub(crate) mod chart;
pub(crate) mod client;
pub(crate) mod report;
pub(crate) mod sim;
pub(crate) mod stacked;
pub(crate) mod upstream;

use client::Limit;
use tower_http_retry::BoxError;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), BoxError> {
    let failing = report::failing(&report::FLEETS, &Limit::ALL).await?;
    let outages = report::outages(&report::FLEETS, &Limit::ALL).await?;
    let large = report::large_fleets(&Limit::FOR_LARGE_FLEETS).await?;
    println!("1 000 calls a second in all, or from each client; three attempts, no backoff.");
    println!("Load on the upstream (x of calls), and calls answered.\n");
    println!("{}", report::tables(&failing, &large, &outages)?);
    println!("{}", report::capacities().await?);
    println!("{}", report::stack().await?);
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(path, chart::draw(&outages)?)?;
    }
    Ok(())
}
