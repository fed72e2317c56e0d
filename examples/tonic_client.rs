//! gRPC with retries, over a tonic channel: `cargo run --example tonic_client`.
//!
//! gRPC answers 200 and says what happened in `grpc-status`: in the trailers, or, where there is
//! nothing else to say, in the headers ("trailers-only"). All of its calls are POSTs. So HTTP's rules
//! know nothing here, and a policy of some lines says it: which methods may be repeated, which
//! statuses are worth it, and that `grpc-retry-pushback-ms` is the server's say (gRFC A6).
//!
//! A status in the trailers comes after a part of the answer: the call is committed, as gRFC A6 puts
//! it, and nothing is repeated.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::{Buf, BufMut};
use http::uri::PathAndQuery;
use http::{Request, Uri, request};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tower::ServiceBuilder;
use tower::util::MapRequestLayer;
use tower_http_retry::{
    Attempt, BoxError, Error, Execution, FailedAttempt, Failure, FailureKind, Idempotency, Policy,
    ReplayBody, Retry, RetryLayer, Rule, StandardPolicy,
};

/// gRPC's rules: retries of `UNAVAILABLE`, for methods that may be repeated.
#[derive(Debug, Default)]
struct Grpc {
    standard: StandardPolicy,
}

impl Policy for Grpc {
    fn rule(&self, attempt: &Attempt<'_>) -> Rule {
        match status(attempt) {
            // Nothing of gRPC in it: a proxy's answer, or no answer.
            None => self.standard.rule(attempt),
            Some(Code::Unavailable) => match pushback(attempt) {
                Some(Pushback::Stop) => Rule::Deny,
                Some(Pushback::After(wait)) if wait > self.max_retry_after() => Rule::Deny,
                _ if attempt.idempotency().is_safely_idempotent() => Rule::Retry,
                _ => Rule::Ambiguous,
            },
            // An answer, whatever it says.
            Some(_) => Rule::Accept,
        }
    }

    fn defaults(&self) -> &StandardPolicy {
        &self.standard
    }

    /// The service's `idempotency_level`s.
    fn idempotency(&self, request: &request::Parts) -> Idempotency {
        match request.uri.path() {
            COUNT => Idempotency::Safe,
            _ => Idempotency::NonIdempotent,
        }
    }

    fn execution(&self, attempt: &Attempt<'_>) -> Execution {
        match status(attempt) {
            Some(Code::Unavailable) => Execution::Unknown,
            Some(_) => Execution::Answered,
            None => self.standard.execution(attempt),
        }
    }

    fn backoff(&self, attempt: &Attempt<'_>, previous: Duration, random: f64) -> Duration {
        let own = self.standard.backoff(attempt, previous, random);
        match pushback(attempt) {
            Some(Pushback::After(wait)) => own.max(wait),
            Some(Pushback::Stop) | None => own,
        }
    }
}

/// The status of a trailers-only answer. `None`: there is more to come, or it is not gRPC.
fn status(attempt: &Attempt<'_>) -> Option<Code> {
    let status = attempt.response()?.headers.get("grpc-status");
    // An answer that streams is accepted: its status is in the trailers.
    match status {
        Some(status) => Some(Code::from_bytes(status.as_bytes())),
        None => attempt.status()?.is_success().then_some(Code::Ok),
    }
}

/// What a channel without a connection says: it has dropped the request. Only with this very source,
/// directly under the channel's error: deeper down it might be about some other request.
fn not_connected(failed: &FailedAttempt<'_>) -> Option<Failure> {
    let error = failed.error()?.downcast_ref::<tonic::transport::Error>()?;
    std::error::Error::source(error)?.downcast_ref::<tonic::ConnectError>()?;
    Some(Failure::not_sent(FailureKind::Connect))
}

enum Pushback {
    Stop,
    After(Duration),
}

