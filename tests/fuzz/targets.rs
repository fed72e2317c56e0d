//! What is fuzzed: each target takes bytes, builds something of them, and panics if a promise of the
//! crate does not hold. `cargo fuzz` feeds them by coverage (see `fuzz/`), `main.rs` at random.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, request};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use tower::{Layer, Service, ServiceExt};
use tower_http_retry::{
    Backoff, BodyState, BoxError, EvidenceError, Failure, FailureKind, Multipart, Part, ReplayBody,
    RetryLayer, StandardPolicy, retry_after,
};

/// Bytes, taken from the front.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A piece whose length comes first.
    fn piece(&mut self) -> &'a [u8] {
        let len = self.byte();
        self.take(usize::from(len))
    }

    fn text(&mut self) -> String {
        String::from_utf8_lossy(self.piece()).into_owned()
    }
}

/// What is run on some bytes.
pub type Target = fn(&[u8]);

/// Every named function, for whoever runs them all.
pub const ALL: &[(&str, Target)] = &[
    ("retry_after", retry_after),
    ("dates", dates),
    ("heads", heads),
    ("multipart", multipart),
    ("responses", responses),
    ("replay", replay),
];

/// No header makes the parser panic, and digits mean what they say.
pub fn retry_after(data: &[u8]) {
    const NAMES: [&str; 4] = [
        "retry-after",
        "retry-after-ms",
        "x-ms-retry-after-ms",
        "date",
    ];
    let mut input = Input::new(data);
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(input.byte()) << 24);
    let mut headers = HeaderMap::new();
    for _ in 0..input.byte() % 6 {
        let name = NAMES[usize::from(input.byte()) % NAMES.len()];
        if let Ok(value) = HeaderValue::from_bytes(input.piece()) {
            headers.append(name, value);
        }
    }
    let parsed = retry_after::parse(&headers, now);
    assert_eq!(parsed, retry_after::parse(&headers, now), "pure");
    let only = |name| {
        let value = headers.get(name)?.to_str().ok()?.trim();
        let alone = headers.len() == 1;
        (alone && !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit())).then_some(value)
    };
    if let Some(digits) = only("retry-after") {
        let expected = digits.parse().map_or(Duration::MAX, Duration::from_secs);
        assert_eq!(parsed, Some(expected), "{digits}");
    }
    if let Some(digits) = only("retry-after-ms") {
        assert!(parsed.is_some(), "{digits}");
        if let Ok(millis) = digits.parse() {
            assert_eq!(parsed, Some(Duration::from_millis(millis)));
        }
    }
}

/// Dates in all three forms, near the right shape: they never panic, and never reach back.
pub fn dates(data: &[u8]) {
    const DAYS: [&str; 8] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Xyz"];
    const MONTHS: [&str; 13] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Xyz",
    ];
    let mut input = Input::new(data);
    let (form, day, month) = (input.byte(), input.byte(), input.byte());
    let day_name = DAYS[usize::from(day) % DAYS.len()];
    let month_name = MONTHS[usize::from(month) % MONTHS.len()];
    let (date, year) = (
        input.byte() % 40,
        u32::from(input.byte()) * u32::from(input.byte()) % 12_000,
    );
    let (h, m, s) = (input.byte() % 30, input.byte() % 70, input.byte() % 70);
    let value = match form % 3 {
        0 => format!("{day_name}, {date:02} {month_name} {year:04} {h:02}:{m:02}:{s:02} GMT"),
        1 => format!(
            "{day_name}day, {date:02}-{month_name}-{:02} {h:02}:{m:02}:{s:02} GMT",
            year % 100
        ),
        _ => format!("{day_name} {month_name} {date:2} {h:02}:{m:02}:{s:02} {year:04}"),
    };
    let mut headers = HeaderMap::new();
    headers.insert("retry-after", HeaderValue::try_from(&value).unwrap());
    let early = retry_after::parse(&headers, SystemTime::UNIX_EPOCH);
    let late = retry_after::parse(
        &headers,
        SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40),
    );
    if let (Some(early), Some(late)) = (early, late) {
        // A two-digit year moves with the clock.
        assert!(
            form % 3 == 1 || late <= early,
            "{value}: {early:?} {late:?}"
        );
    }
}

/// A retry carries the very head that the caller sent, whatever is in it.
pub fn heads(data: &[u8]) {
    let mut input = Input::new(data);
    let mut request = Request::new(ReplayBody::empty());
    *request.method_mut() = Method::PUT;
    if let Ok(uri) = Uri::try_from(input.piece()) {
        *request.uri_mut() = uri;
    }
    for _ in 0..input.byte() % 24 {
        let sensitive = input.byte().is_multiple_of(2);
        let name = HeaderName::from_bytes(input.piece());
        let value = HeaderValue::from_bytes(input.piece());
        if let (Ok(name), Ok(mut value)) = (name, value)
            // Not the one that promises a body, and none that asks to wait.
            && name != "content-length"
        {
            value.set_sensitive(sensitive);
            request.headers_mut().append(name, value);
        }
    }
    let sent = list(request.headers());
    let uri = request.uri().clone();
    let service = Scripted::new([
        (0, Reply::NotSent),
        (0, Reply::NotSent),
        (0, Reply::Status(200, None)),
    ]);
    run(service.clone(), request, 3).unwrap();
    for seen in service.0.lock().unwrap().seen.iter() {
        assert_eq!(seen.0.uri, uri);
        assert_eq!(list(&seen.0.headers), sent);
    }
}

