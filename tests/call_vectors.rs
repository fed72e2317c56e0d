//! The tables that are about a whole call, from its first attempt to its answer.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)] // helpers of tests

mod support;

use std::num::NonZeroU32;
use std::time::Duration;

use http::{Method, Request, request};
use support::script::{Reply, Script};
use support::vectors::{self, Case};
use support::{MS, layer, paused, policy, request};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceExt};
use tower_http_retry::{
    Attempt, AttemptNumber, Drain, Error, Failure, FailureKind, Policy, ReplayBody, RetryDenied,
    RetryLayer, Rule, StandardPolicy, Upstream,
};

fn millis(value: &serde_json::Value) -> Duration {
    Duration::from_millis(value.as_u64().unwrap())
}

fn always(reply: impl Fn() -> Reply) -> Script {
    Script::new((0..100).map(|_| reply()))
}

/// A ceiling on top of what a policy permits: theirs is of the client, ours a policy of its own.
#[derive(Debug)]
struct Ceiling(StandardPolicy, u32);

impl Policy for Ceiling {
    fn rule(&self, attempt: &Attempt<'_>) -> Rule {
        self.0.rule(attempt)
    }
    fn defaults(&self) -> &StandardPolicy {
        &self.0
    }
    fn max_attempts(&self, request: &request::Parts) -> NonZeroU32 {
        let ceiling = NonZeroU32::new(self.1).unwrap();
        self.0.max_attempts(request).min(ceiling)
    }
}

#[test]
fn attempt_cap() {
    vectors::check("attempt_cap", 3, &[], |case| {
        let retries = case.given["policy_max"].as_u64().unwrap() as u32 - 1;
        // Theirs is 5 unless it says something sensible.
        let ceiling = match case.given["client_cap"].as_i64().unwrap() {
            ceiling if ceiling > 1 => ceiling as u32,
            _ => 5,
        };
        let policy = Ceiling(policy().retries(retries).build().unwrap(), ceiling);
        let script = always(|| Reply::status(503));
        let call = RetryLayer::new(policy)
            .layer(script.clone())
            .oneshot(request(Method::GET, ()));
        assert_eq!(paused(call).unwrap().status(), 503);
        assert_eq!(script.attempts() as u64, case.expected["attempts"]);
    });
}

/// Calls one after the other against one server, which counts the requests through all of them.
#[test]
fn attempt_sequence() {
    vectors::check("attempt_sequence", 1, &[], |case| {
        let listed = |list: &str, index: u64| {
            let indices = case.given[list].as_array().unwrap();
            indices.iter().any(|at| *at == index)
        };
        let script = Script::new((0..16).map(|index| match index {
            index if listed("ok_at", index) => Reply::status(200),
            index if listed("fatal_at", index) => Reply::status(400),
            _ => Reply::status(503),
        }));
        assert_eq!(case.given["max_attempts"], 4);
        for call in case.expected["calls"].as_array().unwrap() {
            let answer = layer()
                .layer(script.clone())
                .oneshot(request(Method::GET, ()));
            let status = match call[0].as_str().unwrap() {
                "ok" => 200,
                "fatal" => 400,
                "retryable_exhausted" => 503,
                other => panic!("unknown end {other}"),
            };
            assert_eq!(paused(answer).unwrap().status(), status);
            assert_eq!(script.attempts() as u64 - 1, call[1]);
        }
    });
}

#[test]
fn attempt_header() {
    vectors::check("attempt_header", 2, &[], |case| {
        match case.given.get("header") {
            // One number for each attempt. Theirs count from 0, ours from 1, and the first request
            // is the caller's as it was.
            None => {
                let retries = case.given["retries"].as_u64().unwrap() as u32;
                let policy = policy().retries(retries).build().unwrap();
                let script = always(|| Reply::status(503));
                let call = RetryLayer::new(policy).layer(script.clone());
                let _ = paused(call.oneshot(request(Method::GET, ())));
                let numbers: Vec<u32> = script.seen(|seen| {
                    let number =
                        |head: &request::Parts| head.extensions.get::<AttemptNumber>().copied();
                    seen.iter()
                        .map(|seen| number(&seen.head).map_or(0, |found| found.number().get() - 1))
                        .collect()
                });
                assert_eq!(serde_json::json!(numbers), case.expected["attempt_numbers"]);
            }
            Some(name) => {
                let name: http::HeaderName = name.as_str().unwrap().parse().unwrap();
                let upstream = Upstream::new().generates_key(name.clone());
                let policy = policy().default_upstream(upstream).build().unwrap();
                let script = Script::new([503, 503, 201].map(Reply::status));
                let call = RetryLayer::new(policy).layer(script.clone());
                assert_eq!(
                    paused(call.oneshot(request(Method::POST, "order")))
                        .unwrap()
                        .status(),
                    201
                );
                let keys: Vec<_> = script.seen(|seen| {
                    seen.iter()
                        .map(|seen| seen.head.headers.get(&name).unwrap().clone())
                        .collect()
                });
                assert_eq!(keys.len(), 3);
                assert!(keys.windows(2).all(|pair| pair[0] == pair[1]));
                let key = keys[0].to_str().unwrap();
                assert!(
                    key.starts_with('"') && key.ends_with('"'),
                    "a quoted string"
                );
            }
        }
    });
}

