//! What is printed, letter by letter: for somebody who reads a log at night and has to know what
//! happened, which step said no, and what may be done now. Nothing printed holds a header value, a
//! body or a query.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)] // helpers of tests

mod support;

use std::num::NonZeroU32;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, request, response};
use support::script::{Reply, Script};
use support::{MS, layer, paused, request};
use tower::{Layer, ServiceExt};
use tower_http_retry::{
    Backoff, BodyState, BodyTrace, Budget, Budgets, Decision, Delivery, Error, Evidence,
    EvidenceError, Execution, Facts, FailedAttempt, Failure, FailureKind, Phase, ReplayBody,
    Replayability, Report, RetryDenied, RetryLayer, Rule, StandardPolicy, Step, Upstream,
    UpstreamKey, decide,
};

fn head(method: Method) -> request::Parts {
    let request = Request::builder().method(method).uri("/orders").body(());
    request.unwrap().into_parts().0
}

fn answered(status: u16) -> response::Parts {
    let response = Response::builder().status(status).body(());
    response.unwrap().into_parts().0
}

fn verdict(facts: Facts<'_>) -> String {
    let policy = StandardPolicy::default();
    decide(&policy, &facts.attempt_for(&policy)).to_string()
}

#[test]
fn a_verdict_is_one_sentence() {
    let (get, post) = (head(Method::GET), head(Method::POST));
    let third = NonZeroU32::new(3).unwrap();
    let reset = Failure::sent_no_response(FailureKind::Reset);
    let refused = Failure::not_sent(FailureKind::Connect);
    let [ok, missing, unauthorized, busy] = [200, 404, 401, 503].map(answered);
    for (facts, text) in [
        (Facts::response(&get, &ok), "accepted"),
        (Facts::response(&get, &busy), "retry"),
        (
            Facts::response(&get, &unauthorized).refresh_available(),
            "retry with a new credential",
        ),
        (
            Facts::response(&get, &missing),
            "no retry: status 404 is not retried (step 9); the response is the answer",
        ),
        (
            Facts::failure(&get, &reset).attempt_number(third),
            "no retry: attempts exhausted (step 1); idempotent, safe to send again",
        ),
        (
            Facts::failure(&post, &refused).budget_empty(),
            "no retry: retry budget empty (step 2); not executed, safe to send again",
        ),
        (
            Facts::failure(&post, &reset).body_state(BodyState::Consumed),
            "no retry: request body cannot be sent again [CONSUMED] (step 3); AMBIGUOUS, it may have \
             been executed: ask the upstream or replay under a key, never send it again blindly",
        ),
        (
            Facts::failure(&post, &reset),
            "no retry: execution unknown (step 8); AMBIGUOUS, it may have been executed: ask the \
             upstream or replay under a key, never send it again blindly",
        ),
        (
            Facts::response(&post, &busy),
            "no retry: execution unknown (step 9); AMBIGUOUS, it may have been executed: ask the \
             upstream or replay under a key, never send it again blindly",
        ),
    ] {
        assert_eq!(verdict(facts), text);
    }
}

#[test]
fn a_decision_is_its_first_half() {
    for (decision, text) in [
        (Decision::Accept, "accepted"),
        (Decision::Retry, "retry"),
        (Decision::Refresh, "retry with a new credential"),
        (
            Decision::Denied(RetryDenied::MaxAttempts),
            "no retry: attempts exhausted",
        ),
        (Decision::Ambiguous, "no retry: execution unknown"),
    ] {
        assert_eq!(decision.to_string(), text);
    }
}

