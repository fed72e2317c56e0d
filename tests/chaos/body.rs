//! Request bodies of every kind.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use tower_http_retry::{Multipart, Part, ReplayBody, Replayability};

use crate::op::{Op, Shape};

/// The body of an operation, and the bytes that a server has to receive, made without it.
pub(crate) fn body(op: &Op, file: &OnDisk) -> (ReplayBody, Bytes) {
    let bytes = Bytes::from(op.body.clone());
    let sent = bytes.clone();
    let body = match op.shape {
        Shape::Empty => ReplayBody::empty(),
        Shape::Bytes => ReplayBody::bytes(bytes),
        Shape::Encoded => {
            let encode = |value: &Bytes| value.iter().map(|byte| !byte).collect::<Vec<u8>>();
            let sent = encode(&bytes).into();
            let body = ReplayBody::encoded(bytes, move |value| Ok::<_, Infallible>(encode(value)));
            return (body, sent);
        }
        Shape::Made => ReplayBody::factory(Replayability::Replayable, move || {
            frames(bytes.clone(), None)
        }),
        Shape::OneShot => ReplayBody::one_shot(Full::new(bytes)),
        Shape::Broken => {
            let half = bytes.len() / 2;
            ReplayBody::one_shot(frames(bytes.slice(..half), Some("broken")))
        }
        Shape::Buffered => ReplayBody::buffered(frames(bytes, None), 64 * 1024),
        Shape::Overflowing => ReplayBody::buffered(frames(bytes, None), 10),
        Shape::Reopened => reopened(move |_| Ok(bytes.clone())),
        Shape::OpenedOnce => reopened(move |before| match before {
            0 => Ok(bytes.clone()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }),
        Shape::Growing => {
            reopened(move |before| Ok([&bytes[..], &[7].repeat(before)].concat().into()))
        }
        Shape::File => return (ReplayBody::file(&file.path).into(), file.content.clone()),
        Shape::Range => {
            let start = op.number as usize % 1000;
            let body = ReplayBody::file(&file.path).range(start as u64, bytes.len() as u64);
            return (body.into(), file.content.slice(start..start + bytes.len()));
        }
        Shape::Chained => {
            let (first, second) = halves(&bytes);
            ReplayBody::chain([
                ReplayBody::bytes(first),
                reopened(move |_| Ok(second.clone())),
            ])
        }
        Shape::Multipart => return form(&bytes),
    };
    (body, sent)
}

fn halves(bytes: &Bytes) -> (Bytes, Bytes) {
    let half = bytes.len() / 2;
    (bytes.slice(..half), bytes.slice(half..))
}

/// In several frames, and then perhaps an error.
fn frames(
    bytes: Bytes,
    error: Option<&'static str>,
) -> impl http_body::Body<Data = Bytes, Error = &'static str> + Send + 'static {
    let chunks = bytes.chunks(7_000).map(Bytes::copy_from_slice);
    let data = chunks.map(|chunk| Ok(Frame::data(chunk)));
    let all: Vec<_> = data.chain(error.map(Err)).collect();
    StreamBody::new(tokio_stream::iter(all))
}

/// Opened for each attempt, and not at once: by how often it was opened before.
fn reopened(open: impl Fn(usize) -> io::Result<Bytes> + Send + Sync + 'static) -> ReplayBody {
    let opened = AtomicUsize::new(0);
    ReplayBody::reopenable(move || {
        let body = open(opened.fetch_add(1, Ordering::SeqCst)).map(Full::new);
        async {
            tokio::task::yield_now().await;
            body
        }
    })
}

/// As RFC 7578 §4 writes it, with the boundary that the form made up.
fn form(bytes: &Bytes) -> (ReplayBody, Bytes) {
    let form = Multipart::new();
    let content_type = form.content_type();
    let (_, boundary) = content_type.to_str().unwrap().split_once('=').unwrap();
    let mut sent = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nurgent\r\n\
         --{boundary}\r\nContent-Disposition: form-data; name=\"order\"; filename=\"order\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    )
    .into_bytes();
    sent.extend_from_slice(bytes);
    sent.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    let bytes = bytes.clone();
    let part = Part::new(reopened(move |_| Ok(bytes.clone()))).file_name("order");
    (
        form.text("note", "urgent").part("order", part).into(),
        sent.into(),
    )
}

/// One file for all who upload one, larger than the chunks that it is read in.
pub(crate) struct OnDisk {
    path: PathBuf,
    content: Bytes,
}

impl OnDisk {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let name = format!("tower-http-retry-chaos-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let content: Vec<u8> = (0..70_000_u64).map(|at| ((at * at) >> 7) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        Self {
            path,
            content: content.into(),
        }
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
