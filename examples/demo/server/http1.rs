//! HTTP/1.1 by hand: no library sends half a status line.

use std::future::pending;
use std::io;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::cue::{Answer, Cue, Effect};
use super::super::ledger::Ledger;
use super::{ATTEMPT, Desk, Incoming, ORDER, misplaced};

pub(super) async fn serve(mut stream: TcpStream, desk: Desk) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    while let Some(request) = read(&mut stream, &mut buffer).await? {
        if let Some(executions) = desk.look_up(&request) {
            write(&mut stream, StatusCode::OK, None, &executions).await?;
            continue;
        }
        let receipt = Ledger::receipt(request.order.unwrap_or_default());
        match desk.take() {
            Cue::Answer(Answer {
                status,
                effect,
                hint,
            }) => {
                desk.book(&request, effect);
                let body = if status.is_success() {
                    receipt
                } else {
                    Bytes::new()
                };
                write(&mut stream, status, hint, &body).await?;
            }
            Cue::Reset(effect) => {
                desk.book(&request, effect);
                return stream.set_zero_linger();
            }
            Cue::HalfStatusLine(effect) => {
                desk.book(&request, effect);
                return stream.write_all(b"HTTP/1.1 20").await;
            }
            Cue::Silence(effect) => {
                desk.book(&request, effect);
                return pending().await;
            }
            Cue::CutBody => {
                desk.book(&request, Effect::Executed);
                let length = receipt.len();
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
                stream.write_all(head.as_bytes()).await?;
                let half = receipt.slice(..length / 2);
                return stream.write_all(&half).await;
            }
            cue @ (Cue::Refuse
            | Cue::CloseAtOnce
            | Cue::CloseUnread
            | Cue::RefuseStream
            | Cue::GoAway) => return Err(misplaced(cue)),
        }
    }
    Ok(())
}

async fn write(
    stream: &mut TcpStream,
    status: StatusCode,
    hint: Option<(&str, &str)>,
    body: &[u8],
) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
    if let Some((name, value)) = hint {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).await
}

/// The next request, whole. `None`: there is none.
async fn read(stream: &mut TcpStream, buffer: &mut BytesMut) -> io::Result<Option<Incoming>> {
    loop {
        if let Some((request, length)) = parse(buffer) {
            drop(buffer.split_to(length));
            return Ok(Some(request));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// The request at the start of `bytes`, and its length. `None`: it has not all arrived.
fn parse(bytes: &[u8]) -> Option<(Incoming, usize)> {
    const END: &[u8] = b"\r\n\r\n";
    let end = bytes.windows(END.len()).position(|window| window == END)?;
    let head = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let rest = bytes.get(end + END.len()..)?;
    let (request_line, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    let header = |name: &str| {
        headers.split("\r\n").find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    };
    let (body, length) = if header("transfer-encoding").is_some() {
        unchunk(rest)?
    } else {
        let length = header("content-length").map_or(Some(0), |value| value.parse().ok())?;
        (Bytes::copy_from_slice(rest.get(..length)?), length)
    };
    let request = Incoming {
        path: request_line.split(' ').nth(1)?.to_owned(),
        order: header(ORDER).and_then(|value| value.parse().ok()),
        attempt: header(ATTEMPT).map_or(Some(1), |value| value.parse().ok())?,
        key: header("idempotency-key").map(str::to_owned),
        body,
    };
    Some((request, end + END.len() + length))
}

/// A chunked body (RFC 9112 §7.1) without trailers, and the bytes that it took.
fn unchunk(bytes: &[u8]) -> Option<(Bytes, usize)> {
    const LINE_END: usize = 2;
    let mut body = BytesMut::new();
    let mut at = 0;
    loop {
        let rest = bytes.get(at..)?;
        let line = rest
            .windows(LINE_END)
            .position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(rest.get(..line)?).ok()?;
        let size = usize::from_str_radix(size, 16).ok()?;
        let start = line + LINE_END;
        let chunk = rest.get(start..start + size)?;
        rest.get(start + size..start + size + LINE_END)?;
        at += start + size + LINE_END;
        if size == 0 {
            return Some((body.freeze(), at));
        }
        body.extend_from_slice(chunk);
    }
}
