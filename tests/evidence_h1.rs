//! Evidence §2.2 and §2.3: HTTP/1.1, a request on a connection, new or used.
#![cfg(all(feature = "hyper", feature = "reqwest"))]
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "support/wire/mod.rs"]
mod wire;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use tokio::io::AsyncWriteExt;
use tokio::task::AbortHandle;
use tokio::time::advance;
use tower_http_retry::{
    BoxError, Error, Evidence, Failure, FailureKind, HyperService, ReplayBody, ReqwestService,
};
use wire::body::{Step, sized_steps};
use wire::clock::{StoppedClock, settle};
use wire::memory::{InMemory, Sees, over};
use wire::row::{Reads, Row, ask, layer, read, request, with_body};
use wire::via::{Below, Via, below, hyper_builder, reqwest_builder};
use wire::{Ledger, Peer, Server, h1, h2, nobody, pause};

const fn sent(kind: FailureKind) -> [Failure; 1] {
    [Failure::sent_no_response(kind)]
}

/// A lost connection, in every shape that the timing gives it.
const LOST: [Failure; 2] = [
    Failure::sent_no_response(FailureKind::Closed),
    Failure::sent_no_response(FailureKind::Reset),
];

/// Reads the request, writes `bytes`, closes.
fn writes(bytes: impl AsRef<[u8]> + Clone + Send + 'static) -> impl Fn() -> Server {
    move || {
        let bytes = bytes.clone();
        Server::start(move |mut peer, _| {
            let bytes = bytes.clone();
            async move {
                peer.request().await;
                peer.write(bytes).await;
                peer.fin().await;
            }
        })
    }
}

/// Truly not processed, and the same bytes on the wire as B4.
#[tokio::test]
async fn b2d_a_request_that_stays_unread_in_the_servers_kernel_may_have_been_read() {
    let row = Row::new("B2d", Reads::Nothing, &LOST);
    row.over(&Via::H1, || {
        Server::start(|peer, _| async move {
            peer.io.peek(&mut [0]).await.unwrap();
            drop(peer);
        })
    })
    .await;
}

#[tokio::test]
async fn b3_read_and_closed_is_unknown() {
    let row = Row::new("B3", Reads::Whole, &sent(FailureKind::Closed));
    row.over(&Via::H1, writes("")).await;
}

#[tokio::test]
async fn b4_read_and_reset_is_unknown() {
    let row = Row::new("B4", Reads::Whole, &sent(FailureKind::Reset));
    row.over(&Via::H1, || {
        Server::start(|mut peer, _| async move {
            peer.request().await;
            peer.rst();
        })
    })
    .await;
}

fn eight_mebibytes() -> ReplayBody {
    ReplayBody::bytes(vec![7; 8 * 1024 * 1024])
}

#[tokio::test]
async fn b5_reset_during_the_upload_is_unknown() {
    let row = Row::new("B5", Reads::Head, &LOST).body(eight_mebibytes);
    row.over(&Via::H1, || {
        Server::start(|mut peer, _| async move {
            let mut head = peer.head().await.unwrap();
            peer.body(&mut head, 100_000).await;
            peer.rst();
        })
    })
    .await;
}

#[tokio::test]
async fn b5e_an_answer_before_the_end_of_the_upload_is_the_answer() {
    for via in Via::H1 {
        let server = Server::start(|mut peer, _| async move {
            let mut head = peer.head().await.unwrap();
            peer.body(&mut head, 100_000).await;
            peer.write("HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n")
                .await;
            // Not yet: an unread upload would make it a reset.
            peer.drain().await;
        });
        let upload = with_body(&Method::POST, &server.url(), eight_mebibytes());
        let response = ask(&layer(2), via.service(), upload).await.unwrap();
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(server.ledger.now().heads, 1);
    }
}

