//! Evidence §2.1: before a request exists on a connection.
#![cfg(all(feature = "hyper", feature = "reqwest"))]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "support/wire/mod.rs"]
mod wire;

use std::time::Duration;

use http::{Method, Version};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use tower_http_retry::{Error, Evidence, Failure, FailureKind, HyperService, ReqwestService};
use wire::row::{Reads, Row, ask, ask_all, layer, request};
use wire::via::{Below, Via, below, hyper_builder, reqwest_builder};
use wire::{Server, nobody};

const fn not_sent(kind: FailureKind) -> [Failure; 1] {
    [Failure::not_sent(kind)]
}

fn nowhere() -> String {
    format!("http://{}/orders", nobody())
}

#[tokio::test]
async fn a1_refused_is_not_sent() {
    let row = Row::new("A1", Reads::Nothing, &not_sent(FailureKind::Connect));
    for via in Via::ALL {
        row.at(|| via.service(), &nowhere()).await;
    }
}

#[tokio::test]
async fn a2_a_name_that_does_not_resolve_is_not_sent() {
    let row = Row::new("A2", Reads::Nothing, &not_sent(FailureKind::Dns));
    for via in Via::ALL {
        row.at(|| via.service(), "http://nothing.invalid/orders")
            .await;
    }
}

/// A listener whose queue is full: nobody refuses, nobody accepts.
struct Full {
    addr: std::net::SocketAddr,
    _listener: tokio::net::TcpListener,
    _queue: Vec<tokio::net::TcpStream>,
}

impl Full {
    async fn new() -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let addr = listener.local_addr().unwrap();
        let mut queue = Vec::new();
        loop {
            let connect = tokio::net::TcpStream::connect(addr);
            match tokio::time::timeout(Duration::from_millis(100), connect).await {
                Ok(stream) => queue.push(stream.unwrap()),
                Err(_) => break,
            }
            assert!(queue.len() < 100, "the queue never fills");
        }
        Self {
            addr,
            _listener: listener,
            _queue: queue,
        }
    }

    fn url(&self) -> String {
        format!("http://{}/orders", self.addr)
    }
}

fn hyper_connect_timeout() -> Below {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(Duration::from_millis(50)));
    below(HyperService::new(hyper_builder().build(connector)))
}

fn reqwest_connect_timeout() -> Below {
    let builder = reqwest_builder().connect_timeout(Duration::from_millis(50));
    below(ReqwestService::build(builder).unwrap())
}

#[tokio::test]
async fn a3_a_connect_timeout_is_not_sent() {
    let full = Full::new().await;
    let row = Row::new("A3", Reads::Nothing, &not_sent(FailureKind::ConnectTimeout));
    row.at(hyper_connect_timeout, &full.url()).await;
    row.at(reqwest_connect_timeout, &full.url()).await;
}

/// The error is the same as after the whole request was sent (B11); the witness tells.
#[tokio::test]
async fn a3t_a_total_timeout_while_connecting_is_not_sent() {
    let builder = || reqwest_builder().timeout(Duration::from_millis(50));
    times_out("A3t", || ReqwestService::build(builder()).unwrap()).await;
}

#[tokio::test]
async fn a3r_a_read_timeout_while_connecting_is_not_sent() {
    let builder = || reqwest_builder().read_timeout(Duration::from_millis(50));
    times_out("A3r", || ReqwestService::build(builder()).unwrap()).await;
}

async fn times_out(id: &'static str, client: impl Fn() -> ReqwestService) {
    let full = Full::new().await;
    let row = Row::new(id, Reads::Nothing, &not_sent(FailureKind::ResponseTimeout));
    row.at(|| below(client()), &full.url()).await;
}

/// No error of the client exists; the witness tells.
#[tokio::test]
async fn a3o_an_attempt_timeout_while_connecting_is_not_sent() {
    let full = Full::new().await;
    for via in Via::ALL {
        for method in [Method::POST, Method::GET] {
            let layer = layer(2).with_attempt_timeout(Duration::from_millis(50));
            let request = request(&method, &full.url());
            let error = ask(&layer, via.service(), request).await.unwrap_err();
            assert!(matches!(error, Error::Failed(_)), "{error}");
            let expected = Failure::not_sent(FailureKind::ResponseTimeout);
            for attempt in error.report().attempts() {
                assert_eq!(attempt.failure(), Some(&expected));
            }
            assert_eq!(error.report().attempts().len(), 2);
            assert_eq!(layer.contradictions(), 0);
        }
    }
}

