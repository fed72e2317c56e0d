//! A reverse proxy: axum in front, the layer and hyper behind:
//! `cargo run --example axum_gateway --features hyper`.
//!
//! - Bodies stream through in both directions. What was sent of an upload is kept, up to 64 KiB, so
//!   that a small one can be sent again.
//! - A 503 to a POST is handed through as it is (`AmbiguousResponses::Deliver`): it is the client's
//!   to judge.
//! - An answer of the gateway itself is a 502, or a 504 at the deadline, and its header
//!   `x-upstream-execution` says what is known of the operation: `not-executed` or `unknown`.
//! - When the gateway shuts down, calls that wait for a retry end at once with what they have.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt};
use tower_http_retry::{
    AmbiguousResponses, BoxError, Drain, Error, Execution, FailureKind, HyperService, ReplayBody,
    Retry, RetryLayer, StandardPolicy,
};

/// What the client may do about a 502 of ours.
static EXECUTION: HeaderName = HeaderName::from_static("x-upstream-execution");

#[derive(Clone)]
struct Gateway {
    upstream: Authority,
    service: Retry<HyperService<HttpConnector>>,
}

impl Gateway {
    fn new(upstream: Authority, drain: Drain) -> Result<Self, BoxError> {
        let policy = StandardPolicy::builder()
            .base_delay(Duration::from_millis(100))
            .ambiguous_responses(AmbiguousResponses::Deliver)
            .build()?;
        let layer = RetryLayer::new(policy)
            .with_deadline(Duration::from_secs(30))
            .with_attempt_timeout(Duration::from_millis(500))
            .with_drain(drain);
        let client = Client::builder(TokioExecutor::new()).build_http();
        Ok(Self {
            upstream,
            service: layer.layer(HyperService::new(client)),
        })
    }

    fn router(self) -> Router {
        Router::new().fallback(Self::forward).with_state(self)
    }

    async fn forward(State(mut gateway): State<Self>, request: Request<Body>) -> Response {
        let request = match gateway.onward(request) {
            Ok(request) => request,
            Err(_) => return StatusCode::BAD_REQUEST.into_response(),
        };
        let answer = match gateway.service.ready().await {
            Ok(service) => service.call(request).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(mut response) => {
                strip_hop_by_hop(response.headers_mut());
                response.map(Body::new)
            }
            Err(error) => own_answer(&error),
        }
    }

    /// The client's request, on its way to the upstream.
    fn onward(&self, request: Request<Body>) -> Result<Request<ReplayBody>, http::Error> {
        let (mut head, body) = request.into_parts();
        let mut uri = head.uri.into_parts();
        uri.scheme = Some(Scheme::HTTP);
        uri.authority = Some(self.upstream.clone());
        head.uri = Uri::from_parts(uri)?;
        strip_hop_by_hop(&mut head.headers);
        // hyper names the upstream. An `Early-Data: 1` stays: the layer then leaves a 425 alone.
        head.headers.remove(header::HOST);
        let body = ReplayBody::buffered(body, ReplayBody::DEFAULT_BUFFER_LIMIT);
        Ok(Request::from_parts(head, body))
    }
}

/// There is no response to hand through, so the gateway answers.
fn own_answer(error: &Error) -> Response {
    let late = error.failure().map(|failure| failure.kind()) == Some(FailureKind::DeadlineReached);
    let status = if late {
        StatusCode::GATEWAY_TIMEOUT
    } else {
        StatusCode::BAD_GATEWAY
    };
    let (execution, advice) = match (error, error.execution()) {
        (Error::Failed(_), Execution::NotExecuted) => ("not-executed", "send it again"),
        (Error::Failed(_), _) => ("unknown", "the operation is idempotent: send it again"),
        (Error::Ambiguous(_), _) => (
            "unknown",
            "it may have been executed: find out before you send it again",
        ),
    };
    // For the log: attempts, evidence, step. No header value, body or URI.
    eprintln!("  gateway log: {error}");
    let execution = HeaderValue::from_static(execution);
    (status, [(EXECUTION.clone(), execution)], advice).into_response()
}

