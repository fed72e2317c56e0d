//! Bodies over real sockets, through hyper's client, HTTP/1.1 and HTTP/2: the server says what it read.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)] // helpers of tests

mod support;

use std::convert::Infallible;
use std::pin::Pin;
#[cfg(feature = "hyper")]
use std::sync::Arc;
#[cfg(feature = "hyper")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use support::upload::{Chunks, live};
use support::upstream::{PROTOCOLS, Protocol, Serve, Upstream, at_once, client, listen};
use tokio::io::AsyncReadExt;
use tower::{Layer, ServiceExt};
use tower_http_retry::{
    BodyState, Error, Evidence, FailureKind, Idempotency, ReplayBody, Replayability, Report,
    RetryDenied, RetryLayer,
};

type Answer = Result<Response<tower_http_retry::ResponseBody<hyper::body::Incoming>>, Error>;

async fn send(protocol: Protocol, request: Request<ReplayBody>) -> Answer {
    send_by(&at_once(), protocol, request).await
}

async fn send_by(layer: &RetryLayer, protocol: Protocol, request: Request<ReplayBody>) -> Answer {
    let call = layer.layer(client(protocol)).oneshot(request);
    tokio::time::timeout(Duration::from_secs(20), call)
        .await
        .expect("it hangs")
}

fn post_with_key(mut request: Request<ReplayBody>) -> Request<ReplayBody> {
    *request.method_mut() = Method::POST;
    request.extensions_mut().insert(Idempotency::Keyed);
    request
}

fn trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("checksum", HeaderValue::from_static("abc"));
    trailers
}

