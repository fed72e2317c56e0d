//! Evidence A4 and A5: TLS, with rustls.
//!
//! Of the handshake nothing is HTTP, so its failures are `NotSent`; and what will fail again is
//! permanent, also where a late alert leaves the evidence open.
#![cfg(all(feature = "hyper", feature = "reqwest", feature = "rustls"))]
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "support/wire/mod.rs"]
mod wire;

use std::sync::Arc;

use http::Method;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::io::DuplexStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tower_http_retry::{Evidence, Failure, FailureKind, HyperService, ReqwestService};
use wire::clock::settle;
use wire::memory::{InMemory, Sees, over};
use wire::row::{Reads, Row, ask, layer, read, request};
use wire::via::{Below, below, hyper_builder, reqwest_builder};
use wire::{Peer, Server, h1};

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

/// Clients that trust this one.
fn clients(
    trusts: &Identity,
    versions: &[&'static SupportedProtocolVersion],
) -> [(&'static str, Below); 2] {
    let config = client_config(trusts, versions);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(config.clone())
        .https_or_http()
        .enable_http1()
        .build();
    let hyper = HyperService::new(hyper_builder().build(connector));
    let builder = reqwest_builder().tls_backend_preconfigured(config);
    let reqwest = ReqwestService::build(builder).unwrap();
    [("hyper", below(hyper)), ("reqwest", below(reqwest))]
}

fn client_config(
    trusts: &Identity,
    versions: &[&'static SupportedProtocolVersion],
) -> ClientConfig {
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots(trusts))
        .with_no_client_auth()
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

/// Over each client.
async fn fails(
    id: &'static str,
    clients: [(&'static str, Below); 2],
    server: Server,
    outcomes: &[Failure],
) {
    let row = Row::new(id, Reads::Nothing, outcomes);
    for (name, client) in clients {
        for method in [Method::POST, Method::GET] {
            let layer = layer(2);
            let request = request(&method, &url(&server));
            let error = ask(&layer, client.clone(), request).await.unwrap_err();
            settle().await;
            let place = format!("{id} {name} {method}");
            row.check(&place, &method, &error, &server.ledger.now());
            assert_eq!(layer.contradictions(), 0);
        }
    }
}

const CERTIFICATE: [Failure; 1] = [Failure::not_sent(FailureKind::Certificate)];
const PROTOCOL: [Failure; 1] = [Failure::not_sent(FailureKind::Protocol)];
const CUT: [Failure; 1] = [Failure::not_sent(FailureKind::Tls)];

#[tokio::test]
async fn a4_a_good_certificate_is_answered() {
    for versions in [V12, V13] {
        let good = identity("localhost", false);
        for (_, client) in clients(&good, BOTH) {
            let server = server(config(&good, versions, None));
            let request = request(&Method::POST, &url(&server));
            let response = ask(&layer(1), client, request).await.unwrap();
            assert_eq!(read(response).await.unwrap(), "ok");
        }
    }
}

#[tokio::test]
async fn a4a_an_untrusted_certificate_is_not_sent_and_permanent() {
    let (good, stranger) = (identity("localhost", false), identity("localhost", false));
    let server = server(config(&stranger, BOTH, None));
    fails("A4a", clients(&good, BOTH), server, &CERTIFICATE).await;
}

#[tokio::test]
async fn a4a_an_expired_certificate_is_not_sent_and_permanent() {
    let expired = identity("localhost", true);
    let server = server(config(&expired, BOTH, None));
    fails("A4a", clients(&expired, BOTH), server, &CERTIFICATE).await;
}

#[tokio::test]
async fn a4b_a_certificate_for_another_host_is_not_sent_and_permanent() {
    let other = identity("elsewhere.example", false);
    let server = server(config(&other, BOTH, None));
    fails("A4b", clients(&other, BOTH), server, &CERTIFICATE).await;
}

#[tokio::test]
async fn a4c_a_handshake_that_is_closed_is_not_sent() {
    let good = identity("localhost", false);
    let server = Server::start(|mut peer, _| async move {
        let mut hello = [0; 4096];
        peer.read(&mut hello).await;
        peer.fin().await;
    });
    fails("A4c", clients(&good, BOTH), server, &CUT).await;
}

#[tokio::test]
async fn a4d_a_handshake_that_is_reset_is_not_sent() {
    let good = identity("localhost", false);
    let server = Server::start(|mut peer, _| async move {
        let mut hello = [0; 4096];
        peer.read(&mut hello).await;
        peer.rst();
    });
    fails("A4d", clients(&good, BOTH), server, &CUT).await;
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
    fails("A4e", clients(&good, BOTH), server, &PROTOCOL).await;
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
    fails("A4f", clients(&good, BOTH), server, &PROTOCOL).await;
}

#[tokio::test]
async fn a4g_no_common_version_is_not_sent_and_permanent() {
    let good = identity("localhost", false);
    let server = server(config(&good, V12, None));
    fails("A4g", clients(&good, V13), server, &PROTOCOL).await;
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
    for _ in 0..15 {
        let server = server(tls.clone());
        fails("A5", clients(&good, V13), server, &LATE).await;
    }
}

/// A connection in memory whose handshake is done, and the server's alert is there. With the server's
/// end, which stays open.
async fn alerted() -> (InMemory<TlsStream<DuplexStream>>, impl Sized) {
    let good = identity("localhost", false);
    let (near, far) = tokio::io::duplex(64 * 1024);
    let connector = TlsConnector::from(Arc::new(client_config(&good, V13)));
    let localhost = "localhost".try_into().unwrap();
    let (near, far) = tokio::join!(
        connector.connect(localhost, near),
        config(&good, V13, Some(&good)).accept(far).into_fallible(),
    );
    let (error, far) = far.map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("no certificates"), "{error}");
    (InMemory::new(near.unwrap()), far)
}

/// Each shape on purpose, with the adapter and without: there the errors' types prove the same.
#[tokio::test]
async fn a5_a_missing_client_certificate_is_not_sent_unless_the_request_was_on_its_way() {
    for (sees, evidence) in [
        // The connection's task finds the alert before it has a request: no connection in the error.
        (Sees::AtOnce, Evidence::NotSent),
        // It finds the alert and the request, which it hands back.
        (Sees::AtTheSecondLook, Evidence::NotSent),
        // It has written the request before.
        (Sees::OnceItWrote, Evidence::SentNoResponse),
    ] {
        for adapter in [true, false] {
            for method in [Method::POST, Method::GET] {
                let (io, _server) = alerted().await;
                io.sight().set(sees);
                let mut builder = hyper_builder();
                builder.retry_canceled_requests(false);
                let client = over(&builder, [io]);
                let client = if adapter {
                    below(HyperService::new(client))
                } else {
                    below(client)
                };
                let layer = layer(2);
                let request = request(&method, "http://localhost/orders");
                let error = ask(&layer, client, request).await.unwrap_err();
                let told = format!("{sees:?} adapter: {adapter} {method}: {error:?}");
                let source = std::error::Error::source(&error).unwrap();
                let source: &legacy::Error = source.downcast_ref().unwrap();
                let connected = source.connect_info().is_some();
                assert_eq!(connected, sees != Sees::AtOnce, "{told}");
                let failure = error.failure().unwrap();
                assert_eq!(failure.kind(), FailureKind::Certificate, "{told}");
                assert_eq!(failure.evidence(), evidence, "{told}");
                assert_eq!(error.report().attempts().len(), 1, "permanent: {told}");
                let sent = evidence != Evidence::NotSent;
                assert_eq!(
                    error.is_ambiguous(),
                    sent && method == Method::POST,
                    "{told}"
                );
                assert_eq!(layer.contradictions(), 0);
            }
        }
    }
}

#[tokio::test]
async fn a5b_a_missing_client_certificate_is_not_sent_with_tls_1_2() {
    let good = identity("localhost", false);
    let server = server(config(&good, V12, Some(&good)));
    fails("A5b", clients(&good, V12), server, &CERTIFICATE).await;
}
