//! Money, and a connection that breaks: `cargo run --example payments --features hyper`.
//!
//! A bank takes a payment and hangs up before it answers. Sending it again blindly pays twice;
//! calling it failed is a lie. Four ways out, each of which ends with exactly one payment:
//!
//! 1. the caller is told [`Error::Ambiguous`] and asks the bank;
//! 2. the caller is told, and sends it again under the same key;
//! 3. the layer knows that the bank honours keys, and does that itself;
//! 4. the layer is given a [`Reconcile`], and does the asking.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, request};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tower::{Layer, ServiceExt};
use tower_http_retry::{
    BoxError, Error, HyperService, Idempotency, Outcome, Reconcile, Reconciled, ReplayBody,
    RetryLayer, StandardPolicy, Upstream,
};

const KEY: &str = "idempotency-key";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let bank = Bank::open().await?;
    let client = HyperService::new(Client::builder(TokioExecutor::new()).build_http());
    let quick = StandardPolicy::builder().base_delay(Duration::from_millis(10));
    let plain = RetryLayer::new(quick.clone().build()?);

    // 1. Told, and asks.
    let payment = bank.payment("rent").body(ReplayBody::from("700"))?;
    let told = plain.layer(client.clone()).oneshot(payment).await;
    assert!(matches!(told, Err(Error::Ambiguous(_))), "{told:?}");
    let question = Request::get(bank.uri("rent")).body(ReplayBody::empty())?;
    let answer = plain.layer(client.clone()).oneshot(question).await?;
    assert_eq!(answer.status(), StatusCode::OK);
    bank.has_taken_once("rent", "asked")?;

    // 2. Told, and sends it again under the key of the first time. Declared `Keyed`, it may be
    //    repeated from here on.
    let keyed = || bank.payment("phone").header(KEY, "phone-2026-11");
    let payment = keyed().body(ReplayBody::from("40"))?;
    let told = plain.layer(client.clone()).oneshot(payment).await;
    assert!(matches!(told, Err(Error::Ambiguous(_))), "{told:?}");
    let again = keyed().extension(Idempotency::Keyed);
    let again = again.body(ReplayBody::from("40"))?;
    let answer = plain.layer(client.clone()).oneshot(again).await?;
    assert_eq!(answer.status(), StatusCode::CREATED);
    bank.has_taken_once("phone", "sent again under its key")?;

    // 3. The layer makes a key for each call, and repeats under it.
    let upstream = Upstream::new().generates_key(http::HeaderName::from_static(KEY));
    let keys = RetryLayer::new(quick.clone().default_upstream(upstream).build()?);
    let payment = bank.payment("gas").body(ReplayBody::from("90"))?;
    let answer = keys.layer(client.clone()).oneshot(payment).await?;
    assert_eq!(answer.status(), StatusCode::CREATED);
    bank.has_taken_once("gas", "keyed by the layer")?;

    // 4. The layer asks before it answers. Both halves of the doubt: executed, and not.
    let asking = plain.with_reconcile(AskTheBank(client.clone()));
    for (payment, how) in [
        ("taxes", "asked by the layer"),
        ("lost-in-the-mail", "asked by the layer, and sent again"),
    ] {
        let request = bank.payment(payment).body(ReplayBody::from("120"))?;
        let answer = asking.layer(client.clone()).oneshot(request).await?;
        assert!(answer.status().is_success());
        bank.has_taken_once(payment, how)?;
    }
    Ok(())
}

/// Asks what became of a payment. Its client is one without retries: the layer's deadline covers
/// the question as well.
struct AskTheBank(HyperService<HttpConnector>);

impl Reconcile for AskTheBank {
    async fn reconcile(
        &self,
        payment: &request::Parts,
        _: Outcome<'_>,
    ) -> Result<Reconciled, BoxError> {
        let question = Request::get(payment.uri.clone()).body(ReplayBody::empty())?;
        let (head, body) = self.0.clone().oneshot(question).await?.into_parts();
        match head.status {
            StatusCode::OK => {
                let body = body.collect().await?.to_bytes();
                Ok(Reconciled::Executed(Response::from_parts(head, body)))
            }
            // Only because this bank drops what it has not begun when a connection ends. Where a
            // request may still be under way somewhere, "not found" is `Unknown`.
            StatusCode::NOT_FOUND => Ok(Reconciled::NotExecuted),
            _ => Ok(Reconciled::Unknown),
        }
    }
}

/// Takes payments. Hangs up on the first try of each: after it took it, or, for what is lost in the
/// mail, before.
#[derive(Clone)]
struct Bank {
    address: String,
    books: Arc<Mutex<Books>>,
}

#[derive(Default)]
struct Books {
    /// How often each was tried, and how often taken.
    tried: HashMap<String, u32>,
    taken: HashMap<String, u32>,
    /// Keys that were seen: their payments are not taken again.
    keys: HashMap<String, String>,
}

impl Bank {
    async fn open() -> Result<Self, BoxError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let bank = Self {
            address: format!("http://{}", listener.local_addr()?),
            books: Arc::default(),
        };
        let doors = bank.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let bank = doors.clone();
                let service = service_fn(move |request| bank.clone().answer(request));
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                // An error of one connection is meant.
                tokio::spawn(async { drop(connection.await) });
            }
        });
        Ok(bank)
    }

    fn uri(&self, payment: &str) -> String {
        format!("{}/payments/{payment}", self.address)
    }

    fn payment(&self, payment: &str) -> request::Builder {
        Request::post(self.uri(payment))
    }

    fn has_taken_once(&self, payment: &str, how: &str) -> Result<(), BoxError> {
        let books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = books.taken.get(payment).copied().unwrap_or_default();
        println!("{payment:<18} {how:<36} taken {taken}x");
        (taken == 1)
            .then_some(())
            .ok_or_else(|| "not exactly once".into())
    }

    /// An error closes the connection without an answer.
    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, BoxError> {
        let (head, body) = request.into_parts();
        body.collect().await?;
        let payment = head.uri.path().trim_start_matches("/payments/").to_owned();
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        if head.method == Method::GET {
            let known = books.taken.contains_key(&payment);
            return answer(if known {
                StatusCode::OK
            } else {
                StatusCode::NOT_FOUND
            });
        }
        let tries = books.tried.entry(payment.clone()).or_default();
        *tries += 1;
        let first = *tries == 1;
        if first && payment == "lost-in-the-mail" {
            return Err("hangs up before the payment".into());
        }
        let key = head.headers.get(KEY).and_then(|key| key.to_str().ok());
        let seen = key.map(|key| books.keys.insert(key.to_owned(), payment.clone()));
        if !matches!(seen, Some(Some(_))) {
            *books.taken.entry(payment).or_default() += 1;
        }
        if first {
            return Err("hangs up after the payment".into());
        }
        answer(StatusCode::CREATED)
    }
}

fn answer(status: StatusCode) -> Result<Response<Full<Bytes>>, BoxError> {
    Ok(Response::builder().status(status).body(Full::default())?)
}
