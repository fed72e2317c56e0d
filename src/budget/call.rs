//! A budget as one call uses it: several layers may share it, and a call deposits once.

use std::sync::Arc;

use http::Extensions;

use super::{Bucket, Budget, Token};

/// The budget of one call in one layer.
///
/// Where layers are nested over the same budget, each of them sees the call end well and would
/// deposit. The inner one ends first and leaves a note in the response's extensions, which the
/// outer one finds. If the outer one sends another request after all, it leaves the note there.
///
/// A deposit into a full bucket adds nothing, so there is nothing to note: a healthy call does not
/// pay for this.
#[derive(Debug)]
pub(crate) struct CallBudget {
    budget: Budget,
    /// A layer further out knows of a deposit by this call, or this one does.
    deposited: bool,
}

/// The note: the budgets that this call deposited into.
#[derive(Debug, Clone, Default)]
struct Deposited(Arc<[Budget]>);

impl CallBudget {
    /// `request`: the extensions of the caller's request.
    #[inline]
    pub(crate) fn new(budget: Budget, request: &Extensions) -> Self {
        let deposited = Deposited::in_budget(&budget, request);
        Self { budget, deposited }
    }

    /// The same budget, for another call.
    #[inline]
    pub(crate) fn renew(&mut self, request: &Extensions) {
        self.deposited = Deposited::in_budget(&self.budget, request);
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Step 2: only a peek.
    pub(crate) fn is_empty(&self) -> bool {
        self.budget.is_empty()
    }

    /// The tokens there are now.
    pub(crate) fn balance(&self) -> f64 {
        self.budget.balance()
    }

    /// The last gate before a retry.
    pub(crate) fn try_withdraw(&self) -> Option<Token> {
        self.budget.try_withdraw()
    }

    /// The call ends well, with this response.
    #[inline]
    pub(crate) fn deposit(&self, response: &mut Extensions) {
        if self.budget.is_full() {
            return;
        }
        let noted = Deposited::in_budget(&self.budget, response);
        // Also where an earlier request of the call has paid: layers further out see only this response.
        if !noted && (self.deposited || self.budget.add(Bucket::deposit)) {
            Deposited::note(&self.budget, response);
        }
    }

    /// The call does not end with this response: another request is sent. The note goes with it,
    /// also through a layer without a budget.
    pub(crate) fn carry(own: &mut Option<Self>, response: &Extensions, next: &mut Extensions) {
        if let Some(Deposited(budgets)) = response.get() {
            if let Some(own) = own {
                own.deposited |= budgets.iter().any(|budget| budget.is(&own.budget));
            }
            for budget in budgets.iter() {
                Deposited::note(budget, next);
            }
        }
    }
}

impl Deposited {
    #[inline]
    fn in_budget(budget: &Budget, extensions: &Extensions) -> bool {
        let noted = extensions.get::<Self>();
        noted.is_some_and(|Self(budgets)| budgets.iter().any(|noted| noted.is(budget)))
    }

    #[cold]
    fn note(budget: &Budget, extensions: &mut Extensions) {
        if !Self::in_budget(budget, extensions) {
            let Self(noted) = extensions.get().cloned().unwrap_or_default();
            extensions.insert(Self(noted.iter().chain([budget]).cloned().collect()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One token short of full, and one deposit is worth a quarter.
    fn budget() -> Budget {
        let budget = Budget::builder()
            .ratio(0.25)
            .floor_per_second(0.0)
            .build()
            .unwrap();
        budget.try_withdraw().unwrap().spend();
        budget
    }

    #[test]
    fn nested_layers_deposit_once() {
        let (shared, own) = (budget(), budget());
        let (request, mut response) = (Extensions::new(), Extensions::new());
        for budget in [&shared, &own, &shared, &own, &shared] {
            CallBudget::new(budget.clone(), &request).deposit(&mut response);
        }
        assert_eq!((shared.balance(), own.balance()), (99.25, 99.25));
    }

    #[test]
    fn a_call_that_the_outer_layer_repeats_deposits_once() {
        let budget = budget();
        let mut outer = Some(CallBudget::new(budget.clone(), &Extensions::new()));
        let (mut first, mut next, mut last) = Default::default();
        CallBudget::new(budget.clone(), &Extensions::new()).deposit(&mut first);
        CallBudget::carry(&mut outer, &first, &mut next);
        CallBudget::new(budget.clone(), &next).deposit(&mut last);
        outer.unwrap().deposit(&mut last);
        assert_eq!(budget.balance(), 99.25);
    }

    #[test]
    fn another_call_deposits_again() {
        let budget = budget();
        for _ in 0..3 {
            CallBudget::new(budget.clone(), &Extensions::new()).deposit(&mut Extensions::new());
        }
        assert_eq!(budget.balance(), 99.75);
    }

    #[test]
    fn what_one_call_noted_is_not_the_next_ones() {
        let (budget, unnoted) = (budget(), Extensions::new());
        let mut noted = Extensions::new();
        CallBudget::new(budget.clone(), &unnoted).deposit(&mut noted);
        let mut held = CallBudget::new(budget.clone(), &noted);
        held.renew(&unnoted);
        held.deposit(&mut Extensions::new());
        assert_eq!(budget.balance(), 99.5);
        held.renew(&noted);
        held.deposit(&mut Extensions::new());
        assert_eq!(budget.balance(), 99.5);
    }

    #[test]
    fn a_full_budget_leaves_no_note() {
        let mut response = Extensions::new();
        CallBudget::new(Budget::default(), &Extensions::new()).deposit(&mut response);
        assert!(response.is_empty());
    }
}
