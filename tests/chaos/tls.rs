//! TLS before a server of either protocol, with a handshake that fails on purpose.

use std::sync::Arc;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::arena::Arena;
use crate::fault::End;
use crate::serve::{Link, Reset, finish};
use crate::{h1, h2};

/// A server of each protocol behind TLS, and what their clients trust.
pub(crate) fn add_to(arena: &mut Arena) -> Trust {
    let both = [false, true].map(Tls::new);
    for (tls, http2) in both.clone().into_iter().zip([false, true]) {
        let ledger = Arc::clone(&arena.ledger);
        arena.add("https", http2, move |link, reset, mut random| {
            let (tls, ledger) = (tls.clone(), Arc::clone(&ledger));
            async move {
                let Some(stream) = tls.accept(link, &reset, &mut random).await else {
                    return;
                };
                if http2 {
                    h2::connection(stream, reset, ledger, random).await;
                } else {
                    h1::connection(stream, reset, ledger, random).await;
                }
            }
        });
    }
    let mut roots = RootCertStore::empty();
    for tls in both {
        roots.add(tls.trusted).unwrap();
    }
    Trust(roots)
}

/// The certificates of the good ones.
#[derive(Clone)]
pub(crate) struct Trust(RootCertStore);

impl Trust {
    /// Of a client of rustls.
    pub(crate) fn config(&self) -> ClientConfig {
        ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.0.clone())
            .with_no_client_auth()
    }

    /// Of a client of hyper, with TLS and without.
    pub(crate) fn connector(&self, http2: bool) -> HttpsConnector<HttpConnector> {
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.enforce_http(false);
        let builder = HttpsConnectorBuilder::new()
            .with_tls_config(self.config())
            .https_or_http();
        if http2 {
            builder.enable_http2().wrap_connector(http)
        } else {
            builder.enable_http1().wrap_connector(http)
        }
    }
}

/// The certificates of one server.
#[derive(Clone)]
struct Tls {
    good: TlsAcceptor,
    /// With a certificate that no client trusts.
    stranger: TlsAcceptor,
    trusted: CertificateDer<'static>,
}

impl Tls {
    fn new(http2: bool) -> Self {
        let (good, trusted) = acceptor(http2);
        let (stranger, _) = acceptor(http2);
        Self {
            good,
            stranger,
            trusted,
        }
    }

    /// `None`: it failed, or was made to.
    async fn accept(
        &self,
        mut link: Link,
        reset: &Reset,
        random: &mut StdRng,
    ) -> Option<TlsStream<Link>> {
        let end = [End::Fin, End::Rst, End::Hang][random.random_range(0..3)];
        match random.random_range(0..40) {
            0 => finish(link, reset, end, random).await,
            1 => {
                // Somewhere within the client's hello.
                let mut hello = vec![0; random.random_range(1..300)];
                let _ = link.read_exact(&mut hello).await;
                finish(link, reset, end, random).await;
            }
            2 => {
                let mut hello = [0; 4096];
                let _ = link.read(&mut hello).await;
                // A fatal alert, handshake_failure.
                let _ = link.write_all(&[21, 3, 3, 0, 2, 2, 40]).await;
                finish(link, reset, End::Fin, random).await;
            }
            3 => {
                let mut garbage = [0; 40];
                random.fill_bytes(&mut garbage);
                let _ = link.write_all(&garbage).await;
                finish(link, reset, end, random).await;
            }
            4 => drop(self.stranger.accept(link).await),
            5 => {
                // All is well, and then nothing more: the request may be on its way.
                let stream = self.good.accept(link).await.ok()?;
                finish(stream, reset, end, random).await;
            }
            _ => return self.good.accept(link).await.ok(),
        }
        None
    }
}

fn acceptor(http2: bool) -> (TlsAcceptor, CertificateDer<'static>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(["127.0.0.1".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap()
        .der()
        .clone();
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.clone()],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
        .unwrap();
    config.alpn_protocols = vec![if http2 { &b"h2"[..] } else { b"http/1.1" }.to_vec()];
    (TlsAcceptor::from(Arc::new(config)), certificate)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