/// The same with tower's timeout between the layer and the client: still the witness.
#[tokio::test]
async fn a3o_a_tower_timeout_while_connecting_is_not_sent() {
    let full = Full::new().await;
    let row = Row::new(
        "A3o",
        Reads::Nothing,
        &not_sent(FailureKind::ResponseTimeout),
    );
    for via in Via::ALL {
        let timed = || {
            below(tower::timeout::Timeout::new(
                via.service(),
                Duration::from_millis(50),
            ))
        };
        row.at(timed, &full.url()).await;
    }
}

#[tokio::test]
async fn a6_a_scheme_that_the_client_does_not_speak_is_not_sent() {
    let row = Row::new("A6", Reads::Nothing, &not_sent(FailureKind::InvalidRequest));
    for via in Via::ALL {
        row.at(|| via.service(), "ftp://127.0.0.1/orders").await;
    }
}

#[tokio::test]
async fn a6r_a_relative_uri_is_not_sent() {
    let row = Row::new(
        "A6r",
        Reads::Nothing,
        &not_sent(FailureKind::InvalidRequest),
    );
    for via in Via::ALL {
        row.at(|| via.service(), "/orders").await;
    }
}

/// reqwest has its own idea of a URL: what `http` takes may still be refused.
#[tokio::test]
async fn a6u_a_uri_that_reqwest_refuses_is_not_sent() {
    let row = Row::new(
        "A6u",
        Reads::Nothing,
        &not_sent(FailureKind::InvalidRequest),
    );
    for via in [Via::ReqwestH1, Via::ReqwestH2] {
        row.at(|| via.service(), "http://127.0.0.1:70000/").await;
    }
}

async fn versioned(id: &str, via: Via, version: Version, url: &str, kind: FailureKind) {
    for method in [Method::POST, Method::GET] {
        let layer = layer(2);
        let mut request = request(&method, url);
        *request.version_mut() = version;
        let error = ask(&layer, via.service(), request).await.unwrap_err();
        let told = format!("{id} {via:?} {error}");
        assert!(matches!(error, Error::Failed(_)), "{told}");
        assert_eq!(error.failure(), Some(&Failure::not_sent(kind)), "{told}");
        assert_eq!(error.report().attempts().len(), 1, "permanent: {told}");
        assert_eq!(layer.contradictions(), 0);
    }
}

#[tokio::test]
async fn a7_http2_on_an_http1_connection_is_not_sent() {
    for via in Via::H1 {
        let server = Server::start(|mut peer, _| async move { peer.drain().await });
        let url = server.url();
        versioned("A7", via, Version::HTTP_2, &url, FailureKind::Protocol).await;
        let entry = server.ledger.now();
        assert_eq!(
            (entry.connections, entry.bytes),
            (2, 0),
            "opened, and nothing written"
        );
    }
}

#[tokio::test]
async fn a7b_versions_that_the_client_does_not_speak_are_not_sent() {
    for version in [Version::HTTP_3, Version::HTTP_09] {
        for via in Via::ALL {
            versioned("A7b", via, version, &nowhere(), FailureKind::Protocol).await;
        }
    }
}

/// Over a proxy, to an origin that takes a tunnel.
fn tunnelled(proxy: &Server) -> [(Below, &'static str); 2] {
    let proxy = format!("http://{}", proxy.addr);
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let tunnel = Tunnel::new(proxy.parse().unwrap(), tcp);
    let hyper = HyperService::new(hyper_builder().build(tunnel));
    let builder = reqwest_builder().proxy(reqwest::Proxy::all(proxy).unwrap());
    let reqwest = ReqwestService::build(builder).unwrap();
    [
        (below(hyper), "http://shop.example:80/"),
        (below(reqwest), "https://shop.example/"),
    ]
}

/// Whatever the proxy says, the request never left for the origin. One that wants credentials will
/// say so again.
#[tokio::test]
async fn a10_a_tunnel_that_the_proxy_refuses_is_not_sent() {
    for (refusal, kind) in [
        ("HTTP/1.1 502 Bad Gateway\r\n\r\n", FailureKind::Connect),
        ("HTTP/1.1 403 Forbidden\r\n\r\n", FailureKind::Connect),
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            FailureKind::Rejected,
        ),
        ("HTTP/1.1 30", FailureKind::Connect),
        ("nonsense\r\n\r\n", FailureKind::Connect),
        ("", FailureKind::Connect),
    ] {
        for client in 0..2 {
            for method in [Method::POST, Method::GET] {
                let server = Server::start(move |mut peer, _| async move {
                    let head = peer.head().await.unwrap();
                    assert!(head.text.starts_with("CONNECT "), "{}", head.text);
                    peer.write(refusal).await;
                    peer.fin().await;
                });
                let (below, url) = tunnelled(&server)[client].clone();
                let layer = layer(2);
                let error = ask(&layer, below, request(&method, url)).await.unwrap_err();
                let mut entry = server.ledger.now();
                let attempts = error.report().attempts().len();
                assert_eq!(attempts, if kind.is_permanent() { 1 } else { 2 });
                assert_eq!((entry.heads, entry.body), (attempts, 0), "only CONNECT");
                entry.heads = 0;
                let place = format!("A10 {refusal:?} {url} {method}");
                let row = Row::new("A10", Reads::Nothing, &not_sent(kind));
                row.check(&place, &method, &error, &entry);
                assert_eq!(layer.contradictions(), 0);
            }
        }
    }
}

