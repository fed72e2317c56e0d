//! The public names and shapes that others build on. Nothing here needs to run: what compiles, with
//! no feature, with each alone and with all, is the contract.

#![allow(
    dead_code,
    clippy::default_constructed_unit_structs,
    clippy::extra_unused_lifetimes,
    clippy::unwrap_used
)]

mod answers;
mod bodies;
mod effects;
mod facts;
mod judgement;
mod layer;
mod stacks;
mod traits;

/// Without a test the file would not say that it was checked.
#[test]
fn every_public_name_and_signature_compiles() {}
