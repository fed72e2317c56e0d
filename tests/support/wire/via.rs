//! The clients under test, as services of one type.

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};
use tower_http_retry::{BoxError, HyperService, ReplayBody, ReqwestService};

pub(crate) type Below = BoxCloneSyncService<Request<ReplayBody>, Response<Down>, BoxError>;
pub(crate) type Down = UnsyncBoxBody<Bytes, BoxError>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    HyperH1,
    HyperH2,
    ReqwestH1,
    ReqwestH2,
}

impl Via {
    pub(crate) const H1: [Self; 2] = [Self::HyperH1, Self::ReqwestH1];
    pub(crate) const H2: [Self; 2] = [Self::HyperH2, Self::ReqwestH2];
    pub(crate) const ALL: [Self; 4] = [
        Self::HyperH1,
        Self::ReqwestH1,
        Self::HyperH2,
        Self::ReqwestH2,
    ];

    pub(crate) fn is_hyper(self) -> bool {
        matches!(self, Self::HyperH1 | Self::HyperH2)
    }

    /// A new client, with nothing pooled.
    pub(crate) fn service(self) -> Below {
        match self {
            Self::HyperH1 => below(HyperService::new(hyper_builder().build_http())),
            Self::HyperH2 => below(HyperService::new(
                hyper_builder().http2_only(true).build_http(),
            )),
            Self::ReqwestH1 => below(ReqwestService::build(reqwest_builder()).unwrap()),
            Self::ReqwestH2 => {
                below(ReqwestService::build(reqwest_builder().http2_prior_knowledge()).unwrap())
            }
        }
    }
}

pub(crate) fn hyper_builder() -> legacy::Builder {
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder.timer(TokioTimer::new());
    builder
}

pub(crate) fn reqwest_builder() -> reqwest::ClientBuilder {
    // The tests' reqwest comes without a provider of cryptography, and wants one even where there
    // is no TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tls_certs_only([])
}

/// Any of them as one type. The outermost error stays what it is.
pub(crate) fn below<S, B>(service: S) -> Below
where
    S: Service<Request<ReplayBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    BoxCloneSyncService::new(
        service
            .map_err(Into::into)
            .map_response(|response: Response<B>| {
                response.map(|body| body.map_err(Into::into).boxed_unsync())
            }),
    )
}
