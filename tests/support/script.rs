//! An inner service that follows a script, in process and under paused time.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use super::body::{Step, TestBody};
use bytes::Bytes;
use http::{Request, Response, request};
use http_body_util::BodyExt;
use tokio::time::Instant;
use tower::Service;
use tower_http_retry::{BoxError, EvidenceError, Failure, ReplayBody};

/// What the service does with one attempt.
pub(crate) enum Reply {
    /// Reads the request body, then answers.
    Response(Response<TestBody>),
    /// Reads the request body, then fails.
    Error(BoxError),
    /// Reads the request body, then never answers.
    Hang,
    /// Drops the request unread, then fails.
    DropUnread(BoxError),
    /// Does the rest after this long.
    After(Duration, Box<Reply>),
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self::Response(
            Response::builder()
                .status(status)
                .body(TestBody::from(&[][..]))
                .unwrap(),
        )
    }

    pub(crate) fn header(self, name: &'static str, value: &str) -> Self {
        match self {
            Self::Response(mut response) => {
                response.headers_mut().append(name, value.parse().unwrap());
                Self::Response(response)
            }
            _ => panic!("only a response has headers"),
        }
    }

    pub(crate) fn body(self, bytes: &'static [u8]) -> Self {
        match self {
            Self::Response(response) => Self::Response(response.map(|_| TestBody::from(bytes))),
            _ => panic!("only a response has a body"),
        }
    }

    pub(crate) fn steps(self, steps: impl IntoIterator<Item = Step>) -> Self {
        match self {
            Self::Response(response) => Self::Response(response.map(|_| TestBody::new(steps))),
            _ => panic!("only a response has a body"),
        }
    }

    /// 1 as long as the response's body is alive.
    pub(crate) fn alive(&self) -> Arc<AtomicUsize> {
        match self {
            Self::Response(response) => response.body().alive(),
            _ => panic!("only a response has a body"),
        }
    }

    /// An error that states its evidence.
    pub(crate) fn fails(failure: Failure) -> Self {
        Self::Error(EvidenceError::new(failure, "scripted").into())
    }

    pub(crate) fn after(self, time: Duration) -> Self {
        Self::After(time, Box::new(self))
    }
}

/// One attempt as the service saw it.
pub(crate) struct Seen {
    pub(crate) head: request::Parts,
    /// `None`: not read to its end.
    pub(crate) body: Option<Bytes>,
    pub(crate) at: Instant,
}

/// Clones share the script and the record.
#[derive(Clone)]
pub(crate) struct Script {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Script {
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self {
            replies: Arc::new(Mutex::new(replies.into_iter().collect())),
            seen: Arc::default(),
        }
    }

    pub(crate) fn attempts(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    pub(crate) fn seen<T>(&self, look: impl FnOnce(&[Seen]) -> T) -> T {
        look(&self.seen.lock().unwrap())
    }

    /// The pauses between the attempts.
    pub(crate) fn waits(&self) -> Vec<Duration> {
        self.seen(|seen| {
            seen.windows(2)
                .map(|pair| pair[1].at - pair[0].at)
                .collect()
        })
    }
}

impl Service<Request<ReplayBody>> for Script {
    type Response = Response<TestBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReplayBody>) -> Self::Future {
        let reply = self
            .replies
            .lock()
            .unwrap()
            .pop_front()
            .expect("the script is over");
        let (head, body) = request.into_parts();
        let seen = Arc::clone(&self.seen);
        let index = {
            let mut seen = seen.lock().unwrap();
            seen.push(Seen {
                head,
                body: None,
                at: Instant::now(),
            });
            seen.len() - 1
        };
        Box::pin(async move {
            let mut reply = reply;
            let mut delay = Duration::ZERO;
            while let Reply::After(time, rest) = reply {
                delay += time;
                reply = *rest;
            }
            if let Reply::DropUnread(error) = reply {
                drop(body);
                return Err(error);
            }
            let bytes = body.collect().await?.to_bytes();
            seen.lock().unwrap()[index].body = Some(bytes);
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            match reply {
                Reply::Response(response) => Ok(response),
                Reply::Error(error) | Reply::DropUnread(error) => Err(error),
                Reply::Hang => std::future::pending().await,
                Reply::After(..) => unreachable!("unwrapped above"),
            }
        })
    }
}
