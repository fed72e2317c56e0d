//! A new credential after a 401.

mod flight;
#[cfg(all(loom_models, test))]
mod loom_models;

use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
#[cfg(not(all(loom_models, test)))]
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
#[cfg(all(loom_models, test))]
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Context, Poll};

use http::header::AUTHORIZATION;
use http::{HeaderValue, request, response};
#[cfg(all(loom_models, test))]
use loom::sync::{Mutex, MutexGuard};

use crate::BoxError;
use crate::report::{SharedError, shared};
use crate::upstream_key::UpstreamKey;
use flight::Flight;

/// Gets a new credential after a 401.
///
/// At most once per call, bounded by the call's deadline. Concurrent 401s of one credential from one
/// upstream ([`UpstreamKey::of`] the request) share one refresh; a call whose credential was
/// replaced in the meantime uses the new one without another. Nothing is shared between upstreams,
/// nor by calls that carry no credential. Send its own request through another service: through the
/// layer that it is configured on, a 401 to that request is not refreshed in turn.
pub trait Refresh: Send + Sync + 'static {
    /// The credential that a request carries. Default: the `Authorization` header.
    ///
    /// Calls for which this is the same get what was fetched for one of them, so it has to tell all
    /// users apart: name whatever [`refresh`](Self::refresh) reads from the stale head, and never a
    /// constant where there is more than one user. It also has to find what
    /// [`apply`](Self::apply) put in, by which a straggler follows from credential to credential.
    ///
    /// `None`: none that is known. Such a call shares nothing and is not remembered; it refreshes
    /// for itself. Where a cookie or a client certificate says who is calling, and concurrent calls
    /// should share, override it.
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
        // Who carries no credential may be anybody: shared, one user's would go to another.
        let Some(carried) = self.hook.carried(&stale) else {
            if reentry::is_driving(self) {
                return Box::pin(std::future::ready(Err(circular())));
            }
            return Box::pin(Arc::clone(self).ask(stale, challenge));
        };
        // Nor does one upstream get a credential that was issued for another.
        let key = Key {
            upstream: UpstreamKey::of(&stale),
            carried,
        };
        let mut credentials = self.lock();
        if let Some(newer) = credentials.newer_than(&key) {
            return Box::pin(std::future::ready(Ok(newer)));
        }
        if reentry::is_driving(self) {
            return Box::pin(std::future::ready(Err(circular())));
        }
        let flight = match credentials.join(&key) {
            Some(flight) => flight,
            None => {
                let work = Arc::clone(self).fly(key.clone(), stale, challenge);
                let flight = Arc::new(Flight::new(work));
                credentials.start(key, &flight);
                flight
            }
        };
        drop(credentials);
        let refresher = Arc::clone(self);
        let mut waiter = flight.wait();
        Box::pin(poll_fn(move |cx| {
            // Polled by the very hook that it waits for.
            if reentry::is_driving(&refresher) {
                return Poll::Ready(Err(circular()));
            }
            Pin::new(&mut waiter).poll(cx)
        }))
    }

    /// A refresh that calls share.
    async fn fly(
        self: Arc<Self>,
        key: Key,
        stale: request::Parts,
        challenge: response::Parts,
    ) -> Result<HeaderValue, SharedError> {
        let result = Arc::clone(&self).ask(stale, challenge).await;
        self.lock().landed(key, &result);
        result
    }

    /// Asks the hook.
    async fn ask(
        self: Arc<Self>,
        stale: request::Parts,
        challenge: response::Parts,
    ) -> Result<HeaderValue, SharedError> {
        let mut hook = Arc::clone(&self.hook).refresh(stale, challenge);
        poll_fn(|cx| reentry::driving(&self, || poll_hook(&mut hook, cx)))
            .await
            .map_err(shared)
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

    fn lock(&self) -> MutexGuard<'_, Credentials> {
        // Nothing is left half done by a panic: every change below is one step.
        self.credentials
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn circular() -> SharedError {
    shared("a refresh cannot wait for another of its own layer".into())
}

/// What calls must have in common to share a refresh.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    upstream: UpstreamKey,
    carried: HeaderValue,
}

impl Key {
    fn with(&self, carried: &HeaderValue) -> Self {
        Self {
            upstream: self.upstream.clone(),
            carried: carried.clone(),
        }
    }
}

type Shared = Flight<Result<HeaderValue, SharedError>>;

#[derive(Default)]
struct Credentials {
    /// Held by those who wait: a flight that everybody left is over.
    flights: HashMap<Key, Weak<Shared>>,
    /// Old and new, oldest first: by these a straggler finds the credential that replaced its own.
    /// Never another user's, nor another upstream's.
    replaced: Vec<(Key, HeaderValue)>,
}

/// Stragglers are requests in flight during a refresh: few credentials back are enough.
const REMEMBERED: usize = 64;

impl Credentials {
    fn join(&self, key: &Key) -> Option<Arc<Shared>> {
        self.flights.get(key).and_then(Weak::upgrade)
    }

    fn start(&mut self, key: Key, flight: &Arc<Shared>) {
        self.flights.retain(|_, flight| flight.strong_count() > 0);
        self.flights.insert(key, Arc::downgrade(flight));
    }

    fn newer_than(&self, key: &Key) -> Option<HeaderValue> {
        let step = |old: &Key| {
            let mut latest = self.replaced.iter().rev();
            latest.find(|(from, _)| from == old).map(|(_, to)| to)
        };
        let mut newest = step(key)?;
        // Each pair is followed at most once, so that a circle of credentials ends.
        for _ in 0..self.replaced.len() {
            match step(&key.with(newest)) {
                Some(newer) => newest = newer,
                None => break,
            }
        }
        Some(newest.clone())
    }

    /// The flight under this key is over: it is the only one, as long as somebody polls it.
    fn landed(&mut self, key: Key, result: &Result<HeaderValue, SharedError>) {
        self.flights.remove(&key);
        if let Ok(new) = result
            && key.carried != *new
        {
            // The new one is current: what it was once replaced by is older.
            let current = key.with(new);
            self.replaced
                .retain(|(from, _)| *from != current && *from != key);
            if self.replaced.len() >= REMEMBERED {
                self.replaced.remove(0);
            }
            self.replaced.push((key, new.clone()));
        }
    }
}

type Hook = Pin<Box<dyn Future<Output = Result<HeaderValue, BoxError>> + Send>>;

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

    #[cfg(not(all(loom_models, test)))]
    thread_local! {
        /// The addresses of those whose hooks are being polled, innermost last.
        static DRIVING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    }
    #[cfg(all(loom_models, test))]
    loom::thread_local! {
        static DRIVING: RefCell<Vec<usize>> = RefCell::new(Vec::new());
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
