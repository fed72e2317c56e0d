//! Evidence §2.5: what reqwest does on its own below the layer.
#![cfg(all(feature = "hyper", feature = "reqwest"))]
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "support/wire/mod.rs"]
mod wire;

use http::{Method, StatusCode};
use tower_http_retry::{Error, Evidence, Failure, FailureKind, ReqwestService};
use wire::h2::{self, H2};
use wire::row::{ask, layer, request};
use wire::via::{Below, Via, below, reqwest_builder};
use wire::{Server, h1, nobody};

/// Over a client as it comes: it follows redirects, and retries.
fn ready() -> Below {
    below(ReqwestService::new(reqwest_builder().build().unwrap()))
}

fn ready_h2() -> Below {
    let builder = reqwest_builder().http2_prior_knowledge();
    below(ReqwestService::new(builder.build().unwrap()))
}

fn built() -> Below {
    Via::ReqwestH1.service()
}

/// Executes every request, and sends the client there.
fn redirects(status: u16, to: String) -> Server {
    Server::start(move |mut peer, _| {
        let answer =
            format!("HTTP/1.1 {status} See There\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
        async move {
            while peer.request().await.is_some() {
                peer.write(&answer).await;
            }
        }
    })
}

/// `is_connect()`, and the POST was executed.
#[tokio::test]
async fn g1_a_connect_error_after_a_redirect_proves_nothing() {
    let server = redirects(303, format!("http://{}/", nobody()));
    let layer = layer(3);
    let error = ask(&layer, ready(), request(&Method::POST, &server.url()))
        .await
        .unwrap_err();
    assert_eq!(error.evidence(), Evidence::SentNoResponse, "{error}");
    assert!(error.is_ambiguous());
    assert_eq!(server.ledger.now().whole, 1);
    assert_eq!(layer.contradictions(), 0, "nothing was claimed");
}

#[tokio::test]
async fn g1_with_redirects_off_a_redirect_is_the_answer() {
    for status in [301, 303, 307, 308] {
        let server = redirects(status, format!("http://{}/", nobody()));
        let response = ask(&layer(3), built(), request(&Method::POST, &server.url()))
            .await
            .unwrap();
        assert_eq!(response.status().as_u16(), status);
        assert_eq!(server.ledger.now().whole, 1);
    }
}

/// What the witness saw holds for any client.
#[tokio::test]
async fn g1_a_first_connect_that_fails_is_not_sent_by_a_ready_client_either() {
    for below in [ready(), ready_h2()] {
        let layer = layer(2);
        let dead = format!("http://{}/", nobody());
        let error = ask(&layer, below, request(&Method::POST, &dead))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Failed(_)), "{error}");
        let expected = Failure::not_sent(FailureKind::Connect);
        assert_eq!(error.failure(), Some(&expected));
        assert_eq!(error.report().attempts().len(), 2);
    }
}

#[tokio::test]
async fn g2_a_redirect_loop_was_answered_and_is_permanent() {
    for (method, ambiguous) in [(Method::POST, true), (Method::GET, false)] {
        let server = redirects(302, "/orders".to_owned());
        let layer = layer(3);
        let error = ask(&layer, ready(), request(&method, &server.url()))
            .await
            .unwrap_err();
        let expected = Failure::response_received(FailureKind::RedirectLoop);
        assert_eq!(error.failure(), Some(&expected), "{error}");
        assert_eq!(error.is_ambiguous(), ambiguous, "{error}");
        assert_eq!(error.report().attempts().len(), 1);
        assert_eq!(server.ledger.now().whole, 11);
    }
}

/// `is_builder()`, and the POST was executed.
#[tokio::test]
async fn g3_a_redirect_to_another_scheme_proves_nothing() {
    let server = redirects(303, "ftp://elsewhere.example/".to_owned());
    let layer = layer(3);
    let answer = ask(&layer, ready(), request(&Method::POST, &server.url())).await;
    match answer {
        // Some versions hand the redirect through.
        Ok(response) => assert_eq!(response.status(), StatusCode::SEE_OTHER),
        Err(error) => {
            assert!(error.evidence() > Evidence::NotSent, "{error}");
            assert!(error.is_ambiguous(), "{error}");
        }
    }
    assert_eq!(server.ledger.now().whole, 1);
    assert_eq!(layer.contradictions(), 0);
}

