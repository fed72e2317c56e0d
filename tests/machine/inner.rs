//! The inner service of a scenario: what it is told to do, and what it sees.

use std::any::Any;
use std::collections::VecDeque;
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::time::{Sleep, sleep};
use tower::Service;
use tower_http_retry::{BoxError, EvidenceError, Failure, FailureKind, ReplayBody};

use crate::scenario::{Behaviour, Download, End, Ends, Ms, Ready};

/// What all instances share.
#[derive(Default)]
pub(crate) struct World {
    behaviours: Mutex<Vec<Behaviour>>,
    /// Attempts begun, by readiness.
    begun: AtomicUsize,
    sent: AtomicU32,
    /// Something was polled or called that had panicked.
    abused: AtomicBool,
    /// Held by whatever belongs to one attempt.
    alive: Arc<()>,
}

impl World {
    pub(crate) fn new(behaviours: Vec<Behaviour>) -> Arc<Self> {
        Arc::new(Self {
            behaviours: Mutex::new(behaviours),
            ..Self::default()
        })
    }

    pub(crate) fn sent(&self) -> u32 {
        self.sent.load(Ordering::SeqCst)
    }

    pub(crate) fn is_abused(&self) -> bool {
        self.abused.load(Ordering::SeqCst)
    }

    /// Futures, response bodies and waits for readiness.
    pub(crate) fn alive(&self) -> usize {
        Arc::strong_count(&self.alive) - 1
    }

    /// From here on everything goes well.
    pub(crate) fn heal(&self) {
        self.behaviours.lock().unwrap().clear();
    }

    fn begin(&self) -> Behaviour {
        let index = self.begun.fetch_add(1, Ordering::SeqCst);
        let behaviours = self.behaviours.lock().unwrap();
        behaviours.get(index).copied().unwrap_or(Behaviour {
            ready: Ready::After(0),
            takes: 0,
            ends: Ends::Status(200, None),
        })
    }
}

/// A panic on purpose. It says nothing on stderr.
#[derive(Debug)]
pub(crate) struct Panicked;

pub(crate) fn panics() -> ! {
    resume_unwind(Box::new(Panicked))
}

/// Catches the panics that are on purpose; others are faults.
pub(crate) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic: Box<dyn Any + Send>| {
        match panic.downcast::<Panicked>() {
            Ok(panic) => *panic,
            Err(fault) => resume_unwind(fault),
        }
    })
}

pub(crate) struct Inner {
    world: Arc<World>,
    state: State,
}

enum State {
    New,
    Waiting(Pin<Box<Sleep>>, Behaviour, #[allow(dead_code)] Arc<()>),
    Ready(Behaviour),
    /// It panicked.
    Broken,
}

impl Inner {
    pub(crate) fn new(world: Arc<World>) -> Self {
        Self {
            world,
            state: State::New,
        }
    }
}

impl Clone for Inner {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.world))
    }
}

impl Service<Request<ReplayBody>> for Inner {
    type Response = Response<Downloading>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        loop {
            match std::mem::replace(&mut self.state, State::Broken) {
                State::New => {
                    let behaviour = self.world.begin();
                    let time = match behaviour.ready {
                        Ready::Fails => return Poll::Ready(Err("closed".into())),
                        Ready::After(time) | Ready::PanicsAfter(time) => time,
                    };
                    let alive = Arc::clone(&self.world.alive);
                    self.state = State::Waiting(wait(time), behaviour, alive);
                }
                State::Waiting(mut waiting, behaviour, alive) => {
                    if waiting.as_mut().poll(cx).is_pending() {
                        self.state = State::Waiting(waiting, behaviour, alive);
                        return Poll::Pending;
                    }
                    if matches!(behaviour.ready, Ready::PanicsAfter(_)) {
                        panics();
                    }
                    self.state = State::Ready(behaviour);
                }
                State::Ready(behaviour) => {
                    self.state = State::Ready(behaviour);
                    return Poll::Ready(Ok(()));
                }
                State::Broken => {
                    self.world.abused.store(true, Ordering::SeqCst);
                    return Poll::Ready(Err("polled after it failed or panicked".into()));
                }
            }
        }
    }

    fn call(&mut self, request: Request<ReplayBody>) -> Self::Future {
        let State::Ready(behaviour) = std::mem::replace(&mut self.state, State::New) else {
            unreachable!("called without being ready");
        };
        self.world.sent.fetch_add(1, Ordering::SeqCst);
        if behaviour.ends == Ends::PanicsInCall {
            self.state = State::Broken;
            panics();
        }
        Box::pin(Attempt {
            world: Arc::clone(&self.world),
            running: Some(Box::pin(attempt(
                Arc::clone(&self.world),
                behaviour,
                request,
            ))),
        })
    }
}

