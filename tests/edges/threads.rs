//! A call on a thread is what it is, whatever was called on that thread before and meanwhile, and
//! however that ended: what calls leave behind for each other is memory and nothing else.

#![allow(clippy::wildcard_enum_match_arm)] // most do nothing of their own

use std::fmt::{Debug, Write as _};
use std::future::{Future, poll_fn};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use tokio::time::{sleep, timeout};
use tower::{Layer, Service, ServiceExt};
use tower_http_retry::{
    AttemptEnded, BoxError, Deadline, Delivery, EvidenceError, Failure, FailureKind, Idempotency,
    Observer, ReplayBody, RetryLayer, StandardPolicy,
};

use crate::asked::Asked;
use crate::support::body::TestBody;
use crate::support::{MS, layer, paused, policy};
use crate::ten_tokens;

#[derive(Debug, Clone, Copy)]
enum Look {
    Get,
    Post,
    /// With a long value that is sensitive.
    Secret,
    /// With a URI that no text is parsed to.
    Odd,
    /// A POST whose extensions say that it may be repeated.
    Declared,
    /// With a deadline of its own.
    Tight,
    /// Its `content-length` is that of no body here.
    Misdeclared,
}

#[derive(Debug, Clone, Copy)]
enum Load {
    Nothing,
    /// To be copied.
    Few,
    /// To be shared.
    Many,
    OneShot,
    Buffered,
}

#[derive(Debug, Clone, Copy)]
enum Stack {
    Plain,
    Timed,
    Late,
    Once,
    AtFirstByte,
    Observed,
    Nested,
    /// A policy that is asked beforehand.
    Asked,
}

#[derive(Debug, Clone, Copy)]
enum Inner {
    Answers,
    AnswersLate,
    /// The first attempt is answered 503.
    Refuses,
    /// The first attempt is never answered.
    Hangs,
    Resets,
    /// Reads nothing of the first attempt.
    DropsUnread,
    Panics,
    PanicsAtOnce,
    /// Answers while it holds the body, and never lets go of it.
    Forgets,
    /// Answers while it holds the body.
    Keeps,
    /// Answers 503 while it holds the body, then 200.
    KeepsTheFirst,
    /// Never answers, and its caller waits for less than that.
    IsLeft,
}

#[derive(Debug, Clone, Copy)]
struct Kind {
    look: Look,
    load: Load,
    stack: Stack,
    inner: Inner,
}

/// What there is to see of a call: what its service gets and what its caller gets.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

/// Bodies that outlive their calls.
type Kept = Arc<Mutex<Vec<ReplayBody>>>;

#[derive(Clone)]
struct Upstream {
    inner: Inner,
    attempts: Arc<Mutex<u32>>,
    log: Log,
    kept: Kept,
}

/// A panic.
struct OnPurpose;

impl Log {
    fn note(&self, what: impl Debug) {
        writeln!(self.0.lock().unwrap(), "{what:?}").unwrap();
    }
}

impl Observer for Log {
    fn attempt_ended(&self, ended: &AttemptEnded<'_>) {
        let attempt = ended.attempt();
        self.note((
            (attempt.idempotency(), attempt.replayability()),
            (attempt.body_state(), attempt.remaining()),
            (ended.duration(), ended.budget_balance()),
            ended.verdict(),
        ));
    }
}

impl Service<Request<ReplayBody>> for Upstream {
    type Response = Response<TestBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReplayBody>) -> Self::Future {
        let (head, body) = request.into_parts();
        let sensitive = head.headers.values().filter(|value| value.is_sensitive());
        self.log.note((
            (&head.method, &head.uri, head.version),
            (&head.headers, sensitive.count()),
            head.extensions.get::<u8>(),
            head.extensions.get::<Deadline>().is_some(),
            (body.size_hint().exact(), body.state(), body.replayability()),
        ));
        let first = {
            let mut attempts = self.attempts.lock().unwrap();
            *attempts += 1;
            *attempts == 1
        };
        let Self {
            inner, log, kept, ..
        } = self.clone();
        if matches!(inner, Inner::PanicsAtOnce) {
            resume_unwind(Box::new(OnPurpose));
        }
        Box::pin(async move {
            match inner {
                Inner::DropsUnread if first => {
                    drop(body);
                    return Err(failure(Failure::not_sent(FailureKind::Unknown)));
                }
                Inner::Forgets => mem::forget(body),
                Inner::Keeps => kept.lock().unwrap().push(body),
                Inner::KeepsTheFirst if first => {
                    kept.lock().unwrap().push(body);
                    return Ok(status(503));
                }
                _ => log.note(body.collect().await.map(|body| body.to_bytes())),
            }
            match inner {
                Inner::Refuses if first => return Ok(status(503)),
                Inner::AnswersLate => sleep(10 * MS).await,
                Inner::Hangs if first => std::future::pending().await,
                Inner::IsLeft => std::future::pending().await,
                Inner::Resets => {
                    let reset = Failure::sent_no_response(FailureKind::Unknown);
                    return Err(failure(reset));
                }
                Inner::Panics => resume_unwind(Box::new(OnPurpose)),
                _ => {}
            }
            Ok(status(200))
        })
    }
}

