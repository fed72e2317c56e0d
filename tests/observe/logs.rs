//! `observe::Tracing`, seen by a real subscriber.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex};

use http::{Method, request};
use tower_http_retry::{
    AmbiguousResponses, BoxError, Budget, Drain, Outcome, Reconcile, Reconciled, RetryLayer,
    observe,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::Registry;

use super::support::script::{Reply, Script};
use super::support::{MS, layer, policy};
use super::{call, documented, reset};

/// One event as a subscriber gets it.
#[derive(Debug, Clone)]
struct Line {
    name: &'static str,
    target: String,
    level: Level,
    span: Option<&'static str>,
    declared: Vec<&'static str>,
    fields: BTreeMap<&'static str, String>,
}

impl Line {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    fn message(&self) -> &str {
        self.field("message").unwrap()
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// Events, and the new spans with their parents.
#[derive(Clone, Default)]
struct Log {
    lines: Arc<Mutex<Vec<Line>>>,
    spans: Arc<Mutex<Vec<Span>>>,
}

type Span = (u64, Option<u64>);

impl Log {
    /// Takes the events of this thread until the guard is dropped.
    fn listen() -> (Self, DefaultGuard) {
        let log = Self::default();
        let subscriber = Registry::default().with(log.clone());
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn lines(&self) -> Vec<Line> {
        self.lines.lock().unwrap().clone()
    }

    fn named(&self, name: &str) -> Vec<Line> {
        let mut lines = self.lines();
        lines.retain(|line| line.name == name);
        lines
    }
}

impl<S> tracing_subscriber::Layer<S> for Log
where
    S: Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let parent = context.span(id).and_then(|span| span.parent());
        let parent = parent.map(|parent| parent.id().into_u64());
        self.spans.lock().unwrap().push((id.into_u64(), parent));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        if metadata.target() != "tower_http_retry" {
            return;
        }
        let mut line = Line {
            name: metadata.name(),
            target: metadata.target().to_owned(),
            level: *metadata.level(),
            span: context.event_span(event).map(|span| span.name()),
            declared: metadata.fields().iter().map(|field| field.name()).collect(),
            fields: BTreeMap::new(),
        };
        event.record(&mut line);
        self.lines.lock().unwrap().push(line);
    }
}

fn observed() -> RetryLayer {
    layer().with_observer(observe::Tracing::new())
}

const ATTEMPT: &str = "http.retry.attempt";
const CALL: &str = "http.retry.call";

#[tokio::test(start_paused = true)]
async fn the_page_lists_every_field_and_no_other() {
    let (log, _guard) = Log::listen();
    call(observed(), Method::GET, [reset(), Reply::status(200)])
        .await
        .unwrap();
    call(observed(), Method::POST, [reset()]).await.unwrap_err();
    for name in [ATTEMPT, CALL] {
        let listed = documented(&format!("Fields of {name}"));
        let listed: Vec<_> = listed.iter().map(|row| row[0].as_str()).collect();
        let lines = log.named(name);
        assert!(!lines.is_empty());
        for line in lines {
            // The message is every event's.
            let declared = line.declared.iter().filter(|field| **field != "message");
            assert_eq!(declared.copied().collect::<Vec<_>>(), listed, "{name}");
            assert_eq!(line.target, "tower_http_retry");
        }
    }
    let events = documented("Events");
    let events: Vec<_> = events.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(events, [ATTEMPT, CALL]);
}

/// ME-02: attempts are numbered without metrics too; `numbers.rs` counts them without logs.
#[tokio::test(start_paused = true)]
async fn each_decision_is_one_event() {
    let (log, _guard) = Log::listen();
    let budget = Budget::builder()
        .capacity(9)
        .floor_per_second(0.0)
        .build()
        .unwrap();
    let replies = [
        Reply::status(503).after(5 * MS),
        reset(),
        Reply::status(200),
    ];
    call(observed().with_budgets(budget), Method::GET, replies)
        .await
        .unwrap();
    let lines = log.lines();
    assert!(lines.iter().all(|line| line.level == Level::DEBUG));
    let attempts = log.named(ATTEMPT);
    let column = |field| -> Vec<_> {
        attempts
            .iter()
            .map(|line| line.field(field).unwrap_or("-"))
            .collect()
    };
    assert_eq!(column("http.request.method"), ["GET"; 3]);
    assert_eq!(column("http.request.resend_count"), ["0", "1", "2"]);
    assert_eq!(column("http.response.status_code"), ["503", "-", "200"]);
    assert_eq!(column("retry.attempt"), ["1", "2", "3"]);
    assert_eq!(column("retry.max_attempts"), ["4"; 3]);
    assert_eq!(
        column("retry.evidence"),
        ["RESPONSE_RECEIVED", "SENT_NO_RESPONSE", "RESPONSE_RECEIVED"]
    );
    assert_eq!(column("retry.failure"), ["-", "reset", "-"]);
    assert_eq!(column("retry.decision"), ["retry", "retry", "accept"]);
    assert_eq!(column("retry.step"), ["9", "9", "-"]);
    assert_eq!(column("retry.denied"), ["-"; 3]);
    assert_eq!(column("retry.ambiguous"), ["false"; 3]);
    assert_eq!(column("retry.contradicted"), ["false"; 3]);
    assert_eq!(
        column("retry.execution"),
        ["unknown", "unknown", "answered"]
    );
    assert_eq!(column("retry.waited_seconds"), ["0.0", "0.1", "0.2"]);
    assert_eq!(column("retry.duration_seconds"), ["0.005", "0.0", "0.0"]);
    assert_eq!(column("retry.wait_seconds"), ["0.1", "0.2", "-"]);
    assert_eq!(column("retry.budget_tokens"), ["8.0", "7.0", "7.0"]);
    assert_eq!(
        attempts[0].message(),
        "attempt 1 of 4: GET to http://shop.example, status 503 [RESPONSE_RECEIVED] in 5ms, retry in 100ms"
    );

    let [end] = &log.named(CALL)[..] else {
        panic!("one event at the end")
    };
    for (field, value) in [
        ("http.request.resend_count", "2"),
        ("http.response.status_code", "200"),
        ("retry.answer", "response"),
        ("retry.attempts", "3"),
        ("retry.evidence", "RESPONSE_RECEIVED"),
        ("retry.ambiguous", "false"),
        ("retry.execution", "answered"),
        ("retry.prior_unknown", "true"),
        ("retry.cut_short", "false"),
        ("retry.duration_seconds", "0.305"),
        (
            "message",
            "GET to http://shop.example: answered after 3 attempts: status 200; accepted",
        ),
    ] {
        assert_eq!(end.field(field), Some(value), "{field}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_ambiguous_call_is_one_warning_that_says_it_all() {
    let (log, _guard) = Log::listen();
    call(observed(), Method::POST, [reset()]).await.unwrap_err();
    let lines = log.lines();
    let warnings: Vec<_> = lines
        .iter()
        .filter(|line| line.level == Level::WARN)
        .collect();
    let [warning] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    assert_eq!(warning.name, ATTEMPT);
    // What was tried, what is known about the server, which step said no, what to do next.
    let message = warning.message();
    for part in [
        "attempt 1 of 4: POST to http://shop.example, connection or stream reset [SENT_NO_RESPONSE] at once, no retry: ",
        "(step 8)",
        "AMBIGUOUS",
        "never send it again blindly",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(warning.field("retry.ambiguous"), Some("true"));
    let end = &log.named(CALL)[0];
    assert_eq!(end.level, Level::DEBUG);
    assert_eq!(end.field("retry.answer"), Some("ambiguous"));
}

#[tokio::test(start_paused = true)]
async fn whichever_step_said_no() {
    let (log, _guard) = Log::listen();
    let once = RetryLayer::new(policy().retries(0).build().unwrap());
    call(
        once.with_observer(observe::Tracing::new()),
        Method::POST,
        [reset()],
    )
    .await
    .unwrap_err();
    let attempt = &log.named(ATTEMPT)[0];
    assert_eq!(attempt.level, Level::WARN);
    assert_eq!(attempt.field("retry.step"), Some("1"));
    assert_eq!(attempt.field("retry.denied"), Some("max_attempts"));
    assert_eq!(attempt.field("retry.decision"), Some("denied"));
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_safe_to_repeat_is_no_warning_and_is_told_at_the_end() {
    let (log, _guard) = Log::listen();
    let replies = (0..4).map(|_| reset());
    call(observed(), Method::GET, replies).await.unwrap_err();
    assert!(log.lines().iter().all(|line| line.level == Level::DEBUG));
    let end = &log.named(CALL)[0];
    assert_eq!(end.field("retry.answer"), Some("failed"));
    assert_eq!(end.field("retry.failure"), Some("reset"));
    assert!(
        end.message()
            .starts_with("GET to http://shop.example: request failed after 4 attempts")
    );
    assert!(end.message().contains("idempotent, safe to send again"));
}

#[tokio::test(start_paused = true)]
async fn what_one_attempt_answered_is_told_once() {
    let (log, _guard) = Log::listen();
    call(observed(), Method::GET, [Reply::status(200)])
        .await
        .unwrap();
    call(observed(), Method::GET, [Reply::status(404)])
        .await
        .unwrap();
    assert_eq!(log.named(ATTEMPT).len(), 2);
    assert_eq!(log.named(CALL).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_cut_short_is_told_at_the_end() {
    let (log, _guard) = Log::listen();
    let drain = Drain::new();
    let waiting = call(
        observed().with_drain(drain.clone()),
        Method::GET,
        [Reply::status(503)],
    );
    let (answer, ()) = tokio::join!(waiting, async {
        tokio::time::sleep(40 * MS).await;
        drain.start();
    });
    answer.unwrap();
    let end = &log.named(CALL)[0];
    assert_eq!(end.level, Level::DEBUG);
    assert_eq!(end.field("retry.cut_short"), Some("true"));
    assert_eq!(end.field("retry.denied"), Some("runtime_draining"));
    assert_eq!(end.field("retry.attempts"), Some("1"));
    let message = end.message();
    assert!(message.starts_with(
        "GET to http://shop.example: answered after 1 attempt: status 503; no retry: "
    ));
    assert!(message.ends_with(
        "(step 5); idempotent, safe to send again; the next attempt was permitted and never made"
    ));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_becomes_ambiguous_in_its_wait_is_one_warning_too() {
    // A policy that dares to repeat a POST after 503; then the process drains.
    let (log, _guard) = Log::listen();
    let drain = Drain::new();
    let daring = policy()
        .rule(|attempt| {
            (attempt.status()?.as_u16() == 503).then_some(tower_http_retry::Rule::Retry)
        })
        .build()
        .unwrap();
    let waiting = call(
        RetryLayer::new(daring)
            .with_drain(drain.clone())
            .with_observer(observe::Tracing::new()),
        Method::POST,
        [Reply::status(503)],
    );
    let (answer, ()) = tokio::join!(waiting, async {
        tokio::time::sleep(40 * MS).await;
        drain.start();
    });
    assert!(answer.unwrap_err().is_ambiguous());
    assert_eq!(log.named(ATTEMPT)[0].level, Level::DEBUG);
    assert_eq!(log.named(CALL)[0].level, Level::WARN);
}

#[tokio::test(start_paused = true)]
async fn an_ambiguous_response_that_is_delivered_is_a_warning() {
    let (log, _guard) = Log::listen();
    let proxy = policy()
        .ambiguous_responses(AmbiguousResponses::Deliver)
        .build()
        .unwrap();
    call(
        RetryLayer::new(proxy).with_observer(observe::Tracing::new()),
        Method::POST,
        [Reply::status(503)],
    )
    .await
    .unwrap();
    let [line] = &log.lines()[..] else {
        panic!("one event")
    };
    assert_eq!(line.level, Level::WARN);
    assert_eq!(line.field("retry.ambiguous"), Some("true"));
}

struct Lost;

impl Reconcile for Lost {
    async fn reconcile(&self, _: &request::Parts, _: Outcome<'_>) -> Result<Reconciled, BoxError> {
        Ok(Reconciled::NotExecuted)
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_reconciler_found_is_told() {
    let (log, _guard) = Log::listen();
    let replies = [reset(), Reply::status(201)];
    call(observed().with_reconcile(Lost), Method::POST, replies)
        .await
        .unwrap();
    let attempts = log.named(ATTEMPT);
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[0].field("retry.reconciled"), Some("not_executed"));
    assert!(
        attempts[0]
            .message()
            .contains("reconciled: not executed, retry in 100ms")
    );
    assert_eq!(attempts[1].field("retry.reconciled"), None);
}

#[tokio::test(start_paused = true)]
async fn nothing_secret_is_printed() {
    use tower::{Layer, ServiceExt};

    #[derive(Debug)]
    struct Leaky;
    impl fmt::Display for Leaky {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("s3cret")
        }
    }
    impl std::error::Error for Leaky {}

    let (log, _guard) = Log::listen();
    let replies = [
        Reply::status(503)
            .header("x-token", "s3cret")
            .header("retry-after", "0")
            .body(b"s3cret"),
        Reply::Error(Leaky.into()),
        Reply::status(200),
    ];
    let mut request = super::support::request(Method::PUT, "s3cret");
    *request.uri_mut() = "http://s3cret:s3cret@shop.example/s3cret?key=s3cret"
        .parse()
        .unwrap();
    request
        .headers_mut()
        .insert("authorization", http::HeaderValue::from_static("s3cret"));
    let headers = request.headers_mut();
    headers.insert("host", http::HeaderValue::from_static("s3cret.example"));
    let mut origin_form = super::support::request(Method::PUT, "s3cret");
    *origin_form.headers_mut() = request.headers().clone();
    let twice = RetryLayer::new(policy().retries(1).build().unwrap());
    let service = twice
        .with_observer(observe::Tracing::new())
        .layer(Script::new(replies));
    service.clone().oneshot(request).await.unwrap_err();
    *origin_form.uri_mut() = "/s3cret?key=s3cret".parse().unwrap();
    service.oneshot(origin_form).await.unwrap();
    let printed = format!("{:?}", log.lines());
    assert_eq!(log.lines().len(), 4);
    assert!(!printed.contains("s3cret"), "{printed}");
    assert!(printed.contains("PUT to http://shop.example,") && printed.contains("PUT to unnamed,"));
}

#[tokio::test(start_paused = true)]
async fn events_land_in_the_callers_span() {
    use tracing::Instrument;

    let (log, _guard) = Log::listen();
    let replies = [Reply::status(503), Reply::status(200)];
    call(observed(), Method::GET, replies)
        .instrument(tracing::info_span!("checkout"))
        .await
        .unwrap();
    assert_eq!(log.lines().len(), 3);
    assert!(log.lines().iter().all(|line| line.span == Some("checkout")));
}

/// ME-03: spans outside and inside. One call has one span, each attempt has its own and its own
/// header, and the decisions stand in the call's.
#[tokio::test(start_paused = true)]
async fn me_03_attempts_are_visible_wherever_the_spans_are_opened() {
    use http::{HeaderValue, Request};
    use tower::{ServiceBuilder, ServiceExt};
    use tower_http_retry::ReplayBody;
    use tracing::Instrument;

    let (log, _guard) = Log::listen();
    let script = Script::new([Reply::status(503), Reply::status(200)]);
    let service = ServiceBuilder::new()
        .layer(observed())
        .map_request(|mut request: Request<ReplayBody>| {
            let span = tracing::info_span!("attempt");
            let id = span.id().unwrap().into_u64();
            let parent = HeaderValue::try_from(format!("00-{id:x}")).unwrap();
            request.headers_mut().append("traceparent", parent);
            request
        })
        .service(script.clone());
    let call = tracing::info_span!("call");
    let request = super::support::request(Method::GET, ());
    service.oneshot(request).instrument(call).await.unwrap();

    let spans = log.spans.lock().unwrap().clone();
    let [(call, None), (first, of_first), (second, of_second)] = spans[..] else {
        panic!("one call and two attempts: {spans:?}")
    };
    assert_eq!((of_first, of_second), (Some(call), Some(call)));
    let sent = script.seen(|seen| {
        let attempts = seen.iter();
        let header = |name| attempts.map(move |seen| seen.head.headers.get_all(name));
        header("traceparent")
            .map(|all| all.iter().cloned().collect::<Vec<_>>())
            .collect::<Vec<_>>()
    });
    assert_eq!(
        sent,
        [[format!("00-{first:x}")], [format!("00-{second:x}")]]
    );
    assert!(log.lines().iter().all(|line| line.span == Some("call")));
}