#[tokio::test]
async fn b6_half_a_head_is_no_answer() {
    let row = Row::new("B6", Reads::Whole, &sent(FailureKind::Closed));
    row.over(&Via::H1, writes("HTTP/1.1 20")).await;
    row.over(&Via::H1, writes("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n"))
        .await;
}

#[tokio::test]
async fn b6r_half_a_head_and_a_reset_is_no_answer() {
    let row = Row::new("B6r", Reads::Whole, &sent(FailureKind::Reset));
    row.over(&Via::H1, || {
        Server::start(|mut peer, _| async move {
            peer.request().await;
            peer.write("HTTP/1.1 200 OK\r\n").await;
            pause(20).await;
            peer.rst();
        })
    })
    .await;
}

/// The server certainly has the request, and will answer so again: unknown, and permanent.
#[tokio::test]
async fn b7_a_malformed_answer_is_unknown_and_permanent() {
    let row = Row::new("B7", Reads::Whole, &sent(FailureKind::Protocol));
    for answer in [
        "nonsense\r\n\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n",
        "HTTP/3.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    ] {
        row.over(&Via::H1, writes(answer)).await;
    }
}

#[tokio::test]
async fn b12_an_answer_with_too_large_a_head_is_unknown_and_permanent() {
    let row = Row::new("B12", Reads::Whole, &sent(FailureKind::Protocol));
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(600 * 1024));
    row.over(&Via::H1, writes(long)).await;
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: x\r\n".repeat(150));
    row.over(&Via::H1, writes(many)).await;
}

/// The response comes, its body breaks: the evidence is what arrived.
async fn breaks(id: &str, answer: &'static str, reset: bool, expected: Failure) {
    for via in Via::H1 {
        for method in [Method::POST, Method::GET] {
            let server = Server::start(move |mut peer, _| async move {
                peer.request().await;
                peer.write(answer).await;
                if reset {
                    pause(20).await;
                    peer.rst();
                } else {
                    peer.fin().await;
                }
            });
            let layer = layer(2);
            let request = request(&method, &server.url());
            let response = ask(&layer, via.service(), request).await.unwrap();
            assert_eq!(response.status(), 200);
            let error = read(response).await.unwrap_err();
            assert_eq!(*error.failure(), expected, "{id} {via:?} {method}: {error}");
            assert_eq!(server.ledger.now().whole, 1);
            assert_eq!(layer.contradictions(), 0);
        }
    }
}

#[tokio::test]
async fn b8_a_body_that_is_cut_is_partial() {
    let partial = Failure::partial_response(FailureKind::Truncated);
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfour";
    breaks("B8", answer, false, partial).await;
}

#[tokio::test]
async fn b8z_a_body_that_is_cut_before_its_first_byte_is_received() {
    let received = Failure::response_received(FailureKind::Truncated);
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n";
    breaks("B8z", answer, false, received).await;
}

#[tokio::test]
async fn b9_a_chunked_body_without_its_last_chunk_is_partial() {
    let partial = Failure::partial_response(FailureKind::Truncated);
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nfour\r\n";
    breaks("B9", answer, false, partial).await;
}

#[tokio::test]
async fn b9m_a_chunk_that_is_none_is_partial_and_permanent() {
    let partial = Failure::partial_response(FailureKind::Protocol);
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nfour\r\nzzz\r\n";
    breaks("B9m", answer, false, partial).await;
}

#[tokio::test]
async fn b10_a_body_that_is_reset_is_partial() {
    let partial = Failure::partial_response(FailureKind::Reset);
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfour";
    breaks("B10", answer, true, partial).await;
}

/// Closed without a length is how HTTP/1.0 ends: nobody can tell it from a cut.
#[tokio::test]
async fn b8_a_body_without_a_length_ends_with_the_connection() {
    for via in Via::H1 {
        let server = writes("HTTP/1.1 200 OK\r\n\r\nfour")();
        let request = request(&Method::GET, &server.url());
        let response = ask(&layer(2), via.service(), request).await.unwrap();
        assert_eq!(read(response).await.unwrap(), "four");
    }
}