#[test]
fn a_denial_says_why() {
    for (denied, text) in [
        (RetryDenied::MaxAttempts, "attempts exhausted"),
        (RetryDenied::BudgetExhausted, "retry budget empty"),
        (
            RetryDenied::BodyNotReplayable(BodyState::Overflowed),
            "request body cannot be sent again [OVERFLOWED]",
        ),
        (
            RetryDenied::ResponseAlreadyDelivered,
            "caller already holds a part of the response",
        ),
        (RetryDenied::RuntimeDraining, "process is draining"),
        (RetryDenied::Deadline, "deadline leaves too little time"),
        (
            RetryDenied::PermanentFailure(FailureKind::Certificate),
            "permanent failure: certificate refused",
        ),
        (
            RetryDenied::RetryAfter(Duration::from_secs(90)),
            "server asks to wait 90s, longer than agreed to",
        ),
        (
            RetryDenied::RetryAfter(Duration::MAX),
            "server asks for a longer wait than agreed to",
        ),
        (
            RetryDenied::NotIdempotent,
            "answer broke off, and not idempotent",
        ),
        (
            RetryDenied::Status(StatusCode::NOT_FOUND),
            "status 404 is not retried",
        ),
        (
            RetryDenied::TooEarly,
            "425 that no replay outside early data can help",
        ),
        (RetryDenied::Unauthorized, "401 without a new credential"),
        (
            RetryDenied::Failure(FailureKind::Connect),
            "failure is not retried: no connection",
        ),
    ] {
        assert_eq!(denied.to_string(), text);
    }
}

#[test]
fn a_failure_names_its_kind_and_its_evidence() {
    let failure = Failure::not_sent(FailureKind::ConnectTimeout);
    assert_eq!(failure.to_string(), "connect timed out (NOT_SENT)");
    for (kind, text) in [
        (FailureKind::Dns, "host name not resolved"),
        (FailureKind::Connect, "no connection"),
        (FailureKind::ConnectTimeout, "connect timed out"),
        (FailureKind::PoolTimeout, "no pooled connection in time"),
        (FailureKind::Tls, "TLS handshake cut off"),
        (FailureKind::Certificate, "certificate refused"),
        (FailureKind::StreamRefused, "stream refused by the peer"),
        (FailureKind::GoAway, "peer going away"),
        (FailureKind::Closed, "connection closed"),
        (FailureKind::Reset, "connection or stream reset"),
        (FailureKind::Truncated, "response body truncated"),
        (FailureKind::ResponseTimeout, "no response headers in time"),
        (FailureKind::DeadlineReached, "deadline reached"),
        (
            FailureKind::Protocol,
            "protocol not spoken or not supported",
        ),
        (FailureKind::Rejected, "rejected on the caller's side"),
        (FailureKind::InvalidRequest, "invalid request"),
        (FailureKind::RequestBody, "request body failed"),
        (
            FailureKind::BodyChanged,
            "request body changed between attempts",
        ),
        (FailureKind::RedirectLoop, "too many redirects"),
        (FailureKind::LocalOverload, "local overload"),
        (FailureKind::AlreadyRetried, "already retried below"),
        (FailureKind::Readiness, "inner service not ready"),
        (FailureKind::Unknown, "unknown failure"),
    ] {
        assert_eq!(kind.to_string(), text);
    }
}

#[test]
fn facts_have_names_to_search_for() {
    let evidence = [
        Evidence::NotSent,
        Evidence::SentNoResponse,
        Evidence::ResponseReceived,
        Evidence::PartialResponse,
    ];
    assert_eq!(
        evidence.map(|evidence| evidence.to_string()),
        [
            "NOT_SENT",
            "SENT_NO_RESPONSE",
            "RESPONSE_RECEIVED",
            "PARTIAL_RESPONSE"
        ]
    );
    let execution = [
        Execution::NotExecuted,
        Execution::Answered,
        Execution::Unknown,
    ];
    assert_eq!(
        execution.map(|execution| execution.to_string()),
        ["not executed", "answered", "execution unknown"]
    );
    let marks = [
        Replayability::OneShot,
        Replayability::Reopenable,
        Replayability::Replayable,
    ];
    assert_eq!(
        marks.map(|mark| mark.to_string()),
        ["ONE_SHOT", "REOPENABLE", "REPLAYABLE"]
    );
    let states = [
        BodyState::Empty,
        BodyState::Replayable,
        BodyState::Reopenable,
        BodyState::Untouched,
        BodyState::Consumed,
        BodyState::Overflowed,
    ];
    assert_eq!(
        states.map(|state| state.to_string()),
        [
            "EMPTY",
            "REPLAYABLE",
            "REOPENABLE",
            "UNTOUCHED",
            "CONSUMED",
            "OVERFLOWED"
        ]
    );
    assert_eq!(Step::Rule as u8, 9);
}

