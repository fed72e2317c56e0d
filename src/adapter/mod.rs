//! The thin services at the bottom of a stack. They put the request body directly on the client,
//! so that what the body's witness saw is a proof.

mod hyper;
#[cfg(feature = "reqwest")]
mod reqwest;

pub use hyper::HyperService;
#[cfg(feature = "reqwest")]
pub use reqwest::{ReqwestFuture, ReqwestService};
