//! The trait: its defaults, policies behind pointers.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, StatusCode, request};
use tower_http_retry::{
    AmbiguousResponses, Attempt, Execution, Facts, Idempotency, Policy, RetryAfterHints, Rule,
    StandardPolicy, Upstream,
};

use crate::{answered, get, post};

/// What is accepted before the facts are gathered is what the rule accepts; with a rule of the
/// caller's nothing is.
#[test]
fn the_standard_policy_accepts_at_once_what_its_rule_accepts() {
    let table = StandardPolicy::default();
    let own = StandardPolicy::builder().rule(|_| None).build().unwrap();
    for status in 100..1000 {
        let (get, answer) = (get(), answered(status));
        let rule = table.rule(&Facts::response(&get, &answer).attempt());
        assert_eq!(
            table.accepts(answer.status),
            rule == Rule::Accept,
            "{status}"
        );
        assert!(!own.accepts(answer.status));
    }
}

/// Answers every question in its own way.
#[derive(Debug)]
struct Peculiar(StandardPolicy);

impl Policy for Peculiar {
    fn rule(&self, _: &Attempt<'_>) -> Rule {
        Rule::Ambiguous
    }
    fn defaults(&self) -> &StandardPolicy {
        &self.0
    }
    fn max_attempts(&self, _: &request::Parts) -> NonZeroU32 {
        NonZeroU32::new(9).unwrap()
    }
    fn idempotency(&self, _: &request::Parts) -> Idempotency {
        Idempotency::Keyed
    }
    fn execution(&self, _: &Attempt<'_>) -> Execution {
        Execution::NotExecuted
    }
    fn backoff(&self, _: &Attempt<'_>, _: Duration, _: f64) -> Duration {
        Duration::from_millis(9)
    }
    fn max_retry_after(&self) -> Duration {
        Duration::from_millis(99)
    }
    fn retry_after_hints(&self) -> RetryAfterHints {
        RetryAfterHints::Ignore
    }
    fn ambiguous_responses(&self, _: &request::Parts) -> AmbiguousResponses {
        AmbiguousResponses::Deliver
    }
    fn generated_key(&self, _: &request::Parts) -> Option<HeaderName> {
        Some(http::header::AGE)
    }
    fn standard(&self) -> Option<&StandardPolicy> {
        Some(&self.0)
    }
    fn accepts(&self, _: StatusCode) -> bool {
        true
    }
}

fn peculiar() -> Peculiar {
    Peculiar(StandardPolicy::conventional())
}

fn asked<P: Policy + ?Sized>(policy: &P) -> String {
    let (post, ok) = (post(), answered(200));
    let attempt = Facts::response(&post, &ok).attempt();
    format!(
        "{:?} {} {} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        policy.rule(&attempt),
        policy.defaults().retries(),
        policy.max_attempts(&post),
        policy.idempotency(&post),
        policy.execution(&attempt),
        policy.backoff(&attempt, Duration::from_millis(1), 0.5),
        policy.max_retry_after(),
        policy.retry_after_hints(),
        policy.ambiguous_responses(&post),
        policy.generated_key(&post),
    )
}

#[test]
fn a_pointer_to_a_policy_answers_as_the_policy_does() {
    let own = asked(&peculiar());
    assert_eq!(
        own,
        "Ambiguous 3 9 Keyed NotExecuted 9ms 99ms Ignore Deliver Some(\"age\")"
    );
    assert_eq!(asked(&Box::new(peculiar())), own);
    assert_eq!(asked(&Arc::new(peculiar())), own);
    let boxed: Box<dyn Policy> = Box::new(peculiar());
    assert_eq!(asked(&boxed), own);
    let shared: Arc<dyn Policy> = Arc::new(boxed);
    assert_eq!(asked(&shared), own);
    assert_eq!(asked(&*shared), own);
    // Its own word, not the default.
    assert!(shared.accepts(StatusCode::INTERNAL_SERVER_ERROR));
    assert!(shared.standard().is_some());
}

/// Only a rule: the rest is the standard policy's.
#[test]
fn a_policy_of_one_method_has_the_defaults() {
    struct Rules;
    impl Policy for Rules {
        fn rule(&self, _: &Attempt<'_>) -> Rule {
            Rule::Accept
        }
    }
    struct Wraps(StandardPolicy);
    impl Policy for Wraps {
        fn rule(&self, attempt: &Attempt<'_>) -> Rule {
            self.0.rule(attempt)
        }
        fn defaults(&self) -> &StandardPolicy {
            &self.0
        }
    }
    // A policy that says nothing of it may look at the request.
    let cautious = |text: String| text.replace("false", "true");
    assert_eq!(asked(&Rules), cautious(asked(&StandardPolicy::default())));
    let upstream = Upstream::new().generates_key(http::header::AGE);
    let wrapped = StandardPolicy::conventional()
        .to_builder()
        .default_upstream(upstream);
    let wrapped = wrapped.build().unwrap();
    assert!(asked(&wrapped).contains("age"));
    assert_eq!(asked(&Wraps(wrapped.clone())), cautious(asked(&wrapped)));
    // One for all, not one for each question.
    assert!(std::ptr::eq(Rules.defaults(), Rules.defaults()));
}
