//! Connections in memory, for what sockets leave to chance: what comes first.

use std::collections::VecDeque;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::legacy::{Builder, Client};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::Service;
use tower_http_retry::ReplayBody;

/// The client's end of a connection.
pub(crate) struct InMemory<T> {
    io: TokioIo<T>,
    sight: Sight,
    resets: bool,
}

/// When the client sees what has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sees {
    AtOnce,
    /// Not when it looks the next time, but when it looks again.
    AtTheSecondLook,
    /// As if it were still on its way while the client writes.
    OnceItWrote,
}

/// Says when.
#[derive(Clone)]
pub(crate) struct Sight(Arc<Mutex<(Sees, Option<Waker>)>>);

impl Sight {
    pub(crate) fn set(&self, sees: Sees) {
        self.0.lock().unwrap().0 = sees;
    }

    /// Whether there is anything to see.
    fn look(&self, cx: &Context<'_>) -> bool {
        let (sees, waker) = &mut *self.0.lock().unwrap();
        match *sees {
            Sees::AtOnce => true,
            Sees::AtTheSecondLook => {
                *sees = Sees::AtOnce;
                false
            }
            Sees::OnceItWrote => {
                *waker = Some(cx.waker().clone());
                false
            }
        }
    }

    fn wrote(&self) {
        let (sees, waker) = &mut *self.0.lock().unwrap();
        if let Sees::OnceItWrote = sees {
            *sees = Sees::AtOnce;
        }
        if let Some(waker) = waker.take() {
            waker.wake();
        }
    }
}

impl<T> InMemory<T> {
    pub(crate) fn new(io: T) -> Self {
        Self {
            io: TokioIo::new(io),
            sight: Sight(Arc::new(Mutex::new((Sees::AtOnce, None)))),
            resets: false,
        }
    }

    /// Its end looks like a reset.
    pub(crate) fn resets(mut self) -> Self {
        self.resets = true;
        self
    }

    pub(crate) fn sight(&self) -> Sight {
        self.sight.clone()
    }
}

/// hyper-util's client over these connections, one after the other; then connecting fails.
pub(crate) fn over<T>(
    builder: &Builder,
    connections: impl IntoIterator<Item = InMemory<T>>,
) -> Client<Connections<T>, ReplayBody>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connections = connections.into_iter().collect();
    builder.build(Connections(Arc::new(Mutex::new(connections))))
}

/// The connector. Of clones each takes from the same ones.
pub(crate) struct Connections<T>(Arc<Mutex<VecDeque<InMemory<T>>>>);

impl<T> Clone for Connections<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Service<http::Uri> for Connections<T> {
    type Response = InMemory<T>;
    type Error = io::Error;
    type Future = Ready<io::Result<InMemory<T>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Uri) -> Self::Future {
        let connection = self.0.lock().unwrap().pop_front();
        ready(connection.ok_or(io::ErrorKind::ConnectionRefused.into()))
    }
}

impl<T: AsyncRead + Unpin> Read for InMemory<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.sight.look(cx) {
            return Poll::Pending;
        }
        let mut bytes = vec![0; buffer.remaining().min(16 * 1024)];
        let mut read = ReadBuf::new(&mut bytes);
        std::task::ready!(Pin::new(&mut self.io).poll_read(cx, read.unfilled()))?;
        if read.filled().is_empty() && self.resets {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        buffer.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> Write for InMemory<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = std::task::ready!(Pin::new(&mut self.io).poll_write(cx, bytes));
        self.sight.wrote();
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl<T> Connection for InMemory<T> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