fn silent() -> Server {
    Server::start(|mut peer, _| async move {
        peer.request().await;
        peer.drain().await;
    })
}

/// Reads the request, and then lets this much time pass.
fn slow(milliseconds: u64) -> Server {
    Server::start(move |mut peer, _| async move {
        peer.request().await;
        advance(Duration::from_millis(milliseconds)).await;
        peer.drain().await;
    })
}

#[tokio::test(start_paused = true)]
async fn b11_no_answer_in_time_is_unknown() {
    let _clock = StoppedClock::new();
    let row = Row::new("B11", Reads::Whole, &sent(FailureKind::ResponseTimeout));
    row.timeout(300).over(&Via::H1, || slow(300)).await;
}

#[tokio::test(start_paused = true)]
async fn b11_a_timeout_of_reqwest_is_unknown() {
    let _clock = StoppedClock::new();
    let timeouts: [fn(reqwest::ClientBuilder, Duration) -> reqwest::ClientBuilder; 2] = [
        reqwest::ClientBuilder::timeout,
        reqwest::ClientBuilder::read_timeout,
    ];
    for timeout in timeouts {
        let server = slow(300);
        let row = Row::new("B11", Reads::Varies, &sent(FailureKind::ResponseTimeout));
        let below = || {
            let builder = timeout(reqwest_builder(), Duration::from_millis(300));
            below(ReqwestService::build(builder).unwrap())
        };
        row.at(below, &server.url()).await;
        assert_eq!(server.ledger.now().whole, 3, "one POST, two GETs");
    }
}

#[tokio::test(start_paused = true)]
async fn b11b_a_timeout_in_the_body_is_partial() {
    let _clock = StoppedClock::new();
    let server = Server::start(|mut peer, _| async move {
        peer.request().await;
        peer.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfour")
            .await;
        peer.drain().await;
    });
    let builder = reqwest_builder().timeout(Duration::from_millis(400));
    let below = below(ReqwestService::build(builder).unwrap());
    let response = ask(&layer(2), below, request(&Method::POST, &server.url()))
        .await
        .unwrap();
    let mut body = Box::pin(response.into_body());
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "four"
    );
    advance(Duration::from_millis(400)).await;
    let error = body.frame().await.unwrap().unwrap_err();
    let expected = Failure::partial_response(FailureKind::ResponseTimeout);
    assert_eq!(*error.failure(), expected, "{error:?}");
}

/// The client sends the body at once, so the header protects nothing.
#[tokio::test]
async fn b13_expect_100_continue_does_not_hold_the_body_back() {
    for via in Via::H1 {
        let server = writes(h1::OK)();
        let mut request = request(&Method::POST, &server.url());
        let expect = "100-continue".parse().unwrap();
        request.headers_mut().insert(http::header::EXPECT, expect);
        ask(&layer(1), via.service(), request).await.unwrap();
        assert_eq!(server.ledger.now().body, 10);
    }
}

#[tokio::test]
async fn b13c_a_100_is_no_answer() {
    let row = Row::new("B13c", Reads::Whole, &sent(FailureKind::Closed));
    row.over(&Via::H1, writes("HTTP/1.1 100 Continue\r\n\r\n"))
        .await;
}

#[tokio::test]
async fn b14_a_103_is_no_answer() {
    let row = Row::new("B14", Reads::Whole, &sent(FailureKind::Closed));
    row.over(&Via::H1, writes("HTTP/1.1 103 Early Hints\r\n\r\n"))
        .await;
}

/// Reads whatever comes, and gives no answer before the client closes.
fn patient() -> Server {
    Server::start(|mut peer, _| async move {
        if peer.head().await.is_some() {
            peer.drain().await;
        }
    })
}

#[tokio::test]
async fn b16_a_request_body_that_fails_is_unknown_and_permanent() {
    let row = Row::new("B16", Reads::Varies, &sent(FailureKind::RequestBody));
    row.body(|| sized_steps(10, [Step::Data(b"four"), Step::Fail("no more".into())]))
        .over(&Via::H1, patient)
        .await;
}

