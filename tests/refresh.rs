//! A new credential after a 401 (behaviour §11).
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests

mod support;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request, Response, request, response};
use http_body_util::BodyExt;
use support::body::{Step, TestBody};
use support::script::{Reply, Script};
use support::{MS, layer, request};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt};
use tower_http_retry::{BoxError, Drain, Refresh, ReplayBody, Report, RetryDenied, RetryLayer};

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
    Arc::new(Tokens::default())
}

#[tokio::test(start_paused = true)]
async fn a_401_is_refreshed_and_replayed_without_a_wait() {
    let tokens = tokens();
    let guarded = Guarded::new(&["token-1"]);
    let start = Instant::now();
    let service = layer().with_refresh(tokens.clone()).layer(guarded.clone());
    let response = service
        .oneshot(with_token(Method::GET, "old"))
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!((tokens.count(), guarded.attempts()), (1, 2));
    assert_eq!(*tokens.stale.lock().unwrap(), ["old"]);
}

#[tokio::test(start_paused = true)]
async fn later_attempts_keep_the_new_credential() {
    // AU-05
    let script = Script::new([Reply::status(401), Reply::status(503), Reply::status(200)]);
    let service = layer().with_refresh(tokens()).layer(script.clone());
    service
        .oneshot(with_token(Method::GET, "old"))
        .await
        .unwrap();
    assert_eq!(script.waits(), [Duration::ZERO, 200 * MS]);
    script.seen(|seen| {
        let sent: Vec<_> = seen
            .iter()
            .map(|seen| &seen.head.headers[AUTHORIZATION])
            .collect();
        assert_eq!(sent, ["old", "token-1", "token-1"]);
    });
}

#[tokio::test(start_paused = true)]
async fn a_second_401_is_the_answer() {
    let tokens = tokens();
    let guarded = Guarded::new(&[]);
    let service = layer().with_refresh(tokens.clone()).layer(guarded.clone());
    let response = service
        .oneshot(with_token(Method::GET, "old"))
        .await
        .unwrap();
    assert_eq!(response.status(), 401);
    assert_eq!((tokens.count(), guarded.attempts()), (1, 2));
    assert_eq!(denied(&response), RetryDenied::Unauthorized);
}

