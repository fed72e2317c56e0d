//! Whole exchanges: hyper's client and hyper's server in one thread, over a pipe or over loopback.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, Connected, Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::DuplexStream;
use tokio::runtime::Builder;
use tower::{Service, ServiceExt as _};
use tower_http_retry::Upstream as Known;

use crate::alloc;
use crate::cases::{ours, retrying};
use crate::request::Profile;
use crate::rounds::median;

/// One exchange, nanoseconds: medians over the rounds.
#[derive(Debug)]
pub struct Exchange {
    pub bare: f64,
    /// What the layer adds, paired.
    pub added: f64,
    /// Allocations that it adds.
    pub allocations: f64,
}

const BATCH: usize = 100;

/// Over a pipe: no kernel.
pub fn in_memory(rounds: usize) -> Exchange {
    run(rounds, async || {
        (Pipes, "orders.internal.example:8080".to_owned())
    })
}

/// Over loopback, with a new connection for none but the first.
pub fn over_loopback(rounds: usize) -> Exchange {
    run(rounds, async || {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let at = listener.local_addr().expect("an address").to_string();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                socket.set_nodelay(true).expect("a socket of ours");
                tokio::spawn(serve(socket));
            }
        });
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        (connector, at)
    })
}

fn run<C>(rounds: usize, start: impl AsyncFnOnce() -> (C, String)) -> Exchange
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (connector, authority) = start().await;
        let uri: Uri = format!("http://{authority}/v1/orders/42?expand=items")
            .parse()
            .expect("a URI");
        let client = Client::builder(TokioExecutor::new());
        let bare = client.build(connector.clone());
        let layer = retrying(client.build(connector), 2, Known::new());
        let to = |mut request: Request<Bytes>| {
            *request.uri_mut() = uri.clone();
            request
        };
        let (mut without, mut added) = (Vec::new(), Vec::new());
        let mut allocations = Vec::new();
        for round in 0..rounds + 3 {
            let (mut times, mut counts, layer_first) = ([0.0; 2], [0.0; 2], round % 2);
            for turn in 0..2 {
                let with_layer = (turn + layer_first) % 2;
                (times[with_layer], counts[with_layer]) = if with_layer == 1 {
                    batch(&layer, || ours(to(Profile::Post.request()))).await
                } else {
                    batch(&bare, || to(Profile::Post.request()).map(Full::new)).await
                };
            }
            if round >= 3 {
                without.push(times[0]);
                added.push(times[1] - times[0]);
                allocations.push(counts[1] - counts[0]);
            }
        }
        Exchange {
            bare: median(without),
            added: median(added),
            allocations: median(allocations),
        }
    })
}

/// One after the other, each through a clone of the service, as clients do.
async fn batch<S, R, B>(service: &S, make: impl Fn() -> R) -> (f64, f64)
where
    S: Service<R, Response = Response<B>, Error: std::fmt::Debug> + Clone,
    B: Body<Error: std::fmt::Debug>,
{
    let requests: Vec<R> = (0..BATCH).map(|_| make()).collect();
    let (start, before) = (Instant::now(), alloc::allocations());
    for request in requests {
        let answer = service.clone().oneshot(request).await.expect("an answer");
        let body = answer.into_body().collect().await.expect("its body");
        assert_eq!(body.to_bytes().len(), 11);
    }
    let (time, count) = (start.elapsed(), alloc::allocations() - before);
    let each = BATCH as f64;
    (time.as_nanos() as f64 / each, count as f64 / each)
}

async fn serve(io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) {
    let service = service_fn(async |request: Request<Incoming>| {
        let _ = request.into_body().collect().await;
        let answer = Response::builder()
            .header("content-type", "application/json")
            .header("x-request-id", "abc")
            .body(Full::new(Bytes::from_static(b"{\"ok\":true}")))
            .expect("valid headers");
        Ok::<_, Infallible>(answer)
    });
    // It ends with the client's connection.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(io), service)
        .await;
}

/// Connects to a server of its own, through a pipe.
#[derive(Clone)]
struct Pipes;

impl Service<Uri> for Pipes {
    type Response = Pipe;
    type Error = io::Error;
    type Future = Ready<io::Result<Pipe>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (near, far) = tokio::io::duplex(64 * 1024);
        tokio::spawn(serve(far));
        ready(Ok(Pipe(TokioIo::new(near))))
    }
}

struct Pipe(TokioIo<DuplexStream>);

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl Write for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
