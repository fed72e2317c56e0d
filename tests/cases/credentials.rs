//! Credentials, dates and early data: kinds auth-401, stale-auth-date, too-early-425. What a
//! refresh does otherwise has its own tests.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use http::header::{AUTHORIZATION, DATE};
use http::{HeaderValue, Method, Request, Response, request, response};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_http_retry::{
    Attempt, BodyState, BoxError, Error, Failure, FailureKind, Policy, Refresh, ReplayBody, Report,
    ResponseBody, RetryDenied, RetryLayer, Rule, StandardPolicy,
};

use super::support::body::TestBody;
use super::support::script::Script;
use super::support::upload::Chunks;
use super::support::{MS, layer, policy, request};
use super::{Reply, busy, get, ok, post, run, times};

type Stack = BoxCloneSyncService<Request<ReplayBody>, Response<ResponseBody<TestBody>>, Error>;

/// Sends its request through the very stack that it refreshes for.
#[derive(Default)]
struct Circular {
    stack: OnceLock<Stack>,
    method: Method,
    refreshes: AtomicUsize,
}

impl Refresh for Circular {
    async fn refresh(
        &self,
        stale: &request::Parts,
        _: &response::Parts,
    ) -> Result<HeaderValue, BoxError> {
        self.refreshes.fetch_add(1, Ordering::SeqCst);
        let mut request = request(self.method.clone(), ());
        if let Some(old) = stale.headers.get(AUTHORIZATION) {
            request.headers_mut().insert(AUTHORIZATION, old.clone());
        }
        let stack = self.stack.get().unwrap().clone();
        let response = stack.oneshot(request).await?;
        Err(format!("the identity provider says {}", response.status()).into())
    }
}

#[tokio::test(start_paused = true)]
async fn au_02_a_refresh_through_its_own_stack_ends() {
    for method in [Method::POST, Method::GET] {
        for token in [None, Some("old")] {
            let circular = Arc::new(Circular {
                method: method.clone(),
                ..Circular::default()
            });
            let script = Script::new(times(2, || Reply::status(401)));
            let service = layer().with_refresh(circular.clone()).layer(script.clone());
            let stack = BoxCloneSyncService::new(service);
            assert!(circular.stack.set(stack.clone()).is_ok());
            let mut call = get();
            if let Some(token) = token {
                let token = HeaderValue::from_static(token);
                call.headers_mut().insert(AUTHORIZATION, token);
            }
            let response = tokio::time::timeout(Duration::from_secs(60), stack.oneshot(call))
                .await
                .expect("a refresh that waits for itself")
                .unwrap();
            assert_eq!(response.status(), 401);
            let report = response.extensions().get::<Report>().unwrap();
            assert_eq!(
                report.verdict().unwrap().denied(),
                Some(RetryDenied::Unauthorized)
            );
            let error = report.attempts()[0].refresh_error().unwrap();
            assert_eq!(
                error.to_string(),
                "the identity provider says 401 Unauthorized"
            );
            assert_eq!(script.attempts(), 2, "one call and one refresh call");
            assert_eq!(circular.refreshes.load(Ordering::SeqCst), 1);
        }
    }
}

/// A refresh of its own whose answer is lost: its error, the third answer, is in the report.
struct LostAnswer;

impl Refresh for LostAnswer {
    async fn refresh(
        &self,
        _: &request::Parts,
        _: &response::Parts,
    ) -> Result<HeaderValue, BoxError> {
        let lost = Reply::fails(Failure::sent_no_response(FailureKind::Reset));
        Err(run(&layer(), post(), [lost])
            .await
            .answer
            .unwrap_err()
            .into())
    }
}

#[tokio::test(start_paused = true)]
async fn au_08_a_refresh_is_an_operation_too_and_may_end_ambiguous() {
    let refreshed = layer().with_refresh(LostAnswer);
    let ran = run(&refreshed, get(), [Reply::status(401)]).await;
    ran.waited([]);
    assert_eq!(ran.status(), 401);
    assert_eq!(ran.denied(), Some(RetryDenied::Unauthorized));
    let error = ran.report().unwrap().attempts()[0].refresh_error().unwrap();
    assert!(error.downcast_ref::<Error>().unwrap().is_ambiguous());
}

/// Sets a header to a number that counts up with every request.
fn stamped(
    name: &'static str,
) -> impl Fn(Request<ReplayBody>) -> Request<ReplayBody> + Clone + use<> {
    let count = Arc::new(AtomicU32::new(0));
    move |mut request| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        request.headers_mut().insert(name, number.into());
        request
    }
}

fn sent(script: &Script, name: &str) -> Vec<HeaderValue> {
    script.seen(|seen| {
        let attempts = seen.iter();
        attempts
            .map(|seen| seen.head.headers[name].clone())
            .collect()
    })
}