/// Without a tunnel the proxy answers in the origin's place, and is judged like it.
#[tokio::test]
async fn a10h_what_a_proxy_says_of_plain_http_is_an_answer() {
    for (method, status, attempts) in [
        (Method::GET, 502, 2),
        (Method::POST, 502, 1),
        (Method::GET, 407, 1),
        (Method::POST, 407, 1),
    ] {
        let server = Server::start(move |mut peer, _| async move {
            while let Some(head) = peer.request().await {
                assert!(head.text.contains(" http://shop.example/ HTTP/1.1"));
                peer.write(format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\n\r\n"))
                    .await;
            }
        });
        let proxy = reqwest::Proxy::http(format!("http://{}", server.addr)).unwrap();
        let below = below(ReqwestService::build(reqwest_builder().proxy(proxy)).unwrap());
        let request = request(&method, "http://shop.example/");
        let answer = ask(&layer(2), below, request).await;
        // A 502 may stand for an origin that executed it.
        if status == 502 && method == Method::POST {
            let error = answer.unwrap_err();
            assert_eq!(error.evidence(), Evidence::ResponseReceived, "{error}");
            assert!(error.is_ambiguous(), "{error}");
        } else {
            assert_eq!(answer.unwrap().status(), status);
        }
        assert_eq!(server.ledger.now().whole, attempts, "{method} {status}");
    }
}

/// Only the request that led the connect gets its error; the others get one without a cause.
#[tokio::test]
async fn f3_when_the_shared_connect_fails_every_request_is_not_sent() {
    for via in Via::H2 {
        let full = Full::new().await;
        let layer = layer(1);
        let below = if via.is_hyper() {
            let mut connector = HttpConnector::new();
            connector.set_connect_timeout(Some(Duration::from_millis(100)));
            let client = hyper_builder().http2_only(true).build(connector);
            below(HyperService::new(client))
        } else {
            let builder = reqwest_builder()
                .connect_timeout(Duration::from_millis(100))
                .http2_prior_knowledge();
            below(ReqwestService::build(builder).unwrap())
        };
        let posts = (0..5).map(|_| request(&Method::POST, &full.url()));
        for answer in ask_all(&layer, &below, posts).await {
            let error = answer.unwrap_err();
            assert!(matches!(error, Error::Failed(_)), "{error}");
            assert_eq!(error.evidence(), Evidence::NotSent, "{error}");
        }
        assert_eq!(layer.contradictions(), 0);
    }
}

/// The error is the one of B3, where the server did read the request.
#[tokio::test]
async fn b1_accepted_and_closed_at_once_is_not_sent_where_nothing_was_written() {
    let outcomes = [
        Failure::not_sent(FailureKind::Closed),
        Failure::sent_no_response(FailureKind::Closed),
        Failure::sent_no_response(FailureKind::Reset),
        Failure::not_sent(FailureKind::Reset),
    ];
    let row = Row::new("B1", Reads::Varies, &outcomes);
    row.over(&Via::H1, || {
        Server::start(|peer, _| async move { peer.fin().await })
    })
    .await;
}

#[tokio::test]
async fn b2_accepted_and_reset_at_once_is_not_sent_where_nothing_was_written() {
    let outcomes = [
        Failure::not_sent(FailureKind::Connect),
        Failure::not_sent(FailureKind::Reset),
        Failure::sent_no_response(FailureKind::Reset),
        Failure::sent_no_response(FailureKind::Closed),
    ];
    let row = Row::new("B2", Reads::Nothing, &outcomes);
    row.over(&Via::H1, || {
        Server::start(|peer, _| async move { peer.rst() })
    })
    .await;
}