/// A wrapped body cannot be cloned, so a client's own retry does not repeat it; and where it has
/// done so with an empty one, its errors prove nothing.
#[tokio::test]
async fn g4_a_retry_below_proves_nothing() {
    let server = Server::start(|mut peer, _| async move {
        peer.request().await;
        peer.write("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            .await;
        peer.fin().await;
    });
    let retry =
        reqwest::retry::for_host("127.0.0.1").classify_fn(|attempt| match attempt.status() {
            Some(StatusCode::SERVICE_UNAVAILABLE) => attempt.retryable(),
            _ => attempt.success(),
        });
    let client = reqwest_builder().retry(retry).build().unwrap();
    let layer = layer(1);
    let request = request(&Method::POST, &server.url());
    let answer = ask(&layer, below(ReqwestService::new(client)), request).await;
    let error = answer.unwrap_err();
    assert!(error.is_ambiguous());
    assert_eq!(error.status(), Some(StatusCode::SERVICE_UNAVAILABLE));
    assert_eq!(server.ledger.now().whole, 1, "once");
}

/// By default reqwest repeats what was refused or met a GOAWAY, POSTs included; not what goes
/// through this service.
#[tokio::test]
async fn d17_reqwest_does_not_repeat_below_the_layer() {
    for (built, below) in [(true, Via::ReqwestH2.service()), (false, ready_h2())] {
        for go_away in [true, false] {
            let server = Server::start(move |peer, _| async move {
                let Some(mut peer) = H2::accept(peer).await else {
                    return;
                };
                while let Some(id) = peer.request().await {
                    if go_away {
                        peer.go_away(0, h2::NO_ERROR).await;
                    } else {
                        peer.reset(id, h2::REFUSED_STREAM).await;
                    }
                }
            });
            let layer = layer(1);
            let request = request(&Method::POST, &server.url());
            let error = ask(&layer, below.clone(), request).await.unwrap_err();
            assert_eq!(server.ledger.now().whole, 1, "once");
            // A promise counts only where the client is known to send one request a call.
            assert_eq!(error.evidence() == Evidence::NotSent, built, "{error}");
            assert_eq!(error.is_ambiguous(), !built);
        }
    }
}

/// reqwest in a service of the user's own: nothing is known of the client, so nothing is claimed.
#[tokio::test]
async fn g4_reqwest_in_a_foreign_service_proves_nothing() {
    let client = reqwest_builder().build().unwrap();
    let foreign = tower::service_fn(
        move |request: http::Request<tower_http_retry::ReplayBody>| {
            let client = client.clone();
            async move {
                // The body is dropped, unread: an empty one is sent in its place.
                let (head, _) = request.into_parts();
                let request = client.request(head.method, head.uri.to_string());
                request
                    .send()
                    .await
                    .map(http::Response::<reqwest::Body>::from)
            }
        },
    );
    let server = redirects(303, format!("http://{}/", nobody()));
    let layer = layer(3);
    let error = ask(
        &layer,
        below(foreign),
        request(&Method::POST, &server.url()),
    )
    .await
    .unwrap_err();
    assert_eq!(error.evidence(), Evidence::SentNoResponse, "{error}");
    assert_eq!(server.ledger.now().heads, 1);
}

#[tokio::test]
async fn a_body_that_is_empty_goes_through() {
    for below in [built(), ready()] {
        let server = Server::start(|mut peer, _| async move {
            peer.request().await;
            peer.write(h1::OK).await;
            peer.drain().await;
        });
        let response = ask(&layer(1), below, request(&Method::GET, &server.url()))
            .await
            .unwrap();
        assert_eq!(wire::row::read(response).await.unwrap(), "ok");
    }
}
