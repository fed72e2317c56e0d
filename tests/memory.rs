//! What a call keeps of its request body, and for how long.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // helpers of tests

mod support;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body::{Body, Frame};
use support::upload::{Sink, Take, live};
use support::{layer, request};
use tower::{Layer, ServiceExt};
use tower_http_retry::{BoxError, ReplayBody, Report};

static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// Counts the bytes that are alive, and the most that ever were.
#[derive(Clone, Default)]
struct Meter(Arc<(AtomicUsize, AtomicUsize)>);

impl Meter {
    fn alive(&self) -> usize {
        self.0.0.load(Ordering::SeqCst)
    }

    fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }

    fn chunk(&self, len: usize) -> Bytes {
        let alive = self.0.0.fetch_add(len, Ordering::SeqCst) + len;
        self.0.1.fetch_max(alive, Ordering::SeqCst);
        Bytes::from_owner(Metered {
            len,
            meter: self.clone(),
        })
    }
}

struct Metered {
    len: usize,
    meter: Meter,
}

impl AsRef<[u8]> for Metered {
    fn as_ref(&self) -> &[u8] {
        &ZEROS[..self.len]
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        self.meter.0.0.fetch_sub(self.len, Ordering::SeqCst);
    }
}

/// Chunks of one size, each after a pause.
struct Upload {
    meter: Meter,
    chunk: usize,
    left: usize,
    pause: Duration,
    pausing: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Upload {
    fn new(meter: &Meter, chunk: usize, chunks: usize) -> Self {
        let meter = meter.clone();
        Self {
            meter,
            chunk,
            left: chunks,
            pause: Duration::ZERO,
            pausing: None,
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !self.pause.is_zero() {
            let pause = self.pause;
            let pausing = self
                .pausing
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
            std::task::ready!(pausing.as_mut().poll(cx));
            self.pausing = None;
        }
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(self.meter.chunk(self.chunk)))))
    }
}

/// Reads a request's body as a client does, keeping nothing, and answers 200.
fn reader() -> impl tower::Service<
    http::Request<ReplayBody>,
    Response = http::Response<http_body_util::Empty<Bytes>>,
    Error = BoxError,
    Future: Send,
> + Clone {
    use http_body_util::BodyExt;
    tower::service_fn(|request: http::Request<ReplayBody>| async {
        let mut body = request.into_body();
        while let Some(frame) = body.frame().await {
            drop(frame?);
        }
        Ok(http::Response::new(http_body_util::Empty::new()))
    })
}

const LIMIT: usize = 64 * 1024;

#[tokio::test(start_paused = true)]
async fn mm_03_a_large_stream_is_kept_up_to_the_limit_and_no_further() {
    let meter = Meter::default();
    let body = ReplayBody::buffered(Upload::new(&meter, 1 << 20, 200), LIMIT);
    let answer = layer()
        .layer(reader())
        .oneshot(request(Method::PUT, body))
        .await;
    let response = answer.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.extensions().get::<Report>().is_none());
    assert_eq!(meter.most(), 1 << 20, "one chunk at a time");
    let meter = Meter::default();
    let body = ReplayBody::buffered(Upload::new(&meter, 1024, 10_000), LIMIT);
    layer()
        .layer(reader())
        .oneshot(request(Method::PUT, body))
        .await
        .unwrap();
    assert!(meter.most() <= LIMIT + 1024, "{}", meter.most());
}

#[tokio::test(start_paused = true)]
async fn mm_03_what_is_kept_is_let_go_once_no_retry_can_follow() {
    let meter = Meter::default();
    let (sender, body) = live();
    for _ in 0..4 {
        sender.send(meter.chunk(1024)).unwrap();
    }
    let sink = Sink::new([Take::some(4, 200).keeps()]);
    let put = request(Method::PUT, ReplayBody::buffered(body, LIMIT));
    let answer = layer().layer(sink.clone()).oneshot(put).await;
    assert_eq!(answer.unwrap().status(), 200);
    sink.forget();
    assert_eq!(meter.alive(), 0, "the upload goes on, and keeps nothing");
    let _upload = sink.kept();
}

#[tokio::test(start_paused = true)]
async fn mm_04_an_endless_stream_is_kept_up_to_the_limit() {
    let meter = Meter::default();
    let mut upload = Upload::new(&meter, 1024, 3600);
    upload.pause = Duration::from_secs(1);
    let put = request(Method::PUT, ReplayBody::buffered(upload, LIMIT));
    let began = tokio::time::Instant::now();
    let answer = layer().layer(reader()).oneshot(put).await;
    assert_eq!(answer.unwrap().status(), 200);
    assert!(began.elapsed() >= Duration::from_secs(3600));
    assert!(meter.most() <= LIMIT + 1024, "{}", meter.most());
}

#[tokio::test(start_paused = true)]
async fn mm_06_two_layers_share_the_bytes_and_copy_none() {
    let bytes = Bytes::from(vec![7; 1 << 20]);
    let streamed = support::upload::Chunks::new([bytes.clone()]);
    let bodies = [
        bytes.clone().into(),
        ReplayBody::buffered(streamed, 1 << 20),
    ];
    for body in bodies {
        let sink = Sink::new([Take::all(503), Take::all(200)]);
        let stack = layer().layer(layer().layer(sink.clone()));
        let answer = stack.oneshot(request(Method::PUT, body)).await;
        assert_eq!(answer.unwrap().status(), 200);
        for got in sink.got() {
            assert_eq!(got.frames.len(), 1);
            assert_eq!(got.frames[0].as_ptr(), bytes.as_ptr());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_sent_once_at_most_is_not_kept() {
    let meter = Meter::default();
    let body = ReplayBody::buffered(Upload::new(&meter, 1024, 8), LIMIT);
    let once = tower_http_retry::RetryLayer::new(tower_http_retry::StandardPolicy::none());
    once.layer(reader())
        .oneshot(request(Method::PUT, body))
        .await
        .unwrap();
    assert_eq!(meter.most(), 1024);
}

#[cfg(all(feature = "fs", target_os = "linux"))]
#[tokio::test]
async fn a_file_of_a_gibibyte_is_sent_in_constant_memory() {
    use http_body_util::BodyExt;

    use support::measure::resident_kib;

    let name = format!("tower-http-retry-gibibyte-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    // It has holes only, and takes no space.
    std::fs::File::create(&path)
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    let inner = tower::service_fn(|request: http::Request<ReplayBody>| async {
        let mut body = request.into_body();
        assert_eq!(body.size_hint().exact(), Some(1 << 30));
        let before = resident_kib();
        let (mut sent, mut frames) = (0_u64, 0_u64);
        while let Some(frame) = body.frame().await {
            sent += frame?.into_data().unwrap().len() as u64;
            frames += 1;
            if frames % 1024 == 0 {
                let more = resident_kib() - before;
                assert!(more < 32 * 1024, "{more} KiB more than at the start");
            }
        }
        assert_eq!(sent, 1 << 30);
        Ok::<_, BoxError>(http::Response::new(http_body_util::Empty::<Bytes>::new()))
    });
    let put = request(Method::PUT, ReplayBody::file(&path));
    let answer = layer().layer(inner).oneshot(put).await;
    std::fs::remove_file(&path).unwrap();
    assert_eq!(answer.unwrap().status(), 200);
}