/// The future of an attempt, which notices that it is polled after it panicked.
struct Attempt<F> {
    world: Arc<World>,
    running: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for Attempt<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(mut running) = self.running.take() else {
            self.world.abused.store(true, Ordering::SeqCst);
            return Poll::Pending;
        };
        let polled = running.as_mut().poll(cx);
        if polled.is_pending() {
            self.running = Some(running);
        }
        polled
    }
}

async fn attempt(
    world: Arc<World>,
    behaviour: Behaviour,
    request: Request<ReplayBody>,
) -> Result<Response<Downloading>, BoxError> {
    let alive = Arc::clone(&world.alive);
    let body = request.into_body();
    if behaviour.ends == Ends::NotSentUnread {
        drop(body);
    } else {
        assert_eq!(body.collect().await?.to_bytes(), "order");
    }
    wait(behaviour.takes).await;
    let failure = match behaviour.ends {
        Ends::Status(status, body) => {
            let body = Downloading::new(world, body);
            return Ok(Response::builder().status(status).body(body)?);
        }
        Ends::NotSent | Ends::NotSentUnread => Failure::not_sent(FailureKind::Connect),
        Ends::Certificate => Failure::not_sent(FailureKind::Certificate),
        Ends::Reset => Failure::sent_no_response(FailureKind::Reset),
        Ends::Never => pending().await,
        Ends::Panics | Ends::PanicsInCall => panics(),
    };
    drop(alive);
    Err(EvidenceError::new(failure, "scripted").into())
}

/// A response body.
pub(crate) struct Downloading {
    world: Arc<World>,
    _alive: Arc<()>,
    steps: VecDeque<Step>,
    waiting: Option<Pin<Box<Sleep>>>,
    panicked: bool,
}

enum Step {
    Wait(Ms),
    Byte,
    Breaks,
    Panics,
}

impl Downloading {
    fn new(world: Arc<World>, body: Option<Download>) -> Self {
        let mut steps = VecDeque::new();
        if let Some(body) = body {
            if let Some(time) = body.byte_after {
                steps.extend([Step::Wait(time), Step::Byte]);
            }
            steps.push_back(Step::Wait(body.ends_after));
            match body.end {
                End::Clean => {}
                End::Breaks => steps.push_back(Step::Breaks),
                End::Panics => steps.push_back(Step::Panics),
            }
        }
        Self {
            _alive: Arc::clone(&world.alive),
            world,
            steps,
            waiting: None,
            panicked: false,
        }
    }
}

impl Body for Downloading {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.panicked {
            self.world.abused.store(true, Ordering::SeqCst);
        }
        loop {
            if let Some(waiting) = &mut self.waiting {
                ready!(waiting.as_mut().poll(cx));
                self.waiting = None;
            }
            return Poll::Ready(match self.steps.pop_front() {
                None => None,
                Some(Step::Wait(time)) => {
                    self.waiting = Some(wait(time));
                    continue;
                }
                Some(Step::Byte) => Some(Ok(Frame::data(Bytes::from_static(b"x")))),
                Some(Step::Breaks) => Some(Err("broken".into())),
                Some(Step::Panics) => {
                    self.panicked = true;
                    panics()
                }
            });
        }
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty() && self.waiting.is_none()
    }
}

fn wait(time: Ms) -> Pin<Box<Sleep>> {
    Box::pin(sleep(Duration::from_millis(time)))
}
