//! A policy that is asked when an answer is needed, and one that is asked before the request is sent.

use std::sync::Arc;

use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderName, HeaderValue, Method, Request};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_http_retry::{
    Attempt, Failure, FailureKind, Idempotency, IdempotentMethods, Policy, Preconditions,
    ReplayBody, RetryLayer, Rule, StandardPolicy, Upstream, UpstreamKey,
};

use crate::support::policy;
use crate::support::script::{Reply, Script};

const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Says nothing of the policy within, so that it is asked beforehand.
pub(crate) struct Asked(pub(crate) StandardPolicy);

/// Says that the policy within answers; only the rule is its own.
struct Ruled(StandardPolicy);

impl Policy for Asked {
    fn rule(&self, attempt: &Attempt<'_>) -> Rule {
        self.0.rule(attempt)
    }

    fn defaults(&self) -> &StandardPolicy {
        &self.0
    }
}

impl Policy for Ruled {
    fn rule(&self, attempt: &Attempt<'_>) -> Rule {
        self.0.rule(attempt)
    }

    fn defaults(&self) -> &StandardPolicy {
        &self.0
    }

    fn standard(&self) -> Option<&StandardPolicy> {
        Some(&self.0)
    }
}

/// Every header that promises something, put there by the caller or by a layer below.
fn promises() -> [Option<(HeaderName, HeaderValue)>; 6] {
    let header = |name, value| Some((name, HeaderValue::from_static(value)));
    [
        None,
        header(KEY, "k"),
        header(KEY, ""),
        header(IF_MATCH, "\"v1\""),
        header(IF_MATCH, "*"),
        header(IF_NONE_MATCH, "*"),
    ]
}

async fn outcome<P: Policy>(
    policy: P,
    request: Request<ReplayBody>,
    below: Option<(HeaderName, HeaderValue)>,
) -> String {
    let reset = Reply::fails(Failure::sent_no_response(FailureKind::Reset));
    let script = Script::new([reset, Reply::status(409), Reply::status(200)]);
    let service = ServiceBuilder::new()
        .map_request(move |mut request: Request<ReplayBody>| {
            for header in [KEY, IF_MATCH, IF_NONE_MATCH] {
                request.headers_mut().remove(header);
            }
            request.headers_mut().extend(below.clone());
            request
        })
        .service(script.clone());
    let answer = RetryLayer::new(policy)
        .layer(service)
        .oneshot(request)
        .await;
    let answer = match answer {
        Ok(response) => format!(
            "{} {:?}",
            response.status(),
            response.extensions().get::<tower_http_retry::Report>()
        ),
        Err(error) => format!("{error:?} {:?}", error.report()),
    };
    format!("{} {answer}", script.attempts())
}

#[tokio::test(start_paused = true)]
async fn whoever_is_asked_and_whenever_the_answer_is_about_the_callers_own_request() {
    let key = UpstreamKey::new("named");
    let honours = || Upstream::new().honours_idempotency_key();
    let policies = [
        policy(),
        policy().preconditions(Preconditions::Trust),
        policy().default_upstream(honours()),
        policy().upstream(key.clone(), honours()),
        policy().idempotent_methods(IdempotentMethods::AllButPostAndPatch),
        policy().retries(0),
    ];
    let methods = [Method::GET, Method::POST, Method::PATCH, Method::DELETE]
        .into_iter()
        .chain(Method::from_bytes(b"PURGE"));
    let declared = [
        None,
        Some(Idempotency::NonIdempotent),
        Some(Idempotency::Keyed),
    ];
    let mut outcomes = std::collections::HashSet::new();
    for method in methods {
        for policy in &policies {
            for declared in declared {
                for (own, below) in promises().into_iter().zip(promises().into_iter().rev()) {
                    let request = || {
                        let mut request = crate::request(method.clone(), "order");
                        request.headers_mut().extend(own.clone());
                        if let Some(declared) = declared {
                            request.extensions_mut().insert(declared);
                        }
                        request.extensions_mut().insert(key.clone());
                        request
                    };
                    let standard = || policy.clone().build().unwrap();
                    let asked = outcome(Asked(standard()), request(), below.clone()).await;
                    let ruled = outcome(Ruled(standard()), request(), below.clone()).await;
                    let own = outcome(standard(), request(), below.clone()).await;
                    let shared: Arc<dyn Policy> = Arc::new(standard());
                    let shared = outcome(Box::new(shared), request(), below).await;
                    assert_eq!([&ruled, &own, &shared], [&asked; 3]);
                    outcomes.insert(asked);
                }
            }
        }
    }
    assert!(outcomes.len() > 4, "{outcomes:#?}");
}
