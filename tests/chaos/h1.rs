//! An HTTP/1.1 server over raw TCP that fails on purpose.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::fault::{End, Fault};
use crate::ledger::Ledger;
use crate::op::{Told, sum};

/// For longer than any client waits.
pub(crate) const HANG: Duration = Duration::from_millis(700);

/// Serves until it is dropped with its runtime.
pub(crate) async fn serve(
    listener: TcpListener,
    ledger: Arc<Ledger>,
    seed: u64,
    open: Arc<AtomicUsize>,
) {
    let mut connections = 0;
    while let Ok((stream, _)) = listener.accept().await {
        connections += 1;
        let random = StdRng::seed_from_u64(seed.wrapping_mul(31).wrapping_add(connections));
        let (ledger, open) = (Arc::clone(&ledger), Arc::clone(&open));
        open.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            let _ = connection(stream, &ledger, random).await;
            open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn connection(mut stream: TcpStream, ledger: &Ledger, mut random: StdRng) -> io::Result<()> {
    let _ = stream.set_nodelay(true);
    if random.random_bool(0.05) {
        // Before a byte was read.
        let end = if random.random_bool(0.5) {
            End::Fin
        } else {
            End::Rst
        };
        return finish(stream, end).await;
    }
    let mut read = Vec::new();
    loop {
        let fault = Fault::random(&mut random);
        let Some(head_end) = read_head(&mut stream, &mut read).await? else {
            return Ok(());
        };
        let head = String::from_utf8_lossy(read.get(..head_end).unwrap_or_default()).into_owned();
        let Some(told) = Told::of(|name| header(&head, name)) else {
            return Ok(());
        };
        let fault = match fault {
            // HTTP/1.1 has no word for it.
            Fault::Refused => Fault::Unexecuted(End::Rst),
            fault => fault,
        };
        ledger.note(told.op, fault.name());
        read.drain(..head_end);

        if let Fault::CutRequest(share, end) = fault {
            let length = header(&head, "content-length")
                .and_then(|l| l.parse().ok())
                .unwrap_or(0);
            let some = length * usize::from(share) / 256;
            while read.len() < some && stream.read_buf(&mut read).await? > 0 {}
            return finish(stream, end).await;
        }
        if let Fault::Early(status) = fault {
            respond(&mut stream, status, b"early").await?;
        }
        let Some(body) = read_body(&mut stream, &mut read, &head).await? else {
            return Ok(());
        };
        if sum(&body) != told.sum {
            ledger.corrupted(told.op);
        }

        match fault {
            Fault::Fine => {
                ledger.execute(told.op, told.kind);
                respond(&mut stream, 200, b"done").await?;
            }
            Fault::FineThenClose | Fault::GoAway => {
                ledger.execute(told.op, told.kind);
                respond(&mut stream, 200, b"done").await?;
                if random.random_bool(0.5) {
                    tokio::time::sleep(Duration::from_millis(random.random_range(0..5))).await;
                }
                return Ok(());
            }
            Fault::Unexecuted(end) => return finish(stream, end).await,
            Fault::Executed(end) => {
                ledger.execute(told.op, told.kind);
                return finish(stream, end).await;
            }
            Fault::HalfHead(end) => {
                ledger.execute(told.op, told.kind);
                let head: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-le";
                let some = random.random_range(1..head.len());
                stream.write_all(head.get(..some).unwrap_or(head)).await?;
                return finish(stream, end).await;
            }
            Fault::HalfBody(end) => {
                ledger.execute(told.op, told.kind);
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
                    .await?;
                return finish(stream, end).await;
            }
            Fault::Late(ms) => {
                ledger.execute(told.op, told.kind);
                tokio::time::sleep(Duration::from_millis(ms)).await;
                respond(&mut stream, 200, b"done").await?;
            }
            Fault::Status(status, executed) => {
                if executed {
                    ledger.execute(told.op, told.kind);
                }
                respond(&mut stream, status, b"no").await?;
            }
            Fault::Informational(end) => {
                stream
                    .write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n")
                    .await?;
                return finish(stream, end).await;
            }
            Fault::Refused | Fault::Early(_) | Fault::CutRequest(..) => {}
        }
    }
}

async fn respond(stream: &mut TcpStream, status: u16, body: &[u8]) -> io::Result<()> {
    let mut answer = format!(
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(body);
    stream.write_all(&answer).await
}

pub(crate) async fn finish(stream: TcpStream, end: End) -> io::Result<()> {
    match end {
        End::Fin => Ok(()),
        End::Rst => stream.set_zero_linger(),
        End::Hang => {
            tokio::time::sleep(HANG).await;
            Ok(())
        }
    }
}

/// Up to and with the blank line. `None`: the client closed.
async fn read_head(stream: &mut TcpStream, read: &mut Vec<u8>) -> io::Result<Option<usize>> {
    loop {
        if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            return Ok(Some(at + 4));
        }
        if stream.read_buf(read).await? == 0 {
            return Ok(None);
        }
    }
}

fn header(head: &str, name: &str) -> Option<String> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name)
            .then(|| value.trim().to_owned())
    })
}

/// The body, by `content-length` or in chunks. `None`: the client gave up.
async fn read_body(
    stream: &mut TcpStream,
    read: &mut Vec<u8>,
    head: &str,
) -> io::Result<Option<Vec<u8>>> {
    if header(head, "transfer-encoding").is_none() {
        let length = header(head, "content-length")
            .and_then(|l| l.parse().ok())
            .unwrap_or(0);
        while read.len() < length {
            if stream.read_buf(read).await? == 0 {
                return Ok(None);
            }
        }
        return Ok(Some(read.drain(..length).collect()));
    }
    let mut body = Vec::new();
    loop {
        let line = loop {
            if let Some(at) = read.windows(2).position(|two| two == b"\r\n") {
                break read.drain(..at + 2).collect::<Vec<_>>();
            }
            if stream.read_buf(read).await? == 0 {
                return Ok(None);
            }
        };
        let text = String::from_utf8_lossy(&line);
        let size = usize::from_str_radix(text.trim(), 16).map_err(io::Error::other)?;
        while read.len() < size + 2 {
            if stream.read_buf(read).await? == 0 {
                return Ok(None);
            }
        }
        body.extend(read.drain(..size));
        read.drain(..2);
        if size == 0 {
            return Ok(Some(body));
        }
    }
}
