//! An HTTP/1.1 server that fails on purpose, byte by byte.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::fault::{End, Fault};
use crate::ledger::Ledger;
use crate::op::Told;
use crate::serve::{Reset, finish};

/// One connection, until it ends.
pub(crate) async fn connection<S>(
    mut stream: S,
    reset: Reset,
    ledger: Arc<Ledger>,
    mut random: StdRng,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Ok(end) = requests(&mut stream, &ledger, &mut random).await else {
        return;
    };
    finish(stream, &reset, end, &mut random).await;
}

/// Requests, one after the other, and how the connection ends after them.
async fn requests<S>(stream: &mut S, ledger: &Ledger, random: &mut StdRng) -> io::Result<End>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut read = Vec::new();
    loop {
        let fault = Fault::random(random);
        if let Fault::CutHead(share, end) = fault {
            // Of any request; a client sends the head in one piece.
            let some = 1 + usize::from(share);
            while read.len() < some && stream.read_buf(&mut read).await? > 0 {}
            return Ok(end);
        }
        let Some(head_end) = read_head(stream, &mut read).await? else {
            return Ok(End::Fin);
        };
        let head = String::from_utf8_lossy(read.get(..head_end).unwrap_or_default()).into_owned();
        let Some(told) = Told::of(|name| header(&head, name)) else {
            return Ok(End::Fin);
        };
        let fault = match fault {
            // HTTP/1.1 has no word for it.
            Fault::Refused => Fault::Unexecuted(End::Rst),
            Fault::GoAway => Fault::FineThenClose,
            Fault::GoAwayAtOnce => Fault::Executed(End::Fin),
            fault => fault,
        };
        ledger.note(told.op, fault.name());
        read.drain(..head_end);

        if let Fault::CutRequest(share, end) = fault {
            let some = told.length * usize::from(share) / 256;
            while read.len() < some && stream.read_buf(&mut read).await? > 0 {}
            return Ok(end);
        }
        if let Fault::Early(status) = fault {
            respond(stream, status, b"early").await?;
        }
        let Some(body) = read_body(stream, &mut read, &head).await? else {
            return Ok(End::Fin);
        };
        ledger.received(&told, &body);

        match fault {
            Fault::Fine => {
                ledger.execute(&told);
                respond(stream, 200, b"done").await?;
            }
            Fault::FineThenClose => {
                ledger.execute(&told);
                respond(stream, 200, b"done").await?;
                if random.random_bool(0.5) {
                    tokio::time::sleep(Duration::from_millis(random.random_range(0..5))).await;
                }
                return Ok(End::Fin);
            }
            Fault::Unexecuted(end) => return Ok(end),
            Fault::Executed(end) => {
                ledger.execute(&told);
                return Ok(end);
            }
            Fault::HalfHead(end) => {
                ledger.execute(&told);
                let head: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-le";
                let some = random.random_range(1..head.len());
                stream.write_all(head.get(..some).unwrap_or(head)).await?;
                return Ok(end);
            }
            Fault::HalfBody(end) => {
                ledger.execute(&told);
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
                    .await?;
                return Ok(end);
            }
            Fault::WrongLength => {
                ledger.execute(&told);
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\ndone")
                    .await?;
            }
            Fault::Late(ms) => {
                ledger.execute(&told);
                tokio::time::sleep(Duration::from_millis(ms)).await;
                respond(stream, 200, b"done").await?;
            }
            Fault::Status(status, executed) => {
                if executed {
                    ledger.execute(&told);
                }
                respond(stream, status, b"no").await?;
            }
            Fault::Informational(end) => {
                stream
                    .write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n")
                    .await?;
                return Ok(end);
            }
            Fault::Refused
            | Fault::GoAway
            | Fault::GoAwayAtOnce
            | Fault::Early(_)
            | Fault::CutHead(..)
            | Fault::CutRequest(..) => {}
        }
    }
}

async fn respond<S>(stream: &mut S, status: u16, body: &[u8]) -> io::Result<()>
where
    S: AsyncWrite + Unpin,
{
    let mut answer = format!(
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(body);
    stream.write_all(&answer).await
}

/// Up to and with the blank line. `None`: the client closed.
async fn read_head<S>(stream: &mut S, read: &mut Vec<u8>) -> io::Result<Option<usize>>
where
    S: AsyncRead + Unpin,
{
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
async fn read_body<S>(stream: &mut S, read: &mut Vec<u8>, head: &str) -> io::Result<Option<Vec<u8>>>
where
    S: AsyncRead + Unpin,
{
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
