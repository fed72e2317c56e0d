//! Time that moves only when a test says so, though sockets are waited for.

use std::sync::mpsc;

use super::PATIENCE;

/// In a test that starts with paused time: it stands still until somebody says
/// `tokio::time::advance`, which a server may do when it has read a request. When the test is over,
/// or its patience, it runs on.
pub(crate) struct StoppedClock {
    _running: mpsc::Sender<()>,
}

impl StoppedClock {
    /// Paused time does not run ahead of sockets while a blocking task runs.
    pub(crate) fn new() -> Self {
        let (running, over) = mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || over.recv_timeout(PATIENCE));
        Self { _running: running }
    }
}

/// Lets all other tasks of this thread do what they can without waiting: a connection goes back to
/// its pool, or is dropped.
pub(crate) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
