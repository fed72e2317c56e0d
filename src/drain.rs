//! Telling calls that the process is about to stop.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Tells calls that the process is about to stop: no new retry, no further wait.
///
/// Every clone is a handle to the same drain; give one to `RetryLayer::with_drain` and keep
/// another. Once started, calls that wait for a retry end at once with their last outcome, no
/// further retry is permitted, and attempts in flight run on. There is no way back.
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
            // `notify_waiters` reaches every `Notified` that exists, polled or not. So one that is
            // made before the flag is read misses nothing: either the flag is up, or the
            // notification is still to come.
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

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Only a test that fails waits for so long.
    const SOON: Duration = Duration::from_secs(10);

    fn is_ready(started: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
        started.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn it_has_not_started_until_somebody_starts_it() {
        let drain = Drain::new();
        assert!(!drain.is_draining());
        assert!(!is_ready(pin!(drain.started())));
        drain.start();
        assert!(drain.is_draining());
        assert!(is_ready(pin!(drain.started())));
    }

    #[test]
    fn starting_twice_is_starting_once() {
        let drain = Drain::default();
        drain.start();
        drain.start();
        assert!(drain.is_draining());
        assert!(is_ready(pin!(drain.started())));
    }

    #[test]
    fn a_clone_is_the_same_drain_and_another_drain_is_not() {
        let (drain, other) = (Drain::new(), Drain::new());
        let clone = drain.clone();
        clone.start();
        assert!(drain.is_draining());
        assert!(!other.is_draining());
    }

    #[test]
    fn it_reaches_who_waits_and_who_has_not_polled_yet() {
        let drain = Drain::new();
        let (mut waiting, mut unpolled) = (pin!(drain.started()), pin!(drain.started()));
        assert!(!is_ready(waiting.as_mut()));
        drain.start();
        assert!(is_ready(waiting.as_mut()));
        assert!(is_ready(unpolled.as_mut()));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_outlives_the_handle_it_came_from() {
        let drain = Drain::new();
        let waiting = {
            let handle = drain.clone();
            tokio::spawn(handle.started())
        };
        tokio::task::yield_now().await;
        drain.start();
        timeout(SOON, waiting).await.unwrap().unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nobody_who_waits_while_it_starts_is_missed() {
        for _ in 0..200 {
            let drain = Drain::new();
            let waiting: Vec<_> = (0..8).map(|_| tokio::spawn(drain.started())).collect();
            drain.start();
            for one in waiting {
                timeout(SOON, one).await.unwrap().unwrap();
            }
        }
    }

    #[test]
    fn debug_tells_whether_it_has_started() {
        let drain = Drain::new();
        drain.start();
        assert_eq!(format!("{drain:?}"), "Drain { is_draining: true }");
    }
}
