//! Evidence §2.4: HTTP/2.
#![cfg(all(feature = "hyper", feature = "reqwest"))]
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "support/wire/mod.rs"]
mod wire;

use std::time::Duration;

use http::Method;
use tokio::time::advance;
use tower_http_retry::{
    Error, Evidence, Failure, FailureKind, HyperService, ReplayBody, ReqwestService,
};
use wire::body::{Step, sized_steps};
use wire::clock::StoppedClock;
use wire::h2::{self, H2};
use wire::row::{Reads, Row, ask, ask_all, distrusting, layer, read, request, with_body};
use wire::via::{Via, below, hyper_builder, reqwest_builder};
use wire::{Server, pause};

const fn sent(kind: FailureKind) -> [Failure; 1] {
    [Failure::sent_no_response(kind)]
}

const fn not_sent(kind: FailureKind) -> [Failure; 1] {
    [Failure::not_sent(kind)]
}

const LOST: [Failure; 2] = [
    Failure::sent_no_response(FailureKind::Closed),
    Failure::sent_no_response(FailureKind::Reset),
];

/// Serves each connection with its first request's stream.
fn serving<F, Fut>(then: F) -> Server
where
    F: Fn(H2, u32) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    Server::start(move |peer, _| {
        let then = then.clone();
        async move {
            let Some(mut peer) = H2::accept(peer).await else {
                return;
            };
            if let Some(id) = peer.request().await {
                then(peer, id).await;
            }
        }
    })
}

fn resets(code: u32) -> impl Fn() -> Server {
    move || {
        // Both attempts go over the one connection.
        serving(move |mut peer, mut id| async move {
            loop {
                peer.reset(id, code).await;
                match peer.request().await {
                    Some(next) => id = next,
                    None => return,
                }
            }
        })
    }
}

fn goes_away(last: u32, code: u32) -> impl Fn() -> Server {
    move || {
        serving(move |mut peer, _| async move {
            peer.go_away(last, code).await;
            peer.drain().await;
        })
    }
}

/// RFC 9113 §8.7: nothing of a refused stream was processed.
#[tokio::test]
async fn d1_a_refused_stream_is_not_sent() {
    let row = Row::new("D1", Reads::Whole, &not_sent(FailureKind::StreamRefused));
    row.promised()
        .over(&Via::H2, resets(h2::REFUSED_STREAM))
        .await;
}

#[tokio::test]
async fn d1_any_other_reset_is_unknown() {
    for code in [
        h2::CANCEL,
        h2::INTERNAL_ERROR,
        h2::ENHANCE_YOUR_CALM,
        h2::NO_ERROR,
    ] {
        let row = Row::new("D1", Reads::Whole, &sent(FailureKind::Reset));
        row.over(&Via::H2, resets(code)).await;
    }
}

/// No promise that nothing was processed, and over HTTP/2 it will say so again.
#[tokio::test]
async fn d1_http_1_1_required_is_unknown_and_permanent() {
    let row = Row::new("D1", Reads::Whole, &sent(FailureKind::Protocol));
    row.over(&Via::H2, resets(h2::HTTP_1_1_REQUIRED)).await;
}

#[tokio::test]
async fn d1_and_d3_without_trust_in_the_peer_promises_prove_nothing() {
    for via in Via::H2 {
        for (server, kind) in [
            (resets(h2::REFUSED_STREAM)(), FailureKind::StreamRefused),
            (goes_away(0, h2::NO_ERROR)(), FailureKind::GoAway),
        ] {
            let layer = distrusting(2);
            let request = request(&Method::POST, &server.url());
            let error = ask(&layer, via.service(), request).await.unwrap_err();
            let expected = Failure::sent_no_response(kind);
            assert_eq!(error.failure(), Some(&expected), "{via:?} {error}");
            assert!(error.is_ambiguous());
            assert_eq!(server.ledger.now().heads, 1);
        }
    }
}

/// The response comes, its body breaks.
async fn breaks<F, Fut>(id: &str, expected: Failure, then: F)
where
    F: Fn(H2, u32) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    for via in Via::H2 {
        for method in [Method::POST, Method::GET] {
            let server = serving(then.clone());
            let layer = layer(2);
            let request = request(&method, &server.url());
            let response = ask(&layer, via.service(), request).await.unwrap();
            let error = read(response).await.unwrap_err();
            assert_eq!(
                *error.failure(),
                expected,
                "{id} {via:?} {method}: {error:?}"
            );
            assert_eq!(server.ledger.now().whole, 1);
            assert_eq!(layer.contradictions(), 0);
        }
    }
}

