//! A policy of one's own, and its table test: `cargo run --example custom_policy --features hyper`.
//!
//! A policy is asked for step 9, and for what only the caller can know. The eight steps before it
//! hold whatever it says. The table at the end needs no server, no clock and no layer.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, Request, Response, StatusCode, request};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tower::{Layer, ServiceExt};
use tower_http_retry::{
    Attempt, BoxError, Delivery, Execution, HyperService, Idempotency, Policy, ReplayBody, Report,
    RetryLayer, Rule, StandardPolicy,
};

/// What the documentation of a warehouse's API says, as code.
#[derive(Debug, Default)]
struct Warehouse {
    standard: StandardPolicy,
}

impl Policy for Warehouse {
    fn rule(&self, attempt: &Attempt<'_>) -> Rule {
        match attempt.status() {
            // "Throttled requests are answered with 200 and an error in the body."
            Some(StatusCode::OK) if is_throttled(attempt) => Rule::Retry,
            // "423: somebody is counting; try again." Nothing is said about what was done, so only
            // where a repetition is harmless.
            Some(StatusCode::LOCKED) if attempt.idempotency().is_safely_idempotent() => Rule::Retry,
            _ => self.standard.rule(attempt),
        }
    }

    /// Everything that is not said here.
    fn defaults(&self) -> &StandardPolicy {
        &self.standard
    }

    /// The method is a hint; the operation decides.
    fn idempotency(&self, request: &request::Parts) -> Idempotency {
        match (&request.method, request.uri.path()) {
            // A search with a body.
            (&Method::POST, "/search") => Idempotency::Safe,
            // Takes the first item off the queue: the second one takes another.
            (&Method::DELETE, "/queue/first") => Idempotency::NonIdempotent,
            _ => self.standard.idempotency(request),
        }
    }

    fn execution(&self, attempt: &Attempt<'_>) -> Execution {
        if is_throttled(attempt) {
            Execution::NotExecuted
        } else {
            self.standard.execution(attempt)
        }
    }
}

/// The body is there under [`Delivery::Whole`] only.
fn is_throttled(attempt: &Attempt<'_>) -> bool {
    let body = attempt.body().unwrap_or_default();
    body.windows(THROTTLED.len()).any(|part| part == THROTTLED)
}

const THROTTLED: &[u8] = br#""error":"throttled""#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    // A warehouse that is busy at first.
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(warehouse(listener));

    let service = RetryLayer::new(Warehouse::default())
        // So that the policy sees the answer; a longer one is streamed, unseen.
        .with_delivery(Delivery::Whole { limit: 16 * 1024 })
        .layer(HyperService::new(
            Client::builder(TokioExecutor::new()).build_http(),
        ));

    let search = Request::post(format!("http://{address}/search"))
        .body(ReplayBody::from(r#"{"item":"rope"}"#))?;
    let response = service.oneshot(search).await?;

    // More than one attempt: then there is a report.
    let report = response.extensions().get::<Report>().cloned();
    let body = response.into_body().collect().await?.to_bytes();
    println!("{}", String::from_utf8_lossy(&body));
    let report = report.ok_or("the first answer was taken for a success")?;
    println!("{report}");
    assert_eq!(body, r#"{"found":3}"#);
    assert_eq!(report.attempts().len(), 2);
    Ok(())
}

async fn warehouse(listener: TcpListener) -> Result<(), BoxError> {
    let (stream, _) = listener.accept().await?;
    let busy = AtomicBool::new(true);
    let service = service_fn(move |_| {
        let answer = if busy.swap(false, Ordering::SeqCst) {
            r#"{"error":"throttled"}"#
        } else {
            r#"{"found":3}"#
        };
        async move { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(answer))) }
    });
    let server = hyper::server::conn::http1::Builder::new();
    Ok(server
        .serve_connection(TokioIo::new(stream), service)
        .await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower_http_retry::{Decision, Facts, Failure, FailureKind, decide};

    #[test]
    fn the_table() {
        use Decision::{Accept, Ambiguous, Retry};
        let denied = Decision::Denied(tower_http_retry::RetryDenied::Status(StatusCode::LOCKED));
        let throttled = r#"{"error":"throttled"}"#;
        for (method, path, status, body, decision) in [
            ("POST", "/search", 200, r#"{"found":3}"#, Accept),
            ("POST", "/search", 200, throttled, Retry),
            ("POST", "/orders", 200, throttled, Retry),
            ("POST", "/search", 423, "", Retry),
            ("POST", "/orders", 423, "", denied),
            ("POST", "/search", 503, "", Retry),
            ("POST", "/orders", 503, "", Ambiguous),
            ("DELETE", "/orders/7", 503, "", Retry),
            ("DELETE", "/queue/first", 503, "", Ambiguous),
        ] {
            let policy = Warehouse::default();
            let request = Request::builder().method(method).uri(path).body(());
            let (request, ()) = request.unwrap().into_parts();
            let response = Response::builder().status(status).body(());
            let (response, ()) = response.unwrap().into_parts();
            let facts = Facts::response(&request, &response).response_body(body.as_bytes());
            let verdict = decide(&policy, &facts.attempt_for(&policy));
            assert_eq!(
                verdict.decision(),
                decision,
                "{method} {path} {status} {body}"
            );
        }
    }

    #[test]
    fn a_search_that_was_cut_off_is_searched_again() {
        let policy = Warehouse::default();
        let (request, ()) = Request::post("/search").body(()).unwrap().into_parts();
        let failure = Failure::sent_no_response(FailureKind::Reset);
        let facts = Facts::failure(&request, &failure);
        let verdict = decide(&policy, &facts.attempt_for(&policy));
        assert_eq!(verdict.decision(), Decision::Retry);
    }
}
