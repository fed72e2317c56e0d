//! Metrics of the `metrics` crate.

use ::metrics::{
    Label, SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

use super::names::{self, Answer};
use super::{AttemptEnded, CallEnded, Observer};

const ATTEMPTS: &str = "http_retry_attempts_total";
const CALLS: &str = "http_retry_calls_total";
const WAITS: &str = "http_retry_wait_seconds";
const BUDGET: &str = "http_retry_budget_tokens";
const CONTRADICTIONS: &str = "http_retry_contradictions_total";

/// Counts what happens, with the `metrics` crate.
///
/// | metric | kind, unit | labels |
/// |---|---|---|
/// | `http_retry_attempts_total` | counter, attempts | `verdict`, `reason`, `evidence` |
/// | `http_retry_calls_total` | counter, calls | `answer`, `cut_short` |
/// | `http_retry_wait_seconds` | histogram, seconds | none |
/// | `http_retry_budget_tokens` | gauge, tokens | none |
/// | `http_retry_contradictions_total` | counter, failures | none |
///
/// Every label takes few values, none from the wire: no URI, header, method or status.
/// [The page on operations](crate::observe) explains each. Make it after the recorder is installed:
/// the descriptions go to the recorder of that moment.
///
/// ```
/// use tower_http_retry::{RetryLayer, StandardPolicy, observe};
///
/// let metrics = observe::Metrics::new().with_client("payments");
/// let layer = RetryLayer::new(StandardPolicy::default()).with_observer(metrics);
/// ```
#[derive(Debug, Clone)]
pub struct Metrics {
    client: Option<SharedString>,
}

impl Metrics {
    /// An observer that counts.
    pub fn new() -> Self {
        describe_counter!(ATTEMPTS, Unit::Count, "Attempts that ended, by verdict.");
        describe_counter!(CALLS, Unit::Count, "Calls that ended, by answer.");
        describe_histogram!(WAITS, Unit::Seconds, "Waits before attempts.");
        describe_gauge!(BUDGET, Unit::Count, "Tokens in the retry budget.");
        describe_counter!(
            CONTRADICTIONS,
            Unit::Count,
            "Errors that said \"not sent\" of a request whose body was consulted."
        );
        Self { client: None }
    }

    /// Adds the label `client` with this value to every metric, so that layers of one process can
    /// be told apart: the one for payments, the one for stock. Default: no such label.
    pub fn with_client(self, name: impl Into<SharedString>) -> Self {
        Self {
            client: Some(name.into()),
        }
    }

    fn labels<const N: usize>(&self, own: [(&'static str, &'static str); N]) -> Vec<Label> {
        let own = own.map(|(name, value)| Label::from_static_parts(name, value));
        let client = self.client.iter();
        let client = client.map(|name| Label::new("client", name.clone()));
        own.into_iter().chain(client).collect()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Metrics {
    fn attempt_ended(&self, ended: &AttemptEnded<'_>) {
        let (attempt, verdict) = (ended.attempt(), ended.verdict());
        let labels = self.labels([
            // Whichever step said no: who counts ambiguous calls wants them all.
            (
                "verdict",
                match verdict.is_ambiguous() {
                    true => "ambiguous",
                    false => names::decision(verdict.decision()),
                },
            ),
            ("reason", verdict.denied().map_or("none", names::denied)),
            ("evidence", names::evidence(attempt.evidence())),
        ]);
        counter!(ATTEMPTS, labels).increment(1);
        // Waits that led to an attempt: one that was cut short is none of them.
        if attempt.number().get() > 1 {
            histogram!(WAITS, self.labels([])).record(ended.waited_before());
        }
        if let Some(tokens) = ended.budget_balance() {
            gauge!(BUDGET, self.labels([])).set(tokens);
        }
        if ended.is_contradicted() {
            counter!(CONTRADICTIONS, self.labels([])).increment(1);
        }
    }

    fn call_ended(&self, ended: &CallEnded<'_>) {
        let labels = self.labels([
            ("answer", names::answer(Answer::of(ended))),
            (
                "cut_short",
                match ended.is_cut_short() {
                    true => "true",
                    false => "false",
                },
            ),
        ]);
        counter!(CALLS, labels).increment(1);
    }
}
