//! The columns: each layer around the same inner service.

mod ours;
mod peers;

use std::mem::size_of_val;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::runtime::{Builder, Runtime};
use tower::Service;

use crate::inner::{Inner, Upstream};
use crate::request::Profile;

pub use ours::{ours, retrying};

/// The inner service alone.
pub const BARE: &str = "no layer";
/// reqwest-middleware alone.
pub const BARE_CHAIN: &str = "reqwest-middleware without retry";
/// What the targets are ratios to.
pub const TOWER: &str = "tower::retry, TpsBudget, ExponentialBackoff";
pub const OURS: &str = "tower-http-retry";
pub const OURS_ONCE: &str = "tower-http-retry, one attempt";

/// One column.
pub trait Case {
    fn name(&self) -> &'static str;
    /// Whose time is subtracted.
    fn base(&self) -> &'static str;
    /// Builds the next calls' requests; not timed.
    fn prepare(&mut self, calls: usize);
    /// Makes the calls: timed.
    fn run(&mut self);
    /// The future of a call that just began.
    fn future_bytes(&mut self) -> usize;
}

/// All columns, for calls that go like this. Every case makes up to three attempts, without a wait
/// between them, and has a budget that never runs dry.
pub fn all(profile: Profile, upstream: Upstream) -> Vec<Box<dyn Case>> {
    let bare = service(BARE, BARE, Inner(Upstream::Well), move || {
        profile.request().map(http_body_util::Full::new)
    });
    let chain = peers::chain(BARE_CHAIN, profile, Upstream::Well, false);
    let mut cases: Vec<Box<dyn Case>> = vec![Box::new(bare), chain];
    cases.extend(ours::cases(profile, upstream));
    cases.extend(peers::cases(profile, upstream));
    cases
}

/// Calls through a tower service.
struct ThroughService<S, R, M> {
    names: (&'static str, &'static str),
    service: S,
    make: M,
    requests: Vec<R>,
}

fn service<S, R, M>(
    name: &'static str,
    base: &'static str,
    service: S,
    make: M,
) -> ThroughService<S, R, M>
where
    S: Service<R>,
    M: Fn() -> R,
{
    ThroughService {
        names: (name, base),
        service,
        make,
        requests: Vec::new(),
    }
}

impl<S, R, M> Case for ThroughService<S, R, M>
where
    S: Service<R>,
    M: Fn() -> R,
{
    fn name(&self) -> &'static str {
        self.names.0
    }

    fn base(&self) -> &'static str {
        self.names.1
    }

    fn prepare(&mut self, calls: usize) {
        self.requests.extend((0..calls).map(|_| (self.make)()));
    }

    fn run(&mut self) {
        let service = &mut self.service;
        let mut cx = Context::from_waker(Waker::noop());
        for request in self.requests.drain(..) {
            assert!(matches!(service.poll_ready(&mut cx), Poll::Ready(Ok(()))));
            drive(pin!(service.call(request)));
        }
    }

    fn future_bytes(&mut self) -> usize {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(self.service.poll_ready(&mut cx).is_ready());
        size_of_val(&self.service.call((self.make)()))
    }
}

/// Calls through an asynchronous function.
struct ThroughFunction<F, R, M> {
    names: (&'static str, &'static str),
    call: F,
    make: M,
    requests: Vec<R>,
}

fn function<F, R, T, E, M>(
    name: &'static str,
    base: &'static str,
    call: F,
    make: M,
) -> ThroughFunction<F, R, M>
where
    F: AsyncFnMut(R) -> Result<T, E>,
    M: Fn() -> R,
{
    ThroughFunction {
        names: (name, base),
        call,
        make,
        requests: Vec::new(),
    }
}

impl<F, R, T, E, M> Case for ThroughFunction<F, R, M>
where
    F: AsyncFnMut(R) -> Result<T, E>,
    M: Fn() -> R,
{
    fn name(&self) -> &'static str {
        self.names.0
    }

    fn base(&self) -> &'static str {
        self.names.1
    }

    fn prepare(&mut self, calls: usize) {
        self.requests.extend((0..calls).map(|_| (self.make)()));
    }

    fn run(&mut self) {
        for request in self.requests.drain(..) {
            let call = (self.call)(request);
            drive(pin!(call));
        }
    }

    fn future_bytes(&mut self) -> usize {
        size_of_val(&(self.call)((self.make)()))
    }
}

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
}

/// For calls that create timers while they are polled by hand.
pub fn in_runtime<T>(work: impl FnOnce() -> T) -> T {
    RUNTIME.with(|runtime| {
        let _entered = runtime.enter();
        work()
    })
}

/// Polls a call by hand: no executor is measured. Who waits for a timer goes on in a runtime.
fn drive<F, T, E>(mut call: Pin<&mut F>)
where
    F: Future<Output = Result<T, E>>,
{
    let mut cx = Context::from_waker(Waker::noop());
    let answer = match call.as_mut().poll(&mut cx) {
        Poll::Ready(answer) => answer,
        Poll::Pending => RUNTIME.with(|runtime| runtime.block_on(call)),
    };
    assert!(answer.is_ok());
}