/// A peer that breaks the rules: evidence never falls below what was seen.
#[tokio::test]
async fn d1x_a_stream_that_is_refused_after_its_answer_began_is_partial() {
    let partial = Failure::partial_response(FailureKind::StreamRefused);
    breaks("D1x", partial, |mut peer, id| async move {
        peer.respond(id, "10").await;
        peer.data(id, b"four", 0).await;
        pause(20).await;
        peer.reset(id, h2::REFUSED_STREAM).await;
        peer.drain().await;
    })
    .await;
}

/// Reads until the client is done with the stream, and answers nothing.
fn patient() -> Server {
    Server::start(|peer, _| async move {
        if let Some(mut peer) = H2::accept(peer).await {
            peer.drain().await;
        }
    })
}

#[tokio::test]
async fn d8_a_request_body_that_fails_is_unknown_and_permanent() {
    let row = Row::new("D8", Reads::Head, &sent(FailureKind::RequestBody));
    row.body(|| sized_steps(10, [Step::Data(b"four"), Step::Fail("no more".into())]))
        .over(&Via::H2, patient)
        .await;
}

/// The client's error has lost it; the layer's has not.
#[tokio::test]
async fn d8_the_error_of_the_request_body_is_the_source() {
    for via in Via::H2 {
        let server = patient();
        let body = sized_steps(
            10,
            [Step::Data(b"four"), Step::Fail("the disk died".into())],
        );
        let request = with_body(&Method::POST, &server.url(), body);
        let error = ask(&layer(2), via.service(), request).await.unwrap_err();
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        let mut told = String::new();
        while let Some(error) = cause {
            told += &error.to_string();
            cause = error.source();
        }
        assert!(told.contains("the disk died"), "{told}");
    }
}

/// The client echoes the foreign reason as its own reset.
#[tokio::test]
async fn d8r_a_request_body_that_fails_with_refused_stream_is_unknown_and_permanent() {
    let row = Row::new("D8r", Reads::Head, &sent(FailureKind::RequestBody));
    row.body(|| {
        let refused = ::h2::Error::from(::h2::Reason::REFUSED_STREAM);
        sized_steps(10, [Step::Data(b"four"), Step::Fail(refused.into())])
    })
    .over(&Via::H2, patient)
    .await;
}

/// The client would end the stream after four bytes as if it were whole.
#[tokio::test]
async fn d8s_a_request_body_that_ends_short_is_unknown_and_permanent() {
    let row = Row::new("D8s", Reads::Head, &sent(FailureKind::RequestBody));
    row.body(|| sized_steps(10, [Step::Data(b"four")]))
        .over(&Via::H2, patient)
        .await;
}

/// The panic kills a task of hyper's, and the request hangs until somebody gives up.
#[tokio::test(start_paused = true)]
async fn d8p_a_request_body_that_panics_is_unknown_and_permanent() {
    let _clock = StoppedClock::new();
    let row = Row::new("D8p", Reads::Head, &sent(FailureKind::RequestBody));
    row.body(|| sized_steps(10, [Step::Data(b"four"), Step::Panic]))
        .timeout(300)
        .over(&Via::H2, || {
            Server::start(|peer, _| async move {
                let mut peer = H2::accept(peer).await.unwrap();
                peer.some_body().await;
                advance(Duration::from_millis(300)).await;
                peer.drain().await;
            })
        })
        .await;
}

/// hyper gives the same error to requests that the peer did process (F4), but to none whose body
/// it had polled. A GET has no body to poll.
#[tokio::test]
async fn d3_go_away_below_the_stream_is_not_sent_where_the_body_was_polled() {
    let row = Row::new("D3", Reads::Whole, &not_sent(FailureKind::GoAway));
    row.get(&sent(FailureKind::GoAway))
        .promised()
        .over(&Via::H2, goes_away(0, h2::NO_ERROR))
        .await;
}

