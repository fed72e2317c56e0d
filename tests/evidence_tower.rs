//! Evidence §2.5: tower's own middleware between the layer and the client.
#![cfg(all(feature = "hyper", feature = "reqwest"))]
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "support/wire/mod.rs"]
mod wire;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Empty};
use tower::buffer::Buffer;
use tower::limit::ConcurrencyLimit;
use tower::load_shed::LoadShed;
use tower::timeout::Timeout;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_http_retry::{BoxError, Error, Evidence, Failure, FailureKind, ReplayBody, RetryDenied};
use wire::row::{ask, layer, request};
use wire::via::{Via, below};
use wire::{Server, h1, nobody, pause};

type Answer = Response<Empty<Bytes>>;

fn post() -> Request<ReplayBody> {
    request(&Method::POST, &format!("http://{}/", nobody()))
}

/// Counts its calls, reads the request, and does this.
fn counting<F, Fut>(calls: &Arc<AtomicUsize>, then: F) -> wire::via::Below
where
    F: Fn() -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer, BoxError>> + Send + 'static,
{
    let calls = Arc::clone(calls);
    below(service_fn(move |request: Request<ReplayBody>| {
        calls.fetch_add(1, Ordering::SeqCst);
        let then = then.clone();
        async move {
            request.into_body().collect().await?;
            then().await
        }
    }))
}

/// Is never ready, or fails to be.
#[derive(Clone)]
struct NeverReady(Option<&'static str>);

impl Service<Request<ReplayBody>> for NeverReady {
    type Response = Answer;
    type Error = BoxError;
    type Future = std::future::Ready<Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self.0 {
            Some(error) => Poll::Ready(Err(error.into())),
            None => Poll::Pending,
        }
    }

    fn call(&mut self, _: Request<ReplayBody>) -> Self::Future {
        panic!("called, and not ready")
    }
}