fn list(headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue, bool)> {
    headers
        .iter()
        .map(|(k, v)| (k.clone(), v.clone(), v.is_sensitive()))
        .collect()
}

/// No name, file name or content breaks out of its place in a form.
pub fn multipart(data: &[u8]) {
    let mut input = Input::new(data);
    let mut form = Multipart::new();
    let mut contents: Vec<Vec<u8>> = Vec::new();
    for _ in 0..input.byte() % 6 {
        if input.byte().is_multiple_of(2) {
            let (name, value) = (input.text(), input.text());
            contents.push(value.clone().into_bytes());
            form = form.text(name, value);
        } else {
            let (name, file) = (input.text(), input.text());
            let content = input.piece().to_vec();
            contents.push(content.clone());
            form = form.part(name, Part::new(content).file_name(file));
        }
    }
    let content_type = form.content_type();
    let boundary = content_type
        .to_str()
        .unwrap()
        .split_once("boundary=")
        .unwrap()
        .1
        .to_owned();
    let body = ReplayBody::from(form);
    let exact = http_body::Body::size_hint(&body).exact();
    let bytes = block_on(body.collect()).unwrap().to_bytes();
    assert_eq!(exact, Some(bytes.len() as u64));
    // Read back by the rules of RFC 7578, by a reader that knows only the boundary.
    let delimiter = format!("--{boundary}");
    let mut rest = &bytes[..];
    let mut read = Vec::new();
    loop {
        rest = rest
            .strip_prefix(delimiter.as_bytes())
            .expect("a delimiter");
        if rest == b"--\r\n" || rest == b"--" {
            break;
        }
        rest = rest.strip_prefix(b"\r\n").expect("a line end");
        let head_end = find(rest, b"\r\n\r\n").expect("the end of a part's head");
        let head = std::str::from_utf8(&rest[..head_end]).expect("names are text");
        assert!(
            head.lines().count() <= 2,
            "a header was smuggled in: {head:?}"
        );
        assert!(
            head.starts_with("Content-Disposition: form-data; name=\""),
            "{head:?}"
        );
        assert!(
            head.matches('"').count() == 2 || head.matches('"').count() == 4,
            "{head:?}"
        );
        rest = &rest[head_end + 4..];
        let next = find(rest, format!("\r\n{delimiter}").as_bytes()).expect("the next delimiter");
        read.push(rest[..next].to_vec());
        rest = &rest[next + 2..];
    }
    assert_eq!(read, contents);
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|part| part == needle)
}

/// Whatever a server answers: the attempts end, a POST is not sent again after an answer that leaves
/// it unknown, and the last answer is what the caller gets.
pub fn responses(data: &[u8]) {
    const STATUSES: [u16; 12] = [200, 204, 304, 400, 401, 404, 408, 425, 429, 500, 503, 504];
    const HINTS: [&str; 6] = [
        "0",
        "1",
        "20",
        "21",
        "soon",
        "Fri, 31 Dec 9999 23:59:59 GMT",
    ];
    let mut input = Input::new(data);
    let post = input.byte().is_multiple_of(2);
    let max = u32::from(input.byte() % 5);
    let replies: Vec<(usize, Reply)> = (0..=max)
        .map(|_| {
            let status = STATUSES[usize::from(input.byte()) % STATUSES.len()];
            let hint = input.byte();
            let hint = hint
                .is_multiple_of(2)
                .then(|| HINTS[usize::from(hint / 2) % HINTS.len()]);
            (usize::MAX, Reply::Status(status, hint))
        })
        .collect();
    let statuses: Vec<u16> = replies
        .iter()
        .map(|(_, reply)| match reply {
            Reply::Status(status, _) => *status,
            Reply::NotSent => unreachable!("only responses"),
        })
        .collect();
    let service = Scripted::new(replies);
    let mut request = Request::new(ReplayBody::from("order"));
    *request.method_mut() = if post { Method::POST } else { Method::GET };
    let answer = run(service.clone(), request, max);
    let attempts = service.0.lock().unwrap().seen.len();
    assert!(attempts >= 1 && attempts <= max as usize + 1);
    for status in &statuses[..attempts - 1] {
        let retryable: &[u16] = if post {
            &[408, 425, 429]
        } else {
            &[408, 425, 429, 503, 504]
        };
        assert!(retryable.contains(status), "sent again after {status}");
    }
    let last = statuses[attempts - 1];
    match answer {
        Ok(response) => assert_eq!(response.status(), last),
        Err(error) => {
            assert!(error.is_ambiguous() && post && matches!(last, 503 | 504));
            assert_eq!(error.status().unwrap(), last);
        }
    }
}

