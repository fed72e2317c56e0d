//! The decisions of other retry systems, held against ours: the facts by hand, and, where a table
//! brings a sequence of faults, the whole call.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)] // helpers of tests

mod support;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, Response};
use serde::Deserialize;
use serde_json::Value;
use support::paused;
use support::script::{Reply, Script};
use support::vectors::{self, Case};
use tower::{Layer, ServiceExt};
use tower_http_retry::{
    BodyState, Decision, Evidence, Facts, Failure, FailureKind, Idempotency, ReplayBody,
    RetryLayer, StandardPolicy, Upstream, Verdict, decide,
};

#[derive(Deserialize)]
#[serde(default)]
struct Given {
    method: String,
    body: String,
    idempotency: Option<String>,
    evidence: String,
    status: Option<u16>,
    request_headers: BTreeMap<String, String>,
    response_headers: BTreeMap<String, String>,
    permanent: bool,
    attempts_made: u32,
    max_attempts: u32,
    budget_empty: bool,
    first_byte_delivered: bool,
    auth_refresh: String,
    retry_after_ms: Option<u64>,
    transient_500_registered: bool,
    faults: Vec<String>,
    /// What the facts stand for, in words.
    #[serde(flatten)]
    words: BTreeMap<String, Value>,
}

impl Default for Given {
    fn default() -> Self {
        Self {
            method: "GET".into(),
            body: "none".into(),
            idempotency: None,
            evidence: "RESPONSE_RECEIVED".into(),
            status: None,
            request_headers: BTreeMap::new(),
            response_headers: BTreeMap::new(),
            permanent: false,
            attempts_made: 1,
            max_attempts: 3,
            budget_empty: false,
            first_byte_delivered: false,
            auth_refresh: "none".into(),
            retry_after_ms: None,
            transient_500_registered: false,
            faults: Vec::new(),
            words: BTreeMap::new(),
        }
    }
}

const WORDS: [&str; 6] = [
    "signal",
    "scenario",
    "operations",
    "precondition",
    "body_bytes",
    "retry_buffer_limit_bytes",
];

impl Given {
    fn of(case: &Case) -> Self {
        let given: Self = serde_json::from_value(case.given.clone()).unwrap();
        let facts = given
            .words
            .keys()
            .find(|key| !WORDS.contains(&key.as_str()));
        assert_eq!(facts, None, "a fact that nothing here reads");
        given
    }

    fn idempotency(&self) -> Option<Idempotency> {
        self.idempotency.as_deref().map(|given| match given {
            "safe" => Idempotency::Safe,
            "declared" => Idempotency::Idempotent,
            "none" => Idempotency::NonIdempotent,
            other => panic!("unknown idempotency {other}"),
        })
    }

    fn evidence(&self) -> Evidence {
        let all = [
            Evidence::NotSent,
            Evidence::SentNoResponse,
            Evidence::ResponseReceived,
            Evidence::PartialResponse,
        ];
        let named = |evidence: &Evidence| evidence.to_string() == self.evidence;
        all.into_iter().find(named).unwrap()
    }

    fn body_state(&self) -> BodyState {
        match self.body.as_str() {
            "none" => BodyState::Empty,
            "replayable" => BodyState::Replayable,
            "one_shot" => BodyState::Consumed,
            "one_shot_untouched" => BodyState::Untouched,
            "overflowed" => BodyState::Overflowed,
            other => panic!("unknown body {other}"),
        }
    }

    /// A response that proves `NOT_SENT` does so by a header that is registered.
    fn policy(&self) -> StandardPolicy {
        let mut upstream = Upstream::new();
        if self.transient_500_registered {
            upstream = upstream.transient_500();
        }
        if self.status.is_some() && self.evidence() == Evidence::NotSent {
            let (name, value) = self.response_headers.iter().next().unwrap();
            upstream = upstream.refusal_header(
                HeaderName::try_from(name).unwrap(),
                HeaderValue::try_from(value).unwrap(),
            );
        }
        StandardPolicy::builder()
            .retries(self.max_attempts - 1)
            .default_upstream(upstream)
            .build()
            .unwrap()
    }

    fn failure(&self) -> Option<Failure> {
        let kind = match self.permanent {
            true => FailureKind::Rejected,
            false => FailureKind::Unknown,
        };
        match self.evidence() {
            Evidence::NotSent if self.status.is_none() => Some(Failure::not_sent(kind)),
            Evidence::SentNoResponse => Some(Failure::sent_no_response(kind)),
            Evidence::PartialResponse => Some(Failure::partial_response(kind)),
            // A permanent failure that comes with a response.
            Evidence::ResponseReceived if self.permanent => Some(Failure::response_received(kind)),
            Evidence::NotSent | Evidence::ResponseReceived => None,
        }
    }

