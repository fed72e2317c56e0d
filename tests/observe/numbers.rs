//! `observe::Metrics`, seen by a real recorder.

use std::collections::BTreeSet;

use http::Method;
use metrics::Unit;
use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tower_http_retry::{AmbiguousResponses, Budget, Drain, RetryLayer, observe};

use super::support::script::Reply;
use super::support::{MS, layer, policy};
use super::{call, documented, reset};

/// A recorder for this thread, and what it has seen.
struct Recorded {
    snapshotter: Snapshotter,
    _guard: metrics::LocalRecorderGuard<'static>,
}

struct Sample {
    name: String,
    kind: MetricKind,
    labels: Vec<(String, String)>,
    unit: Option<Unit>,
    described: bool,
    value: DebugValue,
}

impl Recorded {
    fn new() -> Self {
        let recorder = Box::leak(Box::new(DebuggingRecorder::new()));
        Self {
            snapshotter: recorder.snapshotter(),
            _guard: metrics::set_default_local_recorder(recorder),
        }
    }

    fn samples(&self) -> Vec<Sample> {
        let snapshot = self.snapshotter.snapshot().into_vec();
        let samples = snapshot.into_iter().map(|(key, unit, text, value)| {
            let (kind, key) = key.into_parts();
            let labels = key.labels();
            let labels = labels.map(|label| (label.key().to_owned(), label.value().to_owned()));
            Sample {
                name: key.name().to_owned(),
                kind,
                labels: labels.collect(),
                unit,
                described: text.is_some(),
                value,
            }
        });
        samples.collect()
    }

    /// `name{label="value",…} value` of every metric, sorted.
    fn lines(&self) -> Vec<String> {
        let line = |sample: Sample| {
            let labels = sample.labels.iter();
            let labels: Vec<_> = labels
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            let value = match sample.value {
                DebugValue::Counter(count) => count.to_string(),
                DebugValue::Gauge(value) => format!("{value:.1}"),
                DebugValue::Histogram(values) => format!("{values:?}"),
            };
            format!("{}{{{}}} {value}", sample.name, labels.join(","))
        };
        let mut lines: Vec<_> = self.samples().into_iter().map(line).collect();
        lines.sort();
        lines
    }
}

fn observed() -> RetryLayer {
    layer()
        .without_budgets()
        .with_observer(observe::Metrics::new())
}

#[tokio::test(start_paused = true)]
async fn attempts_waits_and_calls_are_counted() {
    let recorded = Recorded::new();
    let replies = [Reply::status(503), reset(), Reply::status(200)];
    call(observed(), Method::GET, replies).await.unwrap();
    assert_eq!(
        recorded.lines(),
        [
            "http_retry_attempts_total{verdict=accept,reason=none,evidence=RESPONSE_RECEIVED} 1",
            "http_retry_attempts_total{verdict=retry,reason=none,evidence=RESPONSE_RECEIVED} 1",
            "http_retry_attempts_total{verdict=retry,reason=none,evidence=SENT_NO_RESPONSE} 1",
            "http_retry_calls_total{answer=response,cut_short=false} 1",
            "http_retry_wait_seconds{} [0.1, 0.2]",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_ambiguous_attempt_is_one_whichever_step_said_no() {
    let recorded = Recorded::new();
    let once = RetryLayer::new(policy().retries(0).build().unwrap())
        .without_budgets()
        .with_observer(observe::Metrics::new());
    call(observed(), Method::POST, [reset()]).await.unwrap_err();
    call(once, Method::POST, [reset()]).await.unwrap_err();
    assert_eq!(
        recorded.lines(),
        [
            "http_retry_attempts_total{verdict=ambiguous,reason=max_attempts,evidence=SENT_NO_RESPONSE} 1",
            "http_retry_attempts_total{verdict=ambiguous,reason=none,evidence=SENT_NO_RESPONSE} 1",
            "http_retry_calls_total{answer=ambiguous,cut_short=false} 2",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn failures_and_delivered_ambiguity_are_answers_of_their_own() {
    let recorded = Recorded::new();
    let proxy = policy()
        .retries(0)
        .ambiguous_responses(AmbiguousResponses::Deliver)
        .build()
        .unwrap();
    let proxy = RetryLayer::new(proxy)
        .without_budgets()
        .with_observer(observe::Metrics::new());
    call(proxy.clone(), Method::GET, [reset()])
        .await
        .unwrap_err();
    call(proxy, Method::POST, [Reply::status(503)])
        .await
        .unwrap();
    let calls: Vec<_> = recorded.lines().into_iter().skip(2).collect();
    assert_eq!(
        calls,
        [
            "http_retry_calls_total{answer=ambiguous_response,cut_short=false} 1",
            "http_retry_calls_total{answer=failed,cut_short=false} 1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_cut_short_is_no_wait_before_an_attempt() {
    let recorded = Recorded::new();
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
    assert_eq!(
        recorded.lines(),
        [
            "http_retry_attempts_total{verdict=retry,reason=none,evidence=RESPONSE_RECEIVED} 1",
            "http_retry_calls_total{answer=response,cut_short=true} 1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_budget_is_a_gauge_and_the_client_is_named() {
    let recorded = Recorded::new();
    let budget = Budget::builder()
        .capacity(5)
        .floor_per_second(0.0)
        .build()
        .unwrap();
    let payments = layer()
        .with_budgets(budget)
        .with_observer(observe::Metrics::new().with_client("payments"));
    call(
        payments,
        Method::GET,
        [Reply::status(503), Reply::status(200)],
    )
    .await
    .unwrap();
    let lines = recorded.lines();
    assert!(lines.contains(&"http_retry_budget_tokens{client=payments} 4.0".to_owned()));
    assert!(lines.iter().all(|line| line.contains("client=payments")));
}

#[cfg(feature = "hyper")]
#[tokio::test]
async fn contradictions_are_counted() {
    use bytes::Bytes;
    use http_body_util::Empty;
    use hyper_util::client::legacy::Client;
    use hyper_util::rt::TokioExecutor;

    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let refused = client.get("http://127.0.0.1:1/".parse().unwrap());
    let replies = [Reply::Error(refused.await.unwrap_err().into())];
    let recorded = Recorded::new();
    call(observed(), Method::POST, replies).await.unwrap_err();
    let counted = "http_retry_contradictions_total{} 1".to_owned();
    assert!(recorded.lines().contains(&counted));
}

#[tokio::test(start_paused = true)]
async fn the_page_lists_every_metric_with_its_kind_unit_and_labels() {
    let recorded = Recorded::new();
    let observed = layer().with_observer(observe::Metrics::new());
    call(
        observed,
        Method::GET,
        [Reply::status(503), Reply::status(200)],
    )
    .await
    .unwrap();
    let mut seen = BTreeSet::new();
    for sample in recorded.samples() {
        assert!(sample.described, "{}", sample.name);
        let kind = match sample.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let labels: Vec<_> = sample.labels.into_iter().map(|(key, _)| key).collect();
        let seconds = sample.unit == Some(Unit::Seconds);
        assert_eq!(seconds, sample.name.ends_with("_seconds"));
        seen.insert((sample.name, kind.to_owned(), labels.join(", ")));
    }
    let listed = documented("Names").into_iter();
    let mut listed: BTreeSet<_> = listed
        .map(|row| (row[0].clone(), row[1].clone(), row[3].clone()))
        .collect();
    // Never seen in a call: see the test of contradictions.
    assert!(listed.remove(&(
        "http_retry_contradictions_total".to_owned(),
        "counter".to_owned(),
        String::new()
    )));
    assert_eq!(seen, listed);
}