fn call(
    layer: RetryLayer,
    method: Method,
    replies: Vec<Reply>,
) -> Result<Response<impl Sized>, Error> {
    let script = Script::new(replies);
    paused(
        layer
            .layer(script)
            .oneshot(request(method, "order 17 of Ann")),
    )
}

fn fails(failure: Failure) -> Reply {
    Reply::fails(failure).after(3 * MS)
}

#[test]
fn an_error_says_what_was_tried_what_is_known_who_said_no_and_what_to_do() {
    let reset = || fails(Failure::sent_no_response(FailureKind::Reset));
    let refused = || fails(Failure::not_sent(FailureKind::Connect));
    let none = || RetryLayer::new(StandardPolicy::none());
    let dry = Budget::builder()
        .floor_per_second(0.0)
        .capacity(1)
        .build()
        .unwrap();
    dry.try_withdraw().unwrap().spend();
    for (answer, text) in [
        (
            call(layer(), Method::POST, vec![reset()]),
            "ambiguous after 1 attempt: connection or stream reset [SENT_NO_RESPONSE]; no retry: \
             execution unknown (step 8); AMBIGUOUS, it may have been executed: ask the upstream or \
             replay under a key, never send it again blindly",
        ),
        (
            call(layer(), Method::POST, vec![Reply::status(503)]),
            "ambiguous after 1 attempt: status 503 [RESPONSE_RECEIVED]; no retry: execution unknown \
             (step 9); AMBIGUOUS, it may have been executed: ask the upstream or replay under a key, \
             never send it again blindly",
        ),
        (
            call(none(), Method::POST, vec![reset()]),
            "ambiguous after 1 attempt: connection or stream reset [SENT_NO_RESPONSE]; no retry: \
             attempts exhausted (step 1); AMBIGUOUS, it may have been executed: ask the upstream or \
             replay under a key, never send it again blindly",
        ),
        (
            call(
                layer(),
                Method::POST,
                vec![refused(), refused(), refused(), refused()],
            ),
            "request failed after 4 attempts: no connection [NOT_SENT]; no retry: attempts exhausted \
             (step 1); not executed, safe to send again",
        ),
        (
            call(
                layer(),
                Method::PUT,
                vec![reset(), refused(), refused(), refused()],
            ),
            "request failed after 4 attempts: no connection [NOT_SENT]; no retry: attempts exhausted \
             (step 1); idempotent, safe to send again",
        ),
        (
            call(layer().with_budgets(dry), Method::GET, vec![reset()]),
            "request failed after 1 attempt: connection or stream reset [SENT_NO_RESPONSE]; no \
             retry: retry budget empty (step 2); idempotent, safe to send again",
        ),
        (
            call(
                layer(),
                Method::POST,
                vec![fails(Failure::not_sent(FailureKind::Certificate))],
            ),
            "request failed after 1 attempt: certificate refused [NOT_SENT]; no retry: permanent \
             failure: certificate refused (step 7); not executed, safe to send again",
        ),
        (
            call(
                layer().with_deadline(50 * MS),
                Method::POST,
                vec![Reply::Hang],
            ),
            "ambiguous after 1 attempt: deadline reached [SENT_NO_RESPONSE]; no retry: deadline \
             leaves too little time (step 6); AMBIGUOUS, it may have been executed: ask the upstream \
             or replay under a key, never send it again blindly",
        ),
    ] {
        let error = answer.err().unwrap();
        assert_eq!(error.to_string(), text);
        // The arms say the same as the whole.
        assert_eq!(
            match error {
                Error::Ambiguous(failure) => failure.to_string(),
                Error::Failed(failure) => failure.to_string(),
            },
            text
        );
    }
}

#[test]
fn what_to_do_follows_from_the_whole_call_not_from_the_last_attempt() {
    // A rule that repeats a 500 to a POST: that attempt was answered, the next one never left.
    let policy = StandardPolicy::builder()
        .rule(|attempt| (attempt.status()?.as_u16() == 500).then_some(Rule::Retry))
        .retries(1)
        .build()
        .unwrap();
    let refused = fails(Failure::not_sent(FailureKind::Connect));
    let answer = call(
        RetryLayer::new(policy),
        Method::POST,
        vec![Reply::status(500), refused],
    );
    assert_eq!(
        answer.err().unwrap().to_string(),
        "ambiguous after 2 attempts: no connection [NOT_SENT]; no retry: attempts exhausted (step \
         1); AMBIGUOUS, it may have been executed: ask the upstream or replay under a key, never \
         send it again blindly",
    );
}

