//! The settings of a bucket, checked when it is built.

use super::{Budget, Rates};
use crate::ConfigError;

/// Settings of a [`Budget`].
#[derive(Debug, Clone)]
#[must_use]
pub struct BudgetBuilder {
    ratio: f64,
    floor_per_second: f64,
    capacity: u32,
}

impl BudgetBuilder {
    /// Tokens that one good call is worth: 0 to 1000, default 0.2 (one retry for five calls).
    ///
    /// Eight decimals are kept exactly; more are rounded down.
    pub fn ratio(mut self, ratio: f64) -> Self {
        self.ratio = ratio;
        self
    }

    /// Tokens that trickle in per second, whatever the traffic: from 0, default 10.
    ///
    /// A client with fewer calls than that has in effect no budget, and a fleet has a floor for each
    /// of its clients: `docs/budgets-and-backoff.md` says how to size it.
    ///
    /// Eight decimals are kept exactly; more are rounded down.
    pub fn floor_per_second(mut self, floor: f64) -> Self {
        self.floor_per_second = floor;
        self
    }

    /// The most tokens there can be, and how many there are at first: at least 1, default 100.
    pub fn capacity(mut self, capacity: u32) -> Self {
        self.capacity = capacity;
        self
    }

    /// # Errors
    ///
    /// A ratio outside 0 to 1000, a floor below 0, either of them not a finite number, or a
    /// capacity of 0.
    pub fn build(self) -> Result<Budget, ConfigError> {
        self.rates().map(Budget::with_rates)
    }

    pub(crate) fn rates(&self) -> Result<Rates, ConfigError> {
        if !(0.0..=1000.0).contains(&self.ratio) {
            return Err(ConfigError::new(
                "ratio",
                self.ratio,
                "it goes from 0 to 1000",
            ));
        }
        if !self.floor_per_second.is_finite() || self.floor_per_second < 0.0 {
            let (setting, value) = ("floor_per_second", self.floor_per_second);
            return Err(ConfigError::new(
                setting,
                value,
                "it is finite and not below 0",
            ));
        }
        if self.capacity == 0 {
            return Err(ConfigError::new(
                "capacity",
                self.capacity,
                "it is at least 1",
            ));
        }
        Ok(self.unchecked())
    }

    /// For the defaults, which need no check.
    pub(crate) fn unchecked(&self) -> Rates {
        Rates::new(self.ratio, self.floor_per_second, self.capacity)
    }
}

impl Default for BudgetBuilder {
    fn default() -> Self {
        Self {
            ratio: 0.2,
            floor_per_second: 10.0,
            capacity: 100,
        }
    }
}