    fn decide(&self) -> Verdict {
        let mut request = Request::builder().method(self.method.as_str());
        for (name, value) in &self.request_headers {
            request = request.header(name, value);
        }
        let (request, ()) = request.body(()).unwrap().into_parts();
        // A cut stream that names no status is one of a 200.
        let cut = (self.evidence() == Evidence::PartialResponse).then_some(200);
        let response = self.status.or(cut).map(|status| {
            let mut response = Response::builder().status(status);
            for (name, value) in &self.response_headers {
                response = response.header(name, value);
            }
            response.body(()).unwrap().into_parts().0
        });
        let failure = self.failure();
        let mut facts = match (&response, &failure) {
            (Some(response), Some(failure)) => Facts::response(&request, response).partial(failure),
            (Some(response), None) => Facts::response(&request, response),
            (None, Some(failure)) => Facts::failure(&request, failure),
            (None, None) => panic!("neither a response nor a failure"),
        };
        facts = facts
            .attempt_number(NonZeroU32::new(self.attempts_made).unwrap())
            .body_state(self.body_state());
        if let Some(idempotency) = self.idempotency() {
            facts = facts.idempotency(idempotency);
        }
        if self.budget_empty {
            facts = facts.budget_empty();
        }
        if self.first_byte_delivered {
            facts = facts.delivered();
        }
        if self.auth_refresh == "available" {
            facts = facts.refresh_available();
        }
        if let Some(hint) = self.retry_after_ms {
            facts = facts.retry_after(Duration::from_millis(hint));
        }
        let policy = self.policy();
        decide(&policy, &facts.attempt_for(&policy))
    }
}

/// The word of the tables for a verdict on these facts.
fn reason(given: &Given, verdict: &Verdict) -> String {
    let variant = |debug: String| debug.split('(').next().unwrap().to_owned();
    match (verdict.decision(), given.evidence(), given.status) {
        (Decision::Accept, ..) => "accepted".into(),
        (Decision::Refresh, ..) => "401_refresh_once".into(),
        (Decision::Denied(reason), ..) => variant(format!("{reason:?}")),
        (Decision::Ambiguous, Evidence::SentNoResponse, None) => "SentNoResponse".into(),
        (Decision::Ambiguous, Evidence::ResponseReceived, Some(_)) => "gateway_status".into(),
        (Decision::Retry, Evidence::NotSent, _) => "not_sent".into(),
        (Decision::Retry, Evidence::SentNoResponse, None) => "no_response_idempotent".into(),
        (Decision::Retry, Evidence::ResponseReceived, Some(425)) => "425_once".into(),
        (Decision::Retry, Evidence::ResponseReceived, Some(status)) => status.to_string(),
        (_, evidence, status) => panic!("{verdict} on {evidence} {status:?}"),
    }
}

fn decision(verdict: &Verdict) -> &'static str {
    match verdict.decision() {
        Decision::Accept => "accept",
        Decision::Retry => "retry",
        Decision::Refresh => "refresh",
        Decision::Denied(_) => "deny",
        Decision::Ambiguous => "ambiguous",
    }
}

#[test]
fn decisions() {
    vectors::check("decision", 80, &[], |case| {
        let given = Given::of(case);
        let verdict = given.decide();
        let ours = case.ours.as_ref().unwrap();
        assert_eq!(decision(&verdict), ours["decision"]);
        assert_eq!(verdict.is_ambiguous(), ours["ambiguous"]);
        assert_eq!(
            verdict.step().map(|step| u64::from(step as u8)),
            ours["step"].as_u64()
        );
        assert_eq!(reason(&given, &verdict), ours["reason"]);

        // A difference that is no refinement is one in what is sent, and there is no other.
        let again = matches!(verdict.decision(), Decision::Retry | Decision::Refresh);
        let parts = case
            .intentional_difference
            .as_ref()
            .is_some_and(|difference| !difference.refines);
        assert_eq!(again != case.expected["retry"], parts);
    });
}

/// The tables that list the faults of a whole call say how many attempts it takes, and how it ends.
#[test]
fn sequences_of_faults_end_after_as_many_attempts() {
    let cases = vectors::of_kind("decision");
    let sequences: Vec<&Case> = cases
        .iter()
        .filter(|case| case.expected.get("attempts").is_some())
        // Denied: the reader holds bytes, and resuming is the download client's job.
        .filter(|case| !["gcs-8-1", "gcs-8-2"].contains(&case.id.as_str()))
        .collect();
    assert_eq!(sequences.len(), 13);
    for case in sequences {
        let given = Given::of(case);
        let fault = |name: &String| match name.as_str() {
            "return-reset-connection" => {
                Reply::fails(Failure::sent_no_response(FailureKind::Reset))
            }
            name if name.starts_with("return-503") => Reply::status(503),
            "return-400" => Reply::status(400),
            "return-401" => Reply::status(401),
            "return-408" => Reply::status(408),
            other => panic!("unknown fault {other}"),
        };
        let script = Script::new(given.faults.iter().map(fault).chain([Reply::status(200)]));
        let request = Request::builder()
            .method(given.method.as_str())
            .uri("http://storage.example/")
            .extension(given.idempotency().unwrap())
            .body(ReplayBody::bytes("object"))
            .unwrap();
        let call = RetryLayer::new(given.policy())
            .layer(script.clone())
            .oneshot(request);
        let ok = paused(call).is_ok_and(|response| response.status().is_success());
        assert_eq!(
            script.attempts() as u64,
            case.expected["attempts"],
            "{case:?}"
        );
        assert_eq!(ok, case.expected["final"] == "success", "{case:?}");
    }
}