#[tokio::test(start_paused = true)]
async fn a_post_is_not_replayed_after_a_401() {
    let tokens = tokens();
    let service = layer()
        .with_refresh(tokens.clone())
        .layer(Guarded::new(&[]));
    let response = service
        .oneshot(with_token(Method::POST, "old"))
        .await
        .unwrap();
    assert_eq!(denied(&response), RetryDenied::Unauthorized);
    assert_eq!(tokens.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failed_refresh_gives_the_original_401_whole_and_its_error_in_the_report() {
    // AU-02, AU-08
    static LARGE: [u8; 100_000] = [b'x'; 100_000];
    let tokens = Arc::new(Tokens {
        fails: true,
        takes: 50 * MS,
        ..Tokens::default()
    });
    let script = Script::new([Reply::status(401)
        .header("www-authenticate", "Bearer")
        .steps([Step::Data(&LARGE), Step::Pause(10 * MS), Step::Data(b"end")])]);
    let service = layer().with_refresh(tokens.clone()).layer(script.clone());
    let response = service
        .oneshot(with_token(Method::GET, "old"))
        .await
        .unwrap();
    assert_eq!(response.headers()["www-authenticate"], "Bearer");
    assert_eq!(denied(&response), RetryDenied::Unauthorized);
    let report = response.extensions().get::<Report>().unwrap();
    let error = report.attempts()[0].refresh_error().unwrap().to_string();
    assert_eq!(error, "the identity provider is down");
    assert_eq!(
        response
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes()
            .len(),
        100_003
    );
    assert_eq!(script.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_panics_is_a_failed_refresh() {
    struct Panics;
    impl Refresh for Panics {
        async fn refresh(
            &self,
            _: &request::Parts,
            _: &response::Parts,
        ) -> Result<HeaderValue, BoxError> {
            panic!("a bug in the hook")
        }
    }
    let service = layer().with_refresh(Panics).layer(Guarded::new(&[]));
    let response = service
        .oneshot(with_token(Method::GET, "old"))
        .await
        .unwrap();
    assert_eq!(denied(&response), RetryDenied::Unauthorized);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_hangs_meets_the_deadline() {
    let tokens = Arc::new(Tokens {
        takes: Duration::from_secs(3600),
        ..Tokens::default()
    });
    let guarded = Guarded::new(&["token-1"]);
    let service = layer()
        .with_refresh(tokens)
        .with_deadline(700 * MS)
        .layer(guarded);
    let start = Instant::now();
    let response = service
        .oneshot(with_token(Method::GET, "old"))
        .await
        .unwrap();
    assert_eq!(start.elapsed(), 700 * MS);
    assert_eq!(response.status(), 401);
    assert_eq!(denied(&response), RetryDenied::Deadline);
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "who?"
    );
}

#[tokio::test(start_paused = true)]
async fn draining_ends_a_refresh_with_the_401() {
    let tokens = Arc::new(Tokens {
        takes: Duration::from_secs(3600),
        ..Tokens::default()
    });
    let drain = Drain::new();
    let service = layer()
        .with_refresh(tokens)
        .with_drain(drain.clone())
        .layer(Guarded::new(&["token-1"]));
    let call = tokio::spawn(service.oneshot(with_token(Method::GET, "old")));
    tokio::time::sleep(MS).await;
    drain.start();
    let response = call.await.unwrap().unwrap();
    assert_eq!(denied(&response), RetryDenied::RuntimeDraining);
}

#[tokio::test(start_paused = true)]
async fn concurrent_401s_of_one_credential_share_one_refresh_also_across_clones() {
    // AU-06
    let tokens = Arc::new(Tokens {
        takes: 100 * MS,
        ..Tokens::default()
    });
    let guarded = Guarded::new(&["token-1"]);
    let layer: RetryLayer = layer().with_refresh(tokens.clone());
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let service = layer.clone().layer(guarded.clone());
            tokio::spawn(service.oneshot(with_token(Method::GET, "old")))
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!((tokens.count(), guarded.attempts()), (1, 10));
}

#[tokio::test(start_paused = true)]
async fn different_credentials_never_share_one() {
    let tokens = Arc::new(Tokens {
        takes: 100 * MS,
        ..Tokens::default()
    });
    let guarded = Guarded::new(&["token-1", "token-2"]);
    let service = layer().with_refresh(tokens.clone()).layer(guarded);
    let calls = ["alice", "bob"]
        .map(|who| tokio::spawn(service.clone().oneshot(with_token(Method::GET, who))));
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!(tokens.count(), 2);
    // And afterwards: a third user does not get what was fetched for another.
    let response = service
        .oneshot(with_token(Method::GET, "carol"))
        .await
        .unwrap();
    assert_eq!(response.status(), 401);
    assert_eq!(tokens.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_starter_leaves_the_refresh_to_the_others() {
    let tokens = Arc::new(Tokens {
        takes: 100 * MS,
        ..Tokens::default()
    });
    let service = layer()
        .with_refresh(tokens.clone())
        .layer(Guarded::new(&["token-1"]));
    let starter = tokio::spawn(service.clone().oneshot(with_token(Method::GET, "old")));
    tokio::time::sleep(10 * MS).await;
    let other = tokio::spawn(service.oneshot(with_token(Method::GET, "old")));
    tokio::time::sleep(10 * MS).await;
    starter.abort();
    assert_eq!(other.await.unwrap().unwrap().status(), 200);
    assert_eq!(tokens.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_straggler_uses_the_credential_that_replaced_its_own() {
    // AU-07
    let tokens = tokens();
    let guarded = Guarded::new(&["token-1"]);
    let service = layer().with_refresh(tokens.clone()).layer(guarded.clone());
    let mut late = with_token(Method::GET, "old");
    late.extensions_mut().insert(500 * MS);
    let late = tokio::spawn(service.clone().oneshot(late));
    tokio::time::sleep(MS).await;
    service
        .oneshot(with_token(Method::GET, "old"))
        .await
        .unwrap();
    assert_eq!(late.await.unwrap().unwrap().status(), 200);
    assert_eq!((tokens.count(), guarded.attempts()), (1, 4));
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_expired_is_replaced_for_the_next_call() {
    let tokens = tokens();
    let guarded = Guarded::new(&["token-1"]);
    let service = layer().with_refresh(tokens.clone()).layer(guarded.clone());
    let get = || with_token(Method::GET, "old");
    assert_eq!(service.clone().oneshot(get()).await.unwrap().status(), 200);
    *guarded.good.lock().unwrap() = vec!["token-2"];
    assert_eq!(service.clone().oneshot(get()).await.unwrap().status(), 401);
    assert_eq!(service.oneshot(get()).await.unwrap().status(), 200);
    assert_eq!(tokens.count(), 2);
}

fn denied<B>(response: &Response<B>) -> RetryDenied {
    response
        .extensions()
        .get::<Report>()
        .unwrap()
        .verdict()
        .unwrap()
        .denied()
        .unwrap()
}
