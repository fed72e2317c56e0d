//! Heads and bodies that only a careless or hostile caller builds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body_util::BodyExt;
use tower::{Layer, ServiceExt, service_fn};
use tower_http_retry::{
    BoxError, Deadline, Delivery, FailureKind, NoEarlyData, ReplayBody, Replayability, RetryLayer,
    Upstream, UpstreamKey,
};

use crate::support::body::{Step, TestBody};
use crate::support::script::{Reply, Script};
use crate::support::{MS, layer, policy, request};

async fn uri_of_the_retry(uri: Uri) -> (Uri, Uri) {
    let script = Script::new([Reply::status(503), Reply::status(200)]);
    let service = layer().layer(script.clone());
    let mut req = request(Method::GET, ());
    *req.uri_mut() = uri;
    service.oneshot(req).await.unwrap();
    script.seen(|seen| (seen[0].head.uri.clone(), seen[1].head.uri.clone()))
}

fn uri(authority: &str, path: String) -> Uri {
    Uri::builder()
        .scheme("http")
        .authority(authority)
        .path_and_query(path)
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_retry_of_an_odd_uri_goes_to_the_same_resource() {
    let query_alone = {
        let mut parts = http::uri::Parts::default();
        parts.path_and_query = Some("?x=1".parse().unwrap());
        Uri::from_parts(parts).unwrap()
    };
    for first in [
        uri("shop.example", "*".into()),
        uri("shop.example:8080", "*".into()),
        uri("shop.example", format!("/{}", "a".repeat(65_530))),
        uri("shop.example", "?x=1".into()),
        query_alone,
    ] {
        let (first, second) = uri_of_the_retry(first).await;
        assert!(second == first, "{} bytes", first.path().len());
    }
}

#[tokio::test(start_paused = true)]
async fn the_policys_upstream_of_options_star_is_the_upstream() {
    let key = UpstreamKey::origin(Some(&Scheme::HTTP), &"shop.example".parse().unwrap());
    let upstream = Upstream::new().stop_header(
        HeaderName::from_static("x-stop"),
        HeaderValue::from_static("1"),
    );
    let policy = policy().upstream(key, upstream).build().unwrap();
    let script = Script::new([Reply::status(503).header("x-stop", "1"), Reply::status(200)]);
    let mut req = request(Method::OPTIONS, ());
    *req.uri_mut() = uri("shop.example", "*".into());
    RetryLayer::new(policy)
        .layer(script.clone())
        .oneshot(req)
        .await
        .unwrap();
    assert_eq!(script.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn many_lines_of_a_header_do_not_panic() {
    let script = Script::new([Reply::status(503), Reply::status(200)]);
    let service = layer().layer(script.clone());
    let mut req = request(Method::GET, ());
    for _ in 0..25_000 {
        req.headers_mut()
            .append("x-a", HeaderValue::from_static("1"));
    }
    let response = service.oneshot(req).await.unwrap();
    assert_eq!(response.status(), 200);
}

/// Until the map takes no more.
fn fill(headers: &mut HeaderMap) {
    let names = (0..24_576).map(|i| HeaderName::try_from(format!("x-{i}")).unwrap());
    for name in names {
        if headers
            .try_append(name, HeaderValue::from_static("1"))
            .is_err()
        {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_header_does_not_panic_where_the_map_is_full() {
    let script = Script::new([Reply::status(503), Reply::status(200)]);
    let service = layer()
        .with_attempt_header(HeaderName::from_static("x-attempt"))
        .layer(script.clone());
    let mut req = request(Method::GET, ());
    fill(req.headers_mut());
    let response = service.oneshot(req).await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_generated_key_does_not_panic_where_the_map_is_full() {
    let upstream = Upstream::new().generates_key(HeaderName::from_static("idempotency-key"));
    let policy = policy().default_upstream(upstream).build().unwrap();
    let service = RetryLayer::new(policy).layer(Script::new([Reply::status(200)]));
    let mut req = request(Method::POST, ());
    fill(req.headers_mut());
    assert_eq!(service.oneshot(req).await.unwrap().status(), 200);
}

pub(crate) fn broken_body() -> ReplayBody {
    let broken = || TestBody::new([Step::Data(b"a"), Step::Fail("the disk is gone")]);
    ReplayBody::factory(Replayability::Replayable, broken)
}

#[tokio::test(start_paused = true)]
async fn a_failed_request_body_is_the_kind_whatever_the_response_says() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&attempts);
    let below = service_fn(move |req: Request<ReplayBody>| {
        counter.fetch_add(1, Ordering::SeqCst);
        async move {
            // The upload fails; the server answers with what it has, and the stream breaks.
            let _ = req.into_body().collect().await;
            let body = TestBody::new([Step::Data(b"{"), Step::Fail("reset")]);
            Ok::<_, BoxError>(Response::new(body))
        }
    });
    let service = layer()
        .with_delivery(Delivery::Whole { limit: 100 })
        .layer(below);
    let call = service.oneshot(request(Method::PUT, broken_body()));
    let body = call.await.unwrap().into_body();
    let error = body.collect().await.unwrap_err();
    assert_eq!(error.failure().kind(), FailureKind::RequestBody);
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
}

/// The first call had a credential refreshed, a deadline, and more than one attempt.
#[tokio::test(start_paused = true)]
async fn nothing_leaks_to_the_next_call_of_the_thread() {
    let script = Script::new([401, 503, 200, 425, 503, 200, 503, 503, 200].map(Reply::status));
    let service = layer()
        .with_refresh(crate::time::Slow(Arc::default()))
        .layer(script.clone());
    for credential in [Some("a"), None, None] {
        let mut req = request(Method::GET, ());
        if let Some(credential) = credential {
            req.headers_mut()
                .insert("authorization", HeaderValue::from_static(credential));
            req.extensions_mut().insert(Deadline::after(100_000 * MS));
        }
        service.clone().oneshot(req).await.unwrap();
    }
    script.seen(|seen| {
        for later in &seen[3..] {
            assert!(!later.head.headers.contains_key("authorization"));
            assert!(later.head.extensions.get::<Deadline>().is_none());
        }
        let attempts = seen.iter().enumerate();
        let outside_early_data = attempts
            .filter(|(_, seen)| seen.head.extensions.get::<NoEarlyData>().is_some())
            .map(|(attempt, _)| attempt);
        assert!(outside_early_data.eq([4, 5]), "after the 425 of this call");
    });
}