/// FNV-1a, as good as any to tell two payloads apart.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// More than sockets and windows buffer.
fn payload() -> Bytes {
    (0..1_000_000_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

fn chunks() -> Chunks {
    let payload = payload();
    Chunks::new((0..100).map(|at| payload.slice(at * 10_000..(at + 1) * 10_000)))
}

/// A body's name, how to make one, the bytes it sends, and whether their number is known.
type Kind = (&'static str, Box<dyn Fn() -> ReplayBody>, Bytes, bool);

fn kinds() -> Vec<Kind> {
    let whole = payload();
    let bytes = move || payload();
    vec![
        ("empty", Box::new(ReplayBody::empty), Bytes::new(), true),
        (
            "bytes",
            Box::new(move || bytes().into()),
            whole.clone(),
            true,
        ),
        (
            "encoded",
            Box::new(|| ReplayBody::encoded(payload(), |bytes| Ok::<_, Infallible>(bytes.clone()))),
            whole.clone(),
            true,
        ),
        (
            "made",
            Box::new(|| ReplayBody::factory(Replayability::Replayable, chunks)),
            whole.clone(),
            false,
        ),
        (
            "opened",
            Box::new(|| {
                ReplayBody::reopenable(async || Ok::<_, Infallible>(chunks().exact(1_000_000)))
            }),
            whole.clone(),
            true,
        ),
        (
            "buffered",
            Box::new(|| ReplayBody::buffered(chunks(), 1_000_000)),
            whole.clone(),
            false,
        ),
        (
            "buffered with length",
            Box::new(|| ReplayBody::buffered(chunks().exact(1_000_000), 1_000_000)),
            whole.clone(),
            true,
        ),
        (
            "chain",
            Box::new(|| {
                let stream = ReplayBody::buffered(chunks().exact(1_000_000), 1_000_000);
                ReplayBody::chain(["<".into(), stream, ">".into()])
            }),
            [b"<", &*whole, b">"].concat().into(),
            true,
        ),
    ]
}

#[tokio::test]
async fn a_retried_upload_arrives_whole_whatever_its_kind() {
    for protocol in PROTOCOLS {
        for (name, make, bytes, exact) in kinds() {
            for keyed in [false, true] {
                let name = format!("{name}, {protocol:?}, keyed: {keyed}");
                let serves = [Serve::Whole(503), Serve::Unread(503), Serve::Whole(200)];
                let mut upstream = Upstream::new(protocol, serves).await;
                let request = upstream.request(Method::PUT, make());
                let request = if keyed {
                    post_with_key(request)
                } else {
                    request
                };
                let answer = send(protocol, request).await.expect(&name);
                assert_eq!(answer.status(), 200, "{name}");
                let (first, unread, last) = (
                    upstream.upload().await,
                    upstream.upload().await,
                    upstream.upload().await,
                );
                for upload in [&first, &last] {
                    let body = upload.body.as_ref().expect(&name);
                    assert_eq!(checksum(body), checksum(&bytes), "{name}");
                    assert_eq!(body.len(), bytes.len(), "{name}");
                }
                let length = bytes.len().to_string();
                for upload in [first, unread, last] {
                    let sent = upload.length();
                    // A body without a byte may go out without its length.
                    let none = bytes.is_empty() && sent.is_none();
                    assert!(
                        none || sent == exact.then_some(&*length),
                        "{name}: {sent:?}"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn trailers_go_out_again() {
    for protocol in PROTOCOLS {
        let serves = [Serve::Whole(503), Serve::Whole(503), Serve::Whole(200)];
        let mut upstream = Upstream::new(protocol, serves).await;
        let body = Chunks::new(["ab", "", "cd"]).trailers(trailers());
        let mut request = upstream.request(Method::PUT, ReplayBody::buffered(body, 10));
        // An HTTP/1.1 client sends only the trailers that are announced.
        request
            .headers_mut()
            .insert("trailer", HeaderValue::from_static("checksum"));
        assert_eq!(send(protocol, request).await.unwrap().status(), 200);
        for _ in 0..3 {
            let upload = upstream.upload().await;
            assert_eq!(upload.body.unwrap(), "abcd", "{protocol:?}");
            assert_eq!(upload.trailers, Some(trailers()), "{protocol:?}");
        }
    }
}

#[tokio::test]
async fn an_early_503_cuts_the_upload_off_and_the_next_attempt_is_whole() {
    for protocol in PROTOCOLS {
        let serves = [Serve::Early(503), Serve::Whole(200)];
        let mut upstream = Upstream::new(protocol, serves).await;
        let (sender, body) = live();
        sender.send("begin ".into()).unwrap();
        let request = upstream.request(Method::PUT, ReplayBody::buffered(body, 100));
        let call = send(protocol, request);
        let rest = async {
            let broken = upstream.upload().await;
            assert_eq!(
                broken.body, None,
                "{protocol:?}: the older attempt never looks whole"
            );
            sender.send("end".into()).unwrap();
            drop(sender);
            upstream.upload().await
        };
        let (answer, last) = tokio::join!(call, rest);
        assert_eq!(answer.unwrap().status(), 200);
        assert_eq!(last.body.unwrap(), "begin end", "{protocol:?}");
    }
}

#[tokio::test]
async fn an_upload_behind_a_delivered_answer_goes_on() {
    for protocol in PROTOCOLS {
        let mut upstream = Upstream::new(protocol, [Serve::Early(200)]).await;
        let (sender, body) = live();
        sender.send("begin ".into()).unwrap();
        let request = upstream.request(Method::PUT, ReplayBody::buffered(body, 100));
        let retry = at_once().layer(client(protocol));
        let answer = retry.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        sender.send("end".into()).unwrap();
        drop(sender);
        assert_eq!(
            upstream.upload().await.body.unwrap(),
            "begin end",
            "{protocol:?}"
        );
    }
}

#[tokio::test]
async fn a_stream_beyond_its_limit_arrives_whole_once() {
    for protocol in PROTOCOLS {
        let mut upstream = Upstream::new(protocol, [Serve::Whole(503)]).await;
        let body = ReplayBody::buffered(chunks(), 64 * 1024);
        let answer = send(protocol, upstream.request(Method::PUT, body))
            .await
            .unwrap();
        assert_eq!(answer.status(), 503);
        let denied = answer
            .extensions()
            .get::<Report>()
            .unwrap()
            .verdict()
            .unwrap()
            .denied();
        assert_eq!(
            denied,
            Some(RetryDenied::BodyNotReplayable(BodyState::Overflowed))
        );
        assert_eq!(
            upstream.upload().await.body.unwrap(),
            payload(),
            "{protocol:?}"
        );
    }
}

#[tokio::test]
async fn br_09_stacked_layers_send_a_body_once_and_the_connection_stays_usable() {
    for protocol in PROTOCOLS {
        let serves = [Serve::Whole(200), Serve::Whole(200)];
        let mut upstream = Upstream::new(protocol, serves).await;
        let stack = at_once().layer(at_once().layer(client(protocol)));
        for _ in 0..2 {
            let post = upstream.request(Method::POST, "abc");
            let answer = stack.clone().oneshot(post).await.unwrap();
            assert_eq!(answer.status(), 200);
            answer.into_body().collect().await.unwrap();
            assert_eq!(upstream.upload().await.body.unwrap(), "abc");
        }
    }
}

#[tokio::test]
async fn br_19_a_gateway_forwards_the_body_it_received_again() {
    for protocol in PROTOCOLS {
        let serves = [Serve::Unread(503), Serve::Whole(503), Serve::Whole(200)];
        let mut upstream = Upstream::new(protocol, serves).await;
        let to = upstream.address;
        let retry = at_once().layer(client(protocol));
        let gateway = listen(protocol, move |request: Request<hyper::body::Incoming>| {
            let retry = retry.clone();
            async move {
                let (mut head, body) = request.into_parts();
                head.uri = format!("http://{to}/upload").parse().unwrap();
                head.headers.remove("host");
                let body = ReplayBody::buffered(body, 2_000_000);
                let answer = retry
                    .oneshot(Request::from_parts(head, body))
                    .await
                    .unwrap();
                Response::builder()
                    .status(answer.status())
                    .body(Full::default())
                    .unwrap()
            }
        });
        let put = Request::put(format!("http://{}/", gateway.await)).body(payload().into());
        let answer = client(protocol).oneshot(put.unwrap()).await.unwrap();
        assert_eq!(answer.status(), 200);
        for _ in 0..2 {
            let upload = upstream.upload().await;
            if let Some(body) = upload.body {
                assert_eq!(checksum(&body), checksum(&payload()), "{protocol:?}");
            }
        }
        let last = upstream.upload().await.body.unwrap();
        assert_eq!(
            (last.len(), checksum(&last)),
            (1_000_000, checksum(&payload()))
        );
    }
}

/// How a source goes wrong after its first chunk.
#[derive(Debug, Clone, Copy)]
enum Wrong {
    Fails,
    Short,
    ShortAndSaysSo,
    Panics,
}

struct Bad {
    wrong: Wrong,
    begun: bool,
    waited: bool,
}

impl Body for Bad {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        if !self.begun {
            self.begun = true;
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"half")))));
        }
        if !self.waited {
            // So that the client sends the first half.
            self.waited = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match self.wrong {
            Wrong::Fails => Poll::Ready(Some(Err("the disk is gone"))),
            Wrong::Short | Wrong::ShortAndSaysSo => Poll::Ready(None),
            Wrong::Panics => panic!("the source panics, as it is told to"),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.begun && matches!(self.wrong, Wrong::ShortAndSaysSo)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(if self.begun { 4 } else { 8 })
    }
}

#[tokio::test]
async fn a_body_that_goes_wrong_is_told_from_a_peer_that_hangs_up() {
    for protocol in PROTOCOLS {
        for wrong in [
            Wrong::Fails,
            Wrong::Short,
            Wrong::ShortAndSaysSo,
            Wrong::Panics,
        ] {
            // Only a panic, which HTTP/2 hides, waits for the time limit.
            let limit = match wrong {
                Wrong::Panics => Duration::from_millis(200),
                Wrong::Fails | Wrong::Short | Wrong::ShortAndSaysSo => Duration::from_secs(15),
            };
            let layer = at_once().with_attempt_timeout(limit);
            let mut upstream = Upstream::new(protocol, [Serve::Whole(200)]).await;
            let body = ReplayBody::one_shot(Bad {
                wrong,
                begun: false,
                waited: false,
            });
            let put = upstream.request(Method::PUT, body);
            let error = send_by(&layer, protocol, put).await.unwrap_err();
            let case = format!("{wrong:?}, {protocol:?}: {error:?}");
            assert_eq!(
                error.failure().unwrap().kind(),
                FailureKind::RequestBody,
                "{case}"
            );
            assert_eq!(error.evidence(), Evidence::SentNoResponse, "{case}");
            assert_eq!(error.report().attempts().len(), 1, "{case}");
            if matches!(wrong, Wrong::Fails) {
                let first: Option<&(dyn std::error::Error + 'static)> = Some(&error);
                let told = std::iter::successors(first, |error| error.source())
                    .filter(|cause| cause.to_string() == "the disk is gone");
                assert_eq!(told.count(), 1, "{case}");
            }
            // Only these let the client send the first half before.
            if matches!(wrong, Wrong::Fails | Wrong::Short) {
                assert_eq!(upstream.upload().await.body, None, "{case}");
            }
        }
    }
}

#[tokio::test]
async fn a_peer_that_hangs_up_is_not_taken_for_a_body_that_goes_wrong() {
    for body in [
        ReplayBody::bytes("abc"),
        ReplayBody::buffered(chunks(), 2_000_000),
    ] {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
            .await
            .unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                // It has seen the request when it hangs up.
                stream.read_u8().await.unwrap();
            }
        });
        let post = Request::post(format!("http://{address}/"))
            .body(body)
            .unwrap();
        let error = send(Protocol::Http1, post).await.unwrap_err();
        assert_ne!(
            error.failure().unwrap().kind(),
            FailureKind::RequestBody,
            "{error:?}"
        );
        assert!(error.is_ambiguous(), "{error:?}");
    }
}

#[cfg(feature = "hyper")]
#[tokio::test]
async fn br_07_a_stream_that_nobody_read_goes_out_after_a_refused_connection() {
    use hyper_util::client::legacy::connect::HttpConnector;
    use support::upstream::client_over;
    use tower_http_retry::HyperService;

    // Bound, so that nobody else gets the port, but nobody listens there.
    let bound = tokio::net::TcpSocket::new_v4().unwrap();
    bound.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let closed: http::Uri = format!("http://{}", bound.local_addr().unwrap())
        .parse()
        .unwrap();
    for protocol in PROTOCOLS {
        let mut upstream = Upstream::new(protocol, [Serve::Whole(200)]).await;
        let (closed, first) = (closed.clone(), Arc::new(AtomicBool::new(true)));
        let connector = tower::ServiceBuilder::new()
            .map_request(move |uri| match first.swap(false, Ordering::SeqCst) {
                true => closed.clone(),
                false => uri,
            })
            .service(HttpConnector::new());
        let service = HyperService::new(client_over(protocol, connector));
        let post = upstream.request(Method::POST, ReplayBody::one_shot(chunks()));
        let answer = at_once().layer(service).oneshot(post).await.unwrap();
        assert_eq!(answer.status(), 200);
        let report = answer.extensions().get::<Report>().unwrap();
        assert_eq!(report.attempts()[0].evidence(), Evidence::NotSent);
        assert_eq!(
            upstream.upload().await.body.unwrap(),
            payload(),
            "{protocol:?}"
        );
    }
}

#[cfg(feature = "fs")]
#[tokio::test]
async fn a_file_arrives_with_its_exact_length_each_time() {
    let path = std::env::temp_dir().join(format!("tower-http-retry-wire-{}", std::process::id()));
    std::fs::write(&path, payload()).unwrap();
    for protocol in PROTOCOLS {
        for (body, sent) in [
            (ReplayBody::file(&path), payload()),
            (
                ReplayBody::file(&path).range(1000, 500_000),
                payload().slice(1000..501_000),
            ),
        ] {
            let serves = [Serve::Whole(503), Serve::Unread(503), Serve::Whole(200)];
            let mut upstream = Upstream::new(protocol, serves).await;
            let put = upstream.request(Method::PUT, body);
            assert_eq!(send(protocol, put).await.unwrap().status(), 200);
            let length = sent.len().to_string();
            for _ in 0..3 {
                let upload = upstream.upload().await;
                assert_eq!(upload.length(), Some(&*length), "{protocol:?}");
                if let Some(body) = upload.body {
                    assert_eq!(checksum(&body), checksum(&sent), "{protocol:?}");
                }
            }
        }
    }
    std::fs::remove_file(&path).unwrap();
}

#[cfg(feature = "fs")]
#[tokio::test]
async fn a_file_that_shrinks_under_way_never_arrives_as_a_short_one() {
    for protocol in PROTOCOLS {
        let name = format!(
            "tower-http-retry-shrinks-{}-{protocol:?}",
            std::process::id()
        );
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, payload()).unwrap();
        let shrinking = path.clone();
        // It shrinks after it was opened, when the request goes out.
        let inner = tower::ServiceBuilder::new()
            .map_request(move |request: Request<ReplayBody>| {
                std::fs::File::options()
                    .write(true)
                    .open(&shrinking)
                    .and_then(|file| file.set_len(500_000))
                    .unwrap();
                request
            })
            .service(client(protocol));
        let mut upstream = Upstream::new(protocol, [Serve::Whole(200)]).await;
        let put = upstream.request(Method::PUT, ReplayBody::file(&path));
        let error = at_once().layer(inner).oneshot(put).await.unwrap_err();
        assert_eq!(error.failure().unwrap().kind(), FailureKind::RequestBody);
        assert_eq!(upstream.upload().await.body, None, "{protocol:?}");
        std::fs::remove_file(&path).unwrap();
    }
}

#[cfg(feature = "multipart")]
#[tokio::test]
async fn a_form_arrives_whole_each_time() {
    use tower_http_retry::{Multipart, Part};
    for protocol in PROTOCOLS {
        let form = Multipart::new().text("title", "a").part(
            "upload",
            Part::new(ReplayBody::buffered(chunks(), 1_000_000)).file_name("b"),
        );
        let content_type = form.content_type();
        let serves = [Serve::Whole(503), Serve::Unread(503), Serve::Whole(200)];
        let mut upstream = Upstream::new(protocol, serves).await;
        let mut request = post_with_key(upstream.request(Method::POST, form));
        request
            .headers_mut()
            .insert("content-type", content_type.clone());
        assert_eq!(send(protocol, request).await.unwrap().status(), 200);
        let first = upstream.upload().await;
        upstream.upload().await;
        let last = upstream.upload().await;
        assert_eq!(last.head.headers["content-type"], content_type);
        assert_eq!(first.body, last.body);
        let boundary = content_type
            .to_str()
            .unwrap()
            .split_once("boundary=")
            .unwrap()
            .1;
        assert!(
            last.body
                .unwrap()
                .ends_with(format!("\r\n--{boundary}--\r\n").as_bytes())
        );
    }
}
