//! Layers around layers, and services that break customs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_http_retry::{
    AmbiguousResponses, BoxError, Error, Evidence, Failure, FailureKind, ReplayBody, RetryLayer,
    StandardPolicy,
};

use crate::support::body::TestBody;
use crate::support::script::{Reply, Script};
use crate::support::{self, MS, layer, policy, request};
use crate::{failed_post, text};

#[tokio::test(start_paused = true)]
async fn a_wrong_body_type_loses_nothing() {
    let service = layer().layer(Script::new([Reply::status(503).body(b"busy")]));
    let error = failed_post(service).await;
    let error = error.into_response::<Full<Bytes>>().unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::SERVICE_UNAVAILABLE));
    let response = error.into_response::<TestBody>().expect("nothing is lost");
    assert_eq!(text(response).await, "busy");
}

#[tokio::test(start_paused = true)]
async fn the_outer_third_answer_has_the_response_too() {
    let script = Script::new([Reply::status(503).body(b"busy")]);
    let service = ServiceBuilder::new()
        .layer(layer())
        .layer(RetryLayer::new(StandardPolicy::none()))
        .service(script.clone());
    let error = failed_post(service).await;
    assert!(error.is_ambiguous());
    assert!(
        error.evidence() >= Evidence::ResponseReceived,
        "headers were seen: {}",
        error.evidence()
    );
    assert_eq!(error.status(), Some(StatusCode::SERVICE_UNAVAILABLE));
}

#[tokio::test(start_paused = true)]
async fn an_outer_layer_that_delivers_delivers() {
    let deliver = policy()
        .ambiguous_responses(AmbiguousResponses::Deliver)
        .build()
        .unwrap();
    let script = Script::new([Reply::status(503).body(b"busy")]);
    let service = ServiceBuilder::new()
        .layer(RetryLayer::new(deliver))
        .layer(layer())
        .service(script);
    let response = service.oneshot(request(Method::POST, "order")).await;
    assert!(response.is_ok(), "{}", response.unwrap_err());
}

#[tokio::test(start_paused = true)]
async fn layers_do_not_multiply_through_an_io_error() {
    let script =
        Script::new((0..20).map(|_| Reply::fails(Failure::sent_no_response(FailureKind::Reset))));
    let service = ServiceBuilder::new()
        .layer(layer())
        .map_err(std::io::Error::other::<Error>)
        .layer(layer())
        .service(script.clone());
    service
        .oneshot(request(Method::PUT, "order"))
        .await
        .unwrap_err();
    assert_eq!(script.attempts(), 4);
}

#[derive(Debug)]
struct OwnSource;

impl std::fmt::Display for OwnSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("its own source")
    }
}

impl std::error::Error for OwnSource {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self)
    }
}

#[test]
fn an_error_that_is_its_own_source_ends_the_call() {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let answer = support::paused(async {
            let script = Script::new([Reply::Error(OwnSource.into())]);
            layer()
                .layer(script)
                .oneshot(request(Method::POST, "order"))
                .await
        });
        let _ = tell.send(answer.is_err());
    });
    assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(true));
}

/// Behind a layer that buffers requests: the one that timed out must not go out later.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_in_a_buffer_does_not_go_out_after_its_retry() {
    struct OneAtATime(Script, Arc<AtomicUsize>);
    impl Service<Request<ReplayBody>> for OneAtATime {
        type Response = Response<TestBody>;
        type Error = BoxError;
        type Future = <Script as Service<Request<ReplayBody>>>::Future;
        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            self.0.poll_ready(cx)
        }
        fn call(&mut self, req: Request<ReplayBody>) -> Self::Future {
            self.1.fetch_add(1, Ordering::SeqCst);
            self.0.call(req)
        }
    }
    let calls = Arc::new(AtomicUsize::new(0));
    let script = Script::new([
        Reply::status(200).after(300 * MS),
        Reply::status(200),
        Reply::status(200),
    ]);
    let buffer = tower::buffer::Buffer::new(OneAtATime(script.clone(), Arc::clone(&calls)), 4);
    let service = layer().with_attempt_timeout(100 * MS).layer(buffer);
    let response = service
        .oneshot(request(Method::PUT, "order"))
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}
