//! Without an adapter: hyper's clients as services, and in services of one's own. There the witness
//! only vetoes, and what the errors' types prove is all that there is.
#![cfg(all(feature = "hyper", feature = "reqwest"))]
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "support/wire/mod.rs"]
mod wire;

use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tower::{ServiceExt, service_fn};
use tower_http_retry::{BoxError, Evidence, Failure, FailureKind, ReplayBody};
use wire::body::{Step, Steps, sized_steps};
use wire::h2::{self, H2};
use wire::memory::{self, InMemory};
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

const SHOP: &str = "http://shop.example/";

/// The client alone, over this one connection in memory.
fn over<T>(io: T) -> Below
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = hyper_builder();
    builder.retry_canceled_requests(false);
    below(memory::over(&builder, [InMemory::new(io)]))
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

/// The second vote: an error without a connection. The end is there before the client first looks,
/// and tokio-test's socket fails the test at a byte that it does not expect.
#[tokio::test]
async fn b1_accepted_and_closed_at_once_is_not_sent_by_the_client_alone() {
    let ended = tokio_test::io::Builder::new().build();
    let layer = layer(1);
    let error = ask(&layer, over(ended), request(&Method::POST, SHOP))
        .await
        .unwrap_err();
    let expected = Failure::not_sent(FailureKind::Closed);
    assert_eq!(error.failure(), Some(&expected), "{error:?}");
    assert_eq!(layer.contradictions(), 0);
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

/// Handed back by a connection that dies while it is idle: when its task wakes, it finds the end of
/// the connection and the request, both.
#[tokio::test]
async fn f1_a_request_that_was_handed_back_is_not_sent_by_the_client_alone() {
    let (near, mut far) = tokio::io::duplex(4096);
    let client = over(near);
    let layer = layer(1);
    let served = async {
        assert!(far.read(&mut [0; 4096]).await.unwrap() > 0);
        far.write_all(h1::OK).await.unwrap();
    };
    let first = ask(&layer, client.clone(), request(&Method::POST, SHOP));
    let (first, ()) = tokio::join!(first, served);
    wire::row::read(first.unwrap()).await.unwrap();
    // The connection's task goes back to its pool before this one goes on.
    tokio::task::yield_now().await;
    drop(far);
    let error = ask(&layer, client, request(&Method::POST, SHOP))
        .await
        .unwrap_err();
    assert_eq!(error.evidence(), Evidence::NotSent, "{error:?}");
    assert_eq!(layer.contradictions(), 0);
}

/// Not a byte left, and the body had been asked: hyper says "error writing a body" of heads, too.
#[tokio::test]
async fn r6_a_first_write_that_fails_is_unknown() {
    for method in [Method::POST, Method::GET] {
        let broken = tokio_test::io::Builder::new()
            .write_error(io::ErrorKind::BrokenPipe.into())
            .build();
        let layer = layer(1);
        let error = ask(&layer, over(broken), request(&method, SHOP))
            .await
            .unwrap_err();
        let expected = Failure::sent_no_response(FailureKind::Closed);
        assert_eq!(error.failure(), Some(&expected), "{error:?}");
        assert_eq!(error.is_ambiguous(), method == Method::POST);
        assert_eq!(layer.contradictions(), 0);
    }
}