/// The connection ends right behind it.
#[tokio::test]
async fn d3c_go_away_below_the_stream_and_a_close_is_the_same() {
    let row = Row::new("D3c", Reads::Whole, &not_sent(FailureKind::GoAway));
    row.get(&sent(FailureKind::GoAway))
        .promised()
        .over(&Via::H2, || {
            serving(|mut peer, _| async move {
                peer.go_away(0, h2::NO_ERROR).await;
                peer.fin().await;
            })
        })
        .await;
}

#[tokio::test]
async fn d5_go_away_below_the_stream_is_not_sent_for_any_reason() {
    let row = Row::new("D5", Reads::Whole, &not_sent(FailureKind::GoAway));
    row.get(&sent(FailureKind::GoAway))
        .promised()
        .over(&Via::H2, goes_away(0, h2::ENHANCE_YOUR_CALM))
        .await;
}

/// The reason is lost; the stream may have been processed.
#[tokio::test]
async fn d4_go_away_at_the_stream_and_a_close_is_unknown() {
    for code in [h2::NO_ERROR, h2::ENHANCE_YOUR_CALM, h2::INTERNAL_ERROR] {
        let row = Row::new("D4", Reads::Whole, &LOST);
        row.over(&Via::H2, || {
            serving(move |mut peer, id| async move {
                peer.go_away(id, code).await;
                peer.fin().await;
            })
        })
        .await;
    }
}

/// What a server says first that shuts down in order: it names no stream yet.
#[tokio::test]
async fn d4m_go_away_above_every_stream_and_a_close_is_unknown() {
    let row = Row::new("D4m", Reads::Whole, &LOST);
    row.over(&Via::H2, || {
        serving(|mut peer, _| async move {
            peer.go_away(i32::MAX.unsigned_abs(), h2::NO_ERROR).await;
            peer.fin().await;
        })
    })
    .await;
}

#[tokio::test]
async fn d4o_go_away_at_the_stream_and_an_answer_is_the_answer() {
    for via in Via::H2 {
        let server = serving(|mut peer, id| async move {
            peer.go_away(id, h2::NO_ERROR).await;
            peer.ok(id).await;
            peer.fin().await;
        });
        let request = request(&Method::POST, &server.url());
        let response = ask(&layer(2), via.service(), request).await.unwrap();
        assert_eq!(read(response).await.unwrap(), "ok");
        assert_eq!(server.ledger.now().whole, 1);
    }
}

/// `is_go_away()`, and nobody sent one that counts.
#[tokio::test]
async fn d5d_a_last_stream_id_that_rises_is_unknown_and_permanent() {
    let row = Row::new("D5d", Reads::Whole, &sent(FailureKind::Protocol));
    row.over(&Via::H2, || {
        serving(|mut peer, id| async move {
            peer.go_away(id, h2::NO_ERROR).await;
            peer.go_away(id + 2, h2::NO_ERROR).await;
            peer.drain().await;
        })
    })
    .await;
}

#[tokio::test]
async fn d6l_a_frame_that_breaks_the_rules_is_unknown_and_permanent() {
    let row = Row::new("D6l", Reads::Whole, &sent(FailureKind::Protocol));
    row.over(&Via::H2, || {
        serving(|mut peer, _| async move {
            peer.data(0, b"on no stream", 0).await;
            peer.drain().await;
        })
    })
    .await;
}

/// Neither client checks what the peer said that it takes: whether it is too large, its answer tells.
#[tokio::test]
async fn d10_request_headers_above_what_the_peer_takes_are_sent_anyway() {
    const MAX_HEADER_LIST_SIZE: u16 = 6;
    for via in Via::H2 {
        let server = Server::start(|peer, _| async move {
            let settings = [(MAX_HEADER_LIST_SIZE, 100)];
            let mut peer = H2::accept_with(peer, &settings).await.unwrap();
            while let Some(id) = peer.request().await {
                peer.ok(id).await;
            }
        });
        let below = via.service();
        // The settings are there before the first answer.
        for large in ["", &"x".repeat(4000)] {
            let before = server.ledger.now().bytes;
            let mut request = request(&Method::POST, &server.url());
            let value = large.parse().unwrap();
            request.headers_mut().insert("x-large", value);
            let layer = layer(2);
            let response = ask(&layer, below.clone(), request).await.unwrap();
            assert_eq!(read(response).await.unwrap(), "ok");
            // Huffman coded, an "x" takes 7 bits.
            assert!(server.ledger.now().bytes - before > large.len() * 7 / 8);
            assert_eq!(layer.contradictions(), 0);
        }
        let entry = server.ledger.now();
        assert_eq!((entry.connections, entry.whole), (1, 2));
    }
}

