//! An HTTP/2 peer, frame by frame: it can break the rules.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;

use super::Peer;

pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const INTERNAL_ERROR: u32 = 2;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;
pub(crate) const HTTP_1_1_REQUIRED: u32 = 13;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

pub(crate) const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) struct H2<T = TcpStream> {
    pub(crate) peer: Peer<T>,
    /// Whether the client's PINGs are answered.
    pub(crate) pong: bool,
}

pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) id: u32,
    pub(crate) payload: Vec<u8>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> H2<T> {
    /// Exchanges prefaces.
    pub(crate) async fn accept(peer: Peer<T>) -> Option<Self> {
        Self::accept_with(peer, &[]).await
    }

    /// The same with settings, as pairs of identifier and value.
    pub(crate) async fn accept_with(mut peer: Peer<T>, settings: &[(u16, u32)]) -> Option<Self> {
        let mut preface = [0; PREFACE.len()];
        peer.io.read_exact(&mut preface).await.ok()?;
        assert_eq!(preface, PREFACE);
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        let mut h2 = Self { peer, pong: true };
        h2.send(SETTINGS, 0, 0, &payload).await;
        Some(h2)
    }

    /// The next frame. SETTINGS and PING are answered here.
    pub(crate) async fn frame(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.peer.io.read_exact(&mut head).await.ok()?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; len];
        self.peer.io.read_exact(&mut payload).await.ok()?;
        let frame = Frame {
            kind: head[3],
            flags: head[4],
            id: u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]),
            payload,
        };
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[]).await,
            PING if frame.flags & ACK == 0 && self.pong => {
                self.send(PING, ACK, 0, &frame.payload).await;
            }
            _ => {}
        }
        self.peer.ledger.note(|entry| {
            entry.bytes += 9 + len;
            match frame.kind {
                HEADERS => entry.heads += 1,
                DATA => entry.body += len,
                _ => entry.resets.extend(frame.reset()),
            }
            if frame.ends_stream() {
                entry.whole += 1;
            }
        });
        Some(frame)
    }

    /// Reads on until the next request's head, and gives its stream.
    pub(crate) async fn head(&mut self) -> Option<u32> {
        loop {
            let frame = self.frame().await?;
            if frame.kind == HEADERS {
                return Some(frame.id);
            }
        }
    }

    /// Reads on until a request is whole.
    pub(crate) async fn request(&mut self) -> Option<u32> {
        loop {
            let frame = self.frame().await?;
            if frame.ends_stream() {
                return Some(frame.id);
            }
        }
    }

    /// Reads on until some of a request's body, or its end.
    pub(crate) async fn some_body(&mut self) -> Option<u32> {
        loop {
            let frame = self.frame().await?;
            if frame.kind == DATA || frame.ends_stream() {
                return Some(frame.id);
            }
        }
    }

    pub(crate) async fn send(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend_from_slice(&[kind, flags]);
        frame.extend_from_slice(&id.to_be_bytes());
        frame.extend_from_slice(payload);
        self.peer.write(frame).await;
    }

    /// A final head with a content-length.
    pub(crate) async fn respond(&mut self, id: u32, content_length: &str) {
        self.respond_with(id, b"200", content_length).await;
    }

    /// The same with another status.
    pub(crate) async fn respond_with(&mut self, id: u32, status: &[u8; 3], content_length: &str) {
        // ":status" stands at 8 in the static table, "content-length" at 28.
        let mut block = vec![0x08, 3];
        block.extend_from_slice(status);
        block.extend_from_slice(&[0x0f, 0x0d, content_length.len() as u8]);
        block.extend_from_slice(content_length.as_bytes());
        self.send(HEADERS, END_HEADERS, id, &block).await;
    }

    pub(crate) async fn respond_without_length(&mut self, id: u32) {
        self.send(HEADERS, END_HEADERS, id, &[0x88]).await;
    }

    /// A head without an end, and 103 instead of 200.
    pub(crate) async fn early_hints(&mut self, id: u32) {
        let block = [0x08, 3, b'1', b'0', b'3'];
        self.send(HEADERS, END_HEADERS, id, &block).await;
    }

    /// The whole answer.
    pub(crate) async fn ok(&mut self, id: u32) {
        self.respond(id, "2").await;
        self.data(id, b"ok", END_STREAM).await;
    }

    pub(crate) async fn data(&mut self, id: u32, bytes: &[u8], flags: u8) {
        self.send(DATA, flags, id, bytes).await;
    }

    pub(crate) async fn reset(&mut self, id: u32, code: u32) {
        self.send(RST_STREAM, 0, id, &code.to_be_bytes()).await;
    }

    pub(crate) async fn go_away(&mut self, last: u32, code: u32) {
        let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
        self.send(GOAWAY, 0, 0, &payload).await;
    }

    /// Reads on until the client closes.
    pub(crate) async fn drain(&mut self) {
        while self.frame().await.is_some() {}
    }

    /// Closes in order.
    pub(crate) async fn fin(self) {
        self.peer.fin().await;
    }
}

impl Frame {
    pub(crate) fn ends_stream(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }

    /// The error code, where it resets a stream.
    pub(crate) fn reset(&self) -> Option<u32> {
        let code = self.payload.as_slice().try_into();
        (self.kind == RST_STREAM).then(|| code.map_or(u32::MAX, u32::from_be_bytes))
    }
}
