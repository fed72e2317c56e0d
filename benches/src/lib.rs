//! What a retry layer costs, beside its peers and beside a loop written by hand.
//!
//! Every figure is net: the same call through the bare inner service is subtracted. The requests are
//! built before; the measured part is `poll_ready`, `call` and the polls up to the response head.

// Times are what is measured here: nothing is paused.
#![allow(clippy::disallowed_methods)]

pub mod alloc;
pub mod callgrind;
pub mod cases;
pub mod exchange;
pub mod inner;
pub mod lookup;
pub mod parts;
pub mod request;
pub mod rounds;
pub mod waiting;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;
