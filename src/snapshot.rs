//! What is kept of a request head, so that it can be sent again.
//!
//! Cloning a `request::Parts` costs more than everything else the layer does: an allocation for the
//! map and one for each value that is not shared yet. So the head is copied flat, into a buffer
//! that is reused, and rebuilt only when somebody looks at it or a retry happens. That is slower
//! for a retry (which waits anyway) and free of allocations for all others.

use std::sync::OnceLock;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, request};

use crate::body::ReplayBody;

/// A request head as a policy sees it: given, or rebuilt when first looked at.
#[derive(Clone, Copy)]
pub(crate) enum Head<'a> {
    Given(&'a request::Parts),
    Kept(&'a Snapshot),
}

impl<'a> Head<'a> {
    pub(crate) fn parts(self) -> &'a request::Parts {
        match self {
            Self::Given(parts) => parts,
            Self::Kept(snapshot) => snapshot.parts(),
        }
    }
}

/// A flat copy of a request head.
#[derive(Default)]
pub(crate) struct Snapshot {
    method: Method,
    version: Version,
    extensions: Extensions,
    /// For each header: name, value. Then the URI, and a small body.
    buffer: Vec<u8>,
    /// A URI that its text does not give back. Rare: boxed, it takes little room in all others.
    odd_uri: Option<Box<Uri>>,
    headers: Vec<Lengths>,
    /// Where the head ends in the buffer.
    head_end: usize,
    sensitive: bool,
    rebuilt: OnceLock<request::Parts>,
}

/// Of one header in the buffer.
#[derive(Clone, Copy)]
struct Lengths {
    name: u32,
    value: u32,
}

/// In the length of a name: its value is sensitive. (Names are shorter than 64 KiB.)
const SENSITIVE: u32 = 1 << 31;

/// What the URI parser takes.
const LONGEST_URI: usize = u16::MAX as usize - 1;

impl Snapshot {
    /// Copies `head`. The snapshot must be [cleared](Self::clear). Gives the `content-length` that it
    /// comes by: cheaper than to look for it.
    pub(crate) fn fill<'a>(&mut self, head: &'a request::Parts) -> Option<&'a HeaderValue> {
        self.method = head.method.clone();
        self.version = head.version;
        if !head.extensions.is_empty() {
            self.extensions = head.extensions.clone();
        }
        let mut content_length = None;
        for (name, value) in &head.headers {
            let name = name.as_str();
            self.push_header(name, value);
            if name == CONTENT_LENGTH.as_str() {
                content_length.get_or_insert(value);
            }
        }
        self.push_uri(&head.uri);
        self.head_end = self.buffer.len();
        content_length
    }

    /// Copies a small body, after the head.
    pub(crate) fn fill_body(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Keeps the method alone: for calls that are never repeated and whose head nobody reads.
    pub(crate) fn fill_method(&mut self, method: &Method) {
        self.method = method.clone();
    }

    #[inline]
    fn push_header(&mut self, name: &str, value: &HeaderValue) {
        let mut name_len = name.len() as u32;
        if value.is_sensitive() {
            name_len |= SENSITIVE;
            self.sensitive = true;
        }
        self.headers.push(Lengths {
            name: name_len,
            value: value.len() as u32,
        });
        self.buffer.extend_from_slice(name.as_bytes());
        self.buffer.extend_from_slice(value.as_bytes());
    }

    #[inline]
    fn push_uri(&mut self, uri: &Uri) {
        let start = self.buffer.len();
        match uri.scheme_str() {
            Some("http") => self.buffer.extend_from_slice(b"http://"),
            Some("https") => self.buffer.extend_from_slice(b"https://"),
            Some(scheme) => {
                self.buffer.extend_from_slice(scheme.as_bytes());
                self.buffer.extend_from_slice(b"://");
            }
            None => {}
        }
        if let Some(authority) = uri.authority() {
            self.buffer.extend_from_slice(authority.as_str().as_bytes());
        }
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        self.buffer.extend_from_slice(path.as_bytes());
        // Put together of its parts, a URI can be one that no text is parsed to: `OPTIONS *` of an
        // authority, a query without a path, an authority `*`, one that is too long as a whole.
        let plain = match (uri.authority(), path.as_bytes()) {
            (_, [b'/', ..]) | (None, b"*") => true,
            (Some(authority), []) => authority.as_str() != "*",
            (_, _) => false,
        };
        if !plain || self.buffer.len() - start > LONGEST_URI {
            self.buffer.truncate(start);
            self.odd_uri = Some(Box::new(uri.clone()));
        }
    }

    pub(crate) fn method(&self) -> &Method {
        &self.method
    }

    /// The head, rebuilt when first asked for.
    pub(crate) fn parts(&self) -> &request::Parts {
        self.rebuilt.get_or_init(|| self.rebuild())
    }

    /// A new head, equal to the one that was copied: names, values, their order and flags, URI,
    /// version and extensions.
    pub(crate) fn rebuild(&self) -> request::Parts {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.method = self.method.clone();
        parts.version = self.version;
        parts.extensions = self.extensions.clone();
        let (head, _body) = self.split();
        let mut rest = Bytes::copy_from_slice(head);
        // A head can have more lines than a map has room for names.
        parts.headers = HeaderMap::try_with_capacity(self.headers.len()).unwrap_or_default();
        for lengths in &self.headers {
            let Some((name, value)) = pop_header(&mut rest, *lengths) else {
                break;
            };
            if parts.headers.try_append(name, value).is_err() {
                break;
            }
        }
        match &self.odd_uri {
            Some(uri) => parts.uri = Uri::clone(uri),
            None => {
                if let Ok(uri) = Uri::from_maybe_shared(rest) {
                    parts.uri = uri;
                }
            }
        }
        parts
    }

    /// The small body that was copied.
    pub(crate) fn body(&self) -> ReplayBody {
        let (_head, body) = self.split();
        ReplayBody::bytes(Bytes::copy_from_slice(body))
    }

    fn split(&self) -> (&[u8], &[u8]) {
        self.buffer
            .split_at_checked(self.head_end)
            .unwrap_or((&self.buffer, &[]))
    }

    /// Makes it ready for the next request. What was sensitive is overwritten, since the buffer
    /// lives on.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.sensitive {
            self.wipe();
        }
        self.buffer.clear();
        self.headers.clear();
        self.head_end = 0;
        self.odd_uri = None;
        if !self.extensions.is_empty() {
            self.extensions = Extensions::new();
        }
        if self.rebuilt.get_mut().is_some() {
            self.rebuilt = OnceLock::new();
        }
    }

    /// Overwrites what was copied.
    #[cold]
    fn wipe(&mut self) {
        self.buffer.fill(0);
        // The stores must not be optimised away as dead.
        std::hint::black_box(&mut self.buffer);
        self.sensitive = false;
    }

    /// Bytes that are occupied while it waits for the next request.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.capacity() + self.headers.capacity() * size_of::<Lengths>()
    }
}

