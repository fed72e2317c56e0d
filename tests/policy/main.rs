//! `StandardPolicy` and what it is told of: the contract's tables.

#![allow(clippy::unwrap_used)] // helpers of tests

mod facts;
mod idempotency;
mod pointers;
mod rows;
mod settings;

mod upstreams;

use http::{Method, Request, Response, request, response};
use tower_http_retry::{Facts, FailureKind, StandardPolicy, Verdict, decide};

const TRANSIENT: FailureKind = FailureKind::Reset;

fn head(method: Method, uri: &str) -> request::Parts {
    let request = Request::builder().method(method).uri(uri).body(());
    request.unwrap().into_parts().0
}

fn get() -> request::Parts {
    head(Method::GET, "http://shop.example/orders")
}

fn post() -> request::Parts {
    head(Method::POST, "http://shop.example/orders")
}

fn answered(status: u16) -> response::Parts {
    let response = Response::builder().status(status).body(());
    response.unwrap().into_parts().0
}

fn judge(policy: &StandardPolicy, facts: Facts<'_>) -> Verdict {
    decide(policy, &facts.attempt_for(policy))
}
