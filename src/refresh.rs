//! A new credential after a 401.

use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use http::header::AUTHORIZATION;
use http::{HeaderValue, request, response};
use tokio::sync;

use crate::BoxError;
use crate::report::{SharedError, shared};

/// Gets a new credential after a 401.
///
/// At most once per call, bounded by the call's deadline. Concurrent 401s of one credential share
/// one refresh; a call whose credential was replaced in the meantime uses the new one without
/// another. Send its own request through another service: through the layer that it is configured
/// on, a 401 to that request is not refreshed in turn.
pub trait Refresh: Send + Sync + 'static {
    /// The credential that a request carries: calls with the same one share a refresh. Default: the
    /// `Authorization` header.
    fn carried(&self, request: &request::Parts) -> Option<HeaderValue> {
        request.headers.get(AUTHORIZATION).cloned()
    }

    /// A new credential, from the head that was refused and the challenge.
    fn refresh(
        &self,
        stale: &request::Parts,
        challenge: &response::Parts,
    ) -> impl Future<Output = Result<HeaderValue, BoxError>> + Send;

    /// Puts a credential into a request, in place of the one it carries. Pure. Default: sets the
    /// `Authorization` header.
    fn apply(&self, credential: &HeaderValue, request: &mut request::Parts) {
        request.headers.insert(AUTHORIZATION, credential.clone());
    }
}

impl<T: Refresh> Refresh for Arc<T> {
    fn carried(&self, request: &request::Parts) -> Option<HeaderValue> {
        (**self).carried(request)
    }

    fn refresh(
        &self,
        stale: &request::Parts,
        challenge: &response::Parts,
    ) -> impl Future<Output = Result<HeaderValue, BoxError>> + Send {
        (**self).refresh(stale, challenge)
    }

    fn apply(&self, credential: &HeaderValue, request: &mut request::Parts) {
        (**self).apply(credential, request);
    }
}

/// What calls share of a [`Refresh`].
pub(crate) struct Refresher {
    hook: Arc<dyn DynRefresh>,
    credentials: Mutex<Credentials>,
}

/// A call's wait for its new credential.
pub(crate) type Refreshing = Pin<Box<dyn Future<Output = Result<HeaderValue, SharedError>> + Send>>;

impl Refresher {
    pub(crate) fn new(hook: impl Refresh) -> Self {
        Self {
            hook: Arc::new(hook),
            credentials: Mutex::default(),
        }
    }

    /// Waits for the credential that replaces the one `stale` carries: one that is there already, a
    /// refresh under way, or a new one.
    pub(crate) fn refresh(
        self: &Arc<Self>,
        stale: request::Parts,
        challenge: response::Parts,
    ) -> Refreshing {
        let carried = self.hook.carried(&stale);
        let flight = {
            let mut credentials = self.lock();
            if let Some(newer) = credentials.newer_than(&carried) {
                return Box::pin(std::future::ready(Ok(newer)));
            }
            if reentry::is_driving(self) {
                let error = shared("a refresh cannot wait for another of its own layer".into());
                return Box::pin(std::future::ready(Err(error)));
            }
            credentials.join(&carried).unwrap_or_else(|| {
                let hook = Arc::clone(&self.hook);
                let flight = Arc::new(Flight::new(hook.refresh(stale, challenge)));
                credentials.start(carried.clone(), &flight);
                flight
            })
        };
        let refresher = Arc::clone(self);
        Box::pin(async move {
            let result = flight.land(&refresher).await;
            refresher.lock().landed(carried, &flight, &result);
            result
        })
    }

    /// A replacement that was refused as well is forgotten, so that the next call gets a new one.
    pub(crate) fn refused(&self, replacement: &HeaderValue) {
        self.lock()
            .replaced
            .retain(|(_, newer)| newer != replacement);
    }

