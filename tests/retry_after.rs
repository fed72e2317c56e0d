//! What servers ask for: how others read it, and what went wrong in them.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests

mod support;

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use httpdate::{fmt_http_date, parse_http_date};
use serde_json::Value;
use support::randoms;
use support::vectors::{self, Case};
use tower_http_retry::{
    Backoff, Decision, Facts, Policy, RetryAfterHints, RetryDenied, StandardPolicy, Verdict,
    decide, retry_after,
};

const ZERO: Duration = Duration::ZERO;
const DAY: Duration = Duration::from_secs(86_400);

/// As the bug reports have it: random 1, no hint jitter.
const STD: Backoff = Backoff::exponential(ms(100), ms(10_000))
    .with_throttled_base(ms(100))
    .without_hint_jitter();

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn secs(value: &Value) -> Duration {
    Duration::from_secs(value.as_u64().unwrap())
}

fn millis(value: &Value) -> Duration {
    ms(value.as_u64().unwrap())
}

fn date(value: &str) -> SystemTime {
    parse_http_date(value).unwrap()
}

fn headers<'a>(lines: impl IntoIterator<Item = (&'a str, &'a str)>) -> HeaderMap {
    let lines = lines.into_iter().map(|(name, value)| {
        (
            name.parse::<HeaderName>().unwrap(),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        )
    });
    let mut headers = HeaderMap::new();
    lines.for_each(|(name, value)| _ = headers.append(name, value));
    headers
}

fn parse(value: &str, now: SystemTime) -> Option<Duration> {
    retry_after::parse(&headers([("retry-after", value)]), now)
}

/// A parser that reads no clock: any will do for seconds.
fn parse_now(value: &str) -> Option<Duration> {
    parse(value, SystemTime::UNIX_EPOCH)
}

/// The wait before the first retry, at its longest.
fn wait(hint: Option<Duration>) -> Duration {
    STD.delay(1, ZERO, hint, 1.0)
}

/// A policy that waits as `backoff` says, and for hints up to `limit`.
fn policy(backoff: Backoff, limit: Duration) -> StandardPolicy {
    StandardPolicy::builder()
        .backoff(backoff)
        .max_retry_after(limit)
        .build()
        .unwrap()
}

/// What the policy makes of a GET that was answered with `status`: the verdict, and the longest
/// wait.
fn judged(
    policy: &StandardPolicy,
    status: StatusCode,
    hint: Option<Duration>,
) -> (Verdict, Duration) {
    let (request, ()) = Request::new(()).into_parts();
    let (mut response, ()) = Response::new(()).into_parts();
    response.status = status;
    let facts = Facts::response(&request, &response);
    let attempt = hint
        .map_or(facts, |hint| facts.retry_after(hint))
        .attempt_for(policy);
    (
        decide(policy, &attempt),
        policy.backoff(&attempt, ZERO, 1.0),
    )
}

/// Denied for its length, never shortened to fit.
fn assert_too_long(policy: &StandardPolicy, status: StatusCode, hint: Duration) {
    let (verdict, _) = judged(policy, status, Some(hint));
    assert_eq!(verdict.denied(), Some(RetryDenied::RetryAfter(hint)));
}

mod tables {
    use super::*;

    /// The tables' clocks, from RFC 3339.
    fn clock(given: &Value) -> SystemTime {
        match given.get("now").map(|now| now.as_str().unwrap()) {
            Some("1999-12-31T23:59:57Z") => date("Fri, 31 Dec 1999 23:59:57 GMT"),
            Some("2019-06-03T11:00:00Z") => date("Mon, 03 Jun 2019 11:00:00 GMT"),
            Some(other) => panic!("unknown clock {other}"),
            None => date("Sun, 06 Nov 1994 08:49:37 GMT"),
        }
    }

    /// The lines of the header: one, several, or none.
    fn lines(given: &Value, now: SystemTime) -> Vec<String> {
        let values = match given.get("values") {
            Some(values) => values.as_array().unwrap().clone(),
            None => vec![given["value"].clone()],
        };
        let lines = values.iter().filter(|value| !value.is_null()).map(|value| {
            match value.as_str().unwrap() {
                "DATE_+1d" => fmt_http_date(now + DAY),
                "DATE_-1d" => fmt_http_date(now - DAY),
                value => value.to_owned(),
            }
        });
        lines.collect()
    }

    /// `None` where it finds nothing to wait for, however it says so.
    fn theirs(expected: &Value) -> Option<Duration> {
        if expected.get("error").is_some() || expected.get("valid") == Some(&false.into()) {
            return None;
        }
        if let Some(delay) = expected.get("delay_ms") {
            return Some(millis(delay));
        }
        let seconds = expected
            .get("seconds")
            .or(expected.get("sleep_seconds"))
            .unwrap();
        (!seconds.is_null()).then(|| secs(seconds))
    }

