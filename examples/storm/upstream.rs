//! The upstream: how it fails.

use std::ops::Range;

/// How an upstream fails over time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Weather {
    /// Each attempt with this probability, forever.
    Failing(f64),
    /// One attempt in a hundred; all of them in [`OUTAGE`].
    Outage,
    /// It serves [`SERVES`] attempts a second and refuses what is above, and a refusal costs it half
    /// of what an answer does. It serves none in [`OUTAGE`], then ever more until [`RECOVERED`].
    SlowRecovery,
}

/// In seconds.
pub(crate) const OUTAGE: Range<u64> = 30..90;

/// When a slow recovery ends, in seconds.
pub(crate) const RECOVERED: u64 = 150;

/// A fifth more than all calls together.
pub(crate) const SERVES: f64 = 1_200.0;

const REFUSAL: f64 = 0.5;

/// How much work it saves up, and how far it can fall behind.
const SLACK: f64 = 50.0;

#[derive(Debug)]
pub(crate) struct Upstream {
    weather: Weather,
    /// The work it can do now.
    slack: f64,
    millis: u64,
}

impl Upstream {
    pub(crate) fn new(weather: Weather) -> Self {
        Self {
            weather,
            slack: SLACK,
            millis: 0,
        }
    }

    /// Whether it answers an attempt at this time. `random` is from 0 up to but not including 1.
    pub(crate) fn answers(&mut self, millis: u64, random: f64) -> bool {
        match self.weather {
            Weather::Failing(share) => random >= share,
            Weather::Outage => !OUTAGE.contains(&(millis / 1_000)) && random >= 0.01,
            Weather::SlowRecovery => self.has_capacity(millis),
        }
    }

    fn has_capacity(&mut self, millis: u64) -> bool {
        let passed = (millis - self.millis) as f64 / 1_000.0;
        self.millis = millis;
        let slack = self.slack + passed * SERVES * health(millis as f64 / 1_000.0);
        let answers = slack >= 1.0;
        let work = if answers { 1.0 } else { REFUSAL };
        self.slack = (slack.min(SLACK) - work).max(-SLACK);
        answers
    }
}

/// From 0, dead, to 1.
fn health(second: f64) -> f64 {
    let (start, end) = (OUTAGE.start as f64, OUTAGE.end as f64);
    if second < start {
        1.0
    } else {
        ((second - end) / (RECOVERED as f64 - end)).clamp(0.0, 1.0)
    }
}
