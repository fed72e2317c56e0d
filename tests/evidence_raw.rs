//! Without an adapter: hyper's clients as services, and in services of one's own. There the witness
//! only vetoes, and what the errors' types prove is all that there is.
#![cfg(all(feature = "hyper", feature = "reqwest"))]
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "support/wire/mod.rs"]
mod wire;

use std::future::ready;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tower::{ServiceExt, service_fn};
use tower_http_retry::{BoxError, Evidence, Failure, FailureKind, HyperService, ReplayBody};
use wire::body::{Step, Steps, sized_steps};
use wire::h2::{self, H2};
use wire::row::{ask, layer, request, with_body};
use wire::via::{Below, Via, below, hyper_builder};
use wire::{Server, h1, nobody, pause};

fn post(server: &Server) -> Request<ReplayBody> {
    request(&Method::POST, &server.url())
}

/// A connection of hyper's own, without hyper-util's client.
async fn connection(server: &Server) -> Below {
    let io = tokio::net::TcpStream::connect(server.addr).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(io))
            .await
            .unwrap();
    tokio::spawn(connection);
    below(service_fn(move |request: Request<ReplayBody>| {
        let mut sender = sender.clone();
        async move { sender.send_request(request).await }
    }))
}

/// Resets every stream with REFUSED_STREAM, after this many bytes of an answer.
fn refuses(answer: &'static [u8]) -> Server {
    Server::start(move |peer, _| async move {
        let Some(mut peer) = H2::accept(peer).await else {
            return;
        };
        while let Some(id) = peer.request().await {
            if !answer.is_empty() {
                peer.respond(id, "10").await;
                peer.data(id, answer, 0).await;
                pause(20).await;
            }
            peer.reset(id, h2::REFUSED_STREAM).await;
        }
    })
}

#[tokio::test]
async fn d1_a_stream_refused_on_a_bare_connection_is_not_sent() {
    let server = refuses(b"");
    let layer = layer(2);
    let error = ask(&layer, connection(&server).await, post(&server))
        .await
        .unwrap_err();
    let expected = Failure::not_sent(FailureKind::StreamRefused);
    assert_eq!(error.failure(), Some(&expected), "{error}");
    assert_eq!(error.report().attempts().len(), 2);
    assert_eq!(layer.contradictions(), 0);
}

#[tokio::test]
async fn d3_go_away_on_a_bare_connection_is_not_sent_where_the_body_was_polled() {
    for (method, evidence) in [
        (Method::POST, Evidence::NotSent),
        (Method::GET, Evidence::SentNoResponse),
    ] {
        let server = Server::start(|peer, _| async move {
            let mut peer = H2::accept(peer).await.unwrap();
            peer.request().await;
            peer.go_away(0, h2::NO_ERROR).await;
            peer.drain().await;
        });
        let below = connection(&server).await;
        let error = ask(&layer(1), below, request(&method, &server.url()))
            .await
            .unwrap_err();
        assert_eq!(error.evidence(), evidence, "{error}");
        assert_eq!(error.failure().unwrap().kind(), FailureKind::GoAway);
    }
}

/// A service that collects responses fails with the same type after the head came. Only words tell.
#[tokio::test]
async fn d1x_a_collected_response_that_is_refused_is_unknown() {
    let server = refuses(b"four");
    let io = tokio::net::TcpStream::connect(server.addr).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(io))
            .await
            .unwrap();
    tokio::spawn(connection);
    let collects = below(service_fn(move |request: Request<ReplayBody>| {
        let mut sender = sender.clone();
        async move {
            let (head, body) = sender.send_request(request).await?.into_parts();
            let bytes = body.collect().await?.to_bytes();
            Ok::<_, hyper::Error>(Response::from_parts(head, Full::new(bytes)))
        }
    }));
    let error = ask(&layer(2), collects, post(&server)).await.unwrap_err();
    assert_eq!(error.evidence(), Evidence::SentNoResponse, "{error}");
    assert!(error.is_ambiguous());
    assert_eq!(server.ledger.now().whole, 1);
}

/// The error of an HTTP/2 stream that a peer refused.
async fn refused() -> ::h2::Error {
    let server = refuses(b"");
    let io = tokio::net::TcpStream::connect(server.addr).await.unwrap();
    let (mut client, connection) = ::h2::client::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let (answer, _) = client.send_request(Request::new(()), true).unwrap();
    let error = answer.await.unwrap_err();
    assert!(error.is_reset() && error.is_remote());
    error
}

/// hyper-util's client sends a body of the service's own, which fails: just where a refusal of our
/// stream would stand, behind an error that is the user's.
#[tokio::test]
async fn b18_the_error_of_a_body_that_is_not_ours_proves_nothing() {
    let server = Server::start(|mut peer, _| async move {
        if peer.head().await.is_some() {
            peer.drain().await;
        }
    });
    let client = hyper_builder().build_http::<Steps>();
    let error = Arc::new(Mutex::new(Some(refused().await)));
    let other = below(service_fn(move |request: Request<ReplayBody>| {
        let error = error.lock().unwrap().take().unwrap();
        let steps = [Step::Data(b"four"), Step::Fail(error.into())];
        client.request(request.map(|_| Steps::new(Some(10), steps)))
    }));
    let error = ask(&layer(1), other, post(&server)).await.unwrap_err();
    assert_eq!(error.evidence(), Evidence::SentNoResponse, "{error:?}");
    let expected = FailureKind::RequestBody;
    let kind = error.failure().unwrap().kind();
    assert!(
        kind == expected || kind == FailureKind::StreamRefused,
        "{kind}"
    );
    assert!(error.is_ambiguous());
}

