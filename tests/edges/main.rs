//! Combinations at the edges of the contract: what two chapters mean together, values that only a
//! hostile or careless caller builds, services that break customs.
// helpers of tests
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing
)]

#[path = "../support/mod.rs"]
mod support;

mod asked;
mod heads;
mod layers;
mod reconciled;
mod side_calls;
mod threads;
mod time;
mod within;

use http::{Method, Response};
use http_body_util::BodyExt;
use support::body::TestBody;
use support::request;
use tower::{Service, ServiceExt};
use tower_http_retry::{Budget, Error, ReplayBody, ResponseBody};

type Answer = Response<ResponseBody<TestBody>>;

/// The error of a POST.
async fn failed_post<S, R>(service: S) -> Error
where
    S: Service<http::Request<ReplayBody>, Response = R, Error = Error>,
{
    match service.oneshot(request(Method::POST, "order")).await {
        Ok(_) => panic!("an answer"),
        Err(error) => error,
    }
}

async fn text(response: Answer) -> bytes::Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

/// Ten tokens, and no more.
fn ten_tokens() -> Budget {
    Budget::builder()
        .floor_per_second(0.0)
        .ratio(0.0)
        .capacity(10)
        .build()
        .unwrap()
}
