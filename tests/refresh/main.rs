//! A new credential after a 401.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // helpers of tests

#[path = "../support/mod.rs"]
mod support;

mod many_calls;
mod one_call;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request, Response, request, response};
use tower::{Layer, Service, ServiceExt};
use tower_http_retry::{BoxError, Error, Refresh, ReplayBody, Report, Retry, RetryDenied};

use support::body::TestBody;
use support::{layer, request};

/// Gives `token-1`, `token-2`, … and counts.
#[derive(Default)]
struct Tokens {
    count: AtomicUsize,
    takes: Duration,
    fails: bool,
    stale: Mutex<Vec<HeaderValue>>,
}

impl Refresh for Tokens {
    async fn refresh(
        &self,
        stale: &request::Parts,
        challenge: &response::Parts,
    ) -> Result<HeaderValue, BoxError> {
        assert_eq!(challenge.status, 401);
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        self.stale
            .lock()
            .unwrap()
            .extend(stale.headers.get(AUTHORIZATION).cloned());
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        if self.fails {
            return Err("the identity provider is down".into());
        }
        Ok(HeaderValue::try_from(format!("token-{number}")).unwrap())
    }
}

impl Tokens {
    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

/// Answers 200 to requests with a good credential, after a time; 401 to others.
#[derive(Clone)]
struct Guarded {
    good: Arc<Mutex<Vec<&'static str>>>,
    attempts: Arc<AtomicUsize>,
}

impl Guarded {
    fn new(good: &[&'static str]) -> Self {
        Self {
            good: Arc::new(Mutex::new(good.to_vec())),
            attempts: Arc::default(),
        }
    }

    fn attempts(&self) -> usize {
        self.attempts.load(Ordering::SeqCst)
    }
}

impl Service<Request<ReplayBody>> for Guarded {
    type Response = Response<TestBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReplayBody>) -> Self::Future {
        self.attempts.fetch_add(1, Ordering::SeqCst);
        let sent: Vec<_> = request
            .headers()
            .get_all(AUTHORIZATION)
            .iter()
            .cloned()
            .collect();
        assert!(
            sent.len() <= 1,
            "one credential, never a second one appended"
        );
        let delay = request.extensions().get::<Duration>().copied();
        let good = Arc::clone(&self.good);
        Box::pin(async move {
            if let Some(delay) = delay {
                tokio::time::sleep(delay).await;
            }
            let known = sent.first().is_some_and(|sent| {
                good.lock()
                    .unwrap()
                    .iter()
                    .any(|good| sent.as_bytes() == good.as_bytes())
            });
            let (status, body) = if known {
                (200, &b"secret"[..])
            } else {
                (401, &b"who?"[..])
            };
            Ok(Response::builder()
                .status(status)
                .body(TestBody::from(body))
                .unwrap())
        })
    }
}

fn with_token(method: Method, token: &'static str) -> Request<ReplayBody> {
    let mut request = request(method, ());
    request
        .headers_mut()
        .insert(AUTHORIZATION, HeaderValue::from_static(token));
    request
}

fn tokens() -> Arc<Tokens> {
    tokens_after(Duration::ZERO)
}

fn tokens_after(takes: Duration) -> Arc<Tokens> {
    Arc::new(Tokens {
        takes,
        ..Tokens::default()
    })
}

/// A layer that gets its credentials there, before a server that takes the first of them.
fn guarded(tokens: &Arc<Tokens>) -> Retry<Guarded> {
    let layer = layer().with_refresh(Arc::clone(tokens));
    layer.layer(Guarded::new(&["token-1"]))
}

/// The answer to a GET with the old credential.
async fn get<S, B>(service: S) -> Response<B>
where
    S: Service<Request<ReplayBody>, Response = Response<B>, Error = Error>,
{
    let call = service.oneshot(with_token(Method::GET, "old"));
    call.await.unwrap()
}

fn report<B>(response: &Response<B>) -> &Report {
    response.extensions().get().unwrap()
}

fn denied<B>(response: &Response<B>) -> RetryDenied {
    report(response).verdict().unwrap().denied().unwrap()
}

/// Of the first attempt.
fn refresh_error<B>(response: &Response<B>) -> String {
    let attempt = &report(response).attempts()[0];
    attempt.refresh_error().unwrap().to_string()
}