/// "If the value is negative or unparseable, do not retry."
fn pushback(attempt: &Attempt<'_>) -> Option<Pushback> {
    let value = attempt.response()?.headers.get("grpc-retry-pushback-ms")?;
    let millis = value.to_str().ok().and_then(|value| value.parse().ok());
    Some(millis.map_or(Pushback::Stop, |ms| {
        Pushback::After(Duration::from_millis(ms))
    }))
}

type ToReplay = fn(Request<Body>) -> Request<ReplayBody>;
type ToTonic = fn(Request<ReplayBody>) -> Request<Body>;
type Stack =
    tower::util::MapRequest<Retry<tower::util::MapRequest<Channel, ToTonic>, Grpc>, ToReplay>;

/// tonic's own body above the layer and below it, and one that can be sent again in between.
fn stack(channel: Channel) -> Stack {
    let outside: ToReplay =
        |request| request.map(|body| ReplayBody::buffered(body, ReplayBody::DEFAULT_BUFFER_LIMIT));
    let inside: ToTonic = |request| request.map(Body::new);
    let retry = RetryLayer::new(Grpc::default())
        .with_classifier(not_connected)
        .with_deadline(Duration::from_secs(10));
    ServiceBuilder::new()
        .layer(MapRequestLayer::new(outside))
        .layer(retry)
        .layer(MapRequestLayer::new(inside))
        .service(channel)
}

/// Safe: it may be repeated.
const COUNT: &str = "/shop.Stock/Count";
/// Twice is two reservations.
const RESERVE: &str = "/shop.Stock/Reserve";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let address = open_shop().await?;
    let uri: Uri = format!("http://{address}").parse()?;
    let service = stack(Endpoint::from(uri.clone()).connect_lazy());
    let shop = tonic::client::Grpc::with_origin(service, uri);

    // UNAVAILABLE twice, with a pushback of 30 ms each.
    let started = Instant::now();
    let answer = call(&shop, COUNT, "rope").await?;
    println!(
        "Count(rope)      {} after {:?}",
        answer.get_ref(),
        started.elapsed()
    );
    assert_eq!(answer.get_ref(), "3");
    assert!(started.elapsed() >= Duration::from_millis(60));

    // "Do not retry": one attempt, and the server's status.
    let status = call(&shop, COUNT, "sold out").await.err();
    let code = status.map(|status| status.code());
    println!("Count(sold out)  {code:?}");
    assert_eq!(code, Some(Code::Unavailable));

    // The same status for a reservation may come from behind one that was made.
    let status = call(&shop, RESERVE, "rope")
        .await
        .err()
        .ok_or("an answer")?;
    let error = of_the_layer(&status)?;
    println!("Reserve(rope)    {error}");
    assert!(error.is_ambiguous());

    let calls: Vec<u32> = CALLS
        .iter()
        .map(|calls| calls.load(Ordering::SeqCst))
        .collect();
    assert_eq!(calls, [3, 1, 1], "calls that the shop saw");

    // Without a connection nothing is sent: a reservation is tried again, and has failed.
    let closed = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let uri: Uri = format!("http://{closed}").parse()?;
    let service = stack(Endpoint::from(uri.clone()).connect_lazy());
    let nobody = tonic::client::Grpc::with_origin(service, uri);
    let status = call(&nobody, RESERVE, "rope")
        .await
        .err()
        .ok_or("an answer")?;
    let error = of_the_layer(&status)?;
    println!("Reserve(rope)    {error}");
    assert!(!error.is_ambiguous());
    assert_eq!(error.report().attempts().len(), 3);
    Ok(())
}

async fn call(
    shop: &tonic::client::Grpc<Stack>,
    method: &'static str,
    item: &str,
) -> Result<tonic::Response<String>, Status> {
    let mut shop = shop.clone();
    let ready = shop.ready().await;
    ready.map_err(|error| Status::from_error(error.into()))?;
    let request = tonic::Request::new(item.to_owned());
    shop.unary(request, PathAndQuery::from_static(method), Text)
        .await
}

