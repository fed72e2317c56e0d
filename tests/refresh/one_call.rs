//! One call that gets a 401.

use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, request, response};
use http_body_util::BodyExt;
use tokio::time::Instant;
use tower::{Layer, ServiceExt};
use tower_http_retry::{BoxError, Drain, Refresh, RetryDenied};

use crate::support::body::Step;
use crate::support::script::{Reply, Script};
use crate::support::{MS, layer};
use crate::{Guarded, Tokens, denied, get, refresh_error, tokens, tokens_after, with_token};

#[tokio::test(start_paused = true)]
async fn a_401_is_refreshed_and_replayed_without_a_wait() {
    let tokens = tokens();
    let guarded = Guarded::new(&["token-1"]);
    let start = Instant::now();
    let service = layer().with_refresh(tokens.clone()).layer(guarded.clone());
    let response = get(service).await;
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
    get(service).await;
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
    let response = get(service).await;
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
    let response = get(service).await;
    assert_eq!(response.headers()["www-authenticate"], "Bearer");
    assert_eq!(denied(&response), RetryDenied::Unauthorized);
    let error = refresh_error(&response);
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
    let response = get(service).await;
    assert_eq!(denied(&response), RetryDenied::Unauthorized);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_hangs_meets_the_deadline() {
    let tokens = tokens_after(Duration::from_secs(3600));
    let guarded = Guarded::new(&["token-1"]);
    let service = layer()
        .with_refresh(tokens)
        .with_deadline(700 * MS)
        .layer(guarded);
    let start = Instant::now();
    let response = get(service).await;
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
    let tokens = tokens_after(Duration::from_secs(3600));
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
