//! One row of the evidence table: what a failure proves, what the caller is told about a POST and
//! about a GET, and what the server had read.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use tower::{Layer, ServiceExt};
use tower_http_retry::{
    Backoff, Error, Evidence, Failure, PeerPromises, ReplayBody, ResponseBody, RetryLayer,
    StandardPolicy,
};

use super::via::{Below, Down, Via};
use super::{Entry, Ledger, PATIENCE, Server};

/// What the server read of each attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Not a byte of HTTP.
    Nothing,
    /// The head, and perhaps some of the body.
    Head,
    /// All of it.
    Whole,
    /// That varies.
    Varies,
}

pub(crate) struct Row {
    pub(crate) id: &'static str,
    /// The outcomes that are allowed for a POST with a body, and for a GET.
    pub(crate) post: Vec<Failure>,
    pub(crate) get: Vec<Failure>,
    pub(crate) reads: Reads,
    /// The peer read the request and said that it did not process it.
    pub(crate) promised: bool,
    pub(crate) body: Option<fn() -> ReplayBody>,
    pub(crate) timeout: Option<Duration>,
}

impl Row {
    pub(crate) fn new(id: &'static str, reads: Reads, outcomes: &[Failure]) -> Self {
        Self {
            id,
            post: outcomes.to_vec(),
            get: outcomes.to_vec(),
            reads,
            promised: false,
            body: None,
            timeout: None,
        }
    }

    pub(crate) fn get(mut self, outcomes: &[Failure]) -> Self {
        self.get = outcomes.to_vec();
        self
    }

    pub(crate) fn promised(mut self) -> Self {
        self.promised = true;
        self
    }

    /// This body instead; then it is a PUT beside the POST.
    pub(crate) fn body(mut self, body: fn() -> ReplayBody) -> Self {
        self.body = Some(body);
        self
    }

    /// The layer gives up each attempt after this long.
    pub(crate) fn timeout(mut self, milliseconds: u64) -> Self {
        self.timeout = Some(Duration::from_millis(milliseconds));
        self
    }

    fn methods(&self) -> [Method; 2] {
        match self.body {
            Some(_) => [Method::POST, Method::PUT],
            None => [Method::POST, Method::GET],
        }
    }

    /// Over every client in `clients`, each with a server of its own.
    pub(crate) async fn over(&self, clients: &[Via], start: impl Fn() -> Server) {
        for via in clients {
            for method in self.methods() {
                let server = start();
                let url = server.url();
                let via_name = format!("{via:?}");
                self.ask(&via_name, via.service(), method, &url, &server.ledger)
                    .await;
            }
        }
    }

    /// Over one service, at `url`.
    pub(crate) async fn at(&self, below: impl Fn() -> Below, url: &str) {
        for method in self.methods() {
            self.ask("", below(), method, url, &Ledger::default()).await;
        }
    }

    async fn ask(&self, via: &str, below: Below, method: Method, url: &str, ledger: &Ledger) {
        let request = match self.body {
            Some(body) => with_body(&method, url, body()),
            None => request(&method, url),
        };
        let mut layer = layer(2);
        if let Some(timeout) = self.timeout {
            layer = layer.with_attempt_timeout(timeout);
        }
        let answer = ask(&layer, below, request).await;
        let place = format!("{} {via} {method}", self.id);
        let error = match answer {
            Ok(response) => panic!("{place}: answered {}", response.status()),
            Err(error) => error,
        };
        // What the client wrote may still be on its way.
        let n = error.report().attempts().len();
        let entry = ledger
            .until(|entry| match self.reads {
                Reads::Nothing | Reads::Varies => true,
                Reads::Head => entry.heads >= n,
                Reads::Whole => entry.whole >= n,
            })
            .await;
        self.check(&place, &method, &error, &entry);
        assert_eq!(layer.contradictions(), 0, "{place}: {error}");
    }

    /// The contract, for whatever outcome there was.
    pub(crate) fn check(&self, place: &str, method: &Method, error: &Error, entry: &Entry) {
        let post = *method == Method::POST;
        let allowed = if post { &self.post } else { &self.get };
        let attempts = error.report().attempts();
        let told = format!("{place}: {error:?}\n{}\n{entry:?}", error.report());
        let mut sent = 0;
        for (index, attempt) in attempts.iter().enumerate() {
            let failure = attempt.failure().expect(&told);
            assert!(allowed.contains(failure), "{failure:?} in {told}");
            let not_sent = failure.evidence() == Evidence::NotSent;
            sent += usize::from(!not_sent);
            let again = !failure.kind().is_permanent() && (not_sent || !post);
            let followed = index + 1 < attempts.len();
            assert_eq!(followed, again && index == 0, "{told}");
        }
        // The third answer: it may have been executed, and must not be sent again.
        assert_eq!(error.is_ambiguous(), post && sent > 0, "{told}");
        if !self.promised {
            assert!(entry.heads <= sent, "not sent, but read: {told}");
        }
        let n = attempts.len();
        match self.reads {
            Reads::Nothing => assert_eq!((entry.heads, entry.body), (0, 0), "{told}"),
            Reads::Head => assert_eq!(entry.heads, n, "{told}"),
            Reads::Whole => assert_eq!((entry.heads, entry.whole), (n, n), "{told}"),
            Reads::Varies => {}
        }
    }
}

/// No waits, no budgets.
pub(crate) fn layer(attempts: u32) -> RetryLayer {
    let policy = StandardPolicy::builder()
        .retries(attempts - 1)
        .backoff(Backoff::exponential(Default::default(), Default::default()))
        .build()
        .unwrap();
    RetryLayer::new(policy).without_budgets()
}

pub(crate) fn distrusting(attempts: u32) -> RetryLayer {
    layer(attempts).with_peer_promises(PeerPromises::Distrust)
}

pub(crate) fn request(method: &Method, url: &str) -> Request<ReplayBody> {
    let body = if *method == Method::GET {
        ReplayBody::empty()
    } else {
        ReplayBody::bytes("ten bytes.")
    };
    with_body(method, url, body)
}

pub(crate) fn with_body(method: &Method, url: &str, body: ReplayBody) -> Request<ReplayBody> {
    Request::builder()
        .method(method)
        .uri(url)
        .body(body)
        .unwrap()
}

pub(crate) async fn ask(
    layer: &RetryLayer,
    below: Below,
    request: Request<ReplayBody>,
) -> Result<Response<ResponseBody<Down>>, Error> {
    // As a trait object: inside another future the compiler loses that its errors are `'static`.
    let call: Pin<Box<dyn Future<Output = _> + Send>> =
        Box::pin(layer.layer(below).oneshot(request));
    tokio::time::timeout(PATIENCE, call)
        .await
        .expect("an answer in time")
}

/// All at once.
pub(crate) async fn ask_all(
    layer: &RetryLayer,
    below: &Below,
    requests: impl Iterator<Item = Request<ReplayBody>>,
) -> Vec<Result<Response<ResponseBody<Down>>, Error>> {
    let mut calls = tokio::task::JoinSet::new();
    for request in requests {
        let (layer, below) = (layer.clone(), below.clone());
        calls.spawn(async move { ask(&layer, below, request).await });
    }
    calls.join_all().await
}

/// The whole body, or what broke it.
pub(crate) async fn read(
    response: Response<ResponseBody<Down>>,
) -> Result<Bytes, tower_http_retry::BodyError> {
    use http_body_util::{BodyExt, Collected};
    let body: Pin<Box<dyn Future<Output = Result<Collected<Bytes>, _>> + Send>> =
        Box::pin(response.into_body().collect());
    Ok(body.await?.to_bytes())
}