    pub(crate) fn apply(&self, credential: &HeaderValue, request: &mut request::Parts) {
        self.hook.apply(credential, request);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Credentials> {
        // Nothing is left half done by a panic: every change below is one step.
        self.credentials
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Credentials {
    /// Held by those who wait: a flight that everybody left is over.
    flights: HashMap<Option<HeaderValue>, Weak<Flight>>,
    /// Old and new, oldest first: by these a straggler finds the credential that replaced its own.
    /// Never another user's.
    replaced: Vec<(Option<HeaderValue>, HeaderValue)>,
}

/// Stragglers are requests in flight during a refresh: few credentials back are enough.
const REMEMBERED: usize = 64;

impl Credentials {
    fn join(&self, carried: &Option<HeaderValue>) -> Option<Arc<Flight>> {
        self.flights.get(carried).and_then(Weak::upgrade)
    }

    fn start(&mut self, carried: Option<HeaderValue>, flight: &Arc<Flight>) {
        self.flights.retain(|_, flight| flight.strong_count() > 0);
        self.flights.insert(carried, Arc::downgrade(flight));
    }

    fn newer_than(&self, carried: &Option<HeaderValue>) -> Option<HeaderValue> {
        let step = |old: &Option<HeaderValue>| {
            self.replaced
                .iter()
                .rev()
                .find(|(from, _)| from == old)
                .map(|(_, to)| to)
        };
        let mut newest = step(carried)?;
        // Each pair is followed at most once, so that a circle of credentials ends.
        for _ in 0..self.replaced.len() {
            match step(&Some(newest.clone())) {
                Some(newer) => newest = newer,
                None => break,
            }
        }
        Some(newest.clone())
    }

    fn landed(
        &mut self,
        carried: Option<HeaderValue>,
        flight: &Arc<Flight>,
        result: &Result<HeaderValue, SharedError>,
    ) {
        // The first of those who waited tidies up; a newer flight stays.
        if !self
            .join(&carried)
            .is_some_and(|current| Arc::ptr_eq(&current, flight))
        {
            return;
        }
        self.flights.remove(&carried);
        if let Ok(new) = result
            && carried.as_ref() != Some(new)
        {
            // The new one is current: what it was once replaced by is older.
            self.replaced
                .retain(|(from, _)| from.as_ref() != Some(new) && *from != carried);
            if self.replaced.len() >= REMEMBERED {
                self.replaced.remove(0);
            }
            self.replaced.push((carried, new.clone()));
        }
    }
}

/// One refresh, driven by whoever waits for it: there is no task behind it, and a call that goes
/// away leaves it to the others.
struct Flight {
    state: sync::Mutex<FlightState>,
}

type Hook = Pin<Box<dyn Future<Output = Result<HeaderValue, BoxError>> + Send>>;

enum FlightState {
    Flying(Hook),
    Landed(Result<HeaderValue, SharedError>),
}

impl Flight {
    fn new(future: Hook) -> Self {
        Self {
            state: sync::Mutex::new(FlightState::Flying(future)),
        }
    }

    async fn land(&self, refresher: &Refresher) -> Result<HeaderValue, SharedError> {
        // Fair: when the one who drives is dropped, the next in line goes on with the same future.
        let mut state = self.state.lock().await;
        let result = match &mut *state {
            FlightState::Flying(future) => {
                let poll =
                    |cx: &mut Context<'_>| reentry::driving(refresher, || poll_hook(future, cx));
                poll_fn(poll).await.map_err(shared)
            }
            FlightState::Landed(result) => return result.clone(),
        };
        *state = FlightState::Landed(result.clone());
        result
    }
}

/// A panic of the hook is an error of it: a hook that panicked is not polled again.
fn poll_hook(hook: &mut Hook, cx: &mut Context<'_>) -> Poll<Result<HeaderValue, BoxError>> {
    catch_unwind(AssertUnwindSafe(|| hook.as_mut().poll(cx)))
        .unwrap_or_else(|_| Poll::Ready(Err("the refresh panicked".into())))
}

/// A [`Refresh`] of any type.
trait DynRefresh: Send + Sync {
    fn carried(&self, request: &request::Parts) -> Option<HeaderValue>;
    fn refresh(self: Arc<Self>, stale: request::Parts, challenge: response::Parts) -> Hook;
    fn apply(&self, credential: &HeaderValue, request: &mut request::Parts);
}

impl<R: Refresh> DynRefresh for R {
    fn carried(&self, request: &request::Parts) -> Option<HeaderValue> {
        Refresh::carried(self, request)
    }

    fn refresh(self: Arc<Self>, stale: request::Parts, challenge: response::Parts) -> Hook {
        Box::pin(async move { Refresh::refresh(&*self, &stale, &challenge).await })
    }

    fn apply(&self, credential: &HeaderValue, request: &mut request::Parts) {
        Refresh::apply(self, credential, request);
    }
}

/// A hook that sends its request through its own layer must not wait for itself, nor start another
/// refresh when that request is refused as well: the call that it makes is polled within its own
/// poll, so the thread knows.
mod reentry {
    use std::cell::RefCell;

    use super::Refresher;

    thread_local! {
        /// The addresses of those whose hooks are being polled, innermost last.
        static DRIVING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    }

    /// Runs `poll`, which does not panic.
    pub(super) fn driving<T>(refresher: &Refresher, poll: impl FnOnce() -> T) -> T {
        let address = std::ptr::from_ref(refresher).addr();
        // The thread's locals may be gone already, while it ends.
        let _ = DRIVING.try_with(|driving| driving.borrow_mut().push(address));
        let result = poll();
        let _ = DRIVING.try_with(|driving| driving.borrow_mut().pop());
        result
    }

    pub(super) fn is_driving(refresher: &Refresher) -> bool {
        let address = std::ptr::from_ref(refresher).addr();
        DRIVING
            .try_with(|driving| driving.borrow().contains(&address))
            .unwrap_or_default()
    }
}