    /// Cases in which hints are not honoured.
    const IGNORING: [&str; 3] = ["urllib3-ra-32", "urllib3-ra-34", "urllib3-ra-36"];

    #[test]
    fn retry_after_parse() {
        let skipped = IGNORING.map(|id| (id, "policy: `hints_are_read_but_not_honoured_..`"));
        vectors::check("retry_after_parse", 25, &skipped, |case| {
            let Case {
                id,
                given,
                expected,
                ..
            } = case;
            let now = clock(given);
            let lines = lines(given, now);
            let ours = retry_after::parse(
                &headers(lines.iter().map(|line| ("retry-after", line.as_str()))),
                now,
            );
            match id.as_str() {
                // Differs: the longest of several lines, never earlier than any of them asked.
                "grh-ra-two-headers" => assert_eq!(ours, Some(ms(3_000))),
                // Differs: 'UTC' and a day of one digit are no HTTP-date.
                "urllib3-ra-33" => assert_eq!(ours, None),
                // Differ in what is done: nothing is raised, but a hint beyond the limit is denied.
                "dotnet-ra-03" => {
                    assert_eq!(ours, theirs(expected));
                    let policy = StandardPolicy::default();
                    assert_too_long(&policy, StatusCode::TOO_MANY_REQUESTS, ours.unwrap());
                }
                "urllib3-ra-11-invalid"
                | "urllib3-ra-13-invalid"
                | "urllib3-ra-14-invalid"
                | "urllib3-ra-23-invalid" => {
                    assert_eq!(ours, None);
                }
                _ => {
                    assert!(!case.differs());
                    assert_eq!(ours, theirs(expected));
                }
            }
        });
    }

    #[test]
    fn hint_precedence() {
        let skipped = [
            (
                "spec-ratelimit-02",
                "the contract reads no `RateLimit` field",
            ),
            (
                "spec-ratelimit-03",
                "the contract reads no `RateLimit` field",
            ),
        ];
        vectors::check(
            "hint_precedence",
            1,
            &skipped,
            |Case {
                 given, expected, ..
             }| {
                let lines = given["headers"].as_object().unwrap().iter();
                let headers =
                    headers(lines.map(|(name, value)| (name.as_str(), value.as_str().unwrap())));
                let hint = retry_after::parse(&headers, SystemTime::UNIX_EPOCH);
                assert_eq!(hint, Some(millis(&expected["delay_ms"])));
            },
        );
    }

    /// gRPC's header, read as our `retry-after-ms`.
    #[test]
    fn pushback_header() {
        vectors::check("pushback_header", 5, &[], |case| {
            let Case {
                given, expected, ..
            } = case;
            let values = given["values"].as_array().unwrap().iter();
            let headers = headers(values.map(|value| ("retry-after-ms", value.as_str().unwrap())));
            let hint = retry_after::parse(&headers, SystemTime::UNIX_EPOCH);
            match case.id.as_str() {
                // Differs: not "do not retry", but ignored.
                "grpc-pushback-01" => assert_eq!(hint, None),
                // Differs: not "do not retry". The case says ignored; here the longest
                // line counts.
                "grpc-pushback-03" => assert_eq!(hint, Some(ms(100))),
                _ => {
                    assert!(!case.differs());
                    assert_eq!(hint, expected.get("delay_ms").map(millis));
                    // Exact, where no backoff is longer and no jitter is added.
                    let none = Backoff::exponential(ZERO, ZERO).without_hint_jitter();
                    assert_eq!(none.delay(1, ZERO, hint, 1.0), hint.unwrap_or_default());
                }
            }
        });
    }

    #[test]
    fn hints_are_read_but_not_honoured_where_they_are_ignored() {
        let cases = vectors::of_kind("retry_after_parse");
        let ignoring: Vec<_> = cases
            .iter()
            .filter(|case| case.given.get("honour") == Some(&false.into()))
            .collect();
        assert_eq!(ignoring.len(), IGNORING.len());
        let policy = policy(Backoff::default(), Duration::MAX).to_builder();
        let policy = policy
            .retry_after_hints(RetryAfterHints::Ignore)
            .build()
            .unwrap();
        for Case {
            id,
            given,
            expected,
            ..
        } in ignoring
        {
            assert!(IGNORING.contains(&id.as_str()), "{id}");
            assert!(expected["sleep_seconds"].is_null());
            let hint = parse(given["value"].as_str().unwrap(), clock(given));
            let (verdict, wait) = judged(&policy, StatusCode::SERVICE_UNAVAILABLE, hint);
            assert_eq!(verdict.decision(), Decision::Retry);
            assert_eq!(wait, Backoff::default().throttled_base());
        }
    }

