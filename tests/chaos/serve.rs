//! What all servers have in common: a port, connections, and restarts.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::fault::End;

/// For longer than any client waits.
pub(crate) const HANG: Duration = Duration::from_millis(700);

/// A port that stays ours while nobody listens on it.
pub(crate) struct Port {
    pub(crate) address: SocketAddr,
    _held: TcpSocket,
}

impl Port {
    pub(crate) fn new() -> io::Result<Self> {
        let held = TcpSocket::new_v4()?;
        held.set_reuseport(true)?;
        held.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self {
            address: held.local_addr()?,
            _held: held,
        })
    }

    fn listen(&self) -> io::Result<TcpListener> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseport(true)?;
        socket.bind(self.address)?;
        socket.listen(1024)
    }
}

/// Serves until it is dropped with its runtime, and restarts from time to time: then all its
/// connections end, also those that nobody accepted yet, and for a while it refuses new ones.
pub(crate) async fn serve<F, Fut>(port: Port, seed: u64, open: Arc<AtomicUsize>, connection: F)
where
    F: Fn(Link, Reset, StdRng) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let mut random = StdRng::seed_from_u64(seed);
    loop {
        let listener = port.listen().unwrap();
        let mut connections = JoinSet::new();
        let restart = Instant::now() + Duration::from_millis(random.random_range(300..2500));
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => accepted.unwrap().0,
                Some(_) = connections.join_next() => continue,
                () = sleep_until(restart) => break,
            };
            let mut random = StdRng::seed_from_u64(random.random());
            let reset = Reset::default();
            let link = Link::new(stream, reset.clone());
            let open = Open::new(&open);
            if random.random_bool(0.04) {
                // Before a byte was read.
                reset.set_to(random.random_bool(0.5));
                continue;
            }
            let running = connection(link, reset, random);
            connections.spawn(async move {
                running.await;
                drop(open);
            });
        }
        drop(listener);
        connections.shutdown().await;
        sleep(Duration::from_millis(random.random_range(0..15))).await;
    }
}

/// Counts the connections that are open.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(open))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether a connection ends by RST.
#[derive(Clone, Default)]
pub(crate) struct Reset(Arc<AtomicBool>);

impl Reset {
    pub(crate) fn set_to(&self, reset: bool) {
        self.0.store(reset, Ordering::SeqCst);
    }
}

/// A connection that ends as its server says, whoever holds it.
pub(crate) struct Link {
    stream: TcpStream,
    reset: Reset,
}

impl Link {
    fn new(stream: TcpStream, reset: Reset) -> Self {
        let _ = stream.set_nodelay(true);
        Self { stream, reset }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.reset.0.load(Ordering::SeqCst) {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Ends a connection: with the word for it that its protocol has, or without one.
pub(crate) async fn finish(
    mut stream: impl AsyncWrite + Unpin,
    reset: &Reset,
    end: End,
    random: &mut StdRng,
) {
    match end {
        End::Fin if random.random_bool(0.5) => {
            let _ = stream.shutdown().await;
        }
        End::Fin => {}
        End::Rst => reset.set_to(true),
        End::Hang => sleep(HANG).await,
    }
}
