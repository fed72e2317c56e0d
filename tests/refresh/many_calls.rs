//! Calls that share a refresh, and calls that must not.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderValue, Method, Request, Response, request, response};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_http_retry::{AttemptNumber, BoxError, Refresh, ReplayBody, RetryDenied, RetryLayer};

use crate::support::body::TestBody;
use crate::support::{MS, layer, request};
use crate::{Guarded, denied, get, guarded, refresh_error, tokens, tokens_after, with_token};

#[tokio::test(start_paused = true)]
async fn concurrent_401s_of_one_credential_share_one_refresh_also_across_clones() {
    // AU-06
    let tokens = tokens_after(100 * MS);
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
    let tokens = tokens_after(100 * MS);
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

/// Signs in whom the cookie names, at the host that asked.
#[derive(Default)]
struct SignIn {
    count: AtomicUsize,
}

impl Refresh for SignIn {
    async fn refresh(
        &self,
        stale: &request::Parts,
        _: &response::Parts,
    ) -> Result<HeaderValue, BoxError> {
        self.count.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(100 * MS).await;
        let user = stale.headers[COOKIE].to_str()?;
        let host = stale.uri.host().unwrap_or_default();
        Ok(HeaderValue::try_from(format!("{user} at {host}"))?)
    }
}

/// The credentials that the last attempts of two calls carry, and how often the hook was asked.
async fn sign_in(
    calls: [(Option<&'static str>, &'static str, &'static str); 2],
    at: When,
) -> ([String; 2], usize) {
    let hook = Arc::new(SignIn::default());
    let sent: Arc<Mutex<[String; 2]>> = Arc::default();
    let seen = Arc::clone(&sent);
    let server = service_fn(move |request: Request<ReplayBody>| {
        let number = *request.extensions().get::<usize>().unwrap();
        let again = request.extensions().get::<AttemptNumber>().is_some();
        if again {
            let credential = request.headers()[AUTHORIZATION].to_str().unwrap();
            seen.lock().unwrap()[number] = credential.to_owned();
        }
        let response = Response::builder().status(if again { 200 } else { 401 });
        std::future::ready(Ok::<_, BoxError>(
            response.body(TestBody::from(&b""[..])).unwrap(),
        ))
    });
    let service = layer().with_refresh(hook.clone()).layer(server);
    let mut running = Vec::new();
    for (number, (token, user, url)) in calls.into_iter().enumerate() {
        let mut request = request(Method::GET, ());
        *request.uri_mut() = url.parse().unwrap();
        let headers = request.headers_mut();
        headers.insert(COOKIE, HeaderValue::from_static(user));
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, HeaderValue::from_static(token));
        }
        request.extensions_mut().insert(number);
        let call = tokio::spawn(service.clone().oneshot(request));
        match at {
            When::Together => running.push(call),
            When::OneAfterTheOther => drop(call.await.unwrap().unwrap()),
        }
    }
    for call in running {
        call.await.unwrap().unwrap();
    }
    let sent = sent.lock().unwrap().clone();
    (sent, hook.count.load(Ordering::SeqCst))
}

#[derive(Clone, Copy)]
enum When {
    Together,
    OneAfterTheOther,
}

#[tokio::test(start_paused = true)]
async fn calls_without_a_credential_share_nothing() {
    for at in [When::Together, When::OneAfterTheOther] {
        let url = "http://good.example/";
        let (sent, count) = sign_in([(None, "alice", url), (None, "bob", url)], at).await;
        assert_eq!(sent, ["alice at good.example", "bob at good.example"]);
        assert_eq!(count, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_was_fetched_for_one_upstream_is_not_sent_to_another() {
    for at in [When::Together, When::OneAfterTheOther] {
        for token in [None, Some("old")] {
            let calls = [
                (token, "alice", "http://good.example/"),
                (token, "alice", "http://evil.example/"),
            ];
            let (sent, count) = sign_in(calls, at).await;
            assert_eq!(sent, ["alice at good.example", "alice at evil.example"]);
            assert_eq!(count, 2);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_credential_at_two_urls_of_one_upstream_is_refreshed_once() {
    for at in [When::Together, When::OneAfterTheOther] {
        let calls = [
            (Some("old"), "alice", "http://good.example/a"),
            (Some("old"), "alice", "http://GOOD.example:80/b"),
        ];
        let (sent, count) = sign_in(calls, at).await;
        assert_eq!(sent, ["alice at good.example"; 2]);
        assert_eq!(count, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_still_waits_drives_the_refresh_while_the_starter_is_idle() {
    let tokens = tokens_after(100 * MS);
    let service = guarded(&tokens);
    let call = || service.clone().oneshot(with_token(Method::GET, "old"));
    let mut idle = tokio_test::task::spawn(call());
    // Its owner polls it once, and then is busy elsewhere.
    assert!(idle.poll().is_pending());
    let start = Instant::now();
    let other = tokio::time::timeout(Duration::from_secs(60), call()).await;
    assert_eq!(other.expect("it waits for ever").unwrap().status(), 200);
    assert_eq!(start.elapsed(), 100 * MS);
    assert_eq!(idle.await.unwrap().status(), 200);
    assert_eq!(tokens.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_nobody_polls_when_it_is_done_is_not_lost() {
    let tokens = tokens_after(100 * MS);
    let service = guarded(&tokens);
    let call = || service.clone().oneshot(with_token(Method::GET, "old"));
    let mut idle = [call(), call()].map(tokio_test::task::spawn);
    for call in &mut idle {
        assert!(call.poll().is_pending());
    }
    tokio::time::sleep(3600 * 1000 * MS).await;
    for call in idle {
        assert!(call.is_woken());
        assert_eq!(call.await.unwrap().status(), 200);
    }
    assert_eq!(tokens.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_goes_away_changes_nothing_for_the_others() {
    let tokens = tokens_after(100 * MS);
    let service = guarded(&tokens);
    let mut calls: Vec<_> = (0..20)
        .map(|_| tokio::spawn(service.clone().oneshot(with_token(Method::GET, "old"))))
        .collect();
    tokio::time::sleep(10 * MS).await;
    for gone in [15, 7, 0] {
        calls.remove(gone).abort();
    }
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!(tokens.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_everybody_left_is_begun_anew() {
    let tokens = tokens_after(100 * MS);
    let service = layer()
        .with_refresh(tokens.clone())
        .layer(Guarded::new(&["token-2"]));
    let call = || service.clone().oneshot(with_token(Method::GET, "old"));
    assert!(tokio::time::timeout(10 * MS, call()).await.is_err());
    assert_eq!(call().await.unwrap().status(), 200);
    assert_eq!(tokens.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_shared_refresh_is_everybodys_error() {
    #[derive(Default)]
    struct Panics(AtomicUsize);
    impl Refresh for Panics {
        async fn refresh(
            &self,
            _: &request::Parts,
            _: &response::Parts,
        ) -> Result<HeaderValue, BoxError> {
            self.0.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(100 * MS).await;
            panic!("a bug in the hook")
        }
    }
    let panics = Arc::new(Panics::default());
    let service = layer()
        .with_refresh(panics.clone())
        .layer(Guarded::new(&[]));
    for round in 1..=2 {
        let calls: Vec<_> = (0..3)
            .map(|_| tokio::spawn(service.clone().oneshot(with_token(Method::GET, "old"))))
            .collect();
        for call in calls {
            let response = call.await.unwrap().unwrap();
            assert_eq!(denied(&response), RetryDenied::Unauthorized);
            let error = refresh_error(&response);
            assert_eq!(error, "the refresh panicked");
        }
        assert_eq!(panics.0.load(Ordering::SeqCst), round);
    }
}

type Boxed = Pin<Box<dyn Future<Output = Result<HeaderValue, BoxError>> + Send>>;

/// Waits for a call that was there before, and that waits for it.
#[derive(Default)]
struct Knot(Mutex<Option<Boxed>>);

impl Refresh for Knot {
    async fn refresh(
        &self,
        _: &request::Parts,
        _: &response::Parts,
    ) -> Result<HeaderValue, BoxError> {
        tokio::time::sleep(100 * MS).await;
        let other = self.0.lock().unwrap().take();
        other.unwrap().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_waits_for_one_of_those_who_wait_for_it_ends() {
    let knot = Arc::new(Knot::default());
    let service = layer().with_refresh(knot.clone()).layer(Guarded::new(&[]));
    let call = || service.clone().oneshot(with_token(Method::GET, "old"));
    let mut waiting = tokio_test::task::spawn(call());
    assert!(waiting.poll().is_pending());
    *knot.0.lock().unwrap() = Some(Box::pin(async move {
        let response = waiting.await.unwrap();
        let error = refresh_error(&response);
        Err(error.into())
    }));
    let response = tokio::time::timeout(Duration::from_secs(60), call()).await;
    let response = response.expect("it waits for itself").unwrap();
    let error = refresh_error(&response);
    assert_eq!(error, "a refresh cannot wait for another of its own layer");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_starter_leaves_the_refresh_to_the_others() {
    let tokens = tokens_after(100 * MS);
    let service = guarded(&tokens);
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
    get(service).await;
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