#[test]
fn drain() {
    vectors::check("drain", 1, &[], |case| {
        let drain = Drain::new();
        drain.start();
        let script = always(|| Reply::fails(Failure::not_sent(FailureKind::Closed)));
        let calls = case.given["calls"].as_u64().unwrap();
        for _ in 0..calls {
            let call = layer().with_drain(drain.clone()).layer(script.clone());
            let error = paused(call.oneshot(request(Method::GET, ()))).unwrap_err();
            assert_eq!(error.denied(), Some(RetryDenied::RuntimeDraining));
        }
        assert_eq!(script.attempts() as u64 - calls, case.expected["retries"]);
    });
}

/// Differs: denied at once, with the answer that there is, instead of an attempt that starts at the
/// deadline.
#[test]
fn wait_vs_limit() {
    vectors::check("wait_vs_limit", 1, &[], |case| {
        assert!(case.differs());
        let given = |name: &str| millis(&case.given[name]);
        let policy = policy()
            .base_delay(given("wait_ms"))
            .backoff(tower_http_retry::Backoff::default().without_jitter())
            .build()
            .unwrap();
        let script = Script::new([Reply::status(502).after(given("elapsed_ms"))]);
        paused(async {
            let start = tokio::time::Instant::now();
            let response = RetryLayer::new(policy)
                .with_deadline(given("limit_ms"))
                .layer(script)
                .oneshot(request(Method::GET, ()))
                .await
                .unwrap();
            assert_eq!(start.elapsed(), given("elapsed_ms"));
            let report = response.extensions().get::<tower_http_retry::Report>();
            let denied = report.unwrap().verdict().unwrap().denied();
            assert_eq!(denied, Some(RetryDenied::Deadline));
        });
    });
}

/// Differs: one limit for all causes.
#[test]
fn attempt_counters() {
    vectors::check("attempt_counters", 6, &[], |case| {
        assert!(case.differs());
        let limits = case.given["limits"].as_object().unwrap().values();
        let retries = limits.filter_map(serde_json::Value::as_u64).min().unwrap();
        let reply = || match case.given["failure"].as_str().unwrap() {
            "connect" => Reply::fails(Failure::not_sent(FailureKind::Connect)),
            "read" => Reply::fails(Failure::sent_no_response(FailureKind::ResponseTimeout)),
            "other" => Reply::fails(Failure::sent_no_response(FailureKind::Unknown)),
            "status" => Reply::status(503),
            other => panic!("unknown failure {other}"),
        };
        let policy = policy().retries(retries as u32).build().unwrap();
        let script = always(reply);
        let _ = paused(
            RetryLayer::new(policy)
                .layer(script.clone())
                .oneshot(request(Method::GET, ())),
        );
        assert_eq!(
            script.attempts() as u64 - 1,
            case.expected["retries_before_give_up"]
        );
    });
}

/// Differs: a limit of concurrency below the layer is free while a call waits for its retry.
#[test]
fn layering() {
    vectors::check("layering", 1, &[], |case: &Case| {
        assert!(case.differs());
        assert_eq!(case.expected["permit_held_during_backoff"], true);
        let script = Script::new([503, 200, 200].map(Reply::status));
        let limited = ConcurrencyLimitLayer::new(1).layer(script.clone());
        let mut waiting = layer().layer(limited.clone());
        paused(async {
            let first = waiting
                .ready()
                .await
                .unwrap()
                .call(request(Method::GET, ()));
            let first = tokio::spawn(first);
            tokio::time::sleep(50 * MS).await;
            assert_eq!(script.attempts(), 1, "the first waits until 100 ms");
            let second: Request<ReplayBody> = request(Method::GET, ());
            let second = limited.oneshot(second);
            let second = tokio::time::timeout(MS, second).await;
            assert!(second.is_ok_and(|second| second.is_ok()));
            let first: Result<_, Error> = first.await.unwrap();
            assert_eq!(first.unwrap().status(), 200);
        });
    });
}