#[tokio::test]
async fn d10r_an_answer_with_too_large_a_head_is_unknown_and_permanent() {
    let row = Row::new("D10r", Reads::Whole, &sent(FailureKind::Protocol));
    row.over(&Via::H2, || {
        serving(|mut peer, id| async move {
            let mut block = vec![0x88];
            for _ in 0..10 {
                // A new name "x" with a value of 1,600 bytes: 127 + 1,473.
                block.extend_from_slice(&[0x00, 1, b'x', 0x7f, 0xc1, 0x0b]);
                block.extend_from_slice(&[b'v'; 1600]);
            }
            // And some of the static table: each counts 59.
            block.extend_from_slice(&[0x93; 50]);
            // END_HEADERS and END_STREAM.
            peer.send(h2::HEADERS, 5, id, &block).await;
            peer.drain().await;
        })
    })
    .await;
}

#[tokio::test]
async fn d6_a_connection_that_ends_is_unknown() {
    let row = Row::new("D6", Reads::Whole, &LOST);
    row.over(&Via::H2, || serving(|peer, _| peer.fin())).await;
}

#[tokio::test]
async fn d6r_a_connection_that_is_reset_is_unknown() {
    let row = Row::new("D6r", Reads::Whole, &LOST);
    row.over(&Via::H2, || {
        serving(|peer, _| async move { peer.peer.rst() })
    })
    .await;
}

/// At most one stream; the connection dies under those that wait for theirs.
#[tokio::test]
async fn d7_requests_that_wait_for_a_stream_when_the_connection_dies() {
    let mut proven = 0;
    for via in Via::H2 {
        let server = Server::start(|peer, number| async move {
            if number > 0 {
                return peer.rst();
            }
            let mut peer = H2::accept_with(peer, &[(3, 1)]).await.unwrap();
            let first = peer.request().await.unwrap();
            peer.ok(first).await;
            // Until the client knows the limit; then one request gets through.
            peer.request().await;
            pause(100).await;
        });
        let below = via.service();
        let layer = layer(1);
        let warm = request(&Method::GET, &server.url());
        read(ask(&layer, below.clone(), warm).await.unwrap())
            .await
            .unwrap();
        let posts = (0..10).map(|_| request(&Method::POST, &server.url()));
        let mut unknown = 0;
        for answer in ask_all(&layer, &below, posts).await {
            let error = answer.unwrap_err();
            let failure = *error.failure().unwrap();
            assert!(!failure.kind().is_permanent(), "{failure}");
            match error {
                Error::Failed(_) => {
                    assert_eq!(failure.evidence(), Evidence::NotSent);
                    proven += 1;
                }
                Error::Ambiguous(_) => unknown += 1,
            }
        }
        assert!(server.ledger.now().whole <= 1 + unknown);
        assert_eq!(layer.contradictions(), 0);
    }
    println!("D7: {proven} of 18 that were not sent are proven");
}

#[tokio::test]
async fn d11_a_body_that_is_reset_is_partial() {
    let partial = Failure::partial_response(FailureKind::Reset);
    breaks("D11", partial, |mut peer, id| async move {
        peer.respond(id, "10").await;
        peer.data(id, b"four", 0).await;
        pause(20).await;
        peer.reset(id, h2::CANCEL).await;
        peer.drain().await;
    })
    .await;
}

#[tokio::test]
async fn d11c_a_body_whose_connection_ends_is_partial() {
    let partial = Failure::partial_response(FailureKind::Truncated);
    breaks("D11c", partial, |mut peer, id| async move {
        peer.respond(id, "10").await;
        peer.data(id, b"four", 0).await;
        pause(20).await;
        peer.fin().await;
    })
    .await;
}

