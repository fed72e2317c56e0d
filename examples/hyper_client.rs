//! hyper's client with retries: `cargo run --example hyper_client --features hyper`.
//!
//! A server that fails on its first call, a GET that gets over it, and a POST that must not be sent
//! twice.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tower::{Layer, Service, ServiceExt};
use tower_http_retry::{
    BoxError, Error, HyperService, ReplayBody, Report, RetryLayer, StandardPolicy,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let shop = format!("http://{}/orders", listener.local_addr()?);
    tokio::spawn(serve(listener));

    // The layer goes right over the client: `HyperService` lets it see what was really sent.
    let client = Client::builder(TokioExecutor::new()).build_http();
    let policy = StandardPolicy::builder()
        .base_delay(Duration::from_millis(20))
        .build()?;
    let mut service = RetryLayer::new(policy)
        .with_deadline(Duration::from_secs(5))
        .layer(HyperService::new(client));

    // The server hangs up on the first request. A GET changes nothing: it is sent again.
    let request = Request::get(&shop).body(ReplayBody::empty())?;
    let response = service.ready().await?.call(request).await?;
    let attempts = response.extensions().get::<Report>();
    println!("GET   {}", response.status());
    println!("{}\n", attempts.ok_or("it took more than one attempt")?);
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.into_body().collect().await?.to_bytes(), "3 orders");

    // It hangs up on a POST, too, but after it wrote the order down. Nobody but the server can know.
    let request = Request::post(&shop).body(ReplayBody::from("rope"))?;
    match service.ready().await?.call(request).await {
        Err(Error::Ambiguous(failure)) => println!("POST  {failure}"),
        Err(Error::Failed(failure)) => return Err(failure.into()),
        Ok(response) => return Err(format!("answered {}", response.status()).into()),
    }
    println!("{} order written down", ORDERS.load(Ordering::SeqCst));
    assert_eq!(ORDERS.load(Ordering::SeqCst), 1, "a POST was sent twice");
    Ok(())
}

static CALLS: AtomicU32 = AtomicU32::new(0);
static ORDERS: AtomicU32 = AtomicU32::new(0);

/// Hangs up on the first call, and after every order.
async fn serve(listener: TcpListener) -> Result<(), BoxError> {
    loop {
        let (stream, _) = listener.accept().await?;
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service_fn(answer));
        // An error of one connection is meant.
        tokio::spawn(async { drop(connection.await) });
    }
}

/// An error closes the connection without an answer.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, BoxError> {
    let call = CALLS.fetch_add(1, Ordering::SeqCst);
    if *request.method() == Method::POST {
        request.into_body().collect().await?;
        ORDERS.fetch_add(1, Ordering::SeqCst);
        return Err("hangs up after the order".into());
    }
    if call == 0 {
        return Err("hangs up on the first call".into());
    }
    Ok(Response::new(Full::from("3 orders")))
}
