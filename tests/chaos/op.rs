//! Operations: what the clients send.

use http::{HeaderMap, HeaderValue, Method};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::ledger::Kind;

/// How the request body is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    Empty,
    Bytes,
    /// A value, encoded when it is first needed.
    Encoded,
    /// By a function, for each attempt.
    Made,
    OneShot,
    /// One stream that fails half way.
    Broken,
    Buffered,
    /// Buffered with a limit that the body exceeds.
    Overflowing,
    /// Opened again for each attempt.
    Reopened,
    /// Opened for the first attempt; after that it fails.
    OpenedOnce,
    /// Longer for every attempt but the first.
    Growing,
    File,
    /// So many bytes of a file.
    Range,
    /// In two parts, one in memory and one opened again.
    Chained,
    /// A form of a text and a file.
    Multipart,
}

impl Shape {
    /// Of the operations that have a body.
    pub(crate) const FULL: [Self; 14] = [
        Self::Bytes,
        Self::Encoded,
        Self::Made,
        Self::OneShot,
        Self::Broken,
        Self::Buffered,
        Self::Overflowing,
        Self::Reopened,
        Self::OpenedOnce,
        Self::Growing,
        Self::File,
        Self::Range,
        Self::Chained,
        Self::Multipart,
    ];
}

#[derive(Debug, Clone)]
pub(crate) struct Op {
    pub(crate) number: u64,
    pub(crate) method: Method,
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    pub(crate) body: Vec<u8>,
    pub(crate) deadline_ms: Option<u64>,
    /// The caller loses interest after this long.
    pub(crate) drop_ms: Option<u64>,
}

impl Op {
    pub(crate) fn random(number: u64, random: &mut StdRng) -> Self {
        let kinds = [
            (Method::GET, Kind::Safe),
            (Method::PUT, Kind::Idempotent),
            (Method::DELETE, Kind::Idempotent),
            (Method::POST, Kind::NonIdempotent),
            (Method::POST, Kind::NonIdempotent),
            (Method::PATCH, Kind::NonIdempotent),
            (Method::POST, Kind::Keyed),
        ];
        let (method, kind) = kinds.choose(random).unwrap().clone();
        let shape = if kind == Kind::Safe || method == Method::DELETE {
            Shape::Empty
        } else {
            *Shape::FULL.choose(random).unwrap()
        };
        let size = match shape {
            Shape::Empty => 0,
            _ => *[1, 100, 5_000, 40_000].choose(random).unwrap(),
        };
        let body = (0..size).map(|_| random.random()).collect();
        Self {
            number,
            method,
            kind,
            shape,
            body,
            deadline_ms: random
                .random_bool(0.5)
                .then(|| random.random_range(20..400)),
            drop_ms: random
                .random_bool(0.05)
                .then(|| random.random_range(0..100)),
        }
    }

    /// What the servers need to know, where these are the bytes that they have to receive.
    pub(crate) fn headers(&self, sent: &[u8]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-op", HeaderValue::from(self.number));
        headers.insert("x-kind", HeaderValue::from(self.kind as u16));
        headers.insert("x-sum", HeaderValue::from(sum(sent)));
        headers.insert("x-length", HeaderValue::from(sent.len()));
        if self.kind == Kind::Keyed {
            let key = format!("\"{}\"", self.number);
            headers.insert("idempotency-key", HeaderValue::try_from(key).unwrap());
        }
        headers
    }
}

/// FNV-1a with the length: enough to notice a byte that was lost, doubled or mixed.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325 ^ bytes.len() as u64, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
}

/// What a server reads of an operation.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) op: u64,
    pub(crate) kind: Kind,
    pub(crate) sum: u64,
    /// Of the body.
    pub(crate) length: usize,
    pub(crate) key: Option<String>,
}

impl Told {
    pub(crate) fn of(header: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name| header(name)?.trim().parse::<u64>().ok();
        let kind = match number("x-kind")? {
            0 => Kind::Safe,
            1 => Kind::Idempotent,
            2 => Kind::Keyed,
            _ => Kind::NonIdempotent,
        };
        Some(Self {
            op: number("x-op")?,
            kind,
            sum: number("x-sum")?,
            length: number("x-length")? as usize,
            key: header("idempotency-key"),
        })
    }
}
