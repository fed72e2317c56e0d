//! A gateway under a hostile set of authorities. Alone in its process: it measures memory.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests

mod support;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use tower::{ServiceBuilder, ServiceExt};
use tower_http_retry::{
    AmbiguousResponses, AttemptNumber, Backoff, BoxError, Budget, Budgets, Drain, EvidenceError,
    Failure, FailureKind, ReplayBody, RetryLayer, StandardPolicy, UpstreamKey,
};

use support::measure::{known, resident_kib};

const HOSTILE: u64 = 1_000_000;
/// Places in the map, as by default.
const PLACES: usize = 1024;

/// What the upstreams do with an attempt: in the request, so that one service can be all of them.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Does {
    Answer,
    /// Fails the first attempt and answers the second.
    FailOnce,
    Refuse,
    Disconnect,
}

/// All upstreams there are.
async fn upstreams(
    attempts: Arc<AtomicU64>,
    request: Request<ReplayBody>,
) -> Result<Response<Empty<Bytes>>, BoxError> {
    attempts.fetch_add(1, Ordering::Relaxed);
    let extensions = request.extensions();
    let status = match extensions.get::<Does>().unwrap() {
        Does::FailOnce if extensions.get::<AttemptNumber>().is_some() => StatusCode::OK,
        Does::Answer => StatusCode::OK,
        Does::FailOnce | Does::Refuse => StatusCode::SERVICE_UNAVAILABLE,
        Does::Disconnect => {
            let failure = Failure::not_sent(FailureKind::Connect);
            return Err(EvidenceError::new(failure, "nobody there").into());
        }
    };
    Ok(Response::builder().status(status).body(Empty::new())?)
}

fn key(request: http::request::Builder) -> UpstreamKey {
    UpstreamKey::of(&request.body(()).unwrap().into_parts().0)
}

/// One upstream, however it is spelled.
fn spelled(number: u64) -> http::request::Builder {
    Request::get(match number % 4 {
        0 => "http://shop.example/".to_owned(),
        1 => "http://SHOP.example:80/".to_owned(),
        2 => format!("http://user-{number}@shop.EXAMPLE./"),
        _ => format!("http://u:{number}@shop.example:0080/"),
    })
}

/// Another upstream for each number. Many look like the well-behaved one.
fn hostile(number: u64) -> http::request::Builder {
    let (high, low) = (number >> 16, number & 0xffff);
    match number % 8 {
        0 => Request::get(format!("http://h{number}.example/")),
        1 => Request::get(format!("https://H{number}.Example:443/")),
        2 => Request::get(format!("http://shop.example:{number}/")),
        3 => Request::get(format!("http://shop.example:80@h{number}.example/")),
        4 => Request::get(format!("http://[2001:DB8:0::{high:x}:{low:x}]/")),
        5 => Request::get("http://shop.example/").extension(UpstreamKey::new(number.to_string())),
        6 => Request::get("/").header("host", format!("shop.example:{number}")),
        _ => Request::get(format!("https://SHOP.example:{number}/")),
    }
}

/// What the well-behaved upstream's own calls make of its balance.
#[derive(Default)]
struct Books {
    calls: u64,
    retries: u64,
    /// In hundredths of a token.
    balance: u64,
}

impl Books {
    /// As often as its answers pay for: five calls, one retry.
    fn next(&mut self) -> Does {
        self.calls += 1;
        self.balance += 20;
        if !self.calls.is_multiple_of(5) {
            return Does::Answer;
        }
        self.retries += 1;
        self.balance -= 100;
        Does::FailOnce
    }

    fn attempts(&self) -> u64 {
        self.calls + self.retries
    }

    fn check(&self, budget: &Budget) {
        assert_eq!(budget.balance(), self.balance as f64 / 100.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_million_authorities_through_a_gateway_take_no_memory_and_nobodys_tokens() {
    let mut keys: HashSet<_> = (0..16_000).map(|number| key(hostile(number))).collect();
    keys.extend((0..8).map(|number| key(spelled(number))));
    assert_eq!(keys.len(), 16_001, "all are others, and one is spelled");
    drop(keys);

    let (budgets, attempts) = (Budgets::default(), Arc::new(AtomicU64::new(0)));
    let policy = StandardPolicy::builder()
        .retries(1)
        .backoff(
            Backoff::exponential(Duration::ZERO, Duration::ZERO)
                .with_throttled_base(Duration::ZERO),
        )
        .ambiguous_responses(AmbiguousResponses::Deliver)
        .build()
        .unwrap();
    let layer = RetryLayer::new(policy)
        .with_budgets(budgets.clone())
        .with_deadline(Duration::from_secs(30))
        .with_attempt_timeout(Duration::from_millis(500))
        .with_drain(Drain::new());
    let gateway = {
        let attempts = Arc::clone(&attempts);
        ServiceBuilder::new()
            .map_request(|request: Request<Full<Bytes>>| {
                let limit = ReplayBody::DEFAULT_BUFFER_LIMIT;
                request.map(|body| ReplayBody::buffered(body, limit))
            })
            .layer(layer)
            .service_fn(move |request| upstreams(Arc::clone(&attempts), request))
    };
    let status = async |request: http::request::Builder, does: Does| {
        let request = request.extension(does).body(Full::default()).unwrap();
        let answer = gateway.clone().oneshot(request).await;
        answer.ok().map(|response| response.status())
    };

    let good = budgets.get(&key(spelled(0))).unwrap();
    (0..60).for_each(|_| good.try_withdraw().unwrap().spend());
    let mut books = Books {
        balance: 4_000,
        ..Books::default()
    };
    let (mut answered, mut before) = (0, 0);
    for number in 0..HOSTILE {
        let does =
            [Does::Refuse, Does::Answer, Does::Disconnect, Does::Answer][number as usize / 8 % 4];
        answered += u64::from(status(hostile(number), does).await == Some(StatusCode::OK));
        if number % 50 == 0 {
            let does = books.next();
            let answer = status(spelled(number / 50), does).await;
            assert_eq!(answer, Some(StatusCode::OK), "its retries are granted");
            books.check(&good);
        }
        // At a standstill first. Then some buckets are full again in time, and are evicted.
        if number >= HOSTILE / 2 && number % 100 == 0 {
            tokio::time::advance(Duration::from_millis(1)).await;
            books.balance += 1;
        }
        if number % 10_000 == 0 {
            assert!(known(&budgets) <= PLACES, "{}", known(&budgets));
        }
        if number == HOSTILE / 20 {
            before = resident_kib();
        }
        if number + 1 == HOSTILE / 2 {
            let retries = attempts.load(Ordering::Relaxed) - (number + 1) - books.attempts();
            // One for each that has a place, and the overflow's: what it was full of, and a fifth
            // of what was answered.
            let bound = PLACES as u64 + 100 + answered / 5;
            assert!(
                (bound - 1_000..=bound).contains(&retries),
                "{retries} {bound}"
            );
        }
    }
    let more = resident_kib() - before;
    assert!(more <= 1_024, "{more} KiB more than {before}");
    assert_eq!(known(&budgets), PLACES);
    books.check(&budgets.get(&key(spelled(0))).unwrap());

    // In five seconds a place is had by fifty more at most, and the overflow gains fifty.
    let retries = attempts.load(Ordering::Relaxed) - HOSTILE - books.attempts();
    let bound = PLACES as u64 * (1 + 50) + 100 + 50 + answered / 5;
    assert!(retries <= bound, "{retries} {bound}");
    assert_eq!(answered, HOSTILE / 2);
}