fn failure(failure: Failure) -> BoxError {
    EvidenceError::new(failure, "scripted").into()
}

fn status(status: u16) -> Response<TestBody> {
    let body = TestBody::from(&b"answer"[..]);
    Response::builder().status(status).body(body).unwrap()
}

impl Kind {
    fn request(self) -> Request<ReplayBody> {
        let stream = || Full::<bytes::Bytes>::from("a stream of bytes");
        let body = match self.load {
            Load::Nothing => ReplayBody::empty(),
            Load::Few => ReplayBody::bytes("few"),
            Load::Many => ReplayBody::bytes(vec![b'm'; 2000]),
            Load::OneShot => ReplayBody::one_shot(stream()),
            Load::Buffered => ReplayBody::buffered(stream(), 100),
        };
        let method = match self.look {
            Look::Get => Method::GET,
            Look::Post | Look::Declared => Method::POST,
            Look::Secret | Look::Tight | Look::Misdeclared => Method::PUT,
            Look::Odd => Method::OPTIONS,
        };
        let mut request = crate::support::request(method, body);
        match self.look {
            Look::Get | Look::Post => {}
            Look::Secret => {
                let mut secret = HeaderValue::from_str(&"s".repeat(3000)).unwrap();
                secret.set_sensitive(true);
                request.headers_mut().insert("authorization", secret);
            }
            Look::Odd => {
                let uri = Uri::builder().scheme("http").authority("shop.example");
                *request.uri_mut() = uri.path_and_query("*").build().unwrap();
            }
            Look::Declared => {
                request.extensions_mut().insert(Idempotency::Idempotent);
                request.extensions_mut().insert(7_u8);
            }
            Look::Tight => {
                request.extensions_mut().insert(Deadline::after(150 * MS));
            }
            Look::Misdeclared => {
                request.headers_mut().insert(CONTENT_LENGTH, 99.into());
            }
        }
        request
    }

    async fn run(self, kept: Kept) -> String {
        self.run_with(kept, None).await
    }

    async fn run_with(self, kept: Kept, given: Option<(ReplayBody, Arc<()>)>) -> String {
        let mut request = self.request();
        if let Some((body, held)) = given {
            *request.body_mut() = body;
            request.extensions_mut().insert(held);
        }
        let log = Log::default();
        let upstream = Upstream {
            inner: self.inner,
            attempts: Arc::default(),
            log: log.clone(),
            kept,
        };
        let layer = layer().with_budgets(ten_tokens());
        match self.stack {
            Stack::Plain => self.call(layer.layer(upstream), request, &log).await,
            Stack::Timed => {
                let layer = layer.with_attempt_timeout(30 * MS);
                self.call(layer.layer(upstream), request, &log).await;
            }
            Stack::Late => {
                let layer = layer.with_deadline(300 * MS);
                self.call(layer.layer(upstream), request, &log).await;
            }
            Stack::Once => {
                let layer = RetryLayer::new(StandardPolicy::none());
                self.call(layer.layer(upstream), request, &log).await;
            }
            Stack::AtFirstByte => {
                let layer = layer.with_delivery(Delivery::AtFirstByte);
                self.call(layer.layer(upstream), request, &log).await;
            }
            Stack::Observed => {
                let layer = layer.with_observer(log.clone());
                self.call(layer.layer(upstream), request, &log).await;
            }
            Stack::Nested => {
                let outer = crate::support::layer().with_observer(log.clone());
                let nested = outer.layer(layer.layer(upstream));
                self.call(nested, request, &log).await;
            }
            Stack::Asked => {
                let layer = RetryLayer::new(Asked(policy().build().unwrap()));
                self.call(layer.layer(upstream), request, &log).await;
            }
        }
        mem::take(&mut log.0.lock().unwrap())
    }

    async fn call<S, B>(self, service: S, request: Request<ReplayBody>, log: &Log)
    where
        S: Service<Request<ReplayBody>, Response = Response<B>, Error = tower_http_retry::Error>,
        B: Body + Unpin,
        B::Error: Debug,
    {
        // Where nothing else ends it.
        let patience = match self.inner {
            Inner::IsLeft => 5 * MS,
            _ => 10_000 * MS,
        };
        let call = async { service.oneshot(request).await };
        let mut call = pin!(timeout(patience, call));
        let answer = poll_fn(|cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx)));
            match polled {
                Ok(polled) => polled.map(Some),
                Err(panic) if panic.is::<OnPurpose>() => Poll::Ready(None),
                Err(fault) => resume_unwind(fault),
            }
        });
        match answer.await {
            None => log.note("it panicked"),
            Some(Err(_)) => log.note("it was left"),
            Some(Ok(Err(error))) => log.note((error.report(), &error)),
            Some(Ok(Ok(response))) => {
                let (head, body) = response.into_parts();
                let report = head.extensions.get::<tower_http_retry::Report>();
                log.note((head.status, report));
                log.note(body.collect().await.map(|body| body.to_bytes()));
            }
        }
    }
}

