//! Telling calls that the process is about to stop.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Tells calls that the process is about to stop: no new retry, no further wait.
///
/// Every clone is a handle to the same drain; give one to `RetryLayer::with_drain` and keep another. Once started,
/// calls that wait for a retry end at once with their last outcome, no further retry is permitted, and attempts in
/// flight run on. There is no way back.
///
/// ```
/// use tower_http_retry::Drain;
///
/// let drain = Drain::new();
/// let layers = drain.clone();
/// drain.start();
/// assert!(layers.is_draining());
/// ```
#[derive(Clone, Default)]
pub struct Drain {
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    draining: AtomicBool,
    started: Notify,
}

impl Drain {
    /// A drain that has not started.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts it, for every clone. A second time nothing happens.
    pub fn start(&self) {
        // The flag before the notification, see `started`.
        self.state.draining.store(true, Ordering::Release);
        self.state.started.notify_waiters();
    }

    /// Whether it has started: one load.
    pub fn is_draining(&self) -> bool {
        self.state.draining.load(Ordering::Acquire)
    }

    /// Waits until it has started; ready at once if it already has.
    ///
    /// It keeps a handle of its own. Dropping it has no effect on anybody else.
    pub fn started(&self) -> impl Future<Output = ()> + Send + use<> {
        let drain = self.clone();
        async move {
            // `notify_waiters` reaches every `Notified` that exists, polled or not. So one that is made before the
            // flag is read misses nothing: either the flag is up, or the notification is still to come.
            let notified = drain.state.started.notified();
            if !drain.is_draining() {
                notified.await;
            }
        }
    }
}

impl fmt::Debug for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain")
            .field("is_draining", &self.is_draining())
            .finish()
    }
}