/// Nothing was written, which only a look at the bytes could prove.
#[tokio::test]
async fn b16i_a_request_body_that_fails_at_once_is_unknown_and_permanent() {
    let row = Row::new("B16i", Reads::Nothing, &sent(FailureKind::RequestBody));
    row.body(|| sized_steps(10, [Step::Fail("nothing at all".into())]))
        .over(&Via::H1, patient)
        .await;
}

/// To the client it looks as if the peer had closed: a retry loop for ever.
#[tokio::test]
async fn b16s_a_request_body_that_ends_short_is_permanent() {
    let row = Row::new("B16s", Reads::Varies, &sent(FailureKind::RequestBody));
    row.body(|| sized_steps(10, [Step::Data(b"four")]))
        .over(&Via::H1, patient)
        .await;
}

#[tokio::test]
async fn b16z_a_request_body_without_a_byte_of_its_ten_is_permanent() {
    let row = Row::new("B16z", Reads::Nothing, &sent(FailureKind::RequestBody));
    row.body(|| sized_steps(10, []))
        .over(&Via::H1, patient)
        .await;
}

#[tokio::test]
async fn b16t_a_foreign_timeout_is_no_timeout() {
    let row = Row::new("B16t", Reads::Varies, &sent(FailureKind::RequestBody));
    row.body(|| {
        let timeout = std::io::Error::from(std::io::ErrorKind::TimedOut);
        sized_steps(10, [Step::Data(b"four"), Step::Fail(timeout.into())])
    })
    .over(&Via::H1, patient)
    .await;
}

/// An error of a client, as a body would have it that is itself an HTTP stream.
async fn foreign(via: Via, refused: bool) -> BoxError {
    let server = Server::start(|peer, _| async move {
        let mut peer = h2::H2::accept(peer).await.unwrap();
        let id = peer.request().await.unwrap();
        peer.reset(id, h2::REFUSED_STREAM).await;
        peer.drain().await;
    });
    let url = if refused {
        format!("http://{}/", nobody())
    } else {
        server.url()
    };
    let error = tower::ServiceExt::oneshot(via.service(), request(&Method::POST, &url))
        .await
        .unwrap_err();
    assert!(error.is::<hyper_util::client::legacy::Error>() || error.is::<reqwest::Error>());
    error
}

/// A walk of the chain would find the proof of another request.
#[tokio::test]
async fn b18_foreign_errors_in_the_request_body_prove_nothing() {
    for of in [Via::HyperH2, Via::ReqwestH2] {
        for refused in [true, false] {
            for via in Via::ALL {
                let server = Server::start(move |mut peer, _| async move {
                    if Via::H1.contains(&via) {
                        patient_peer(&mut peer).await;
                    } else if let Some(mut peer) = h2::H2::accept(peer).await {
                        peer.drain().await;
                    }
                });
                let layer = layer(2);
                let error = foreign(of, refused).await;
                let body = sized_steps(10, [Step::Data(b"four"), Step::Fail(error)]);
                let request = with_body(&Method::POST, &server.url(), body);
                let error = ask(&layer, via.service(), request).await.unwrap_err();
                let expected = Failure::sent_no_response(FailureKind::RequestBody);
                assert_eq!(
                    error.failure(),
                    Some(&expected),
                    "{of:?} in {via:?}: {error}"
                );
                assert!(error.is_ambiguous());
                assert_eq!(layer.contradictions(), 0);
            }
        }
    }
}

async fn patient_peer(peer: &mut Peer) {
    if peer.head().await.is_some() {
        peer.drain().await;
    }
}

