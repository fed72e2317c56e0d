//! A server that misbehaves on cue, over real sockets, and keeps a ledger of what it executed.
//!
//! Every call gets a door of its own (a port on 127.0.0.1), so that none inherits another one's
//! connection, and a door can be shut.

mod http1;
mod http2;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::cue::{Cue, Effect};
use super::ledger::{Arrival, Ledger};

/// The header that names an order.
pub(crate) const ORDER: &str = "x-order";
/// The header that carries the attempt's number, from attempt 2 on.
pub(crate) const ATTEMPT: &str = "x-attempt";
/// Where anyone may ask what became of an order: `/ledger/<order>`.
pub(crate) const LEDGER_PATH: &str = "/ledger/";

/// What a door speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// One port of the server. Closed when dropped, its connections too.
#[derive(Debug)]
pub(crate) struct Door {
    address: SocketAddr,
    desk: Desk,
    /// Bound, so that the port is ours, but not listening: connections are refused.
    shut: Mutex<Option<TcpSocket>>,
    open: Mutex<Option<JoinHandle<()>>>,
}

/// What the connections of a door share.
#[derive(Debug, Clone)]
struct Desk {
    protocol: Protocol,
    cues: Arc<Mutex<VecDeque<Cue>>>,
    ledger: Ledger,
}

/// A request, read to its end.
#[derive(Debug)]
struct Incoming {
    path: String,
    order: Option<u32>,
    attempt: u32,
    key: Option<String>,
    body: Bytes,
}

impl Door {
    /// A door that follows `cues`, one an attempt, and is healthy from then on.
    pub(crate) fn new(
        ledger: &Ledger,
        protocol: Protocol,
        cues: impl IntoIterator<Item = Cue>,
    ) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let door = Self {
            address: socket.local_addr()?,
            desk: Desk {
                protocol,
                cues: Arc::new(Mutex::new(cues.into_iter().collect())),
                ledger: ledger.clone(),
            },
            shut: Mutex::new(Some(socket)),
            open: Mutex::new(None),
        };
        door.open_unless_refusing()?;
        Ok(door)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// To be told of every attempt that ended: nobody here sees a refused one. A door that cannot
    /// open stays shut, which the caller will see.
    pub(crate) fn attempt_ended(&self) {
        if matches!(self.desk.next(), Cue::Refuse) {
            self.desk.take();
        }
        let _ = self.open_unless_refusing();
    }

    fn open_unless_refusing(&self) -> io::Result<()> {
        if matches!(self.desk.next(), Cue::Refuse) {
            return Ok(());
        }
        let socket = lock(&self.shut).take();
        if let Some(socket) = socket {
            let listener = socket.listen(64)?;
            let task = tokio::spawn(accept(listener, self.desk.clone()));
            *lock(&self.open) = Some(task);
        }
        Ok(())
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.open).take() {
            task.abort();
        }
    }
}

impl Desk {
    /// The next attempt's cue.
    fn next(&self) -> Cue {
        lock(&self.cues).front().copied().unwrap_or(Cue::HEALTHY)
    }

    fn take(&self) -> Cue {
        lock(&self.cues).pop_front().unwrap_or(Cue::HEALTHY)
    }

    /// Books a request that was read. A question about the ledger is not an order.
    fn book(&self, request: &Incoming, effect: Effect) {
        if let Some(order) = request.order {
            let arrival = Arrival {
                attempt: request.attempt,
                key: request.key.clone(),
                body: request.body.clone(),
                effect,
            };
            self.ledger.book(order, arrival);
        }
    }

    /// What `/ledger/<order>` answers: the number of executions. `None` for any other path.
    fn look_up(&self, request: &Incoming) -> Option<Bytes> {
        let order = request.path.strip_prefix(LEDGER_PATH)?.parse().ok()?;
        let executions = self.ledger.entry(order).executions();
        Some(executions.to_string().into())
    }
}

async fn accept(listener: TcpListener, desk: Desk) {
    // Aborted with this task.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, desk.clone()));
    }
}

/// Broken connections are this server's business: nobody is told of their errors.
async fn serve(stream: TcpStream, desk: Desk) -> io::Result<()> {
    match desk.next() {
        Cue::CloseAtOnce => {
            desk.take();
            Ok(())
        }
        Cue::CloseUnread => {
            desk.take();
            // Data that is left unread makes the close a reset (RFC 1122 §4.2.2.13).
            stream.peek(&mut [0]).await.map(drop)
        }
        Cue::GoAway => {
            desk.take();
            http2::go_away(stream).await
        }
        Cue::Refuse
        | Cue::Reset(_)
        | Cue::HalfStatusLine(_)
        | Cue::Silence(_)
        | Cue::CutBody
        | Cue::Answer(_)
        | Cue::RefuseStream => match desk.protocol {
            Protocol::Http1 => http1::serve(stream, desk).await,
            Protocol::Http2 => http2::serve(stream, desk).await,
        },
    }
}

/// A cue that cannot be followed here: a mistake in the list of calls.
fn misplaced(cue: Cue) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!("{cue}, on this protocol"),
    )
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