/// Whatever was polled of a body, and in whatever pieces it came: a later attempt carries all of it,
/// or there is none.
pub fn replay(data: &[u8]) {
    let mut input = Input::new(data);
    let kind = input.byte() % 4;
    let limit = usize::from(input.byte());
    let polls: Vec<usize> = (0..3).map(|_| usize::from(input.byte() % 6)).collect();
    let frames: Vec<Bytes> = (0..input.byte() % 6)
        .map(|_| Bytes::copy_from_slice(input.piece()))
        .collect();
    let whole: Vec<u8> = frames.concat();
    let stream = {
        let frames = frames.clone();
        move || {
            let frames = frames
                .clone()
                .into_iter()
                .map(|data| Ok::<_, BoxError>(Frame::data(data)));
            StreamBody::new(tokio_stream::iter(frames))
        }
    };
    let body = match kind {
        0 => ReplayBody::bytes(whole.clone()),
        1 => ReplayBody::one_shot(stream()),
        2 => ReplayBody::buffered(stream(), limit),
        _ => ReplayBody::factory(tower_http_retry::Replayability::Replayable, stream),
    };
    let mut request = Request::new(body);
    *request.method_mut() = Method::PUT;
    let replies = polls
        .iter()
        .map(|polls| (*polls, Reply::NotSent))
        .chain([(usize::MAX, Reply::Status(200, None))]);
    let service = Scripted::new(replies);
    let answer = run(service.clone(), request, 3);
    let service = service.0.lock().unwrap();
    match answer {
        Ok(_) => assert_eq!(service.seen.last().unwrap().1, whole),
        Err(error) => {
            let denied = error.denied().unwrap();
            let tower_http_retry::RetryDenied::BodyNotReplayable(state) = denied else {
                panic!("{denied}")
            };
            match kind {
                1 => assert_eq!(state, BodyState::Consumed),
                2 => {
                    assert!(matches!(state, BodyState::Overflowed), "{state:?}");
                    assert!(whole.len() > limit, "{} bytes within {limit}", whole.len());
                }
                _ => panic!("such a body can always be sent again"),
            }
        }
    }
    for (_, seen) in &service.seen {
        assert!(whole.starts_with(seen), "an attempt carried other bytes");
    }
}

// ------------------------------------------------------------------ the service below

#[derive(Clone, Copy)]
enum Reply {
    NotSent,
    Status(u16, Option<&'static str>),
}

/// Polls so many frames of a body, then replies.
#[derive(Clone)]
struct Scripted(Arc<Mutex<Script>>);

struct Script {
    replies: VecDeque<(usize, Reply)>,
    seen: Vec<(request::Parts, Vec<u8>)>,
}

impl Scripted {
    fn new(replies: impl IntoIterator<Item = (usize, Reply)>) -> Self {
        let replies = replies.into_iter().collect();
        Self(Arc::new(Mutex::new(Script {
            replies,
            seen: Vec::new(),
        })))
    }
}

impl Service<Request<ReplayBody>> for Scripted {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReplayBody>) -> Self::Future {
        let script = Arc::clone(&self.0);
        Box::pin(async move {
            let (polls, reply) = script.lock().unwrap().replies.pop_front().unwrap();
            let (head, mut body) = request.into_parts();
            let mut read = Vec::new();
            for _ in 0..polls {
                match body.frame().await {
                    Some(Ok(frame)) => read.extend_from_slice(frame.data_ref().unwrap()),
                    Some(Err(error)) => return Err(error),
                    None => break,
                }
            }
            assert!(polls < usize::MAX || body.is_end_stream());
            script.lock().unwrap().seen.push((head, read));
            match reply {
                Reply::NotSent => {
                    let failure = Failure::not_sent(FailureKind::Connect);
                    Err(EvidenceError::new(failure, "scripted").into())
                }
                Reply::Status(status, hint) => {
                    let mut response = Response::new(Full::default());
                    *response.status_mut() = status.try_into().unwrap();
                    if let Some(hint) = hint {
                        response
                            .headers_mut()
                            .insert("retry-after", hint.parse().unwrap());
                    }
                    Ok(response)
                }
            }
        })
    }
}

fn run(
    service: Scripted,
    request: Request<ReplayBody>,
    retries: u32,
) -> Result<Response<tower_http_retry::ResponseBody<Full<Bytes>>>, tower_http_retry::Error> {
    let backoff = Backoff::exponential(Duration::from_millis(1), Duration::from_secs(20));
    let policy = StandardPolicy::builder()
        .retries(retries)
        .backoff(backoff)
        .build()
        .unwrap();
    block_on(
        RetryLayer::new(policy)
            .with_seed(1)
            .layer(service)
            .oneshot(request),
    )
}

/// Under paused time: no wait is real.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(future)
}
