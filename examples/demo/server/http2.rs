//! HTTP/2 with prior knowledge.

use std::future::pending;
use std::io;

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::super::cue::{Answer, Cue, Effect};
use super::super::ledger::Ledger;
use super::{ATTEMPT, Desk, Incoming, ORDER, misplaced};

pub(super) async fn serve(stream: TcpStream, desk: Desk) -> io::Result<()> {
    let mut connection = h2::server::handshake(stream).await.map_err(other)?;
    // Streams make progress only while the connection is asked for the next one.
    let mut streams = JoinSet::new();
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted.map_err(other)?;
        streams.spawn(answer(request, respond, desk.clone()));
    }
    Ok(())
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    desk: Desk,
) -> io::Result<()> {
    let request = read(request).await.map_err(other)?;
    let receipt = Ledger::receipt(request.order.unwrap_or_default());
    match desk.take() {
        Cue::Answer(Answer {
            status,
            effect,
            hint,
        }) => {
            desk.book(&request, effect);
            let mut response = Response::builder().status(status);
            if let Some((name, value)) = hint {
                response = response.header(name, value);
            }
            let response = response.body(()).map_err(io::Error::other)?;
            let body = if status.is_success() {
                receipt
            } else {
                Bytes::new()
            };
            let mut stream = respond.send_response(response, false).map_err(other)?;
            stream.send_data(body, true).map_err(other)
        }
        Cue::Reset(effect) => {
            desk.book(&request, effect);
            respond.send_reset(Reason::INTERNAL_ERROR);
            Ok(())
        }
        Cue::Silence(effect) => {
            desk.book(&request, effect);
            pending().await
        }
        Cue::RefuseStream => {
            desk.book(&request, Effect::Nothing);
            respond.send_reset(Reason::REFUSED_STREAM);
            Ok(())
        }
        cue @ (Cue::Refuse
        | Cue::CloseAtOnce
        | Cue::CloseUnread
        | Cue::HalfStatusLine(_)
        | Cue::CutBody
        | Cue::GoAway) => Err(misplaced(cue)),
    }
}

async fn read(request: Request<RecvStream>) -> Result<Incoming, h2::Error> {
    let (head, mut stream) = request.into_parts();
    let mut body = BytesMut::new();
    while let Some(data) = stream.data().await {
        body.extend_from_slice(&data?);
    }
    Ok(Incoming {
        path: head.uri.path().to_owned(),
        order: number(&head.headers, ORDER),
        attempt: number(&head.headers, ATTEMPT).unwrap_or(1),
        key: text(&head.headers, "idempotency-key").map(str::to_owned),
        body: body.freeze(),
    })
}

fn number(headers: &HeaderMap, name: &str) -> Option<u32> {
    text(headers, name)?.parse().ok()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Waits for the first request, and says GOAWAY with the last stream id 0: "I have processed none
/// of your streams" (RFC 9113 §6.8). By hand, because a library would name the stream it read.
pub(super) async fn go_away(mut stream: TcpStream) -> io::Result<()> {
    const PREFACE: usize = 24;
    const FRAME_HEAD: usize = 9;
    const END_STREAM: u8 = 0x1;
    const SETTINGS: [u8; FRAME_HEAD] = [0, 0, 0, 0x4, 0, 0, 0, 0, 0];
    const SETTINGS_ACK: [u8; FRAME_HEAD] = [0, 0, 0, 0x4, 0x1, 0, 0, 0, 0];
    const GOAWAY: [u8; FRAME_HEAD + 8] = [0, 0, 8, 0x7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    stream.read_exact(&mut [0; PREFACE]).await?;
    loop {
        let mut head = [0; FRAME_HEAD];
        stream.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload).await?;
        let (data, headers) = (0x0, 0x1);
        if (kind == data || kind == headers) && flags & END_STREAM != 0 {
            break;
        }
    }
    stream
        .write_all(&[&SETTINGS[..], &SETTINGS_ACK, &GOAWAY].concat())
        .await?;
    stream.shutdown().await?;
    // Until the client hangs up: closed earlier, what it still sends would reset the connection,
    // and it might never read the GOAWAY.
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(())
}

fn other(error: h2::Error) -> io::Error {
    io::Error::other(error)
}
