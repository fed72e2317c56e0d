//! Evidence A4 and A5: TLS, with rustls.
//!
//! Of the handshake nothing is HTTP, so its failures are `NotSent`; and what will fail again is
//! permanent, also where a late alert leaves the evidence open.
#![cfg(all(feature = "hyper", feature = "reqwest", feature = "rustls"))]
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "support/wire/mod.rs"]
mod wire;

use std::sync::Arc;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::TlsAcceptor;
use tower_http_retry::{Evidence, Failure, FailureKind, HyperService, ReplayBody};
use wire::row::{Reads, Row, ask, layer, read, request};
use wire::via::{Below, below, hyper_builder};
use wire::{Peer, Server, h1, pause};

const V12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
const V13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
const BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12, &rustls::version::TLS13];

struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

/// Self-signed, for this name, valid until 2100 or no longer.
fn identity(name: &str, expired: bool) -> Identity {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(if expired { 2001 } else { 2100 }, 1, 1);
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    Identity {
        certificate: params.self_signed(&key).unwrap().der().clone(),
        key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(of: &Identity) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(of.certificate.clone()).unwrap();
    roots
}

/// A client that trusts this one.
fn client(trusts: &Identity, versions: &[&'static SupportedProtocolVersion]) -> Below {
    below(HyperService::new(bare(trusts, versions)))
}

type Connector = HttpsConnector<HttpConnector>;

fn bare(
    trusts: &Identity,
    versions: &[&'static SupportedProtocolVersion],
) -> Client<Connector, ReplayBody> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots(trusts))
        .with_no_client_auth();
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        .enable_http1()
        .build();
    hyper_builder().build(connector)
}

fn config(
    who: &Identity,
    versions: &[&'static SupportedProtocolVersion],
    wants: Option<&Identity>,
) -> TlsAcceptor {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .unwrap();
    let builder = match wants {
        Some(client) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots(client).into(), provider());
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
        None => builder.with_no_client_auth(),
    };
    let config = builder
        .with_single_cert(vec![who.certificate.clone()], who.key.clone_key())
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Answers over TLS, where the client comes so far.
fn server(tls: TlsAcceptor) -> Server {
    Server::start(move |peer, _| {
        let tls = tls.clone();
        async move {
            let ledger = peer.ledger;
            if let Ok(io) = tls.accept(peer.io).await {
                let mut peer = Peer { io, ledger };
                if peer.request().await.is_some() {
                    peer.write(h1::OK).await;
                    peer.drain().await;
                }
            }
        }
    })
}

fn url(server: &Server) -> String {
    format!("https://localhost:{}/orders", server.addr.port())
}

async fn fails(id: &'static str, client: Below, server: Server, outcomes: &[Failure]) {
    let row = Row::new(id, Reads::Nothing, outcomes);
    for method in [http::Method::POST, http::Method::GET] {
        let layer = layer(2);
        let request = request(&method, &url(&server));
        let error = ask(&layer, client.clone(), request).await.unwrap_err();
        pause(20).await;
        row.check(id, &method, &error, &server.ledger.now());
        assert_eq!(layer.contradictions(), 0);
    }
}

const CERTIFICATE: [Failure; 1] = [Failure::not_sent(FailureKind::Certificate)];
const PROTOCOL: [Failure; 1] = [Failure::not_sent(FailureKind::Protocol)];
const CUT: [Failure; 1] = [Failure::not_sent(FailureKind::Tls)];

#[tokio::test]
async fn a4_a_good_certificate_is_answered() {
    for versions in [V12, V13] {
        let good = identity("localhost", false);
        let server = server(config(&good, versions, None));
        let request = request(&http::Method::POST, &url(&server));
        let response = ask(&layer(1), client(&good, BOTH), request).await.unwrap();
        assert_eq!(read(response).await.unwrap(), "ok");
    }
}

#[tokio::test]
async fn a4a_an_untrusted_certificate_is_not_sent_and_permanent() {
    let (good, stranger) = (identity("localhost", false), identity("localhost", false));
    let server = server(config(&stranger, BOTH, None));
    fails("A4a", client(&good, BOTH), server, &CERTIFICATE).await;
}

#[tokio::test]
async fn a4a_an_expired_certificate_is_not_sent_and_permanent() {
    let expired = identity("localhost", true);
    let server = server(config(&expired, BOTH, None));
    fails("A4a", client(&expired, BOTH), server, &CERTIFICATE).await;
}

#[tokio::test]
async fn a4b_a_certificate_for_another_host_is_not_sent_and_permanent() {
    let other = identity("elsewhere.example", false);
    let server = server(config(&other, BOTH, None));
    fails("A4b", client(&other, BOTH), server, &CERTIFICATE).await;
}

#[tokio::test]
async fn a4c_a_handshake_that_is_closed_is_not_sent() {
    let good = identity("localhost", false);
    let server = Server::start(|mut peer, _| async move {
        let mut hello = [0; 4096];
        peer.read(&mut hello).await;
        peer.fin().await;
    });
    fails("A4c", client(&good, BOTH), server, &CUT).await;
}

#[tokio::test]
async fn a4d_a_handshake_that_is_reset_is_not_sent() {
    let good = identity("localhost", false);
    let server = Server::start(|mut peer, _| async move {
        let mut hello = [0; 4096];
        peer.read(&mut hello).await;
        peer.rst();
    });
    fails("A4d", client(&good, BOTH), server, &CUT).await;
}

#[tokio::test]
async fn a4e_a_plaintext_server_is_not_sent_and_permanent() {
    let good = identity("localhost", false);
    let server = Server::start(|mut peer, _| async move {
        let mut hello = [0; 4096];
        peer.read(&mut hello).await;
        peer.write("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
            .await;
        peer.fin().await;
    });
    fails("A4e", client(&good, BOTH), server, &PROTOCOL).await;
}

/// A fatal alert, handshake_failure, in answer to the hello.
#[tokio::test]
async fn a4f_a_handshake_alert_is_not_sent_and_permanent() {
    let good = identity("localhost", false);
    let server = Server::start(|mut peer, _| async move {
        let mut hello = [0; 4096];
        peer.read(&mut hello).await;
        peer.write([21, 3, 3, 0, 2, 2, 40]).await;
        peer.fin().await;
    });
    fails("A4f", client(&good, BOTH), server, &PROTOCOL).await;
}

#[tokio::test]
async fn a4g_no_common_version_is_not_sent_and_permanent() {
    let good = identity("localhost", false);
    let server = server(config(&good, V12, None));
    fails("A4g", client(&good, V13), server, &PROTOCOL).await;
}

/// An alert after the handshake. Rarely the connection is gone before anybody asks why.
const LATE: [Failure; 3] = [
    Failure::not_sent(FailureKind::Certificate),
    Failure::sent_no_response(FailureKind::Certificate),
    Failure::not_sent(FailureKind::Closed),
];

/// With TLS 1.3 the alert arrives after the handshake is done, and the same failure has several
/// shapes. Only one of them may find the request on its way, encrypted and unread.
#[tokio::test]
async fn a5_a_missing_client_certificate_is_permanent_in_every_shape() {
    let good = identity("localhost", false);
    let tls = config(&good, V13, Some(&good));
    for _ in 0..30 {
        let server = server(tls.clone());
        fails("A5", client(&good, V13), server, &LATE).await;
    }
}

/// Without the adapter, by an error that has no connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a5_a_missing_client_certificate_is_not_sent_by_the_client_alone() {
    let good = identity("localhost", false);
    let tls = config(&good, V13, Some(&good));
    let mut proven = 0;
    for _ in 0..30 {
        let server = server(tls.clone());
        let layer = layer(1);
        let post = request(&http::Method::POST, &url(&server));
        let error = ask(&layer, below(bare(&good, V13)), post)
            .await
            .unwrap_err();
        proven += usize::from(error.evidence() == Evidence::NotSent);
        assert!(LATE.contains(error.failure().unwrap()), "{error:?}");
        assert_eq!(server.ledger.now().heads, 0);
        assert_eq!(layer.contradictions(), 0);
    }
    println!("A5: proven without the adapter: {proven} of 30");
    assert!(proven > 0);
}

#[tokio::test]
async fn a5b_a_missing_client_certificate_is_not_sent_with_tls_1_2() {
    let good = identity("localhost", false);
    let server = server(config(&good, V12, Some(&good)));
    fails("A5b", client(&good, V12), server, &CERTIFICATE).await;
}