/// hyper calls it the user's fault; in the same words it calls a lost runtime that (R3).
#[tokio::test]
async fn b19_a_request_body_that_panics_is_unknown_and_permanent() {
    let row = Row::new("B19", Reads::Varies, &sent(FailureKind::RequestBody));
    row.body(|| sized_steps(10, [Step::Data(b"four"), Step::Panic]))
        .over(&Via::H1, patient)
        .await;
}

/// Runs the client's connections, until they vanish.
#[derive(Clone)]
struct Doomed {
    runtime: tokio::runtime::Handle,
    tasks: Arc<Mutex<Vec<AbortHandle>>>,
}

impl<F> hyper::rt::Executor<F> for Doomed
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        let task = self.runtime.spawn(future);
        self.tasks.lock().unwrap().push(task.abort_handle());
    }
}

/// `is_user()`, though the user did nothing.
async fn vanishes(with_its_runtime: bool) {
    for method in [Method::POST, Method::GET] {
        let server = silent();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let doomed = Doomed {
            runtime: runtime.handle().clone(),
            tasks: Arc::default(),
        };
        let client = hyper_util::client::legacy::Client::builder(doomed.clone());
        let below = below(HyperService::new(client.build_http()));
        let vanish = async {
            server.ledger.until(|entry| entry.whole > 0).await;
            if with_its_runtime {
                runtime.shutdown_background();
                return None;
            }
            let tasks = doomed.tasks.lock().unwrap();
            tasks.iter().for_each(AbortHandle::abort);
            Some(runtime)
        };
        let layer = layer(1);
        let asked = ask(&layer, below, request(&method, &server.url()));
        let (answer, runtime) = tokio::join!(asked, vanish);
        let error = answer.unwrap_err();
        let failure = *error.failure().unwrap();
        assert_eq!(failure.evidence(), Evidence::SentNoResponse, "{error:?}");
        assert!(!failure.kind().is_permanent(), "{error:?}");
        assert_eq!(error.is_ambiguous(), method == Method::POST);
        assert_eq!(layer.contradictions(), 0);
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

#[tokio::test]
async fn r3_a_runtime_that_vanishes_is_unknown_and_transient() {
    vanishes(true).await;
}

#[tokio::test]
async fn r10_a_connection_task_that_vanishes_is_unknown_and_transient() {
    vanishes(false).await;
}

/// The client would send three bytes and drop the rest in silence.
#[tokio::test]
async fn a8_a_body_of_another_length_than_declared_is_not_sent() {
    for via in Via::ALL {
        let layer = layer(2);
        let mut request = request(&Method::POST, &format!("http://{}/", nobody()));
        let length = 3.into();
        request
            .headers_mut()
            .insert(http::header::CONTENT_LENGTH, length);
        let error = ask(&layer, via.service(), request).await.unwrap_err();
        assert!(matches!(error, Error::Failed(_)), "{error}");
        let expected = Failure::not_sent(FailureKind::RequestBody);
        assert_eq!(error.failure(), Some(&expected), "{error}");
    }
}

/// Serves one request, then does this with the connection.
async fn once<Fut: Future<Output = ()>>(mut peer: Peer, number: usize, then: impl Fn(Peer) -> Fut) {
    peer.request().await;
    peer.write(h1::OK).await;
    if number == 0 {
        then(peer).await;
    } else {
        peer.drain().await;
    }
}

async fn warm(below: &Below, url: &str) {
    let response = ask(&layer(1), below.clone(), request(&Method::GET, url))
        .await
        .unwrap();
    assert_eq!(read(response).await.unwrap(), "ok");
    // Until the connection is back in the pool.
    settle().await;
}

#[tokio::test]
async fn c1_an_idle_connection_that_was_seen_to_close_is_not_used() {
    for via in Via::H1 {
        let server = Server::start(|peer, number| once(peer, number, Peer::fin));
        let below = via.service();
        warm(&below, &server.url()).await;
        pause(50).await;
        let request = request(&Method::POST, &server.url());
        ask(&layer(1), below, request).await.unwrap();
        let entry = server.ledger.now();
        assert_eq!((entry.connections, entry.whole), (2, 2));
    }
}

/// A heuristic for stale connections would send an executed POST again.
#[tokio::test]
async fn c2_a_second_request_that_was_read_is_unknown() {
    for reset in [false, true] {
        for via in Via::H1 {
            let server = Server::start(move |peer, number| {
                once(peer, number, move |mut peer| async move {
                    peer.request().await;
                    if reset { peer.rst() } else { peer.fin().await }
                })
            });
            let below = via.service();
            warm(&below, &server.url()).await;
            let layer = layer(2);
            let error = ask(&layer, below, request(&Method::POST, &server.url()))
                .await
                .unwrap_err();
            assert!(LOST.contains(error.failure().unwrap()), "{error}");
            assert!(error.is_ambiguous());
            let entry = server.ledger.now();
            assert_eq!((entry.connections, entry.whole), (1, 2));
            assert_eq!(layer.contradictions(), 0);
        }
    }
}

/// And one that stayed unread in the kernel gives the same errors.
#[tokio::test]
async fn c2_a_second_request_that_stayed_unread_is_unknown() {
    for via in Via::H1 {
        let server = Server::start(move |peer, number| {
            once(peer, number, move |peer| async move {
                peer.io.peek(&mut [0]).await.unwrap();
                peer.rst();
            })
        });
        let below = via.service();
        warm(&below, &server.url()).await;
        let layer = layer(2);
        let error = ask(&layer, below, request(&Method::POST, &server.url()))
            .await
            .unwrap_err();
        assert!(LOST.contains(error.failure().unwrap()), "{error}");
        assert!(error.is_ambiguous());
        assert_eq!(server.ledger.now().whole, 1);
        assert_eq!(layer.contradictions(), 0);
    }
}

/// A used connection in memory ends while the client's thread is busy, with these last words; then
/// the client uses it.
struct Stale {
    last_words: &'static str,
    reset: bool,
    sees: Sees,
    /// Whether hyper-util's client may repeat what is handed back, over a second connection.
    repeats: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    Answer(u16),
    Failure(Failure),
}

impl Stale {
    const FIN: Self = Self {
        last_words: "",
        reset: false,
        sees: Sees::AtOnce,
        repeats: false,
    };
    const RST: Self = Self {
        reset: true,
        ..Self::FIN
    };

    /// What a POST comes to, and how often it was read.
    async fn outcome(self) -> (Outcome, usize) {
        const SHOP: &str = "http://shop.example/orders";
        let ledger = Ledger::default();
        let pair = || {
            let (near, io) = tokio::io::duplex(64 * 1024);
            let ledger = ledger.clone();
            (InMemory::new(near), Peer { io, ledger })
        };
        let (first, mut stale) = pair();
        let first = if self.reset { first.resets() } else { first };
        let sight = first.sight();
        let (second, mut fresh) = pair();
        tokio::spawn(async move {
            if fresh.request().await.is_some() {
                fresh.write(h1::OK).await;
                fresh.drain().await;
            }
        });
        let mut builder = hyper_builder();
        builder.retry_canceled_requests(self.repeats);
        let client = below(HyperService::new(over(&builder, [first, second])));
        let served = async {
            stale.request().await.unwrap();
            stale.write(h1::OK).await;
        };
        tokio::join!(warm(&client, SHOP), served);

        // From here to the POST no other task runs.
        sight.set(self.sees);
        stale.write(self.last_words).await;
        let _half_closed = if self.reset {
            drop(stale);
            None
        } else {
            stale.io.shutdown().await.unwrap();
            Some(stale)
        };
        let layer = layer(1);
        let outcome = match ask(&layer, client, request(&Method::POST, SHOP)).await {
            Ok(response) => Outcome::Answer(response.status().as_u16()),
            Err(error) => Outcome::Failure(*error.failure().unwrap()),
        };
        assert_eq!(layer.contradictions(), 0);
        (outcome, ledger.now().whole - 1)
    }
}

/// The chain may contain a reset; what proves it is that the request was handed back.
#[tokio::test]
async fn f1_a_request_that_was_handed_back_unwritten_is_not_sent() {
    for (stale, kind) in [
        (Stale::FIN, FailureKind::Closed),
        (Stale::RST, FailureKind::Reset),
    ] {
        let expected = Outcome::Failure(Failure::not_sent(kind));
        assert_eq!(stale.outcome().await, (expected, 0));
    }
}

#[tokio::test]
async fn f1_the_clients_own_repeat_of_it_reaches_the_server_once() {
    for stale in [Stale::FIN, Stale::RST] {
        let repeats = true;
        let outcome = Stale { repeats, ..stale }.outcome().await;
        assert_eq!(outcome, (Outcome::Answer(200), 1));
    }
}

/// The client writes before it sees the end: surely unread in truth, and it looks as if it were not.
#[tokio::test]
async fn f1b_a_request_that_was_written_into_a_dead_connection_is_unknown() {
    for stale in [Stale::FIN, Stale::RST] {
        // What may have left is never repeated by the client itself.
        let (sees, repeats) = (Sees::OnceItWrote, true);
        let stale = Stale {
            sees,
            repeats,
            ..stale
        };
        let expected = Failure::sent_no_response(FailureKind::Closed);
        assert_eq!(stale.outcome().await, (Outcome::Failure(expected), 0));
    }
}

const GOODBYE: &str = "HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n";

/// A server that is tired of an idle connection says 408.
#[tokio::test]
async fn f1_an_unsolicited_408_that_is_seen_first_proves_that_nothing_was_sent() {
    let stale = Stale {
        last_words: GOODBYE,
        ..Stale::FIN
    };
    let (outcome, read) = stale.outcome().await;
    let Outcome::Failure(failure) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(failure.evidence(), Evidence::NotSent, "{failure}");
    assert_eq!(read, 0);
}

/// The client takes it for the answer to a request that was never read.
#[tokio::test]
async fn f1b_an_unsolicited_408_that_is_seen_later_is_an_answer() {
    let stale = Stale {
        last_words: GOODBYE,
        sees: Sees::OnceItWrote,
        ..Stale::FIN
    };
    assert_eq!(stale.outcome().await, (Outcome::Answer(408), 0));
}

/// A wrapped empty body keeps a GET clean.
#[tokio::test]
async fn r9_an_empty_body_adds_nothing_to_a_get() {
    for via in Via::H1 {
        let server = writes(h1::OK)();
        ask(
            &layer(1),
            via.service(),
            request(&Method::GET, &server.url()),
        )
        .await
        .unwrap();
        let head = server.ledger.now().head;
        assert!(!head.contains("content-length"), "{head}");
        assert!(!head.contains("transfer-encoding"), "{head}");
    }
}

/// As the client itself would send it: without a `content-length: 0`, which hyper leaves to the
/// caller.
#[tokio::test]
async fn r11_an_empty_post_goes_out_as_the_client_would_send_it() {
    let server = writes(h1::OK)();
    let empty = with_body(&Method::POST, &server.url(), ReplayBody::empty());
    let empty = empty.map(|_| http_body_util::Empty::<bytes::Bytes>::new());
    hyper_builder().build_http().request(empty).await.unwrap();
    let plain_hyper = server.ledger.now().head;
    let plain = reqwest_builder().build().unwrap();
    plain.post(server.url()).send().await.unwrap();
    let plain_reqwest = server.ledger.now().head;
    for (via, plain) in [(Via::HyperH1, plain_hyper), (Via::ReqwestH1, plain_reqwest)] {
        let empty = with_body(&Method::POST, &server.url(), ReplayBody::empty());
        ask(&layer(1), via.service(), empty).await.unwrap();
        assert_eq!(server.ledger.now().head, plain, "{via:?}");
    }
}