/// hyper ends such a body as if it were whole (`body/incoming.rs`).
#[tokio::test]
async fn d11n_a_clean_end_short_of_content_length_is_partial() {
    let partial = Failure::partial_response(FailureKind::Truncated);
    breaks("D11n", partial, |mut peer, id| async move {
        peer.respond(id, "10").await;
        peer.data(id, b"four", 0).await;
        pause(20).await;
        peer.reset(id, h2::NO_ERROR).await;
        peer.drain().await;
    })
    .await;
    breaks("D11g", partial, |mut peer, id| async move {
        peer.respond(id, "10").await;
        peer.data(id, b"four", 0).await;
        pause(20).await;
        peer.go_away(0, h2::NO_ERROR).await;
        peer.drain().await;
    })
    .await;
}

/// Without a length nobody can tell it from a whole one.
#[tokio::test]
async fn d11g_a_clean_end_without_a_length_looks_whole() {
    for via in Via::H2 {
        for resets in [true, false] {
            let server = serving(move |mut peer, id| async move {
                peer.respond_without_length(id).await;
                peer.data(id, b"four", 0).await;
                if resets {
                    peer.reset(id, h2::NO_ERROR).await;
                } else {
                    peer.go_away(0, h2::NO_ERROR).await;
                }
                peer.drain().await;
            });
            let request = request(&Method::GET, &server.url());
            let response = ask(&layer(2), via.service(), request).await.unwrap();
            assert_eq!(read(response).await.unwrap(), "four", "{via:?}");
        }
    }
}

#[tokio::test]
async fn d11e_an_end_of_stream_short_of_content_length_is_partial_and_permanent() {
    let partial = Failure::partial_response(FailureKind::Protocol);
    breaks("D11e", partial, |mut peer, id| async move {
        peer.respond(id, "10").await;
        peer.data(id, b"four", 0).await;
        pause(20).await;
        peer.data(id, b"", h2::END_STREAM).await;
        peer.drain().await;
    })
    .await;
}

/// In either shape that the timing gives it: handed back, or lost with the connection.
#[tokio::test]
async fn d12_a_fresh_connection_that_ends_is_not_sent_or_unknown() {
    let outcomes = [
        Failure::not_sent(FailureKind::Closed),
        Failure::not_sent(FailureKind::Reset),
        LOST[0],
        LOST[1],
    ];
    let row = Row::new("D12", Reads::Varies, &outcomes);
    row.over(&Via::H2, || {
        Server::start(|peer, _| async move { peer.fin().await })
    })
    .await;
    row.over(&Via::H2, || {
        Server::start(|peer, _| async move {
            if let Some(peer) = H2::accept(peer).await {
                peer.fin().await;
            }
        })
    })
    .await;
}

