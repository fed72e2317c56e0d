//! reqwest with retries: `cargo run --example reqwest_client --features reqwest`.
//!
//! reqwest's builder is used as always. [`ReqwestService::build`] turns off what would send requests
//! a second time below the layer, unseen: redirects, and reqwest's own retries.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, put};
use http::Request;
use reqwest::Client;
use tokio::net::TcpListener;
use tower::{Layer, ServiceExt};
use tower_http_retry::{BoxError, ReplayBody, Report, ReqwestService, RetryLayer, StandardPolicy};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    // Not needed with reqwest's default features: this crate's tests build it without a TLS provider.
    let _ = rustls::crypto::ring::default_provider().install_default();

    let shop = open_shop().await?;
    let builder = Client::builder()
        .user_agent("reqwest_client")
        .no_proxy()
        // The shop speaks plain HTTP.
        .tls_certs_only([])
        // Per attempt, the body included. The layer's deadline is for the whole call.
        .timeout(Duration::from_secs(2));
    let policy = StandardPolicy::builder()
        .base_delay(Duration::from_millis(20))
        .build()?;
    let service = RetryLayer::new(policy)
        .with_deadline(Duration::from_secs(10))
        .layer(ReqwestService::build(builder)?);

    // A `reqwest::Response` again, with all that it can do.
    let request = Request::get(format!("{shop}/stock")).body(ReplayBody::empty())?;
    let response = service.clone().oneshot(request).await?;
    println!(
        "{}",
        response.extensions().get::<Report>().ok_or("no report")?
    );
    let response = reqwest::Response::from(response.map(reqwest::Body::wrap));
    let stock = response.error_for_status()?.text().await?;
    println!("GET  {stock}\n");
    assert_eq!(stock, "rope: 3");

    // The shop answers with 429 and a `Retry-After`; the body goes out again, byte for byte.
    let request = Request::put(format!("{shop}/stock")).body(ReplayBody::from("rope: 4"))?;
    let response = service.clone().oneshot(request).await?;
    println!(
        "{}",
        response.extensions().get::<Report>().ok_or("no report")?
    );
    let response = reqwest::Response::from(response.map(reqwest::Body::wrap));
    let stock = response.error_for_status()?.text().await?;
    println!("PUT  {stock}\n");
    assert_eq!(stock, "rope: 4");

    // Nobody listens there: nothing was sent, so even a POST is tried again, and then has failed.
    // Not ambiguous: it may be repeated later.
    let closed = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let request = Request::post(format!("http://{closed}/")).body(ReplayBody::from("order"))?;
    let error = service.oneshot(request).await.map(|_| ()).err();
    let error = error.ok_or("somebody listens there")?;
    println!("POST {error}");
    assert!(!error.is_ambiguous());
    assert_eq!(error.report().attempts().len(), 3);
    Ok(())
}

/// A shop that is not ready at first, and asks writers to slow down.
async fn open_shop() -> Result<String, BoxError> {
    static READS: AtomicU32 = AtomicU32::new(0);
    static WRITES: AtomicU32 = AtomicU32::new(0);
    let read = || async {
        match READS.fetch_add(1, Ordering::SeqCst) {
            0 => Err(StatusCode::BAD_GATEWAY),
            _ => Ok("rope: 3"),
        }
    };
    let write = |body: String| async {
        match WRITES.fetch_add(1, Ordering::SeqCst) {
            0 => {
                let mut headers = HeaderMap::new();
                headers.insert("retry-after-ms", 40.into());
                Err((StatusCode::TOO_MANY_REQUESTS, headers))
            }
            _ => Ok(body),
        }
    };
    let router = Router::new()
        .route("/stock", get(read))
        .route("/stock", put(write));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async { axum::serve(listener, router).await });
    Ok(format!("http://{address}"))
}
