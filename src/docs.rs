//! The pages of `docs/`, here so that they are read beside the items, and their code is compiled.
//! The page on operations heads [`observe`](crate::observe).

#[doc = include_str!("../docs/decision-order.md")]
pub mod decision_order {}

#[doc = include_str!("../docs/evidence.md")]
pub mod evidence {}

#[doc = include_str!("../docs/bodies.md")]
pub mod bodies {}

#[doc = include_str!("../docs/policies.md")]
pub mod policies {}

#[doc = include_str!("../docs/budgets-and-backoff.md")]
/// The picture:
///
#[doc = include_str!("../docs/storm.svg")]
pub mod budgets_and_backoff {}

#[doc = include_str!("../docs/composition.md")]
pub mod composition {}

#[doc = include_str!("../docs/truth.md")]
pub mod truth {}

#[doc = include_str!("../docs/performance.md")]
pub mod performance {}

#[doc = include_str!("../docs/migrating.md")]
pub mod migrating {}

#[doc = include_str!("../docs/design.md")]
pub mod design {}
