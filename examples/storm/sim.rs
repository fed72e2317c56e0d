//! The simulation: calls in order of time, under a clock that is advanced by hand.
//!
//! An attempt takes no time and there is no backoff, which is the hardest case: a wait moves load to
//! a later moment, it does not take any away. All runs of one simulation see the same calls: the
//! client and the upstream's luck are hashes of the call's and the attempt's number.

use std::ops::Range;
use std::time::Duration;

use tower_http_retry::ConfigError;

use super::client::{Client, Limit};
use super::upstream::{Upstream, Weather};

/// Of the whole fleet, or of each client.
pub(crate) const CALLS_PER_SECOND: u64 = 1_000;

/// Of each call at most.
pub(crate) const ATTEMPTS: u32 = 3;

const SEED: u64 = 7;

/// One fleet with one kind of limit, and its upstream.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) limit: Limit,
    pub(crate) fleet: u32,
    pub(crate) weather: Weather,
    clients: Vec<Client>,
    upstream: Upstream,
    seconds: Vec<Second>,
}

/// What happened in one second.
#[derive(Debug, Clone, Copy, Default)]
struct Second {
    calls: u32,
    attempts: u32,
    answered: u32,
}

/// What a span of time cost and brought.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    /// Attempts per call.
    pub(crate) load: f64,
    /// Answered calls, in percent.
    pub(crate) success: f64,
}

impl Run {
    /// Each client makes so many calls a second.
    pub(crate) fn new(
        limit: Limit,
        fleet: u32,
        each: f64,
        weather: Weather,
    ) -> Result<Self, ConfigError> {
        let clients = (0..fleet).map(|_| limit.client(each));
        Ok(Self {
            limit,
            fleet,
            weather,
            clients: clients.collect::<Result<_, _>>()?,
            upstream: Upstream::new(weather),
            seconds: Vec::new(),
        })
    }

    /// Over these seconds.
    pub(crate) fn figures(&self, span: Range<usize>) -> Figures {
        let span = self.seconds.get(span).unwrap_or_default();
        let sum = |of: fn(&Second) -> u32| f64::from(span.iter().map(of).sum::<u32>());
        let calls = sum(|second| second.calls);
        Figures {
            load: sum(|second| second.attempts) / calls,
            success: 100.0 * sum(|second| second.answered) / calls,
        }
    }

    fn call(&mut self, number: u64, millis: u64) {
        let mut second = Second {
            calls: 1,
            ..Second::default()
        };
        let picked = (random(number, 0) * self.clients.len() as f64) as usize;
        if let Some(client) = self.clients.get_mut(picked) {
            for attempt in 1..=ATTEMPTS {
                second.attempts += 1;
                if self.upstream.answers(millis, random(number, attempt)) {
                    client.answered(attempt);
                    second.answered = 1;
                    break;
                }
                client.failed();
                if attempt == ATTEMPTS || !client.may_retry() {
                    break;
                }
            }
        }
        self.record(millis / 1_000, second);
    }

    fn record(&mut self, at: u64, call: Second) {
        if self.seconds.len() as u64 <= at {
            self.seconds.push(Second::default());
        }
        if let Some(second) = self.seconds.last_mut() {
            second.calls += call.calls;
            second.attempts += call.attempts;
            second.answered += call.answered;
        }
    }
}

/// Lets all of them live through the same seconds, side by side, each with so many calls a
/// millisecond. Time must be paused.
pub(crate) async fn simulate(runs: &mut [Run], calls_per_milli: u64, seconds: u64) {
    for millis in 0..seconds * 1_000 {
        for number in millis * calls_per_milli..(millis + 1) * calls_per_milli {
            for run in &mut *runs {
                run.call(number, millis);
            }
        }
        tokio::time::advance(Duration::from_millis(1)).await;
    }
}

/// From 0 up to but not including 1 (splitmix64).
fn random(call: u64, attempt: u32) -> f64 {
    let number = call * u64::from(ATTEMPTS + 1) + u64::from(attempt);
    let mut bits = (SEED + number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