#[test]
fn a_call_that_never_began_says_so() {
    #[derive(Clone)]
    struct Unready;
    impl tower::Service<Request<ReplayBody>> for Unready {
        type Response = Response<http_body_util::Empty<bytes::Bytes>>;
        type Error = EvidenceError;
        type Future = std::future::Pending<Result<Self::Response, Self::Error>>;

        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), EvidenceError>> {
            let failure = Failure::not_sent(FailureKind::Readiness);
            std::task::Poll::Ready(Err(EvidenceError::new(failure, "closed")))
        }

        fn call(&mut self, _: Request<ReplayBody>) -> Self::Future {
            std::future::pending()
        }
    }
    let error = paused(layer().layer(Unready).oneshot(request(Method::POST, ())));
    assert_eq!(
        error.err().unwrap().to_string(),
        "request failed before the first attempt: inner service not ready [NOT_SENT]; not executed, \
         safe to send again",
    );
}

#[test]
fn a_report_is_one_line_an_attempt() {
    let replies = vec![
        fails(Failure::not_sent(FailureKind::Connect)),
        Reply::status(503).after(7 * MS),
        Reply::status(404).after(MS),
    ];
    let response = call(layer(), Method::PUT, replies).unwrap();
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!(
        report.to_string(),
        "attempt 1: no connection [NOT_SENT] in 3ms; retry\n\
         attempt 2, after a wait of 100ms: 503 [RESPONSE_RECEIVED] in 7ms; retry\n\
         attempt 3, after a wait of 200ms: 404 [RESPONSE_RECEIVED] in 1ms; no retry: status 404 is \
         not retried (step 9); idempotent, safe to send again"
    );
    assert_eq!(
        report.attempts()[1].to_string(),
        report.to_string().lines().nth(1).unwrap()
    );
}

#[test]
fn the_page_on_operations_shows_a_report() {
    let page = include_str!("../docs/operations.md");
    let shown = page.split_once("## Reading a report").unwrap().1;
    let shown = shown.split("```").nth(1).unwrap();
    let shown = shown.trim_start_matches("text\n").replace("\n    ", " ");

    let backoff = Backoff::default()
        .with_throttled_base(370 * MS)
        .without_jitter();
    let policy = StandardPolicy::builder()
        .retries(1)
        .backoff(backoff)
        .build()
        .unwrap();
    let reset = Reply::fails(Failure::sent_no_response(FailureKind::Reset)).after(31 * MS);
    let replies = vec![Reply::status(503).after(4 * MS), reset];
    let answer = call(RetryLayer::new(policy), Method::PUT, replies);
    assert_eq!(answer.err().unwrap().report().to_string(), shown.trim_end());
}

#[test]
fn a_body_that_breaks_says_how_much_arrived() {
    let reply = Reply::status(200)
        .body(b"half of it")
        .header("content-length", "20");
    let script = Script::new([reply]);
    let error = paused(async {
        let layer = layer().with_delivery(Delivery::AtHeaders);
        let response = layer.layer(script).oneshot(request(Method::GET, ()));
        let body = response.await.unwrap().into_body();
        http_body_util::BodyExt::collect(body).await.unwrap_err()
    });
    assert_eq!(
        error.to_string(),
        "response body broke after 10 bytes: response body truncated (PARTIAL_RESPONSE); no retry: \
         caller already holds a part of the response",
    );
}

#[test]
fn a_wrong_setting_names_itself_and_its_value() {
    let error = StandardPolicy::builder()
        .base_delay(Duration::from_secs(60))
        .build();
    assert_eq!(
        error.unwrap_err().to_string(),
        "base_delay cannot be 60s: it is above the maximum delay"
    );
}

