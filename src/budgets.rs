//! Retry budgets per upstream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::request::Parts;

use crate::{Budget, BudgetBuilder, ConfigError, UpstreamKey};

/// One [`Budget`] per upstream. Clones share them.
///
/// The default has a bucket with default settings for each of at most 1024 upstreams.
#[derive(Debug, Clone)]
pub struct Budgets {
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Off,
    Shared(Budget),
    PerUpstream(Arc<Upstreams>),
}

#[derive(Debug)]
struct Upstreams {
    settings: BudgetBuilder,
    max: usize,
    budgets: Mutex<HashMap<UpstreamKey, Budget>>,
    overflow: Budget,
}

impl Budgets {
    /// The defaults of [`Budget::builder`], for at most 1024 upstreams.
    pub fn builder() -> BudgetsBuilder {
        BudgetsBuilder::default()
    }

    /// One budget for all upstreams.
    pub fn shared(budget: Budget) -> Self {
        Self {
            kind: Kind::Shared(budget),
        }
    }

    /// No budget at all.
    pub(crate) fn off() -> Self {
        Self { kind: Kind::Off }
    }

    /// The budget of this upstream; `None` where budgets are turned off.
    pub fn get(&self, key: &UpstreamKey) -> Option<Budget> {
        match &self.kind {
            Kind::Off => None,
            Kind::Shared(budget) => Some(budget.clone()),
            Kind::PerUpstream(upstreams) => Some(upstreams.get(key)),
        }
    }

    /// The budget of a request's upstream. `cache` is the service's own: what it asked for last.
    pub(crate) fn for_request(&self, parts: &Parts, _cache: &mut Option<Budget>) -> Option<Budget> {
        self.get(&UpstreamKey::of(parts))
    }
}

impl Default for Budgets {
    fn default() -> Self {
        BudgetsBuilder::default().with_defaults()
    }
}

impl From<Budget> for Budgets {
    fn from(budget: Budget) -> Self {
        Self::shared(budget)
    }
}

impl Upstreams {
    fn get(&self, key: &UpstreamKey) -> Budget {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(budget) = budgets.get(key) {
            return budget.clone();
        }
        if budgets.len() >= self.max {
            return self.overflow.clone();
        }
        let budget = self.settings.clone().build().unwrap_or_default();
        budgets.insert(key.clone(), budget.clone());
        budget
    }
}

/// Settings of [`Budgets`].
#[derive(Debug, Clone)]
#[must_use]
pub struct BudgetsBuilder {
    budget: BudgetBuilder,
    max_upstreams: usize,
}

impl BudgetsBuilder {
    /// As [`BudgetBuilder::ratio`].
    pub fn ratio(mut self, ratio: f64) -> Self {
        self.budget = self.budget.ratio(ratio);
        self
    }

    /// As [`BudgetBuilder::floor_per_second`].
    pub fn floor_per_second(mut self, floor: f64) -> Self {
        self.budget = self.budget.floor_per_second(floor);
        self
    }

    /// As [`BudgetBuilder::capacity`].
    pub fn capacity(mut self, capacity: u32) -> Self {
        self.budget = self.budget.capacity(capacity);
        self
    }

    /// How many upstreams have a bucket of their own at most: at least 1, default 1024.
    pub fn max_upstreams(mut self, max: usize) -> Self {
        self.max_upstreams = max;
        self
    }

    /// # Errors
    ///
    /// As [`BudgetBuilder::build`]; and a `max_upstreams` of 0.
    pub fn build(self) -> Result<Budgets, ConfigError> {
        if self.max_upstreams == 0 {
            let reason = "it is at least 1; `Budgets::shared` has one bucket for all";
            return Err(ConfigError::new(
                "max_upstreams",
                self.max_upstreams,
                reason,
            ));
        }
        self.budget.clone().build()?;
        Ok(self.with_defaults())
    }

    fn with_defaults(self) -> Budgets {
        let overflow = self.budget.clone().build().unwrap_or_default();
        Budgets {
            kind: Kind::PerUpstream(Arc::new(Upstreams {
                settings: self.budget,
                max: self.max_upstreams,
                budgets: Mutex::default(),
                overflow,
            })),
        }
    }
}

impl Default for BudgetsBuilder {
    fn default() -> Self {
        Self {
            budget: BudgetBuilder::default(),
            max_upstreams: 1024,
        }
    }
}
