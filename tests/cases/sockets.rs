//! Over real sockets: kinds keep-alive, retryable-not-retried.

use std::time::Duration;

use http::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_http_retry::{
    AttemptNumber, Backoff, Evidence, FailureKind, HyperService, ReplayBody, Report, RetryLayer,
    StandardPolicy,
};

/// No sleeping: all waits are zero.
fn at_once() -> RetryLayer {
    let zero = Backoff::exponential(Duration::ZERO, Duration::ZERO);
    let policy = StandardPolicy::builder()
        .retries(3)
        .backoff(zero)
        .build()
        .unwrap();
    RetryLayer::new(policy).without_budgets()
}

/// Answers one request a connection, says that it keeps it alive, and closes it.
async fn closes_after_each() -> Uri {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    if socket.read_buf(&mut request).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let answer = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok";
                let _ = socket.write_all(answer).await;
            });
        }
    });
    format!("http://{address}/").parse().unwrap()
}

fn to(uri: &Uri, method: &str, body: impl Into<ReplayBody>) -> Request<ReplayBody> {
    let request = Request::builder().method(method).uri(uri.clone());
    request.body(body.into()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ka_06_idle_connections_that_close_as_they_are_used_fail_no_idempotent_call() {
    let uri = closes_after_each().await;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let service = at_once().layer(HyperService::new(client));
    for _ in 0..100 {
        let response = service.clone().oneshot(to(&uri, "GET", ())).await.unwrap();
        assert_eq!(response.status(), 201);
        // Read, so that the connection goes back to the pool while the server closes it.
        let body = http_body_util::BodyExt::collect(response.into_body()).await;
        assert_eq!(body.unwrap().to_bytes(), "ok");
    }
}

/// The real error type of a refused connection, outermost as the client gives it.
#[tokio::test]
async fn nr_03_a_refused_connection_is_known_by_the_clients_own_error_type() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody: Uri = format!("http://{}/", closed.local_addr().unwrap())
        .parse()
        .unwrap();
    drop(closed);
    let uri = closes_after_each().await;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let service = ServiceBuilder::new()
        .layer(at_once())
        .map_request(move |mut request: Request<ReplayBody>| {
            if request.extensions().get::<AttemptNumber>().is_some() {
                *request.uri_mut() = uri.clone();
            }
            request
        })
        .service(HyperService::new(client));
    let response = service.oneshot(to(&nobody, "POST", "order")).await.unwrap();
    assert_eq!(response.status(), 201);
    let report = response.extensions().get::<Report>().unwrap();
    let first = &report.attempts()[0];
    assert_eq!(first.evidence(), Evidence::NotSent);
    assert_eq!(first.failure().unwrap().kind(), FailureKind::Connect);
    assert_eq!(report.attempts().len(), 2);
}
