//! Uploads over real sockets: an upstream that records what it read, and a client for it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
#[cfg(feature = "hyper")]
use tower_http_retry::HyperService;
use tower_http_retry::{Backoff, ReplayBody, RetryLayer, StandardPolicy};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

pub(crate) const PROTOCOLS: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

/// What the upstream does with an attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Serve {
    /// Reads the body, then answers.
    Whole(u16),
    /// Answers at once, and goes on reading.
    Early(u16),
    /// Answers at once, and lets go of the body.
    Unread(u16),
}

/// What the upstream read of one attempt.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) head: request::Parts,
    /// None: the client broke off.
    pub(crate) body: Option<Bytes>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Upload {
    pub(crate) fn length(&self) -> Option<&str> {
        self.head
            .headers
            .get("content-length")
            .map(|length| length.to_str().unwrap())
    }
}

pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    uploads: mpsc::UnboundedReceiver<Upload>,
}

impl Upstream {
    pub(crate) async fn new(protocol: Protocol, serves: impl IntoIterator<Item = Serve>) -> Self {
        let serves: VecDeque<Serve> = serves.into_iter().collect();
        let serves = Arc::new(Mutex::new(serves));
        let (sender, uploads) = mpsc::unbounded_channel();
        let address = listen(protocol, move |request: Request<Incoming>| {
            let serve = serves
                .lock()
                .unwrap()
                .pop_front()
                .expect("the script is over");
            let sender = sender.clone();
            async move {
                let (head, body) = request.into_parts();
                let status = match serve {
                    Serve::Whole(status) => {
                        sender.send(read(head, body).await).ok();
                        status
                    }
                    Serve::Early(status) => {
                        tokio::spawn(async move { sender.send(read(head, body).await).ok() });
                        status
                    }
                    Serve::Unread(status) => {
                        sender
                            .send(Upload {
                                head,
                                body: None,
                                trailers: None,
                            })
                            .ok();
                        status
                    }
                };
                Response::builder()
                    .status(status)
                    .body(Full::default())
                    .unwrap()
            }
        });
        Self {
            address: address.await,
            uploads,
        }
    }

    /// The next attempt that was read, to its end or to where it broke off.
    pub(crate) async fn upload(&mut self) -> Upload {
        let upload = tokio::time::timeout(Duration::from_secs(20), self.uploads.recv());
        upload.await.expect("an attempt in time").unwrap()
    }

    pub(crate) fn request(
        &self,
        method: Method,
        body: impl Into<ReplayBody>,
    ) -> Request<ReplayBody> {
        Request::builder()
            .method(method)
            .uri(format!("http://{}/upload", self.address))
            .body(body.into())
            .unwrap()
    }
}

async fn read(head: request::Parts, body: Incoming) -> Upload {
    match body.collect().await {
        Ok(all) => {
            let trailers = all.trailers().cloned();
            Upload {
                head,
                body: Some(all.to_bytes()),
                trailers,
            }
        }
        Err(_) => Upload {
            head,
            body: None,
            trailers: None,
        },
    }
}

/// Serves every connection with `answer`; the address.
pub(crate) async fn listen<F, Fut>(protocol: Protocol, answer: F) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            let answer = answer.clone();
            let service = service_fn(move |request| {
                let answer = answer(request);
                async { Ok::<_, Infallible>(answer.await) }
            });
            let stream = TokioIo::new(stream);
            tokio::spawn(async move {
                match protocol {
                    Protocol::Http1 => {
                        let server = hyper::server::conn::http1::Builder::new();
                        server.serve_connection(stream, service).await.ok()
                    }
                    Protocol::Http2 => {
                        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        server.serve_connection(stream, service).await.ok()
                    }
                }
            });
        }
    });
    address
}

/// hyper's client, where there is one through the adapter that says so.
#[cfg(feature = "hyper")]
pub(crate) fn client(protocol: Protocol) -> HyperService<HttpConnector> {
    HyperService::new(client_over(protocol, connector()))
}

#[cfg(not(feature = "hyper"))]
pub(crate) fn client(protocol: Protocol) -> Client<HttpConnector, ReplayBody> {
    client_over(protocol, connector())
}

/// Without it, small writes wait for acknowledgements that are delayed.
fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector
}

pub(crate) fn client_over<C>(protocol: Protocol, connector: C) -> Client<C, ReplayBody>
where
    C: Connect + Clone,
{
    Client::builder(TokioExecutor::new())
        .http2_only(protocol == Protocol::Http2)
        .build(connector)
}

/// Four attempts, without a pause between them.
pub(crate) fn at_once() -> RetryLayer {
    let none = Backoff::exponential(Duration::ZERO, Duration::ZERO);
    let policy = StandardPolicy::builder()
        .retries(3)
        .backoff(none.with_throttled_base(Duration::ZERO))
        .build();
    RetryLayer::new(policy.unwrap())
}
