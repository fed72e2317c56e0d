//! Budgets that calls of this thread left behind: a thread whose calls go to a few upstreams in turn
//! finds them here, and leaves alone the counts of their holders, which all threads share.

use std::cell::RefCell;
use std::mem;

use crate::Budget;
use crate::budget::CallBudget;

/// So few that a look through all of them costs no more than what it saves.
const PLACES: usize = 7;

#[derive(Default)]
struct Parked {
    places: [Option<CallBudget>; PLACES],
    /// Who has been here the longest.
    next: usize,
}

thread_local! {
    static PARKED: RefCell<Parked> = RefCell::default();
}

/// Exchanges `held` for the parked one that is the right one, if there is one.
pub(super) fn exchange(held: &mut CallBudget, is_right: impl Fn(&Budget) -> bool) -> bool {
    // The thread's locals may be gone already, while it ends.
    let exchanged = PARKED.try_with(|parked| {
        let mut parked = parked.borrow_mut();
        let places = parked.places.iter_mut().flatten();
        let right = places.into_iter().find(|parked| is_right(parked.budget()));
        right.map(|right| mem::swap(right, held)).is_some()
    });
    exchanged.unwrap_or(false)
}

/// Keeps it for a later call, instead of the one that has been here the longest.
pub(super) fn park(left: CallBudget) {
    let _ = PARKED.try_with(|parked| {
        let Parked { places, next } = &mut *parked.borrow_mut();
        if let Some(place) = places.get_mut(*next) {
            *place = Some(left);
        }
        *next = (*next + 1) % PLACES;
    });
}
