//! What is run, and the tables of it.

use std::fmt::{self, Write};
use std::ops::Range;

use tower_http_retry::{BoxError, ConfigError};

use super::client::Limit;
use super::sim::{CALLS_PER_SECOND, Figures, Run, simulate};
use super::upstream::{OUTAGE, RECOVERED, Weather};
use super::{sim, stacked};

/// Clients that make 1 000 calls a second in all.
pub(crate) const FLEETS: [u32; 3] = [1, 10, 1_000];
/// Clients that make 1 000 calls a second each.
pub(crate) const LARGE_FLEETS: [u32; 2] = [10, 1_000];
pub(crate) const FAILING: [f64; 5] = [0.01, 0.1, 0.3, 0.5, 1.0];

/// The seconds that are looked at. Before them start-up bursts are spent, of which a fleet has many.
pub(crate) const SETTLED: Range<usize> = 80..100;

/// The same where each client is a large one: it spends its burst within the first second.
pub(crate) const SOON_SETTLED: Range<usize> = 1..3;

const IN_ALL: u64 = CALLS_PER_SECOND / 1_000;

/// When all is well again, in seconds.
const END: u64 = RECOVERED + 30;

/// Upstreams that fail some share of all attempts.
pub(crate) async fn failing(fleets: &[u32], limits: &[Limit]) -> Result<Vec<Run>, ConfigError> {
    let weathers = FAILING.map(Weather::Failing);
    let mut runs = all(fleets, limits, &weathers, share)?;
    simulate(&mut runs, IN_ALL, SETTLED.end as u64).await;
    Ok(runs)
}

/// The same for clients that make 1 000 calls a second each, and upstreams that are as large.
pub(crate) async fn large_fleets(limits: &[Limit]) -> Result<Vec<Run>, ConfigError> {
    let weathers = FAILING.map(Weather::Failing);
    let mut simulated = Vec::new();
    for fleet in LARGE_FLEETS {
        let mut runs = all(&[fleet], limits, &weathers, |_| CALLS_PER_SECOND as f64)?;
        let calls_per_milli = IN_ALL * u64::from(fleet);
        simulate(&mut runs, calls_per_milli, SOON_SETTLED.end as u64).await;
        simulated.extend(runs);
    }
    Ok(simulated)
}

/// An outage, and one with a slow recovery.
pub(crate) async fn outages(fleets: &[u32], limits: &[Limit]) -> Result<Vec<Run>, ConfigError> {
    let mut runs = all(
        fleets,
        limits,
        &[Weather::Outage, Weather::SlowRecovery],
        share,
    )?;
    simulate(&mut runs, IN_ALL, END).await;
    Ok(runs)
}

/// Each client's calls a second, where the fleet makes 1 000 in all.
fn share(fleet: u32) -> f64 {
    CALLS_PER_SECOND as f64 / f64::from(fleet)
}

fn all(
    fleets: &[u32],
    limits: &[Limit],
    weathers: &[Weather],
    each: impl Fn(u32) -> f64,
) -> Result<Vec<Run>, ConfigError> {
    let mut runs = Vec::new();
    for &fleet in fleets {
        for &limit in limits {
            for &weather in weathers {
                runs.push(Run::new(limit, fleet, each(fleet), weather)?);
            }
        }
    }
    Ok(runs)
}

const SHARES: &str = "1 % fail | 10 % | 30 % | 50 % | 100 % |\n|---|---|---|---|---|---|";

/// Tables in Markdown, as they stand in the page on budgets.
pub(crate) fn tables(
    failing: &[Run],
    large: &[Run],
    outages: &[Run],
) -> Result<String, fmt::Error> {
    let mut out = String::new();
    for (fleet, title) in [
        (1, "1 client, 1 000 calls/s"),
        (1_000, "1 000 clients, 1 call/s each"),
    ] {
        writeln!(out, "| {title} | {SHARES}")?;
        for limit in Limit::ALL {
            write!(out, "| {} |", limit.name())?;
            for run in of(failing, fleet, limit) {
                cell(&mut out, run.figures(SETTLED))?;
            }
            writeln!(out)?;
        }
        writeln!(out)?;
    }
    writeln!(out, "| 1 000 calls/s from each client | {SHARES}")?;
    for (fleet, clients) in LARGE_FLEETS
        .into_iter()
        .zip(["10 clients", "1 000 clients"])
    {
        for limit in Limit::FOR_LARGE_FLEETS {
            write!(out, "| {clients}, {} |", limit.name())?;
            for run in of(large, fleet, limit) {
                cell(&mut out, run.figures(SOON_SETTLED))?;
            }
            writeln!(out)?;
        }
    }
    writeln!(
        out,
        "\n| clients | | outage | the 10 s after it | slow recovery | the 30 s after it |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    for (fleet, limits) in [(1, &Limit::ALL[..]), (1_000, &Limit::OWN[..])] {
        for &limit in limits {
            write!(out, "| {fleet} | {} |", limit.name())?;
            for run in of(outages, fleet, limit) {
                for span in spans(run.weather) {
                    cell(&mut out, run.figures(span))?;
                }
            }
            writeln!(out)?;
        }
    }
    Ok(out)
}

/// How large the bucket of a client with one call a second has to be.
pub(crate) async fn capacities() -> Result<String, BoxError> {
    let capacities = [1, 2, 3, 5, 10, 20];
    let limits = capacities.map(Limit::Capacity);
    let mut runs = all(
        &[1_000],
        &limits,
        &[Weather::Failing(0.1), Weather::Outage],
        share,
    )?;
    simulate(&mut runs, IN_ALL, SETTLED.end as u64).await;
    let mut out = String::new();
    writeln!(
        out,
        "| capacity of 1 000 clients, 1 each | 10 % fail | outage |"
    )?;
    writeln!(out, "|---|---|---|")?;
    for capacity in capacities {
        write!(out, "| {capacity} |")?;
        for run in of(&runs, 1_000, Limit::Capacity(capacity)) {
            for span in spans(run.weather).iter().take(1) {
                cell(&mut out, run.figures(span.clone()))?;
            }
        }
        writeln!(out)?;
    }
    Ok(out)
}

fn cell(out: &mut String, figures: Figures) -> fmt::Result {
    write!(out, " {:.2}x, {:.1} % |", figures.load, figures.success)
}

/// The columns of a run.
fn spans(weather: Weather) -> Vec<Range<usize>> {
    let (start, end) = (OUTAGE.start as usize, OUTAGE.end as usize);
    let recovered = RECOVERED as usize;
    match weather {
        Weather::Failing(_) => vec![SETTLED],
        Weather::Outage => vec![start..end, end..end + 10],
        Weather::SlowRecovery => vec![end..recovered, recovered..END as usize],
    }
}

/// The runs of one row, in the order of its columns.
pub(crate) fn of(runs: &[Run], fleet: u32, limit: Limit) -> impl Iterator<Item = &Run> {
    runs.iter()
        .filter(move |run| (run.fleet, run.limit) == (fleet, limit))
}

/// The line about five layers.
pub(crate) async fn stack() -> Result<String, BoxError> {
    let (layers, seconds) = (5, 10);
    let naive = u64::from(sim::ATTEMPTS).pow(layers);
    let load = stacked::load(seconds).await?;
    Ok(format!(
        "Five layers over each other, {seconds} s of a full outage from its start: {load:.2}x (loops that do not know of \
         each other: {naive}x)"
    ))
}
