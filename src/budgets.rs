//! Retry budgets per upstream.

mod upstreams;

use std::sync::Arc;

use http::request::Parts;

use self::upstreams::Upstreams;
use crate::budget::{CallBudget, Rates};
use crate::upstream_key::UpstreamRef;
use crate::{Budget, BudgetBuilder, ConfigError, UpstreamKey};

/// One [`Budget`] per upstream. Clones share them.
///
/// The default has a bucket with default settings for each of at most 1024 upstreams. A bucket that
/// is full again is as good as none: it makes room for a new upstream. While no bucket is full, new
/// upstreams share one more, the overflow. So a hostile set of authorities, however large, takes
/// neither memory nor another upstream's tokens.
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

    /// The budget of this upstream, made if there is none yet. `None` where budgets are turned off.
    ///
    /// May be kept: it stays the upstream's budget, whatever is evicted.
    pub fn get(&self, key: &UpstreamKey) -> Option<Budget> {
        match &self.kind {
            Kind::Off => None,
            Kind::Shared(budget) => Some(budget.clone()),
            Kind::PerUpstream(upstreams) => Some(upstreams.get(&key.as_ref())),
        }
    }

    fn per_upstream(rates: Rates, max: usize) -> Self {
        Self {
            kind: Kind::PerUpstream(Upstreams::new(rates, max)),
        }
    }

    /// The budget of a call, by its request. `last` is the service's own: whom it called last,
    /// since most call one upstream again and again.
    #[inline]
    pub(crate) fn for_call(&self, parts: &Parts, last: &mut Option<Budget>) -> Option<CallBudget> {
        let budget = match &self.kind {
            Kind::Off => return None,
            Kind::Shared(budget) => budget.clone(),
            Kind::PerUpstream(upstreams) => match last {
                Some(last) if serves(last, parts) => last.clone(),
                Some(_) | None => {
                    let budget = upstreams.get(&UpstreamRef::of(parts));
                    *last = Some(budget.clone());
                    budget
                }
            },
        };
        Some(CallBudget::new(budget, &parts.extensions))
    }
}

/// The overflow has no key and serves nobody for longer than a call.
#[inline]
fn serves(budget: &Budget, parts: &Parts) -> bool {
    budget.key().is_some_and(|key| key.is_spelled_in(parts)) && !budget.is_retired()
}

impl Default for Budgets {
    fn default() -> Self {
        let BudgetsBuilder {
            budget,
            max_upstreams,
        } = BudgetsBuilder::default();
        Self::per_upstream(budget.unchecked(), max_upstreams)
    }
}

impl From<Budget> for Budgets {
    fn from(budget: Budget) -> Self {
        Self::shared(budget)
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
        let rates = self.budget.rates()?;
        if self.max_upstreams == 0 {
            let reason = "it is at least 1; `Budgets::shared` has one budget for all";
            return Err(ConfigError::new(
                "max_upstreams",
                self.max_upstreams,
                reason,
            ));
        }
        Ok(Budgets::per_upstream(rates, self.max_upstreams))
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