#[test]
fn debug_says_what_it_is_of() {
    let budgets = Budgets::builder().max_upstreams(7).build().unwrap();
    let placed = budgets.get(&UpstreamKey::new("shop")).unwrap();
    let seen = BodyTrace::default().with_polled();
    let failed = FailedAttempt::new(Phase::Call, None, seen);
    for (printed, text) in [
        (
            format!("{budgets:?}"),
            "PerUpstream(Upstreams { known: 1, max: 7, .. })",
        ),
        (format!("{placed:?}"), "Budget { upstream: UpstreamKey"),
        (format!("{:?}", Budget::default()), "Budget { .. }"),
        (
            format!("{:?}", UpstreamKey::new("a\nb")),
            "UpstreamKey(\"a\\nb\")",
        ),
        (
            format!("{:?}", ReplayBody::empty()),
            "ReplayBody { replayability: Replayable, .. }",
        ),
        (
            format!("{failed:?}"),
            "FailedAttempt { phase: Call, has_error: false, body: BodyTrace {",
        ),
        (format!("{failed:?}"), "polled: true, ended: false"),
    ] {
        assert!(printed.contains(text), "{printed}");
    }
}

/// Each in its own word, so that a leak names its source.
#[test]
fn nothing_printed_holds_a_header_value_a_body_or_a_query() {
    const SECRETS: [&str; 6] = [
        "userinfo",
        "query",
        "token",
        "challenge",
        "upload",
        "download",
    ];
    let request = || {
        Request::post("http://userinfo@shop.example/orders?query")
            .header("authorization", "token")
            .body(ReplayBody::bytes("upload"))
            .unwrap()
    };
    let reply = || {
        Reply::status(503)
            .header("www-authenticate", "challenge")
            .body(b"download")
    };
    let secret: http::HeaderValue = "token".parse().unwrap();
    let policy = StandardPolicy::builder()
        .upstream(
            UpstreamKey::new("shop"),
            Upstream::new()
                .refusal_header("x-refused".parse().unwrap(), secret.clone())
                .stop_header("x-stop".parse().unwrap(), secret),
        )
        .build()
        .unwrap();

    let error = paused(layer().layer(Script::new([reply()])).oneshot(request()))
        .err()
        .unwrap();
    let (head, _) = request().into_parts();
    let (response, _) = Response::builder()
        .status(503)
        .header("www-authenticate", "challenge")
        .body(())
        .unwrap()
        .into_parts();
    let facts = Facts::response(&head, &response).response_body(b"download");
    let attempt = facts.attempt_for(&policy);
    let mut printed = vec![
        format!("{error} {error:?} {:?}", error.report()),
        format!("{facts:?}"),
        format!("{attempt:?} {:?}", attempt.outcome()),
        format!("{0} {0:?}", decide(&policy, &attempt)),
        format!("{policy:?} {:?}", policy.to_builder()),
        format!("{:?}", ReplayBody::bytes("upload")),
        format!("{:?}", RetryLayer::new(policy.clone())),
    ];
    let delivering = StandardPolicy::conventional();
    let answer = RetryLayer::new(delivering)
        .layer(Script::new([reply()]))
        .oneshot(request());
    let delivered = paused(answer).unwrap();
    printed.push(format!("{:?}", delivered.extensions().get::<Report>()));
    printed.push(format!("{:?}", delivered.body()));
    for text in printed {
        for secret in SECRETS {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

#[test]
fn an_upstream_is_printed_without_user_information() {
    for (uri, text) in [
        (
            "http://user:pw@SHOP.example:80/orders?key=1",
            "http://shop.example",
        ),
        ("https://shop.example:8443/", "https://shop.example:8443"),
        ("/orders", "unnamed"),
    ] {
        let (head, ()) = http::Request::get(uri).body(()).unwrap().into_parts();
        let key = UpstreamKey::of(&head);
        assert_eq!(key.to_string(), text);
        assert_eq!(format!("{key:?}"), format!("UpstreamKey({text})"));
    }
    assert_eq!(UpstreamKey::new("shop").to_string(), "shop");
}

/// Its time was never measured: no clock is read for what answers when it is first asked.
#[test]
fn an_attempt_that_answers_at_once_says_so() {
    let replies = vec![Reply::status(404)];
    let response = call(layer(), Method::GET, replies).unwrap();
    let line = response.extensions().get::<Report>().unwrap().to_string();
    assert!(
        line.starts_with("attempt 1: 404 [RESPONSE_RECEIVED] at once; "),
        "{line}"
    );
}