    #[test]
    fn server_hint() {
        vectors::check("server_hint", 12, &[], |case| {
            let Case {
                given, expected, ..
            } = case;
            match case.id.as_str() {
                "aws21-52-hint-10" | "aws21-53-hint-10000" | "envoy-hint-06-one-ms-ignored" => {
                    let backoff = Backoff::exponential(millis(&given["backoff_ms"]), Duration::MAX);
                    let hint = millis(&given["hint_ms"]);
                    let wait = backoff
                        .without_hint_jitter()
                        .delay(1, ZERO, Some(hint), 1.0);
                    let theirs = expected.get("delay_ms").map_or(backoff.base(), millis);
                    // Differs: a long hint is waited in full.
                    assert_eq!(wait, if case.differs() { hint } else { theirs });
                }
                // Differs: Envoy drops the hint and returns earlier than it was asked.
                "envoy-hint-04-over-max-ignored" => {
                    let backoff = Backoff::exponential(millis(&given["backoff_ms"]), Duration::MAX);
                    let policy = policy(backoff, millis(&given["hint_cap_ms"]));
                    assert_too_long(
                        &policy,
                        StatusCode::TOO_MANY_REQUESTS,
                        millis(&given["hint_ms"]),
                    );
                }
                // go-retryablehttp
                _ => {
                    let max = secs(&given["max_s"]);
                    let backoff = Backoff::exponential(given.get("min_s").map_or(max, secs), max);
                    let policy = policy(backoff.without_hint_jitter(), max);
                    let status = u16::try_from(given["status"].as_u64().unwrap()).unwrap();
                    let status = StatusCode::from_u16(status).unwrap();
                    let hint = given["retry_after"]
                        .as_str()
                        .map(|value| parse_now(value).unwrap());
                    if case.differs() {
                        // Waited there, or not read. The limit is the maximum.
                        assert_too_long(&policy, status, hint.unwrap());
                    } else {
                        let (verdict, wait) = judged(&policy, status, hint);
                        assert_eq!(verdict.decision(), Decision::Retry);
                        assert_eq!(wait, secs(&expected["delay_s"]));
                    }
                }
            }
        });
    }

    #[test]
    fn retry_after_cap() {
        vectors::check("retry_after_cap", 5, &[], |case| {
            let Case {
                given, expected, ..
            } = case;
            let hint = parse_now(&given["seconds"].to_string()).unwrap();
            let backoff = Backoff::exponential(ms(1), ms(1)).without_hint_jitter();
            let policy = policy(backoff, secs(&given["cap_s"]));
            if case.differs() {
                assert_too_long(&policy, StatusCode::TOO_MANY_REQUESTS, hint);
            } else {
                let (verdict, wait) = judged(&policy, StatusCode::TOO_MANY_REQUESTS, Some(hint));
                assert_eq!(verdict.decision(), Decision::Retry);
                assert_eq!(wait, secs(&expected["seconds"]));
            }
        });
    }
}

/// The limit is the backoff's maximum where none is set.
fn std_policy() -> StandardPolicy {
    StandardPolicy::builder().backoff(STD).build().unwrap()
}

#[test]
fn ra_01_seconds_are_not_multiplied_into_a_negative_wait() {
    assert_eq!(
        parse_now("9223372037"),
        Some(Duration::from_secs(9_223_372_037))
    );
    assert_too_long(
        &std_policy(),
        StatusCode::TOO_MANY_REQUESTS,
        parse_now("9223372037").unwrap(),
    );
}

#[test]
fn ra_02_digits_beyond_any_integer_are_longer_than_any_limit() {
    assert_eq!(parse_now("99999999999999999999"), Some(Duration::MAX));
    assert_too_long(
        &std_policy(),
        StatusCode::SERVICE_UNAVAILABLE,
        Duration::MAX,
    );
}

#[test]
fn ra_05_obsolete_forms_are_read_and_impossible_dates_are_not() {
    let now = date("Fri, 20 Feb 2026 00:00:00 GMT");
    assert_eq!(wait(parse("Sat, 31 Feb 2026 00:00:00 GMT", now)), ms(100));
    for value in ["Friday, 20-Feb-26 00:00:05 GMT", "Fri Feb 20 00:00:05 2026"] {
        assert_eq!(wait(parse(value, now)), ms(5_000), "{value}");
    }
}

#[test]
fn ra_06_a_date_in_the_past_leaves_the_ordinary_backoff() {
    let hint = parse(
        "Thu, 01 Jan 2026 00:00:00 GMT",
        date("Thu, 01 Jan 2026 00:00:10 GMT"),
    );
    assert_eq!((hint, wait(hint)), (Some(ZERO), ms(100)));
}

