//! Retry budgets per upstream.

mod parked;
mod upstreams;

use std::mem;
use std::sync::Arc;

use self::upstreams::Upstreams;
use crate::budget::{CallBudget, Rates};
use crate::head::HeadRef;
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

    /// Gives a call the budget of its request's upstream. `held` is what an earlier call left
    /// behind, mostly of the same upstream: if it is the same one, nothing is looked up, and the
    /// count of its holders, which all threads share, is left alone.
    #[inline]
    pub(crate) fn for_call(&self, head: HeadRef<'_>, held: &mut Option<CallBudget>) {
        match held {
            Some(held) if self.is_for(held.budget(), head) => held.renew(head.extensions),
            Some(_) | None => self.change(head, held),
        }
    }

    /// The same for a call to another upstream than the one before.
    #[inline(never)]
    fn change(&self, head: HeadRef<'_>, held: &mut Option<CallBudget>) {
        if let Some(left) = held
            && parked::exchange(left, |parked| self.is_for(parked, head))
        {
            return left.renew(head.extensions);
        }
        if let Some(left) = mem::replace(held, self.find(head)) {
            parked::park(left);
        }
    }

    #[inline]
    fn is_for(&self, held: &Budget, head: HeadRef<'_>) -> bool {
        match &self.kind {
            Kind::Off => false,
            Kind::Shared(budget) => held.is(budget),
            Kind::PerUpstream(upstreams) => held.is_among(&**upstreams) && serves(held, head),
        }
    }

    fn find(&self, head: HeadRef<'_>) -> Option<CallBudget> {
        let budget = match &self.kind {
            Kind::Off => return None,
            Kind::Shared(budget) => budget.clone(),
            Kind::PerUpstream(upstreams) => upstreams.get(&UpstreamRef::of(head)),
        };
        Some(CallBudget::new(budget, head.extensions))
    }
}