/// The same error, whether what is below was called or not.
#[tokio::test]
async fn e1_a_timeout_after_the_call_is_unknown() {
    let calls = Arc::default();
    let hanging = counting(&calls, std::future::pending);
    let below = below(Timeout::new(hanging, Duration::from_millis(20)));
    let error = ask(&layer(3), below, post()).await.unwrap_err();
    let expected = Failure::sent_no_response(FailureKind::ResponseTimeout);
    assert_eq!(error.failure(), Some(&expected));
    assert!(error.is_ambiguous());
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// Nobody says so: the request waits in a queue above the client, which might yet get it.
#[tokio::test]
async fn e2_a_timeout_in_a_queue_is_unknown() {
    let buffer = Buffer::new(below(NeverReady(None)), 4);
    let below = below(Timeout::new(buffer, Duration::from_millis(20)));
    let error = ask(&layer(3), below, post()).await.unwrap_err();
    assert_eq!(error.evidence(), Evidence::SentNoResponse);
    assert!(error.is_ambiguous());
}

/// The request was dropped uncalled. It is ours to shed, so it is not sent again.
#[tokio::test]
async fn e3_load_shed_is_not_sent_and_permanent() {
    for method in [Method::POST, Method::GET] {
        let layer = layer(3);
        let below = below(LoadShed::new(NeverReady(None)));
        let error = ask(&layer, below, request(&method, "http://shop.example/"))
            .await
            .unwrap_err();
        let expected = Failure::not_sent(FailureKind::LocalOverload);
        assert_eq!(error.failure(), Some(&expected));
        assert!(matches!(error, Error::Failed(_)));
        let denied = RetryDenied::PermanentFailure(FailureKind::LocalOverload);
        assert_eq!(error.denied(), Some(denied));
        assert_eq!(layer.contradictions(), 0);
    }
}

/// The buffer's own error tells nothing that is sure; no dependency is worth it.
#[tokio::test]
async fn e4_a_buffer_whose_service_is_broken_is_unknown() {
    let below = below(Buffer::new(below(NeverReady(Some("broken"))), 4));
    let error = ask(&layer(1), below, post()).await.unwrap_err();
    assert_eq!(error.evidence(), Evidence::SentNoResponse, "{error}");
    assert!(error.is_ambiguous());
}

/// Later the same buffer fails to be ready, and that is a proof: there is no call yet.
#[tokio::test]
async fn e4b_a_service_that_is_not_ready_was_not_sent_anything() {
    let mut retry = layer(3).layer(below(Buffer::new(below(NeverReady(Some("broken"))), 4)));
    let _ = retry.ready().await.unwrap().call(post()).await;
    let error = retry.ready().await.unwrap_err();
    assert!(matches!(error, Error::Failed(_)));
    let expected = Failure::not_sent(FailureKind::Readiness);
    assert_eq!(error.failure(), Some(&expected));
    assert!(error.report().attempts().is_empty());
}

/// It looks as if the request had never been accepted.
#[tokio::test]
async fn e5_a_service_that_panics_behind_a_buffer_is_unknown() {
    let calls = Arc::new(AtomicUsize::new(0));
    let panics = {
        let calls = Arc::clone(&calls);
        service_fn(move |_: Request<ReplayBody>| {
            if calls.fetch_add(1, Ordering::SeqCst) == 0 {
                panic!("in its call, as the test wants");
            }
            std::future::ready(Ok::<Answer, Infallible>(Response::new(Empty::new())))
        })
    };
    let below = below(Buffer::new(panics, 4));
    let layer = layer(3);
    let error = ask(&layer, below, post()).await.unwrap_err();
    assert_eq!(error.evidence(), Evidence::SentNoResponse, "{error}");
    assert!(error.is_ambiguous());
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(layer.contradictions(), 0);
}

/// Behind a buffer the client's error is what it was, and so is the witness.
#[tokio::test]
async fn e6_a_buffer_hands_the_clients_error_through() {
    for via in Via::ALL {
        let buffer = below(Buffer::new(via.service(), 4));
        let layer = layer(2);
        let error = ask(&layer, buffer, post()).await.unwrap_err();
        let expected = Failure::not_sent(FailureKind::Connect);
        assert_eq!(error.failure(), Some(&expected), "{via:?} {error}");
        assert_eq!(error.report().attempts().len(), 2);
    }
}

/// An error of `oneshot` may be one of its `poll_ready` or of its call.
#[tokio::test]
async fn e7_an_error_of_oneshot_is_unknown() {
    let oneshot = below(service_fn(|request: Request<ReplayBody>| {
        NeverReady(Some("not ready")).oneshot(request)
    }));
    let error = ask(&layer(1), oneshot, post()).await.unwrap_err();
    assert_eq!(error.evidence(), Evidence::SentNoResponse);
}

/// What tells is that the body was read: a service between the shedding one and the layer has sent
/// the request once already.
#[tokio::test]
async fn e8_load_shed_below_something_that_repeats_is_unknown() {
    let calls = Arc::new(AtomicUsize::new(0));
    let repeats = {
        let first = counting(&calls, || async { Err("lost".into()) });
        service_fn(move |request: Request<ReplayBody>| {
            let first = first.clone();
            async move {
                let again = Request::new(ReplayBody::empty());
                match first.oneshot(request).await {
                    Ok(response) => Ok::<_, BoxError>(response),
                    Err(_) => {
                        let shed = LoadShed::new(NeverReady(None));
                        let answer = shed.oneshot(again).await?;
                        Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
                    }
                }
            }
        })
    };
    let layer = layer(3);
    let error = ask(&layer, below(repeats), post()).await.unwrap_err();
    let expected = Failure::sent_no_response(FailureKind::LocalOverload);
    assert_eq!(error.failure(), Some(&expected));
    assert!(error.is_ambiguous());
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(layer.contradictions(), 0);
}

/// It waits for its permit in `poll_ready`, where the layer's call has not begun.
#[tokio::test]
async fn a_concurrency_limit_never_fails() {
    let server = Server::start(|mut peer, _| async move {
        while peer.request().await.is_some() {
            pause(10).await;
            peer.write(h1::OK).await;
        }
    });
    let limited = below(ConcurrencyLimit::new(Via::HyperH1.service(), 2));
    let layer = layer(2);
    let posts = (0..6).map(|_| request(&Method::POST, &server.url()));
    for answer in wire::row::ask_all(&layer, &limited, posts).await {
        assert_eq!(answer.unwrap().status(), 200);
    }
    assert_eq!(server.ledger.now().whole, 6);
}

/// A service that reads the request and then fails as a client does that has no connection: taken
/// for sent, and counted, since a rule of the crate does not hold here.
#[tokio::test]
async fn a_proof_that_the_witness_contradicts_is_dropped_and_counted() {
    let odd = below(service_fn(|request: Request<ReplayBody>| async move {
        request.into_body().collect().await?;
        let refused = Via::HyperH1.service().oneshot(post()).await;
        refused.map(|_| Answer::new(Empty::new()))
    }));
    let layer = layer(3);
    let error = ask(&layer, odd, post()).await.unwrap_err();
    let expected = Failure::sent_no_response(FailureKind::Connect);
    assert_eq!(error.failure(), Some(&expected));
    assert!(error.is_ambiguous());
    assert_eq!(layer.contradictions(), 1);
}

/// The client itself is a service, too. Its errors prove what they prove; a timeout does not.
#[tokio::test]
async fn a_client_without_its_adapter_proves_less() {
    let client = wire::via::hyper_builder().build_http::<ReplayBody>();
    let layer = layer(2);
    let error = ask(&layer, below(client), post()).await.unwrap_err();
    let expected = Failure::not_sent(FailureKind::Connect);
    assert_eq!(error.failure(), Some(&expected));

    let hanging = service_fn(|_: http::Uri| {
        std::future::pending::<Result<hyper_util::rt::TokioIo<tokio::net::TcpStream>, BoxError>>()
    });
    let client = wire::via::hyper_builder().build::<_, ReplayBody>(hanging);
    let layer = layer.with_attempt_timeout(Duration::from_millis(20));
    let error = ask(&layer, below(client), post()).await.unwrap_err();
    let expected = Failure::sent_no_response(FailureKind::ResponseTimeout);
    assert_eq!(error.failure(), Some(&expected));
    assert!(error.is_ambiguous());
}

/// A second major version of a client, or another one altogether.
#[tokio::test]
async fn an_error_of_an_unknown_type_is_unknown() {
    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Foreign(#[source] BoxError);
    let refused = Via::HyperH1.service().oneshot(post()).await.unwrap_err();
    assert!(refused.is::<hyper_util::client::legacy::Error>());
    let refused = Arc::new(std::sync::Mutex::new(Some(refused)));
    let foreign = below(service_fn(move |request: Request<ReplayBody>| {
        drop(request);
        let error = Foreign(refused.lock().unwrap().take().unwrap());
        std::future::ready(Err::<Answer, _>(error))
    }));
    let layer = layer(3);
    let error = ask(&layer, foreign, post()).await.unwrap_err();
    // Its kind is found by a walk, which proves nothing.
    let expected = Failure::sent_no_response(FailureKind::Connect);
    assert_eq!(error.failure(), Some(&expected));
    assert!(error.is_ambiguous());
}
