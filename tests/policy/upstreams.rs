//! What is known of an upstream: how it is found, and what its headers may change.

use std::num::NonZeroU32;

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method};
use http::{request, response};
use tower_http_retry::{
    Decision, Execution, Facts, Failure, RetryDenied, Rule, StandardPolicy, Upstream, UpstreamKey,
};

use crate::{TRANSIENT, answered, get, head, judge, post};

static REFUSED: HeaderName = HeaderName::from_static("x-refused");
static STOP: HeaderName = HeaderName::from_static("x-stop");
const YES: HeaderValue = HeaderValue::from_static("yes");

fn with_headers<'a>(
    status: u16,
    headers: impl IntoIterator<Item = (&'a HeaderName, &'a str)>,
) -> response::Parts {
    let mut response = answered(status);
    for (name, value) in headers {
        response.headers.append(name, value.parse().unwrap());
    }
    response
}

fn refusing() -> StandardPolicy {
    let upstream = Upstream::new()
        .refusal_header(REFUSED.clone(), HeaderValue::from_static("maybe"))
        .refusal_header(REFUSED.clone(), YES)
        .stop_header(STOP.clone(), YES);
    StandardPolicy::builder()
        .default_upstream(upstream)
        .build()
        .unwrap()
}

#[test]
fn a_refusal_header_proves_that_nothing_was_executed() {
    let policy = refusing();
    let request = post();
    for status in 400..=599 {
        let response = with_headers(status, [(&REFUSED, "no"), (&REFUSED, "yes")]);
        let facts = Facts::response(&request, &response);
        assert_eq!(
            judge(&policy, facts).decision(),
            Decision::Retry,
            "{status}"
        );
        let last = judge(&policy, facts.attempt_number(NonZeroU32::new(3).unwrap()));
        assert_eq!(last.execution(), Execution::NotExecuted, "{status}");
        assert!(!last.is_ambiguous());
    }
    // Another value proves nothing, and neither does a header that nobody registered.
    for (policy, value) in [(&policy, "no"), (&StandardPolicy::default(), "yes")] {
        let response = with_headers(503, [(&REFUSED, value)]);
        let verdict = judge(policy, Facts::response(&request, &response));
        assert_eq!(verdict.decision(), Decision::Ambiguous);
    }
    // It never widens: an answer is an answer.
    let response = with_headers(200, [(&REFUSED, "yes")]);
    let verdict = judge(&policy, Facts::response(&request, &response));
    assert_eq!(verdict.decision(), Decision::Accept);
    assert_eq!(verdict.execution(), Execution::Answered);
}

#[test]
fn a_stop_header_forbids_retries_and_changes_no_answer() {
    let policy = refusing();
    let get = get();
    for status in 400..=599 {
        let response = with_headers(status, [(&STOP, "yes")]);
        let verdict = judge(&policy, Facts::response(&get, &response));
        assert!(
            matches!(verdict.decision(), Decision::Denied(_)),
            "{status}"
        );
        assert!(!verdict.is_ambiguous());
    }
    let ok = with_headers(200, [(&STOP, "yes")]);
    let facts = Facts::response(&get, &ok);
    assert_eq!(judge(&policy, facts).decision(), Decision::Accept);
    let cut = Failure::partial_response(TRANSIENT);
    let verdict = judge(&policy, facts.partial(&cut));
    assert_eq!(verdict.denied(), Some(RetryDenied::Failure(TRANSIENT)));

    // What it forbids stays as unknown as it is.
    let post = post();
    let busy = with_headers(503, [(&STOP, "yes")]);
    assert!(judge(&policy, Facts::response(&post, &busy)).is_ambiguous());
    // It wins over a proof, which still proves.
    let both = with_headers(503, [(&STOP, "yes"), (&REFUSED, "yes")]);
    let verdict = judge(&policy, Facts::response(&post, &both));
    assert_eq!(verdict.rule(), Rule::Deny);
    assert_eq!(verdict.execution(), Execution::NotExecuted);
    assert!(!verdict.is_ambiguous());
}

#[test]
fn an_upstream_is_found_by_its_origin_its_name_or_not_at_all() {
    let origin = |uri: &str| UpstreamKey::of(&head(Method::GET, uri));
    let policy = StandardPolicy::builder()
        .upstream(
            origin("https://stock.example"),
            Upstream::new().transient_500(),
        )
        .upstream(UpstreamKey::new("stock"), Upstream::new().transient_500())
        .build()
        .unwrap();
    let is_transient = |policy: &StandardPolicy, request: &request::Parts| {
        let broken = answered(500);
        judge(policy, Facts::response(request, &broken)).decision() == Decision::Retry
    };
    let stock = head(Method::GET, "https://stock.example/17");
    assert!(is_transient(&policy, &stock));
    // By default the port is the scheme's.
    assert!(is_transient(
        &policy,
        &head(Method::GET, "https://stock.example:443/17")
    ));
    for other in [
        "http://stock.example/",
        "https://stock.example:8443/",
        "https://other.example/",
    ] {
        assert!(!is_transient(&policy, &head(Method::GET, other)), "{other}");
    }
    let mut named = get();
    named.extensions.insert(UpstreamKey::new("stock"));
    assert!(is_transient(&policy, &named));
    named.extensions.insert(UpstreamKey::new("other"));
    assert!(!is_transient(&policy, &named));

    // A registration stands for all that is known of an upstream; the default for the rest.
    let policy = policy
        .to_builder()
        .upstream(UpstreamKey::new("stock"), Upstream::new())
        .default_upstream(Upstream::new().transient_500())
        .build()
        .unwrap();
    assert!(is_transient(&policy, &get()));
    named.extensions.insert(UpstreamKey::new("stock"));
    assert!(!is_transient(&policy, &named));
}

/// What the layer asks a policy for its own response comes from the head alone.
#[test]
fn a_policy_is_not_swayed_by_what_it_does_not_know() {
    let policy = StandardPolicy::default();
    let (request, mut busy) = (get(), answered(503));
    let plain = judge(&policy, Facts::response(&request, &busy));
    busy.headers = HeaderMap::from_iter([
        (REFUSED.clone(), YES),
        (STOP.clone(), YES),
        (
            HeaderName::from_static("x-should-retry"),
            HeaderValue::from_static("false"),
        ),
    ]);
    busy.extensions = Extensions::new();
    assert_eq!(judge(&policy, Facts::response(&request, &busy)), plain);
}