#[tokio::test]
async fn d12_a_peer_that_talks_http1_is_permanent() {
    let outcomes = [
        Failure::not_sent(FailureKind::Protocol),
        Failure::sent_no_response(FailureKind::Protocol),
    ];
    let row = Row::new("D12", Reads::Nothing, &outcomes);
    row.over(&Via::H2, || {
        Server::start(|mut peer, _| async move {
            peer.write("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
                .await;
            peer.drain().await;
        })
    })
    .await;
}

fn upload() -> ReplayBody {
    ReplayBody::bytes(vec![7; 1024 * 1024])
}

/// RFC 9113 §8.1: a server may say that it needs no more of the request.
#[tokio::test]
async fn d13_an_answer_and_a_reset_without_an_error_during_the_upload_is_the_answer() {
    for via in Via::H2 {
        let server = Server::start(|peer, _| async move {
            let mut peer = H2::accept(peer).await.unwrap();
            let id = peer.some_body().await.unwrap();
            peer.ok(id).await;
            peer.reset(id, h2::NO_ERROR).await;
            peer.drain().await;
        });
        let request = with_body(&Method::POST, &server.url(), upload());
        let layer = layer(2);
        let response = ask(&layer, via.service(), request).await.unwrap();
        assert_eq!(read(response).await.unwrap(), "ok");
        let entry = server.ledger.now();
        assert_eq!((entry.heads, entry.whole), (1, 0));
    }
}

#[tokio::test]
async fn d14_a_103_and_a_reset_is_no_answer() {
    let row = Row::new("D14", Reads::Whole, &sent(FailureKind::Reset));
    row.over(&Via::H2, || {
        serving(|mut peer, mut id| async move {
            loop {
                peer.early_hints(id).await;
                pause(10).await;
                peer.reset(id, h2::CANCEL).await;
                match peer.request().await {
                    Some(next) => id = next,
                    None => return,
                }
            }
        })
    })
    .await;
}

/// The answer was complete; sometimes the client says that its body broke.
#[tokio::test]
async fn d16_a_complete_answer_and_a_close_during_the_upload_is_an_answer() {
    for via in Via::H2 {
        for _ in 0..20 {
            let server = Server::start(|peer, _| async move {
                let mut peer = H2::accept(peer).await.unwrap();
                let id = peer.some_body().await.unwrap();
                peer.ok(id).await;
                peer.go_away(id, h2::NO_ERROR).await;
                peer.fin().await;
            });
            let request = with_body(&Method::POST, &server.url(), upload());
            let layer = layer(2);
            match ask(&layer, via.service(), request).await {
                Ok(response) => match read(response).await {
                    Ok(body) => assert_eq!(body, "ok"),
                    Err(error) => assert!(error.evidence() >= Evidence::ResponseReceived),
                },
                Err(error) => assert!(error.is_ambiguous(), "{error}"),
            }
            assert_eq!(server.ledger.now().heads, 1);
            assert_eq!(layer.contradictions(), 0);
        }
    }
}

#[tokio::test]
async fn d18_a_keep_alive_that_is_not_answered_is_unknown() {
    for via in Via::H2 {
        for method in [Method::POST, Method::GET] {
            let server = Server::start(|peer, _| async move {
                let mut peer = H2::accept(peer).await.unwrap();
                peer.pong = false;
                peer.drain().await;
            });
            let (often, soon) = (Duration::from_millis(50), Duration::from_millis(50));
            let below = if via.is_hyper() {
                let mut builder = hyper_builder();
                builder
                    .http2_only(true)
                    .http2_keep_alive_interval(often)
                    .http2_keep_alive_timeout(soon);
                below(HyperService::new(builder.build_http()))
            } else {
                let builder = reqwest_builder()
                    .http2_prior_knowledge()
                    .http2_keep_alive_interval(often)
                    .http2_keep_alive_timeout(soon);
                below(ReqwestService::build(builder).unwrap())
            };
            let layer = layer(1);
            let error = ask(&layer, below, request(&method, &server.url()))
                .await
                .unwrap_err();
            let expected = Failure::sent_no_response(FailureKind::Closed);
            assert_eq!(error.failure(), Some(&expected), "{error:?}");
            assert_eq!(error.is_ambiguous(), method == Method::POST);
            assert_eq!(server.ledger.until(|entry| entry.whole > 0).await.whole, 1);
        }
    }
}

/// "Not yet sent" at the timeout is not final: the client writes the head as soon as a stream is
/// free, 400 ms later, followed by a reset.
#[tokio::test]
async fn d20_a_timeout_while_waiting_for_a_stream_is_unknown_unless_the_body_is_gone() {
    for via in Via::H2 {
        let server = Server::start(|peer, _| async move {
            let mut peer = H2::accept_with(peer, &[(3, 1)]).await.unwrap();
            let warm = peer.request().await.unwrap();
            peer.ok(warm).await;
            let long = peer.request().await.unwrap();
            pause(300).await;
            peer.ok(long).await;
            peer.drain().await;
        });
        let below = via.service();
        let plain = layer(1);
        let get = || request(&Method::GET, &server.url());
        read(ask(&plain, below.clone(), get()).await.unwrap())
            .await
            .unwrap();
        let long = tokio::spawn({
            let (plain, below, get) = (plain.clone(), below.clone(), get());
            async move { ask(&plain, below, get).await }
        });
        pause(50).await;
        let hurried = layer(1).with_attempt_timeout(Duration::from_millis(100));
        let posts = (0..3).map(|_| request(&Method::POST, &server.url()));
        let mut unknown = 0;
        for answer in ask_all(&hurried, &below, posts).await {
            match answer.unwrap_err() {
                Error::Ambiguous(_) => unknown += 1,
                Error::Failed(error) => assert_eq!(error.evidence(), Evidence::NotSent),
            }
        }
        assert!(long.await.unwrap().is_ok());
        pause(200).await;
        let entry = server.ledger.now();
        assert!(entry.heads <= 2 + unknown, "{unknown} unknown: {entry:?}");
        assert_eq!(hurried.contradictions(), 0);
    }
}
