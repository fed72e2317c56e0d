//! Scripted servers on real sockets that keep a ledger of what they read, and clients to call them.
//!
//! Of use to several tests: `#[path = "support/wire/mod.rs"] mod wire;`
#![allow(
    dead_code,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

pub(crate) mod body;
pub(crate) mod clock;
pub(crate) mod h1;
pub(crate) mod h2;
pub(crate) mod memory;
pub(crate) mod row;
pub(crate) mod via;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A server whose connections are each served by one script. Dropping it closes everything.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    pub(crate) ledger: Ledger,
    accepting: JoinHandle<()>,
}

impl Server {
    /// `serve` gets the connection and its number, from 0.
    pub(crate) fn start<F, Fut>(serve: F) -> Self
    where
        F: Fn(Peer, usize) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self::start_on(&Handle::current(), serve)
    }

    /// The same on another runtime, which goes on while this one's thread is busy.
    pub(crate) fn start_on<F, Fut>(runtime: &Handle, serve: F) -> Self
    where
        F: Fn(Peer, usize) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let _inside = runtime.enter();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let addr = listener.local_addr().unwrap();
        let ledger = Ledger::default();
        let entries = ledger.clone();
        let accepting = tokio::spawn(async move {
            let mut serving = tokio::task::JoinSet::new();
            for number in 0.. {
                let Ok((io, _)) = listener.accept().await else {
                    return;
                };
                io.set_nodelay(true).unwrap();
                entries.note(|entry| entry.connections += 1);
                let peer = Peer {
                    io,
                    ledger: entries.clone(),
                };
                serving.spawn(serve(peer, number));
            }
        });
        Self {
            addr,
            ledger,
            accepting,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/orders", self.addr)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// What a server read.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<(Mutex<Entry>, Notify)>);

#[derive(Debug, Clone, Default)]
pub(crate) struct Entry {
    pub(crate) connections: usize,
    /// Bytes of any kind.
    pub(crate) bytes: usize,
    /// Complete request heads.
    pub(crate) heads: usize,
    /// Bytes of request bodies.
    pub(crate) body: usize,
    /// Complete requests.
    pub(crate) whole: usize,
    /// Of the last request over HTTP/1.
    pub(crate) head: String,
    /// RST_STREAM frames over HTTP/2, by their error code.
    pub(crate) resets: Vec<u32>,
    /// Connections that were read to their end.
    pub(crate) ended: usize,
}

impl Ledger {
    pub(crate) fn note(&self, note: impl FnOnce(&mut Entry)) {
        note(&mut self.0.0.lock().unwrap());
        self.0.1.notify_waiters();
    }

    pub(crate) fn now(&self) -> Entry {
        self.0.0.lock().unwrap().clone()
    }

    /// Waits until the server has seen so much, or for as long as patience lasts.
    pub(crate) async fn until(&self, enough: impl Fn(&Entry) -> bool) -> Entry {
        let seen = async {
            let mut noted = pin!(self.0.1.notified());
            loop {
                noted.as_mut().enable();
                if enough(&self.now()) {
                    return;
                }
                noted.as_mut().await;
                noted.set(self.0.1.notified());
            }
        };
        let _ = tokio::time::timeout(PATIENCE, seen).await;
        self.now()
    }
}

/// The server's end of a connection.
pub(crate) struct Peer<T = TcpStream> {
    pub(crate) io: T,
    pub(crate) ledger: Ledger,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Peer<T> {
    /// Nothing if the client is gone.
    pub(crate) async fn read(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let read = self.io.read(buffer).await.ok().filter(|read| *read > 0)?;
        self.ledger.note(|entry| entry.bytes += read);
        Some(read)
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.io.write_all(bytes.as_ref()).await;
        let _ = self.io.flush().await;
    }

    /// Reads until the client closes.
    pub(crate) async fn drain(&mut self) {
        let mut buffer = [0; 16 * 1024];
        while self.read(&mut buffer).await.is_some() {}
        self.ledger.note(|entry| entry.ended += 1);
    }

    /// Closes in order, so that the client reads everything that was written.
    pub(crate) async fn fin(mut self) {
        let _ = self.io.shutdown().await;
        self.drain().await;
    }
}

impl Peer {
    /// Closes at once.
    pub(crate) fn rst(self) {
        self.io.set_zero_linger().unwrap();
    }
}

/// A port at which nobody listens.
pub(crate) fn nobody() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

pub(crate) async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}