/// tonic keeps the error it made a status of.
fn of_the_layer(status: &Status) -> Result<&Error, BoxError> {
    let error = std::error::Error::source(status);
    let error = error.and_then(|error| error.downcast_ref());
    error.ok_or_else(|| format!("not the layer's: {status:?}").into())
}

/// How often the shop was asked for a count, for what is sold out, and for a reservation.
static CALLS: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

/// A shop that is UNAVAILABLE most of the time.
async fn open_shop() -> Result<std::net::SocketAddr, BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(|request: Request<hyper::body::Incoming>| async move {
                let path = request.uri().path().to_owned();
                let method = tower::service_fn(move |request: tonic::Request<String>| {
                    std::future::ready(answer(&path, request.get_ref()))
                });
                // An `Err` of the method goes out as a trailers-only answer.
                let mut server = tonic::server::Grpc::new(Text);
                Ok::<_, std::convert::Infallible>(server.unary(method, request).await)
            });
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async { drop(connection.await) });
        }
    });
    Ok(address)
}

fn answer(method: &str, item: &str) -> Result<tonic::Response<String>, Status> {
    let [count, sold_out, reserve] = &CALLS;
    match (method, item) {
        (COUNT, "rope") => match count.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Err(unavailable(Some("30"))),
            _ => Ok(tonic::Response::new("3".to_owned())),
        },
        (COUNT, _) => {
            sold_out.fetch_add(1, Ordering::SeqCst);
            Err(unavailable(Some("-1")))
        }
        _ => {
            reserve.fetch_add(1, Ordering::SeqCst);
            Err(unavailable(None))
        }
    }
}

fn unavailable(pushback: Option<&'static str>) -> Status {
    let mut metadata = MetadataMap::new();
    if let Some(pushback) = pushback {
        metadata.insert(
            "grpc-retry-pushback-ms",
            tonic::metadata::MetadataValue::from_static(pushback),
        );
    }
    Status::with_metadata(Code::Unavailable, "busy", metadata)
}

/// Messages are texts: an example needs no schema.
#[derive(Debug, Clone, Copy)]
struct Text;

impl Codec for Text {
    type Encode = String;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Text {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, text: String, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(text.as_bytes());
        Ok(())
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        let text = String::from_utf8(bytes.to_vec());
        text.map(Some).map_err(|_| Status::internal("not a text"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use tower_http_retry::{Decision, Facts, RetryDenied, decide};

    #[test]
    fn the_table() {
        use Decision::{Accept, Ambiguous, Retry};
        let denied = Decision::Denied(RetryDenied::Status(http::StatusCode::OK));
        for (method, headers, decision) in [
            (COUNT, &[][..], Accept), // the status is in the trailers
            (COUNT, &[("grpc-status", "0")], Accept),
            (COUNT, &[("grpc-status", "5")], Accept), // NOT_FOUND
            (COUNT, &[("grpc-status", "14")], Retry),
            (
                COUNT,
                &[("grpc-status", "14"), ("grpc-retry-pushback-ms", "500")],
                Retry,
            ),
            (
                COUNT,
                &[("grpc-status", "14"), ("grpc-retry-pushback-ms", "-1")],
                denied,
            ),
            (
                COUNT,
                &[("grpc-status", "14"), ("grpc-retry-pushback-ms", "soon")],
                denied,
            ),
            (
                COUNT,
                &[("grpc-status", "14"), ("grpc-retry-pushback-ms", "60000")],
                denied,
            ),
            (RESERVE, &[("grpc-status", "14")], Ambiguous),
            (RESERVE, &[("grpc-status", "8")], Accept),
        ] {
            let policy = Grpc::default();
            let (request, ()) = Request::post(method).body(()).unwrap().into_parts();
            let mut response = Response::builder();
            for (name, value) in headers {
                response = response.header(*name, *value);
            }
            let (response, ()) = response.body(()).unwrap().into_parts();
            let facts = Facts::response(&request, &response);
            let verdict = decide(&policy, &facts.attempt_for(&policy));
            assert_eq!(verdict.decision(), decision, "{method} {headers:?}");
        }
    }
}