/// The next header of a flat copy. Never `None` for what `fill` wrote.
fn pop_header(rest: &mut Bytes, lengths: Lengths) -> Option<(HeaderName, HeaderValue)> {
    let name = pop(rest, (lengths.name & !SENSITIVE) as usize)?;
    let value = pop(rest, lengths.value as usize)?;
    let name = HeaderName::from_bytes(&name).ok()?;
    let mut value = HeaderValue::from_maybe_shared(value).ok()?;
    value.set_sensitive(lengths.name & SENSITIVE != 0);
    Some((name, value))
}

fn pop(rest: &mut Bytes, len: usize) -> Option<Bytes> {
    (len <= rest.len()).then(|| rest.split_to(len))
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use proptest::prelude::*;

    use super::*;

    fn round_trip(head: &request::Parts) -> request::Parts {
        let mut snapshot = Snapshot::default();
        snapshot.fill(head);
        snapshot.rebuild()
    }

    fn head(uri: &str) -> request::Parts {
        http::Request::builder()
            .uri(uri)
            .body(())
            .unwrap()
            .into_parts()
            .0
    }

    #[test]
    fn every_form_of_a_uri_survives() {
        for uri in [
            "/",
            "/v1/orders?x=1&y=%20",
            "*",
            "http://example.com",
            "http://example.com/",
            "https://user:pw@example.com:8443/a/b?c",
            "ftp://example.com/x",
            "example.com:443",
            "http://[::1]:8080/x",
            "x-own+scheme.1://h/",
        ] {
            let head = head(uri);
            assert_eq!(round_trip(&head).uri, head.uri, "{uri}");
        }
        let mut head = head("*");
        head.uri = Uri::builder().authority("*").build().unwrap();
        assert_eq!(round_trip(&head).uri, head.uri, "an authority");
    }

    #[test]
    fn repeated_values_order_flags_version_and_extensions_survive() {
        #[derive(Clone, PartialEq, Debug)]
        struct RequestId(u32);
        let mut head = head("http://example.com/x");
        head.method = Method::from_bytes(b"PURGE-EVERYTHING-NOW").unwrap();
        head.version = Version::HTTP_2;
        head.extensions.insert(RequestId(7));
        for (name, value) in [("x-a", "1"), ("accept", "*/*"), ("x-a", "2"), ("x-a", "")] {
            head.headers.append(name, HeaderValue::from_static(value));
        }
        let mut secret = HeaderValue::from_static("Bearer s3cr3t");
        secret.set_sensitive(true);
        head.headers.append("authorization", secret);
        head.headers
            .append("x-obs", HeaderValue::from_bytes(b"\xff\xfe").unwrap());

        let back = round_trip(&head);
        let list = |h: &HeaderMap| -> Vec<(HeaderName, HeaderValue, bool)> {
            h.iter()
                .map(|(k, v)| (k.clone(), v.clone(), v.is_sensitive()))
                .collect()
        };
        assert_eq!(list(&back.headers), list(&head.headers));
        assert_eq!(back.method, head.method);
        assert_eq!(back.version, head.version);
        assert_eq!(back.extensions.get::<RequestId>(), Some(&RequestId(7)));
    }

    #[test]
    fn a_sensitive_value_is_overwritten_where_it_lies() {
        let mut head = head("http://example.com/x");
        head.headers
            .insert("accept", HeaderValue::from_static("*/*"));
        let mut snapshot = Snapshot::default();
        snapshot.fill(&head);
        assert!(!snapshot.sensitive, "nothing to overwrite");
        snapshot.clear();

        let mut secret = HeaderValue::from_static("Bearer s3cr3t");
        secret.set_sensitive(true);
        head.headers.insert("authorization", secret);
        snapshot.fill(&head);
        snapshot.fill_body(b"pin=1234");
        assert!(snapshot.sensitive);
        snapshot.wipe();
        assert!(!snapshot.buffer.is_empty());
        assert!(snapshot.buffer.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_small_body_lies_behind_the_head_and_is_not_taken_for_a_part_of_it() {
        let mut with = head("http://example.com/x?y");
        with.headers.insert("x-a", HeaderValue::from_static("1"));
        let mut snapshot = Snapshot::default();
        for body in ["", "body"] {
            snapshot.fill(&with);
            snapshot.fill_body(body.as_bytes());
            assert_eq!(snapshot.rebuild().uri, with.uri);
            assert_eq!(snapshot.rebuild().headers, with.headers);
            assert_eq!(snapshot.body().size_hint().exact(), Some(body.len() as u64));
            snapshot.clear();
        }
    }

    #[test]
    fn the_first_content_length_is_found() {
        let mut head = head("/");
        let mut snapshot = Snapshot::default();
        assert_eq!(snapshot.fill(&head), None);
        for value in ["7", "8"] {
            head.headers
                .append(CONTENT_LENGTH, HeaderValue::from_static(value));
        }
        snapshot.clear();
        assert_eq!(snapshot.fill(&head).unwrap(), "7");
    }

    #[test]
    fn a_cleared_snapshot_holds_nothing_of_the_last_request() {
        let mut first = head("http://example.com/first");
        let mut secret = HeaderValue::from_static("Bearer s3cr3t");
        secret.set_sensitive(true);
        first.headers.insert("authorization", secret);
        first.extensions.insert(1_u8);
        let mut snapshot = Snapshot::default();
        snapshot.fill(&first);
        let capacity = snapshot.capacity();
        let _ = snapshot.parts();
        snapshot.clear();
        assert_eq!(snapshot.capacity(), capacity, "the buffer is reused");
        // What lies in the reused buffer, beyond its length.
        snapshot.buffer.resize(capacity.min(64), b'.');
        snapshot.buffer.clear();
        let second = head("/second");
        snapshot.fill(&second);
        assert_eq!(snapshot.parts().uri, second.uri);
        assert!(snapshot.parts().headers.is_empty());
        assert!(snapshot.parts().extensions.get::<u8>().is_none());
    }

    proptest! {
        #[test]
        fn any_headers_survive(headers in proptest::collection::vec(
            ("[a-z][a-z0-9-]{0,40}", proptest::collection::vec(0x20_u8..0x7f, 0..200), any::<bool>()), 0..40)
        ) {
            let mut head = head("http://example.com/x?y");
            for (name, value, sensitive) in headers {
                let mut value = HeaderValue::from_bytes(&value).unwrap();
                value.set_sensitive(sensitive);
                head.headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
            }
            let back = round_trip(&head);
            let list = |h: &HeaderMap| -> Vec<(HeaderName, HeaderValue, bool)> {
                h.iter().map(|(k, v)| (k.clone(), v.clone(), v.is_sensitive())).collect()
            };
            prop_assert_eq!(list(&back.headers), list(&head.headers));
            prop_assert_eq!(back.uri, head.uri);
        }
    }
}