#[test]
fn ra_07_a_date_ahead_is_waited_for() {
    let now = date("Thu, 01 Jan 2026 00:00:10 GMT");
    assert_eq!(wait(parse(&fmt_http_date(now + ms(6_000)), now)), ms(6_000));
}

#[test]
fn ra_08_zero_is_a_hint_and_leaves_the_ordinary_backoff() {
    let hint = parse_now("0");
    assert_eq!((hint, wait(hint)), (Some(ZERO), ms(100)));
}

#[test]
fn ra_10_hints_that_are_switched_off_do_not_control_the_wait() {
    let policy = std_policy()
        .to_builder()
        .retry_after_hints(RetryAfterHints::Ignore)
        .build()
        .unwrap();
    let (verdict, wait) = judged(&policy, StatusCode::TOO_MANY_REQUESTS, parse_now("8"));
    assert_eq!((verdict.decision(), wait), (Decision::Retry, ms(100)));
    let (_, honoured) = judged(&std_policy(), StatusCode::TOO_MANY_REQUESTS, parse_now("8"));
    assert_eq!(honoured, ms(8_000));
}

#[test]
fn ra_12_an_hour_is_not_shortened_to_the_maximum() {
    assert_too_long(
        &std_policy(),
        StatusCode::TOO_MANY_REQUESTS,
        parse_now("3600").unwrap(),
    );
}

#[test]
fn ra_13_ten_minutes_are_not_shortened_to_the_maximum() {
    assert_too_long(
        &std_policy(),
        StatusCode::TOO_MANY_REQUESTS,
        parse_now("600").unwrap(),
    );
}

#[test]
fn ra_14_the_last_year_is_too_long_and_a_fifth_digit_is_ignored() {
    let now = date("Thu, 01 Jan 2026 00:00:00 GMT");
    assert_too_long(
        &std_policy(),
        StatusCode::SERVICE_UNAVAILABLE,
        parse("Fri, 31 Dec 9999 23:59:59 GMT", now).unwrap(),
    );
    assert_eq!(wait(parse("Fri, 31 Dec 99999 23:59:59 GMT", now)), ms(100));
}

#[test]
fn ra_15_of_two_lines_the_longest_counts_and_a_joined_one_is_ignored() {
    let two = headers([("retry-after", "7"), ("retry-after", "2")]);
    assert_eq!(
        wait(retry_after::parse(&two, SystemTime::UNIX_EPOCH)),
        ms(7_000)
    );
    assert_eq!(wait(parse_now("7, 2")), ms(100));
}

#[test]
fn ra_16_floats_and_signs_are_ignored() {
    for value in ["nan", "inf", "-inf", "1e400", "-5"] {
        assert_eq!(wait(parse_now(value)), ms(100), "{value}");
    }
}

#[test]
fn ra_17_every_wait_is_as_long_as_asked() {
    let hint = parse_now("1");
    for retry in 1..=9 {
        for random in [0.0, 0.5, 1.0] {
            assert!(
                STD.delay(retry, ZERO, hint, random) >= ms(1_000),
                "retry {retry}"
            );
        }
    }
}

#[test]
fn ra_20_the_responses_own_date_is_its_now() {
    let sent = date("Thu, 01 Jan 2026 00:00:00 GMT");
    let headers = headers([
        ("date", fmt_http_date(sent).as_str()),
        ("retry-after", fmt_http_date(sent + ms(5_000)).as_str()),
    ]);
    for local in [sent - ms(60_000), sent, sent + ms(60_000)] {
        assert_eq!(wait(retry_after::parse(&headers, local)), ms(5_000));
    }
}

#[test]
fn ra_23_a_fleet_with_one_hint_does_not_return_in_one_instant() {
    let hint = parse_now("6");
    // The backoff is far below the hint: only the hint's own jitter can spread them.
    let backoff = Backoff::exponential(ms(100), ms(10_000));
    for backoff in [
        backoff,
        backoff.without_jitter(),
        backoff.with_decorrelated_jitter(),
    ] {
        let waits: Vec<_> = randoms(23)
            .take(100)
            .map(|random| backoff.delay(1, ZERO, hint, random))
            .collect();
        assert!(
            waits
                .iter()
                .all(|wait| (ms(6_000)..=ms(9_000)).contains(wait))
        );
        // Timers have milliseconds.
        let distinct: HashSet<_> = waits.iter().map(Duration::as_millis).collect();
        assert!(distinct.len() >= 50, "{backoff:?}: {}", distinct.len());
    }
}