/// Reads what was kept, when all is over: its own bytes, or that it was cut off.
async fn read(kept: Kept) -> Vec<String> {
    let bodies = mem::take(&mut *kept.lock().unwrap());
    let mut read = Vec::new();
    for body in bodies {
        let hint = body.size_hint();
        let text = body.collect().await.map(|body| body.to_bytes());
        read.push(format!("{hint:?} {text:?}"));
    }
    read
}

async fn alone(kind: Kind) -> (String, Vec<String>) {
    let kept = Kept::default();
    (kind.run(Arc::clone(&kept)).await, read(kept).await)
}

/// On a thread of its own, which has seen no other call.
fn on_its_own(kind: Kind) -> (String, Vec<String>) {
    let thread = std::thread::spawn(move || paused(alone(kind)));
    thread.join().unwrap()
}

fn kinds() -> impl Strategy<Value = Kind> {
    let look = prop::sample::select(vec![
        Look::Get,
        Look::Post,
        Look::Secret,
        Look::Odd,
        Look::Declared,
        Look::Tight,
        Look::Misdeclared,
    ]);
    let load = prop::sample::select(vec![
        Load::Nothing,
        Load::Few,
        Load::Many,
        Load::OneShot,
        Load::Buffered,
    ]);
    let stack = prop::sample::select(vec![
        Stack::Plain,
        Stack::Timed,
        Stack::Late,
        Stack::Once,
        Stack::AtFirstByte,
        Stack::Observed,
        Stack::Nested,
        Stack::Asked,
    ]);
    let inner = prop::sample::select(vec![
        Inner::Answers,
        Inner::AnswersLate,
        Inner::Refuses,
        Inner::Hangs,
        Inner::Resets,
        Inner::DropsUnread,
        Inner::Panics,
        Inner::PanicsAtOnce,
        Inner::Forgets,
        Inner::Keeps,
        Inner::KeepsTheFirst,
        Inner::IsLeft,
    ]);
    (look, load, stack, inner).prop_map(|(look, load, stack, inner)| Kind {
        look,
        load,
        stack,
        inner,
    })
}

/// What the caller gave is the caller's alone once the call and its bodies are gone, though the
/// call's memory waits on the thread for the next one.
#[tokio::test(start_paused = true)]
async fn nothing_that_was_given_to_a_call_stays_on_its_thread() {
    for stack in [Stack::Plain, Stack::Observed, Stack::Once, Stack::Nested] {
        for inner in [Inner::Answers, Inner::Refuses, Inner::Keeps, Inner::IsLeft] {
            let (kept, held) = (Kept::default(), Arc::new(()));
            let bytes = bytes::Bytes::from(vec![b'm'; 2000]);
            let kind = Kind {
                look: Look::Get,
                load: Load::Many,
                stack,
                inner,
            };
            let given = (ReplayBody::bytes(bytes.clone()), Arc::clone(&held));
            kind.run_with(Arc::clone(&kept), Some(given)).await;
            let is_kept = !kept.lock().unwrap().is_empty();
            assert_eq!(is_kept, matches!(inner, Inner::Keeps));
            assert_eq!(bytes.is_unique(), !is_kept, "{kind:?}");
            kept.lock().unwrap().clear();
            assert!(bytes.is_unique(), "{kind:?}");
            assert_eq!(Arc::strong_count(&held), 1, "{kind:?}");
        }
    }
}

proptest! {
    #[test]
    fn a_call_is_what_it_is_on_a_thread_of_its_own(
        pairs in prop::collection::vec((kinds(), kinds()), 1..6)
    ) {
        let seen = paused(async {
            let kept = [Kept::default(), Kept::default()];
            let mut seen = Vec::new();
            for (one, other) in &pairs {
                let [one_kept, other_kept] = kept.each_ref().map(Arc::clone);
                seen.push(tokio::join!(one.run(one_kept), other.run(other_kept)));
            }
            let [one, other] = kept;
            (seen, read(one).await, read(other).await)
        });
        let mut expected = (Vec::new(), Vec::new(), Vec::new());
        for (one, other) in pairs {
            let (one, other) = (on_its_own(one), on_its_own(other));
            expected.0.push((one.0, other.0));
            expected.1.extend(one.1);
            expected.2.extend(other.1);
        }
        prop_assert_eq!(seen, expected);
    }
}
