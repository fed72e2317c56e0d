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
    /// since most call one upstream again and again. `held` is that of an earlier call on this
    /// thread, of any service: many services are cloned for each call, and their clones know nobody
    /// yet. If it is the same one, the count of its holders, which all threads share, is left alone.
    #[inline]
    pub(crate) fn for_call(
        &self,
        parts: &Parts,
        last: &mut Option<Budget>,
        held: Option<CallBudget>,
    ) -> Option<CallBudget> {
        let budget = match &self.kind {
            Kind::Off => return None,
            Kind::Shared(budget) => {
                return Some(CallBudget::renewed(held, budget, &parts.extensions));
            }
            Kind::PerUpstream(upstreams) => match (last, held) {
                (Some(last), held) if serves(last, parts) => {
                    return Some(CallBudget::renewed(held, last, &parts.extensions));
                }
                (_, Some(held))
                    if held.budget().is_among(&**upstreams) && serves(held.budget(), parts) =>
                {
                    return Some(held.for_another(&parts.extensions));
                }
                (last, _) => last.insert(upstreams.get(&UpstreamRef::of(parts))),
            },
        };
        Some(CallBudget::new(budget.clone(), &parts.extensions))
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

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn get(uri: &str) -> Parts {
        Request::get(uri).body(()).unwrap().into_parts().0
    }

    fn dry(max: usize) -> Budgets {
        let builder = Budgets::builder().floor_per_second(0.0).capacity(1);
        builder.max_upstreams(max).build().unwrap()
    }

    fn retry(budgets: &Budgets, uri: &str, last: &mut Option<Budget>) -> bool {
        // Whatever budget an earlier call left behind.
        let held = CallBudget::new(Budget::default(), &Default::default());
        let call = budgets.for_call(&get(uri), last, Some(held)).unwrap();
        let call = budgets.for_call(&get(uri), last, Some(call)).unwrap();
        call.try_withdraw().map(crate::Token::spend).is_some()
    }

    #[test]
    fn a_call_has_the_budget_of_its_upstream_whoever_was_called_last() {
        let (budgets, mut last) = (dry(10), None);
        for (uri, granted) in [
            ("http://a/1", true),
            ("http://a/2", false),
            ("http://A:80/3", false),
            ("https://a/4", true),
            ("http://b/5", true),
            ("http://a/6", false),
            ("/7", true),
            ("/8", false),
        ] {
            assert_eq!(retry(&budgets, uri, &mut last), granted, "{uri}");
        }
    }

    #[test]
    fn the_last_budget_is_looked_up_again_once_it_is_evicted() {
        let (budgets, mut last, mut other) = (dry(1), None, None);
        budgets
            .for_call(&get("http://a/"), &mut last, None)
            .unwrap();
        budgets
            .for_call(&get("http://b/"), &mut other, None)
            .unwrap();
        assert!(last.as_ref().is_some_and(Budget::is_retired));
        assert!(retry(&budgets, "http://a/", &mut last));
        assert!(!last.as_ref().is_some_and(Budget::is_retired));
        assert!(!retry(&budgets, "http://a/", &mut last));
    }

    #[test]
    fn the_overflow_is_not_taken_for_an_upstreams_own() {
        let (budgets, mut last) = (dry(1), None);
        assert!(retry(&budgets, "http://a/", &mut None));
        // Two newcomers of one service, then one that has a place.
        assert!(retry(&budgets, "http://b/", &mut last));
        assert!(!retry(&budgets, "http://c/", &mut last));
        assert!(!retry(&budgets, "http://a/", &mut last));
        assert_eq!(
            last.unwrap().key(),
            Some(&UpstreamKey::of(&get("http://a/")))
        );
    }

    #[test]
    fn a_budget_that_a_call_left_behind_serves_its_own_upstream_of_its_own_budgets() {
        let (one, other) = (dry(10), dry(10));
        let (a, b) = (get("http://a/"), get("http://b/"));
        let held = one.for_call(&a, &mut None, None);
        held.as_ref()
            .and_then(CallBudget::try_withdraw)
            .unwrap()
            .spend();

        let again = one.for_call(&a, &mut None, held).unwrap();
        assert!(again.is_empty());
        let elsewhere = one.for_call(&b, &mut None, Some(again)).unwrap();
        assert!(!elsewhere.is_empty());
        let held = one.for_call(&a, &mut None, Some(elsewhere)).unwrap();
        assert!(held.is_empty());
        assert!(
            !other
                .for_call(&a, &mut None, Some(held))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn what_an_earlier_call_left_behind_is_used_without_a_look_at_the_map() {
        let (budgets, a) = (dry(10), get("http://a/"));
        let held = budgets.for_call(&a, &mut None, None);
        let mut last = None;
        assert!(budgets.for_call(&a, &mut last, held).is_some());
        // A service remembers whom it found in the map.
        assert!(last.is_none());
    }

    #[test]
    fn no_budget_where_they_are_off() {
        let budgets = Budgets::off();
        assert!(budgets.get(&UpstreamKey::default()).is_none());
        let call = budgets.for_call(&get("http://a/"), &mut None, None);
        assert!(call.is_none());
    }
}