/// Layers that date or sign belong below: above, each attempt carries what the first one got.
#[tokio::test(start_paused = true)]
async fn sa_02_a_date_that_is_set_outside_is_stale_and_one_set_inside_is_not() {
    let outside = Script::new([busy(), ok()]);
    ServiceBuilder::new()
        .map_request(stamped("date"))
        .layer(layer())
        .service(outside.clone())
        .oneshot(get())
        .await
        .unwrap();
    assert_eq!(sent(&outside, "date"), ["0", "0"]);

    let inside = Script::new([busy(), ok()]);
    ServiceBuilder::new()
        .layer(layer())
        .map_request(stamped("date"))
        .service(inside.clone())
        .oneshot(get())
        .await
        .unwrap();
    assert_eq!(sent(&inside, "date"), ["0", "1"]);
}

#[tokio::test(start_paused = true)]
async fn sa_03_a_nonce_changes_with_each_attempt_and_the_key_does_not() {
    let script = Script::new([busy(), ok()]);
    let mut call = get();
    let key = HeaderValue::from_static("k1");
    call.headers_mut().insert("idempotency-key", key);
    ServiceBuilder::new()
        .layer(layer())
        .map_request(stamped("x-nonce"))
        .service(script.clone())
        .oneshot(call)
        .await
        .unwrap();
    assert_eq!(sent(&script, "x-nonce"), ["0", "1"]);
    assert_eq!(sent(&script, "idempotency-key"), ["k1", "k1"]);
}

/// The standard table with one status more that a refresh mends: a clock that is off.
struct Skewed(StandardPolicy);

impl Policy for Skewed {
    fn rule(&self, attempt: &Attempt<'_>) -> Rule {
        match attempt.status().map(|status| status.as_u16()) {
            Some(403) if attempt.can_refresh() => Rule::Refresh,
            _ => self.0.rule(attempt),
        }
    }

    fn defaults(&self) -> &StandardPolicy {
        &self.0
    }

    fn backoff(&self, attempt: &Attempt<'_>, previous: Duration, random: f64) -> Duration {
        match attempt.status().map(|status| status.as_u16()) {
            Some(403) => Duration::ZERO,
            _ => self.0.backoff(attempt, previous, random),
        }
    }
}

/// What is refreshed is the date; calls with the same stale one share the correction.
struct Clock(AtomicUsize);

impl Refresh for Clock {
    fn carried(&self, request: &request::Parts) -> Option<HeaderValue> {
        request.headers.get(DATE).cloned()
    }

    async fn refresh(
        &self,
        _: &request::Parts,
        challenge: &response::Parts,
    ) -> Result<HeaderValue, BoxError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(challenge.headers[DATE].clone())
    }

    fn apply(&self, credential: &HeaderValue, request: &mut request::Parts) {
        request.headers.insert(DATE, credential.clone());
    }
}

#[tokio::test(start_paused = true)]
async fn sa_05_every_concurrent_call_profits_from_one_correction() {
    let clock = Arc::new(Clock(AtomicUsize::new(0)));
    let seen = Arc::new(Mutex::new(0));
    let attempts = Arc::clone(&seen);
    let server = service_fn(move |request: Request<ReplayBody>| {
        *attempts.lock().unwrap() += 1;
        async move {
            tokio::time::sleep(MS).await;
            let now = "Thu, 01 Jan 2026 00:00:10 GMT";
            let right = request.headers()[DATE] == now;
            Ok::<_, BoxError>(
                Response::builder()
                    .status(if right { 200 } else { 403 })
                    .header(DATE, now)
                    .body(TestBody::from(&[][..]))
                    .unwrap(),
            )
        }
    });
    let service = RetryLayer::new(Skewed(policy().build().unwrap()))
        .with_refresh(Arc::clone(&clock))
        .layer(server);
    let call = || {
        let mut call = get();
        let stale = HeaderValue::from_static("Thu, 01 Jan 2026 00:00:00 GMT");
        call.headers_mut().insert(DATE, stale);
        service.clone().oneshot(call)
    };
    let (a, b, c) = tokio::join!(call(), call(), call());
    for response in [a, b, c] {
        let response = response.unwrap();
        assert_eq!(response.status(), 200);
        let report = response.extensions().get::<Report>().unwrap();
        assert_eq!(report.attempts().len(), 2);
        assert!(report.attempts()[1].waited_before().is_zero());
    }
    assert_eq!(*seen.lock().unwrap(), 6);
    assert_eq!(clock.0.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn te_04_after_425_the_body_counts_and_not_the_method() {
    let stream = ReplayBody::one_shot(Chunks::new(["order"]));
    let early = || Reply::status(425);
    let ran = run(&layer(), request(Method::POST, stream), [early()]).await;
    ran.waited([]);
    assert_eq!(ran.status(), 425);
    assert_eq!(
        ran.denied(),
        Some(RetryDenied::BodyNotReplayable(BodyState::Consumed))
    );
    let ran = run(&layer(), post(), [early(), ok()]).await;
    ran.waited([0]);
    assert_eq!(ran.status(), 200);
}
