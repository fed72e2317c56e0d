//! Whether an operation may be repeated: the five sources, and who wins.

use http::{HeaderName, Method, Request, Response, request};
use tower_http_retry::{
    Facts, Idempotency, IdempotentMethods, Policy, Preconditions, StandardPolicy,
    StandardPolicyBuilder, Upstream,
};

fn head(method: &str, headers: &[(&str, &str)]) -> request::Parts {
    let mut request = Request::builder()
        .method(method)
        .uri("http://shop.example/");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

/// As the layer finds it, whatever the declaration.
fn of(policy: StandardPolicyBuilder, request: &request::Parts) -> Idempotency {
    let (ok, ()) = Response::new(()).into_parts();
    let policy = policy.build().unwrap();
    Facts::response(request, &ok)
        .attempt_for(&policy)
        .idempotency()
}

const KEY: (&str, &str) = ("idempotency-key", "\"8e03978e\"");

fn standard() -> StandardPolicyBuilder {
    StandardPolicy::builder()
}

fn honouring() -> StandardPolicyBuilder {
    standard().default_upstream(Upstream::new().honours_idempotency_key())
}

#[test]
fn the_method_promises_what_the_policy_believes() {
    let (safe, idempotent, none) = (
        Idempotency::Safe,
        Idempotency::Idempotent,
        Idempotency::NonIdempotent,
    );
    for (method, rfc_9110, all_but, all) in [
        ("GET", safe, safe, safe),
        ("HEAD", safe, safe, safe),
        ("OPTIONS", safe, safe, safe),
        ("TRACE", safe, safe, safe),
        ("QUERY", safe, safe, safe),
        ("PUT", idempotent, idempotent, idempotent),
        ("DELETE", idempotent, idempotent, idempotent),
        ("POST", none, none, idempotent),
        ("PATCH", none, none, idempotent),
        ("CONNECT", none, idempotent, idempotent),
        ("PURGE", none, idempotent, idempotent),
        ("get", none, idempotent, idempotent),
    ] {
        let request = head(method, &[]);
        let by = |methods| of(standard().idempotent_methods(methods), &request);
        assert_eq!(of(standard(), &request), rfc_9110, "{method}");
        assert_eq!(by(IdempotentMethods::Rfc9110), rfc_9110, "{method}");
        assert_eq!(
            by(IdempotentMethods::AllButPostAndPatch),
            all_but,
            "{method}"
        );
        assert_eq!(by(IdempotentMethods::All), all, "{method}");
    }
}

#[test]
fn a_key_counts_where_the_upstream_honours_it() {
    let keyed = head("POST", &[KEY]);
    assert_eq!(of(standard(), &keyed), Idempotency::NonIdempotent);
    assert_eq!(of(honouring(), &keyed), Idempotency::Keyed);
    // Before the method: a keyed PUT is under the key.
    assert_eq!(of(honouring(), &head("PUT", &[KEY])), Idempotency::Keyed);
    for headers in [
        &[][..],
        &[("idempotency-key", "")],
        &[("idempotency-key", "  ")],
    ] {
        let without = head("POST", headers);
        assert_eq!(
            of(honouring(), &without),
            Idempotency::NonIdempotent,
            "{headers:?}"
        );
    }
    // Another header is no key, unless it is the one that the layer fills.
    let other = head("POST", &[("x-request-id", "17")]);
    assert_eq!(of(honouring(), &other), Idempotency::NonIdempotent);
    let generating = || standard().default_upstream(Upstream::new().generates_key(request_id()));
    assert_eq!(of(generating(), &other), Idempotency::Keyed);
}

fn request_id() -> HeaderName {
    HeaderName::from_static("x-request-id")
}

/// The caller's own key, even an empty one, is never replaced; and an empty one is none.
#[test]
fn a_generated_key_makes_an_operation_keyed_before_it_is_sent() {
    let generating = || standard().default_upstream(Upstream::new().generates_key(request_id()));
    assert_eq!(of(generating(), &head("POST", &[])), Idempotency::Keyed);
    assert_eq!(of(generating(), &head("PATCH", &[])), Idempotency::Keyed);
    let empty = head("POST", &[("x-request-id", "")]);
    assert_eq!(of(generating(), &empty), Idempotency::NonIdempotent);
    assert_eq!(of(generating(), &head("GET", &[])), Idempotency::Safe);

    let policy = generating().build().unwrap();
    for (method, named) in [
        ("POST", true),
        ("PATCH", true),
        ("PURGE", true),
        ("PUT", false),
        ("GET", false),
    ] {
        let name = policy.generated_key(&head(method, &[]));
        assert_eq!(name, named.then(request_id), "{method}");
    }
    assert_eq!(
        StandardPolicy::default().generated_key(&head("POST", &[])),
        None
    );
}

#[test]
fn a_precondition_counts_where_it_is_trusted_and_fails_a_second_time() {
    let trusting = || standard().preconditions(Preconditions::Trust);
    for (name, values, counts) in [
        ("if-match", &["\"v7\""][..], true),
        ("if-match", &["\"\""], true),
        ("if-match", &["  \"v7\" "], true),
        // A weak tag never matches strongly; with several the new one may be among them.
        ("if-match", &["W/\"v7\""], false),
        ("if-match", &["\"v7\", \"v8\""], false),
        ("if-match", &["\"v7\"", "\"v8\""], false),
        ("if-match", &["\"v7\"", "\"v7\""], false),
        ("if-match", &["*"], false),
        ("if-match", &["\""], false),
        ("if-match", &["v7"], false),
        ("if-match", &["\"v7"], false),
        ("if-match", &[""], false),
        ("if-none-match", &["*"], true),
        ("if-none-match", &[" * "], true),
        ("if-none-match", &["\"v7\""], false),
        ("if-none-match", &["*", "*"], false),
        (
            "if-unmodified-since",
            &["Sun, 06 Nov 1994 08:49:37 GMT"],
            false,
        ),
    ] {
        let headers: Vec<_> = values.iter().map(|value| (name, *value)).collect();
        let request = head("POST", &headers);
        assert_eq!(of(standard(), &request), Idempotency::NonIdempotent);
        let expected = match counts {
            true => Idempotency::Idempotent,
            false => Idempotency::NonIdempotent,
        };
        assert_eq!(of(trusting(), &request), expected, "{headers:?}");
    }
    // It adds to what the method promises and takes nothing away.
    assert_eq!(
        of(trusting(), &head("GET", &[("if-none-match", "*")])),
        Idempotency::Safe
    );
}

#[test]
fn the_more_particular_source_wins() {
    let all = |own: Option<Idempotency>| {
        honouring()
            .preconditions(Preconditions::Trust)
            .idempotency(move |_| own)
    };
    let mut request = head("PUT", &[KEY, ("if-match", "\"v7\"")]);
    // 3 before 4 before 5.
    assert_eq!(of(all(None), &request), Idempotency::Keyed);
    let unkeyed = head("POST", &[("if-match", "\"v7\"")]);
    assert_eq!(of(all(None), &unkeyed), Idempotency::Idempotent);
    // 2, in either direction.
    for own in [Idempotency::NonIdempotent, Idempotency::Safe] {
        assert_eq!(of(all(Some(own)), &request), own);
        // 1.
        request.extensions.insert(Idempotency::Idempotent);
        assert_eq!(of(all(Some(own)), &request), Idempotency::Idempotent);
        request.extensions.remove::<Idempotency>();
    }
    request.extensions.insert(Idempotency::NonIdempotent);
    assert_eq!(
        of(all(Some(Idempotency::Safe)), &request),
        Idempotency::NonIdempotent
    );
}

/// A policy's own answer is asked for only where nothing is declared.
#[test]
fn what_is_declared_asks_nobody() {
    let mut request = head("POST", &[]);
    request.extensions.insert(Idempotency::Keyed);
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&asked);
    let policy = standard().idempotency(move |_| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        None
    });
    assert_eq!(of(policy.clone(), &request), Idempotency::Keyed);
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 0);
    request.extensions.clear();
    request.method = Method::DELETE;
    assert_eq!(of(policy, &request), Idempotency::Idempotent);
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 1);
}