/// Our body fails, and the error is a peer's refusal: of whom, who knows.
#[tokio::test]
async fn b18_a_refusal_beside_a_failed_body_proves_nothing() {
    let server = refuses(b"");
    let refused = Via::HyperH2.service().oneshot(post(&server)).await;
    let refused = Arc::new(Mutex::new(Some(refused.unwrap_err())));
    let fails = below(service_fn(move |request: Request<ReplayBody>| {
        let refused = refused.lock().unwrap().take().unwrap();
        async move {
            let _ = request.into_body().collect().await;
            Err::<Response<Full<Bytes>>, BoxError>(refused)
        }
    }));
    let body = sized_steps(10, [Step::Data(b"four"), Step::Fail("no more".into())]);
    let request = with_body(&Method::POST, &server.url(), body);
    let error = ask(&layer(2), fails, request).await.unwrap_err();
    let expected = Failure::sent_no_response(FailureKind::RequestBody);
    assert_eq!(error.failure(), Some(&expected), "{error}");
    assert!(error.is_ambiguous());
}

#[tokio::test]
async fn a1_refused_is_not_sent_by_the_client_alone() {
    let client = below(hyper_builder().build_http::<ReplayBody>());
    let dead = format!("http://{}/", nobody());
    let error = ask(&layer(2), client, request(&Method::POST, &dead))
        .await
        .unwrap_err();
    let expected = Failure::not_sent(FailureKind::Connect);
    assert_eq!(error.failure(), Some(&expected));
}

/// The second vote: an error without a connection. The end is there before the client first looks.
#[tokio::test]
async fn b1_accepted_and_closed_at_once_is_not_sent_by_the_client_alone() {
    let elsewhere = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (mut proven, mut tried) = (0, 0);
    // It races with the connection's task: about every other time.
    while proven == 0 {
        let server = Server::start_on(elsewhere.handle(), |peer, _| peer.fin());
        let client = below(hyper_builder().build_http::<ReplayBody>());
        let layer = layer(1);
        let call = tokio::spawn({
            let (layer, post) = (layer.clone(), post(&server));
            async move { ask(&layer, client, post).await }
        });
        tokio::task::yield_now().await;
        #[allow(clippy::disallowed_methods, reason = "a busy thread is the point")]
        std::thread::sleep(Duration::from_millis(30));
        let error = call.await.unwrap().unwrap_err();
        if error.evidence() == Evidence::NotSent {
            assert_eq!(server.ledger.now().bytes, 0, "{error}");
            proven += 1;
        }
        assert_eq!(layer.contradictions(), 0);
        tried += 1;
        assert!(tried < 50, "nothing is proven");
    }
    elsewhere.shutdown_background();
}

#[tokio::test]
async fn a7_a_version_that_the_connection_does_not_speak_is_not_sent_by_the_client_alone() {
    let server = Server::start(|mut peer, _| async move { peer.drain().await });
    let client = below(hyper_builder().build_http::<ReplayBody>());
    let mut request = post(&server);
    *request.version_mut() = http::Version::HTTP_2;
    let error = ask(&layer(2), client, request).await.unwrap_err();
    let expected = Failure::not_sent(FailureKind::Protocol);
    assert_eq!(error.failure(), Some(&expected));
}

/// Handed back by a connection that died while this thread was busy: when its task wakes, it finds
/// the end of the connection and the request, both.
#[test]
fn f1_a_request_that_was_handed_back_is_not_sent_by_the_client_alone() {
    // So that the end is noticed before the task runs.
    let here = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .event_interval(1)
        .build()
        .unwrap();
    let elsewhere = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let mut proven = 0;
    for _ in 0..5 {
        let server = Server::start_on(elsewhere.handle(), |mut peer, _| async move {
            peer.request().await;
            peer.write(h1::OK).await;
            pause(40).await;
            peer.fin().await;
        });
        let error = here.block_on(async {
            let mut builder = hyper_builder();
            builder.retry_canceled_requests(false);
            let client = below(builder.build_http::<ReplayBody>());
            let layer = layer(1);
            let warm = ask(&layer, client.clone(), post(&server)).await.unwrap();
            wire::row::read(warm).await.unwrap();
            pause(10).await;
            #[allow(clippy::disallowed_methods, reason = "a busy thread is the point")]
            std::thread::sleep(Duration::from_millis(80));
            // It goes first, and then the runtime looks at its sockets.
            tokio::spawn(ready(()));
            let error = ask(&layer, client, post(&server)).await.unwrap_err();
            assert_eq!(layer.contradictions(), 0);
            error
        });
        proven += usize::from(error.evidence() == Evidence::NotSent);
        assert_eq!(server.ledger.now().whole, 1);
    }
    elsewhere.shutdown_background();
    assert!(proven > 0);
}

/// A socket whose every write fails.
struct Broken;

impl hyper::rt::Read for Broken {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl hyper::rt::Write for Broken {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl hyper_util::client::legacy::connect::Connection for Broken {
    fn connected(&self) -> hyper_util::client::legacy::connect::Connected {
        hyper_util::client::legacy::connect::Connected::new()
    }
}

/// Not a byte left, and the body had been asked: hyper says "error writing a body" of heads, too.
#[tokio::test]
async fn r6_a_first_write_that_fails_is_unknown() {
    for method in [Method::POST, Method::GET] {
        let connector = service_fn(|_: http::Uri| ready(Ok::<_, io::Error>(Broken)));
        let client = below(HyperService::new(hyper_builder().build(connector)));
        let layer = layer(2);
        let request = request(&method, "http://shop.example/");
        let error = ask(&layer, client, request).await.unwrap_err();
        let expected = Failure::sent_no_response(FailureKind::Closed);
        assert_eq!(error.failure(), Some(&expected), "{error:?}");
        assert_eq!(error.is_ambiguous(), method == Method::POST);
        assert_eq!(layer.contradictions(), 0);
    }
}
