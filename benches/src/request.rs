//! The requests that every case sends.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

/// A kind of request, built as clients build it: some header values are constants, the others and
/// the body are fresh, and the URI is a clone of a parsed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// 8 headers, one of them an idempotency key, and a body of 256 bytes.
    Post,
    /// 3 headers and no body.
    Get,
}

pub const PROFILES: [Profile; 2] = [Profile::Post, Profile::Get];

const POST: [(&str, Value); 8] = [
    ("content-type", Value::Constant("application/json")),
    ("authorization", Value::Fresh(BEARER)),
    ("accept", Value::Constant("application/json")),
    (
        "idempotency-key",
        Value::Fresh("8e03978e-40d5-43dd-bc93-6894a57f9324"),
    ),
    (
        "user-agent",
        Value::Constant("benches/0.1 (linux; x86_64; v1)"),
    ),
    (
        "traceparent",
        Value::Fresh("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ),
    ("accept-encoding", Value::Constant("gzip, br")),
    (
        "x-request-id",
        Value::Fresh("f058ebd6-02f7-4d3f-942e-904344e8cde5"),
    ),
];

const GET: [(&str, Value); 3] = [
    ("accept", Value::Constant("application/json")),
    (
        "user-agent",
        Value::Constant("benches/0.1 (linux; x86_64; v1)"),
    ),
    ("authorization", Value::Fresh(BEARER)),
];

const BEARER: &str = "Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0In0";

#[derive(Clone, Copy)]
enum Value {
    Constant(&'static str),
    Fresh(&'static str),
}

thread_local! {
    static URI: Uri = Uri::from_static("http://orders.internal.example:8080/v1/orders/42?expand=items");
}

impl Profile {
    /// A request, as new.
    pub fn request(self) -> Request<Bytes> {
        let (method, headers, body) = match self {
            Self::Post => (Method::POST, &POST[..], Bytes::from(vec![b'x'; 256])),
            Self::Get => (Method::GET, &GET[..], Bytes::new()),
        };
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = URI.with(Uri::clone);
        let mut map = HeaderMap::with_capacity(headers.len());
        for (name, value) in headers {
            let value = match value {
                Value::Constant(text) => HeaderValue::from_static(text),
                Value::Fresh(text) => HeaderValue::from_str(text).expect("printable"),
            };
            map.insert(HeaderName::from_static(name), value);
        }
        *request.headers_mut() = map;
        request
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Post => "POST",
            Self::Get => "GET",
        }
    }
}
