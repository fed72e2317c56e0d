//! An HTTP/1.1 peer.

use tokio::io::{AsyncRead, AsyncWrite};

use super::Peer;

pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

impl<T: AsyncRead + AsyncWrite + Unpin> Peer<T> {
    /// The next request head. Bytes of its body that came along are left for `body`.
    pub(crate) async fn head(&mut self) -> Option<Head> {
        let mut bytes = Vec::new();
        let mut buffer = [0; 16 * 1024];
        loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let rest = bytes.split_off(end + 4);
                let head = String::from_utf8(bytes).unwrap();
                self.ledger.note(|entry| {
                    entry.heads += 1;
                    entry.head.clone_from(&head);
                    entry.body += rest.len();
                });
                return Some(Head { text: head, rest });
            }
            let read = self.read(&mut buffer).await?;
            bytes.extend_from_slice(&buffer[..read]);
        }
    }

    /// At least `enough` bytes of the body.
    pub(crate) async fn body(&mut self, head: &mut Head, enough: usize) -> Option<()> {
        let mut buffer = [0; 16 * 1024];
        while head.rest.len() < enough {
            let read = self.read(&mut buffer).await?;
            self.ledger.note(|entry| entry.body += read);
            head.rest.extend_from_slice(&buffer[..read]);
        }
        Some(())
    }

    /// The next request, whole.
    pub(crate) async fn request(&mut self) -> Option<Head> {
        let mut head = self.head().await?;
        if let Some(len) = head.content_length() {
            self.body(&mut head, len).await?;
        } else if head.text.contains("transfer-encoding: chunked") {
            while !head.rest.ends_with(b"0\r\n\r\n") {
                let more = head.rest.len() + 1;
                self.body(&mut head, more).await?;
            }
        }
        self.ledger.note(|entry| entry.whole += 1);
        Some(head)
    }
}

pub(crate) struct Head {
    pub(crate) text: String,
    /// The body, as far as it was read.
    pub(crate) rest: Vec<u8>,
}

impl Head {
    pub(crate) fn content_length(&self) -> Option<usize> {
        let line = self
            .text
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))?;
        line.parse().ok()
    }
}