/// RFC 9110 §7.6.1: these belong to one connection.
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|names| names.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let always = [
        header::CONNECTION,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        HeaderName::from_static("keep-alive"),
    ];
    for name in named.iter().chain(&always) {
        headers.remove(name);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let upstream = start(upstream()).await?;
    let drain = Drain::new();
    let gateway = Gateway::new(Authority::try_from(upstream.to_string())?, drain.clone())?;

    // Shutting down: first no new retry, then no new connection, then the calls in flight end.
    let (stop, stopped) = oneshot::channel::<()>();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let front = Front::to(listener.local_addr()?);
    let server = axum::serve(listener, gateway.router()).with_graceful_shutdown(async move {
        let _ = stopped.await;
        drain.start();
    });
    let server = tokio::spawn(async { server.await });

    // A 503 to a GET is overcome, out of the client's sight.
    let answer = front.send("GET", "/flaky", "").await?;
    assert_eq!(
        (answer.status, &*answer.body),
        (StatusCode::OK, "here you are")
    );

    // A small upload goes out again as it was; one beyond the limit goes through, once.
    let answer = front.send("PUT", "/count", &"x".repeat(10_000)).await?;
    assert_eq!(
        (answer.status, &*answer.body),
        (StatusCode::OK, "10000 bytes")
    );
    let answer = front.send("PUT", "/sink", &"x".repeat(1_000_000)).await?;
    assert_eq!(
        (answer.status, &*answer.body),
        (StatusCode::OK, "1000000 bytes")
    );

    // A 503 to a POST is the upstream's answer, body and all.
    let answer = front.send("POST", "/busy", "order").await?;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!((&*answer.body, answer.execution), ("try later", None));

    // A POST without an answer is not.
    let answer = front.send("POST", "/silent", "order").await?;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert_eq!(answer.execution.as_deref(), Some("unknown"));
    assert_eq!(ORDERS.load(Ordering::SeqCst), 1, "a POST was sent twice");

    // A call that waits for its retry when the gateway shuts down ends with what it has.
    let started = Instant::now();
    let waiting = tokio::spawn(async move { front.send("GET", "/later", "").await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let _ = stop.send(());
    let answer = waiting.await??;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    server.await??;
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "it waited for the retry"
    );
    println!("shut down after {:?}", started.elapsed());
    Ok(())
}

static ORDERS: AtomicU32 = AtomicU32::new(0);

/// An upstream with a bad day.
fn upstream() -> Router {
    static FLAKY: AtomicU32 = AtomicU32::new(0);
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let failing_once = |calls: &'static AtomicU32| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => Err(StatusCode::SERVICE_UNAVAILABLE),
        _ => Ok(()),
    };
    Router::new()
        .route(
            "/flaky",
            get(move || async move { failing_once(&FLAKY).map(|()| "here you are") }),
        )
        .route(
            "/count",
            axum::routing::put(move |body: Body| async move {
                let length = length(body).await;
                failing_once(&COUNT).map(|()| length)
            }),
        )
        .route("/sink", axum::routing::put(length))
        .route(
            "/busy",
            post(|| async { (StatusCode::SERVICE_UNAVAILABLE, "try later") }),
        )
        .route(
            "/silent",
            post(|| async {
                ORDERS.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
            }),
        )
        .route(
            "/later",
            get(|| async { (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "15")]) }),
        )
}

async fn length(body: Body) -> String {
    let length = match body.collect().await {
        Ok(body) => body.to_bytes().len(),
        Err(_) => 0,
    };
    format!("{length} bytes")
}

async fn start(router: Router) -> Result<SocketAddr, BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async { axum::serve(listener, router).await });
    Ok(address)
}

/// A client of the gateway.
struct Front {
    address: SocketAddr,
    client: Client<HttpConnector, Body>,
}

struct Answer {
    status: StatusCode,
    execution: Option<String>,
    body: String,
}

impl Front {
    fn to(address: SocketAddr) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { address, client }
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> Result<Answer, BoxError> {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .body(Body::from(body.to_owned()))?;
        let (head, body) = self.client.request(request).await?.into_parts();
        let execution = head.headers.get(&EXECUTION);
        let answer = Answer {
            status: head.status,
            execution: execution
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned),
            body: String::from_utf8(body.collect().await?.to_bytes().to_vec())?,
        };
        println!("{method:<4} {path:<9} {} {}", answer.status, answer.body);
        Ok(answer)
    }
}