/// The overflow has no key and serves nobody for longer than a call.
#[inline]
fn serves(budget: &Budget, head: HeadRef<'_>) -> bool {
    budget.key().is_some_and(|key| key.is_spelled_in(head)) && !budget.is_retired()
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
    use http::request::Parts;
    use proptest::prelude::*;

    use super::*;

    fn get(uri: &str) -> Parts {
        Request::get(uri).body(()).unwrap().into_parts().0
    }

    fn dry(max: usize) -> Budgets {
        let builder = Budgets::builder().floor_per_second(0.0).capacity(1);
        builder.max_upstreams(max).build().unwrap()
    }

    fn retry(budgets: &Budgets, uri: &str, held: &mut Option<CallBudget>) -> bool {
        budgets.for_call((&get(uri)).into(), held);
        let token = held.as_ref().unwrap().try_withdraw();
        token.map(crate::Token::spend).is_some()
    }

    #[test]
    fn a_call_has_the_budget_of_its_upstream_whoever_was_called_last() {
        let (budgets, mut held) = (dry(10), None);
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
            assert_eq!(retry(&budgets, uri, &mut held), granted, "{uri}");
        }
    }

    #[test]
    fn the_last_budget_is_looked_up_again_once_it_is_evicted() {
        let (budgets, mut held, mut other) = (dry(1), None, None);
        budgets.for_call((&get("http://a/")).into(), &mut held);
        budgets.for_call((&get("http://b/")).into(), &mut other);
        let is_retired = |held: &Option<CallBudget>| held.as_ref().unwrap().budget().is_retired();
        assert!(is_retired(&held));
        assert!(retry(&budgets, "http://a/", &mut held));
        assert!(!is_retired(&held));
        assert!(!retry(&budgets, "http://a/", &mut held));
    }

    #[test]
    fn the_overflow_is_not_taken_for_an_upstreams_own() {
        let (budgets, mut held) = (dry(1), None);
        assert!(retry(&budgets, "http://a/", &mut None));
        // Two newcomers of one service, then one that has a place.
        assert!(retry(&budgets, "http://b/", &mut held));
        assert!(!retry(&budgets, "http://c/", &mut held));
        assert!(!retry(&budgets, "http://a/", &mut held));
        assert_eq!(
            held.unwrap().budget().key(),
            Some(&UpstreamKey::of(&get("http://a/")))
        );
    }

    #[test]
    fn a_budget_that_a_call_left_behind_serves_its_own_upstream_of_its_own_budgets() {
        let (one, other, mut held) = (dry(10), dry(10), None);
        assert!(retry(&one, "http://a/", &mut held));
        assert!(!retry(&one, "http://a/", &mut held));
        assert!(retry(&other, "http://a/", &mut held));
        assert!(!retry(&one, "http://a/", &mut held));
        let shared = Budgets::shared(Budget::default());
        assert!(retry(&shared, "http://a/", &mut held));
        assert!(!retry(&one, "http://a/", &mut held));
    }

    #[test]
    fn a_budget_is_for_its_own_upstream_of_its_own_budgets_while_it_has_its_place() {
        let (one, other, shared) = (dry(1), dry(1), Budgets::from(Budget::default()));
        let (a, b) = (get("http://a/"), get("http://b/"));
        let of =
            |budgets: &Budgets, parts: &Parts| budgets.find(parts.into()).unwrap().budget().clone();
        let held = of(&one, &a);
        assert!(one.is_for(&held, (&a).into()));
        for (budgets, parts) in [
            (&one, &b),
            (&other, &a),
            (&shared, &a),
            (&Budgets::off(), &a),
        ] {
            assert!(!budgets.is_for(&held, parts.into()));
        }
        assert!(shared.is_for(&of(&shared, &a), (&b).into()));
        of(&one, &b);
        assert!(!one.is_for(&held, (&a).into()), "it was evicted");
    }

    #[test]
    fn a_thread_that_calls_a_few_upstreams_in_turn_keeps_what_it_has_of_each() {
        let (budgets, mut held) = (dry(10), None);
        let few: Vec<Parts> = (0..8)
            .map(|number| get(&format!("http://{number}/")))
            .collect();
        let holders = |parts: &Parts| {
            let found = budgets.find(parts.into()).unwrap();
            found.budget().holders()
        };
        for several in [3, 8] {
            for parts in few[..several].iter().cycle().take(3 * several) {
                budgets.for_call(parts.into(), &mut held);
            }
            // The map, the thread, and who asks.
            assert!(few[..several].iter().all(|parts| holders(parts) == 3));
        }
        // One more, and whoever was left alone the longest makes room.
        budgets.for_call((&get("http://more/")).into(), &mut held);
        assert_eq!(few.iter().filter(|parts| holders(parts) == 2).count(), 1);
    }

    proptest! {
        /// Whatever the thread called before, through whichever budgets, with whatever evicted.
        #[test]
        fn a_call_has_the_budget_that_is_looked_up(
            calls in proptest::collection::vec((0..3_usize, 0..12_u32, any::<bool>()), 1..100),
        ) {
            let several = [dry(3), dry(20), Budgets::shared(Budget::default())];
            let mut held = [None, None];
            for (number, (which, host, takes)) in calls.into_iter().enumerate() {
                let (budgets, parts) = (&several[which], get(&format!("http://{host}/")));
                let held = &mut held[number % 2];
                budgets.for_call((&parts).into(), held);
                let budget = held.as_ref().unwrap().budget();
                prop_assert!(budget.is(&budgets.get(&UpstreamKey::of(&parts)).unwrap()));
                prop_assert!(!budget.is_retired());
                if takes {
                    let _ = budget.try_withdraw().map(crate::Token::spend);
                }
            }
        }
    }

    #[test]
    fn no_budget_where_they_are_off() {
        let mut held = None;
        dry(1).for_call((&get("http://a/")).into(), &mut held);
        let off = Budgets::off();
        off.for_call((&get("http://a/")).into(), &mut held);
        assert!(held.is_none());
        assert!(off.get(&UpstreamKey::default()).is_none());
    }
}
