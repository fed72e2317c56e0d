//! The tables that are about a policy alone: what a method promises, what an operation is, which
//! words of a server or of a client count.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)] // helpers of tests

mod support;

use http::{Method, Request, Response, request};
use support::vectors;
use tower_http_retry::{Decision, Facts, Idempotency, Preconditions, Rule, StandardPolicy, decide};

fn method(case: &vectors::Case, key: &str) -> Method {
    case.given[key].as_str().unwrap().parse().unwrap()
}

#[test]
fn method_class() {
    vectors::check("method_class", 10, &[], |case| {
        let promise = Idempotency::of_method(&method(case, "method"));
        let idempotent = promise.is_safely_idempotent();
        assert_eq!(promise == Idempotency::Safe, case.expected["safe"]);
        assert_eq!(idempotent, case.expected["idempotent"]);
    });
}

/// What the documentation of the storage API says of one operation.
#[derive(Clone)]
struct Class(String);

/// The page, as a rule of the policy: per operation, before method and precondition.
fn storage_api(request: &request::Parts) -> Option<Idempotency> {
    let Class(class) = request.extensions.get()?;
    let holds = match class.as_str() {
        "always" => true,
        "never" => false,
        "conditional" => request.headers.contains_key("if-match"),
        other => panic!("unknown class {other}"),
    };
    Some(if holds {
        Idempotency::Idempotent
    } else {
        Idempotency::NonIdempotent
    })
}

#[test]
fn idempotency_class() {
    let by_method = StandardPolicy::builder().preconditions(Preconditions::Trust);
    let by_operation = by_method.clone().idempotency(storage_api).build().unwrap();
    let by_method = by_method.build().unwrap();
    vectors::check("idempotency_class", 35, &[], |case| {
        let method = method(case, "http_method");
        let class = case.expected["class"].as_str().unwrap().to_owned();
        let plain = Request::builder().method(method).extension(Class(class));
        let (plain, ()) = plain.body(()).unwrap().into_parts();
        let mut conditional = plain.clone();
        conditional
            .headers
            .insert("if-match", "\"7\"".parse().unwrap());

        let is_idempotent = |policy: &StandardPolicy, request| {
            let answered = Response::new(()).into_parts().0;
            let attempt = Facts::response(request, &answered).attempt_for(policy);
            attempt.idempotency().is_safely_idempotent()
        };
        let expected = |key: &str| case.expected[key].as_bool().unwrap();
        let (without, with) = (
            expected("retry_without_precondition"),
            expected("retry_with_precondition"),
        );
        assert_eq!(is_idempotent(&by_operation, &plain), without);
        assert_eq!(is_idempotent(&by_operation, &conditional), with);

        // By the method alone it is what the page says, except where it is known not to be.
        assert_eq!(
            is_idempotent(&by_method, &plain) == without,
            !case.differs()
        );
        if case.expected["class"] == "conditional" {
            assert!(is_idempotent(&by_method, &conditional), "trusted");
        }
    });
}

/// An error code beside the status: a rule of the caller's reads it.
#[test]
fn classify() {
    let throttled = [
        "Throttling",
        "ThrottlingException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
    ];
    let policy = StandardPolicy::builder()
        .rule(move |attempt| {
            let code = attempt.response()?.headers.get("x-amzn-errortype")?;
            throttled
                .iter()
                .any(|known| code == known)
                .then_some(Rule::Retry)
        })
        .build()
        .unwrap();
    vectors::check("classify", 6, &[], |case| {
        let (request, ()) = Request::post("/").body(()).unwrap().into_parts();
        let mut response = Response::builder().status(400);
        if let Some(code) = case.given["error_code"].as_str() {
            response = response.header("x-amzn-errortype", code);
        }
        let (response, ()) = response.body(()).unwrap().into_parts();
        let verdict = decide(
            &policy,
            &Facts::response(&request, &response).attempt_for(&policy),
        );
        assert_eq!(
            verdict.decision() == Decision::Retry,
            case.expected["throttling"]
        );
    });
}

/// Differs: a request header never widens the policy.
#[test]
fn header_list_parse() {
    let skipped = ["envoy-parse-02", "envoy-parse-04"]
        .map(|id| (id, "no list of policy names is read from a header"));
    let policy = StandardPolicy::default();
    vectors::check("header_list_parse", 4, &skipped, |case| {
        assert!(case.differs());
        let [name, value] = ["header", "value"].map(|key| case.given[key].as_str().unwrap());
        let (request, ()) = Request::get("/")
            .header(name, value)
            .body(())
            .unwrap()
            .into_parts();
        for (status, decision) in [(200, Rule::Accept), (418, Rule::Deny)] {
            let (response, ()) = Response::builder()
                .status(status)
                .body(())
                .unwrap()
                .into_parts();
            let attempt = Facts::response(&request, &response).attempt_for(&policy);
            assert_eq!(decide(&policy, &attempt).rule(), decision);
        }
    });
}
