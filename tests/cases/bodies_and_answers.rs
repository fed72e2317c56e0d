//! The caller gets what the server said, whole: kinds lost-outcome, partial-response, head-204,
//! redirects.

use http::{Method, Response};
use http_body_util::BodyExt;
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_http::follow_redirect::FollowRedirectLayer;
use tower_http_retry::{
    BodyError, Delivery, Evidence, Failure, FailureKind, IoFailures, ReplayBody, Report,
    ResponseBody, RetryDenied, RetryLayer, Rule, StandardPolicy,
};

use super::support::body::{Step, TestBody};
use super::support::script::Script;
use super::support::upload::{Sink, Take};
use super::support::{MS, layer, policy, request};
use super::{Reply, busy, get, ok, post, reset, run, times};

/// What the caller reads: the bytes, and the error at their end.
async fn read(body: ResponseBody<TestBody>) -> (Vec<u8>, Option<BodyError>) {
    let (mut body, mut bytes) = (body, Vec::new());
    loop {
        match body.frame().await {
            None => return (bytes, None),
            Some(Ok(frame)) => bytes.extend(frame.into_data().unwrap()),
            Some(Err(error)) => return (bytes, Some(error)),
        }
    }
}

/// LO-03 and LO-04. The contract's word for the reason is the status.
#[tokio::test(start_paused = true)]
async fn lo_03_lo_04_a_denied_response_is_passed_on_byte_for_byte() {
    #[derive(Clone, PartialEq, Debug)]
    struct Route(u8);

    let reply = Reply::status(500)
        .header("content-type", "application/problem+json")
        .header("x-trace", "a")
        .header("x-trace", "b")
        .body(br#"{"why":"stock"}"#);
    let Reply::Response(mut response) = reply else {
        panic!("a response")
    };
    response.extensions_mut().insert(Route(7));
    let ran = run(&layer(), post(), [Reply::Response(response)]).await;
    ran.waited([]);
    assert_eq!(
        ran.denied(),
        Some(RetryDenied::Status(http::StatusCode::INTERNAL_SERVER_ERROR))
    );
    let response = ran.answer.unwrap();
    assert_eq!(response.status(), 500);
    assert_eq!(response.headers().len(), 3);
    let traces = response.headers().get_all("x-trace");
    assert_eq!(traces.iter().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(response.extensions().get::<Route>(), Some(&Route(7)));
    let (bytes, error) = read(response.into_body()).await;
    assert_eq!(bytes, br#"{"why":"stock"}"#);
    assert!(error.is_none());
}

#[tokio::test(start_paused = true)]
async fn lo_05_a_success_does_not_carry_an_earlier_error() {
    let not_sent = Reply::fails(Failure::not_sent(FailureKind::Reset));
    let ran = run(&layer(), get(), [not_sent, busy(), ok()]).await;
    ran.waited([100, 200]);
    assert_eq!(ran.status(), 200);
    assert_eq!(ran.denied(), None);
    let last = ran.report().unwrap().attempts().last().unwrap();
    assert_eq!(last.failure(), None);
}

/// The server answers 401 while the upload still runs, and the upload then breaks: the answer wins.
#[tokio::test(start_paused = true)]
async fn lo_06_an_early_answer_is_not_lost_to_a_broken_upload() {
    let sink = Sink::new([Take::some(1, 401).keeps()]);
    let chunk = vec![b'x'; 64 * 1024];
    let upload = ReplayBody::chain((0..160).map(|_| ReplayBody::bytes(chunk.clone())));
    let service = layer().layer(sink.clone());
    let answer = service.oneshot(request(Method::POST, upload)).await;
    drop(sink.kept()); // EPIPE: the transport gives the body up
    let response = answer.unwrap();
    assert_eq!(response.status(), 401);
    assert_eq!(sink.got().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn lo_07_the_last_error_keeps_its_type_and_gets_its_context() {
    let io = |number: i32| std::io::Error::other(format!("reset {number}"));
    let replies = (1..=4).map(|number| Reply::Error(io(number).into()).after(10 * MS));
    let ran = run(&layer(), get(), replies).await;
    ran.waited([100, 200, 400]);
    ran.failed(FailureKind::Unknown);
    assert_eq!(ran.denied(), Some(RetryDenied::MaxAttempts));
    let source = std::error::Error::source(ran.error()).unwrap();
    let source = source.downcast_ref::<std::io::Error>().unwrap();
    assert_eq!(source.to_string(), "reset 4");
    let attempts = ran.report().unwrap().attempts();
    assert!(attempts.iter().all(|a| a.duration() == 10 * MS));
    let said = ran.error().to_string();
    assert!(said.contains("after 4 attempts") && said.contains("attempts exhausted"));
}

/// Two rules, of which the second alone knows the error: both see the same outcome.
#[tokio::test(start_paused = true)]
async fn lo_08_every_part_of_a_composite_policy_sees_the_outcome() {
    let composite = StandardPolicy::blank_builder()
        .retries(3)
        .io_failures(IoFailures::Deny)
        .backoff(tower_http_retry::Backoff::exponential(100 * MS, 1000 * MS).without_jitter())
        .rule(|attempt| {
            let a = (attempt.failure()?.kind() == FailureKind::Dns).then_some(Rule::Retry);
            a.or_else(|| (attempt.failure()?.kind() == FailureKind::Reset).then_some(Rule::Retry))
        })
        .build()
        .unwrap();
    let ran = run(&RetryLayer::new(composite), get(), [reset(), ok()]).await;
    ran.waited([100]);
    assert_eq!(ran.status(), 200);
}

/// PR-01, PR-02 and PR-03: there is no transparent resume; what was seen is told, for whoever
/// wants to resume by range and tag.
#[tokio::test(start_paused = true)]
async fn pr_01_pr_02_pr_03_a_body_that_breaks_after_its_headers_is_not_retried() {
    let broken = Reply::status(200)
        .header("etag", "\"v1\"")
        .header("content-length", "10")
        .steps([Step::Data(b"H"), Step::Data(b"ell"), Step::Fail("closed")]);
    let other = Reply::status(206).body(b"other bytes");
    let ran = run(&layer(), get(), [broken, other]).await;
    ran.waited([]);
    let script = ran.script.clone();
    let response = ran.answer.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["etag"], "\"v1\"");
    let (bytes, error) = read(response.into_body()).await;
    let error = error.unwrap();
    assert_eq!(bytes, b"Hell");
    assert_eq!(error.evidence(), Evidence::PartialResponse);
    assert_eq!(error.delivered_bytes(), 4);
    assert_eq!(error.denied(), RetryDenied::ResponseAlreadyDelivered);
    assert_eq!(script.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn pr_04_a_response_that_is_waited_for_is_retried_if_its_body_breaks() {
    let replies = || {
        let broken = [Step::Data(b"ha"), Step::Fail("closed")];
        [Reply::status(200).steps(broken), ok().body(b"whole")]
    };
    let ran = run(&layer(), get(), replies()).await;
    ran.waited([]);
    let (_, error) = read(ran.answer.unwrap().into_body()).await;
    assert!(error.is_some());

    let whole = layer().with_delivery(Delivery::Whole { limit: 1024 });
    let ran = run(&whole, get(), replies()).await;
    ran.waited([100]);
    let (bytes, error) = read(ran.answer.unwrap().into_body()).await;
    assert!(error.is_none());
    assert_eq!(bytes, b"whole");

    // Only for idempotent operations.
    let ran = run(&whole, post(), replies()).await;
    ran.waited([]);
    assert_eq!(ran.denied(), Some(RetryDenied::NotIdempotent));
}

#[tokio::test(start_paused = true)]
async fn hd_01_hd_02_the_length_that_an_answer_to_head_declares_never_comes() {
    let head = || request(Method::HEAD, ());
    for delivery in [Delivery::AtHeaders, Delivery::Whole { limit: 4096 }] {
        let layer = layer().with_delivery(delivery);
        let ran = run(&layer, head(), [ok().header("content-length", "1000")]).await;
        ran.waited([]);
        let (bytes, error) = read(ran.answer.unwrap().into_body()).await;
        assert!(bytes.is_empty() && error.is_none());

        let failed = busy().header("content-length", "1000");
        let ran = run(&layer, head(), [failed, ok()]).await;
        ran.waited([100]);
        assert_eq!(ran.status(), 200);
        assert_eq!(ran.took, 100 * MS, "nothing was waited for");
    }
}

/// Redirects are followed below the layer: three hops are one attempt.
#[tokio::test(start_paused = true)]
async fn rd_02_hops_are_not_attempts() {
    let hops = || times(3, || Reply::status(302).header("location", "/next"));
    let script = Script::new(hops().chain([busy()]).chain(hops()).chain([ok()]));
    let three = RetryLayer::new(policy().retries(2).build().unwrap());
    let service = ServiceBuilder::new()
        .layer(three)
        .layer(FollowRedirectLayer::new())
        .service(script.clone());
    let response: Response<_> = service.oneshot(get()).await.unwrap();
    assert_eq!(response.status(), 200);
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!(report.attempts().len(), 2);
    assert_eq!(report.attempts()[1].waited_before(), 100 * MS);
    assert_eq!(script.attempts(), 8);
}

#[tokio::test(start_paused = true)]
async fn rd_03_rd_04_a_redirect_is_an_answer() {
    let later = Reply::status(302).header("retry-after", "5");
    for (request, reply) in [(get(), later), (post(), Reply::status(307))] {
        let ran = run(&layer(), request, [reply]).await;
        ran.waited([]);
        assert!(ran.status().is_redirection());
        assert!(ran.report().is_none(), "accepted at once");
        assert!(ran.took.is_zero());
    }
}
