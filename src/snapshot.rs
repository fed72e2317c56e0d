//! What is kept of a request head, so that it can be sent again.
//!
//! Cloning a `request::Parts` costs more than everything else the layer does: an allocation for the
//! map and one for each value that is not shared yet. So the head is copied flat, into a buffer
//! that is reused, and rebuilt only when somebody looks at it or a retry happens. That is slower
//! for a retry (which waits anyway) and free of allocations for all others.

use std::mem;
use std::sync::OnceLock;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, request};

use crate::body::ReplayBody;
use crate::head::HeadRef;

/// A flat copy of a request head, and of a small body.
#[derive(Default)]
pub(crate) struct Snapshot {
    method: Method,
    version: Version,
    extensions: Extensions,
    /// Each header as a line: its [`Mark`], name, value. Then the URI and the body. Longer than what
    /// it holds: to write into a slice takes less than to append to a vector.
    buffer: Vec<u8>,
    lines: usize,
    /// Where the head ends in the buffer, and the body behind it.
    head_end: usize,
    body_end: usize,
    /// A URI that its text does not give back. Rare: boxed, it takes little room in all others.
    odd_uri: Option<Box<Uri>>,
    sensitive: bool,
    rebuilt: OnceLock<request::Parts>,
}

/// What the URI parser takes. [`Text::len`] says a little more than some texts have.
const LONGEST_URI: usize = u16::MAX as usize - 1;

/// Buffers come in sizes, so that the next head, a little longer, often fits; but they stay small
/// where many calls wait.
const STEP: usize = 128;

impl Snapshot {
    /// Copies a head and a body. The snapshot must be [cleared](Self::clear). Gives the
    /// `content-length` that it comes by: cheaper than to look for it.
    #[inline]
    pub(crate) fn fill<'a>(&mut self, head: HeadRef<'a>, body: &[u8]) -> Option<&'a HeaderValue> {
        self.method = head.method.clone();
        self.version = head.version;
        if !head.extensions.is_empty() {
            self.extensions = head.extensions.clone();
        }
        let copied = self.copy(head, body);
        let copied = copied.or_else(|| self.make_room(head, body).copy(head, body));
        copied.flatten()
    }

    /// `None`: there is too little room.
    #[inline]
    fn copy<'a>(&mut self, head: HeadRef<'a>, body: &[u8]) -> Option<Option<&'a HeaderValue>> {
        let all = self.buffer.len();
        let mut room = Room(&mut self.buffer);
        let mut content_length = None;
        for (name, value) in head.headers {
            let name = name.as_str();
            if value.is_sensitive() {
                // Noted before there turns out to be too little room for it.
                self.sensitive = true;
            }
            room.put(&Mark::new(name, value).0.to_ne_bytes())?;
            room.put(name.as_bytes())?;
            room.put(value.as_bytes())?;
            if name == CONTENT_LENGTH.as_str() {
                content_length.get_or_insert(value);
            }
        }
        let uri = Text::of(head.uri);
        if uri.tells_it() {
            room.put_uri(uri)?;
        } else {
            self.odd_uri = Some(Box::new(head.uri.clone()));
        }
        self.head_end = all - room.0.len();
        room.put(body)?;
        self.body_end = all - room.0.len();
        self.lines = head.headers.len();
        Some(content_length)
    }

    #[cold]
    fn make_room(&mut self, head: HeadRef<'_>, body: &[u8]) -> &mut Self {
        if self.sensitive {
            self.wipe();
        }
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            size_of::<Mark>() + name.as_str().len() + value.len()
        };
        let headers: usize = head.headers.iter().map(line).sum();
        let size = headers + Text::of(head.uri).len() + body.len();
        self.buffer = vec![0; size.next_multiple_of(STEP)];
        self
    }

    pub(crate) fn method(&self) -> &Method {
        &self.method
    }

    /// The head, rebuilt when first asked for.
    pub(crate) fn parts(&self) -> &request::Parts {
        self.rebuilt.get_or_init(|| self.rebuild())
    }

    /// The head, for an attempt: the one that was rebuilt to be looked at, if there is one.
    pub(crate) fn take_parts(&mut self) -> request::Parts {
        self.rebuilt.take().unwrap_or_else(|| self.rebuild())
    }

    /// Lets go of what was rebuilt: a call that waits should be small.
    pub(crate) fn shrink(&mut self) {
        self.rebuilt.take();
    }

    /// A new head, equal to the one that was copied: names, values, their order and flags, URI,
    /// version and extensions.
    pub(crate) fn rebuild(&self) -> request::Parts {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.method = self.method.clone();
        parts.version = self.version;
        parts.extensions = self.extensions.clone();
        let head = self.buffer.get(..self.head_end).unwrap_or_default();
        let mut rest = Bytes::copy_from_slice(head);
        // A head can have more lines than a map has room for names.
        parts.headers = HeaderMap::try_with_capacity(self.lines).unwrap_or_default();
        for _ in 0..self.lines {
            let Some((name, value)) = pop_header(&mut rest) else {
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
        let body = self.buffer.get(self.head_end..self.body_end);
        ReplayBody::bytes(Bytes::copy_from_slice(body.unwrap_or_default()))
    }

    /// Makes it ready for the next request. What was sensitive is overwritten, since the buffer
    /// lives on.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.sensitive {
            self.wipe();
        }
        (self.lines, self.head_end, self.body_end) = (0, 0, 0);
        if self.odd_uri.is_some() {
            self.odd_uri = None;
        }
        if !self.extensions.is_empty() {
            self.extensions = Extensions::new();
        }
        self.shrink();
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
        self.buffer.capacity()
    }
}

/// What is still to be written to.
struct Room<'a>(&'a mut [u8]);

impl Room<'_> {
    #[inline]
    fn put(&mut self, text: &[u8]) -> Option<()> {
        let (to, rest) = mem::take(&mut self.0).split_at_mut_checked(text.len())?;
        copy_short(to, text);
        self.0 = rest;
        Some(())
    }

    #[inline]
    fn put_uri(&mut self, uri: Text<'_>) -> Option<()> {
        match uri.scheme {
            "http" => self.put(b"http://")?,
            "https" => self.put(b"https://")?,
            "" => {}
            scheme => {
                self.put(scheme.as_bytes())?;
                self.put(b"://")?;
            }
        }
        self.put(uri.authority.as_bytes())?;
        self.put(uri.path.as_bytes())
    }
}

/// Copies to a slice of the same length. Most names and values are short: two halves that overlap
/// take less than a call of `memcpy`.
#[inline(always)]
fn copy_short(to: &mut [u8], from: &[u8]) {
    let len = from.len();
    if !(4..=64).contains(&len) {
        to.copy_from_slice(from);
    } else if len >= 32 {
        halves::<32>(to, from);
    } else if len >= 16 {
        halves::<16>(to, from);
    } else if len >= 8 {
        halves::<8>(to, from);
    } else {
        halves::<4>(to, from);
    }
}

/// Of `N` to `2 * N` bytes.
#[inline(always)]
fn halves<const N: usize>(to: &mut [u8], from: &[u8]) -> Option<()> {
    *to.first_chunk_mut::<N>()? = *from.first_chunk()?;
    *to.last_chunk_mut::<N>()? = *from.last_chunk()?;
    Some(())
}

/// Of one header in the buffer: the length of the name, which is shorter than 64 KiB, whether the
/// value is sensitive, and its length.
struct Mark(u64);

impl Mark {
    #[inline]
    fn new(name: &str, value: &HeaderValue) -> Self {
        let sensitive = u64::from(value.is_sensitive());
        Self(name.len() as u64 | sensitive << 16 | (value.len() as u64) << 17)
    }

    fn name_len(&self) -> usize {
        usize::from(self.0 as u16)
    }

    fn is_sensitive(&self) -> bool {
        self.0 >> 16 & 1 == 1
    }

    fn value_len(&self) -> usize {
        (self.0 >> 17) as usize
    }
}

/// What a URI is written as. What it does not have is empty.
#[derive(Clone, Copy)]
struct Text<'a> {
    scheme: &'a str,
    authority: &'a str,
    path: &'a str,
}

impl<'a> Text<'a> {
    #[inline]
    fn of(uri: &'a Uri) -> Self {
        Self {
            scheme: uri.scheme_str().unwrap_or(""),
            authority: uri.authority().map_or("", |authority| authority.as_str()),
            path: uri.path_and_query().map_or("", |path| path.as_str()),
        }
    }

    #[inline]
    fn len(self) -> usize {
        self.scheme.len() + "://".len() + self.authority.len() + self.path.len()
    }

    /// Put together of its parts, a URI can be one that no text is parsed to: `OPTIONS *` of an
    /// authority, a query without a path, an authority `*`, a scheme `HTTP` or an empty one, one that
    /// is too long as a whole.
    #[inline]
    fn tells_it(self) -> bool {
        let plain = match (self.scheme, self.authority, self.path.as_bytes()) {
            ("", "", [b'/', ..] | b"*") => true,
            ("", "*" | "", []) => false,
            ("", _, []) | ("http" | "https", _, [b'/', ..]) => true,
            // Parsed, it would be spelled in lower case.
            (scheme, _, [b'/', ..]) => !["", "http", "https"]
                .iter()
                .any(|own| scheme.eq_ignore_ascii_case(own)),
            (_, _, _) => false,
        };
        plain && self.len() <= LONGEST_URI
    }
}

/// The next header of a flat copy. Never `None` for what `fill` wrote.
fn pop_header(rest: &mut Bytes) -> Option<(HeaderName, HeaderValue)> {
    let mark = pop(rest, size_of::<Mark>())?;
    let mark = Mark(u64::from_ne_bytes(mark.as_ref().try_into().ok()?));
    let name = pop(rest, mark.name_len())?;
    let value = pop(rest, mark.value_len())?;
    let name = HeaderName::from_bytes(&name).ok()?;
    let mut value = HeaderValue::from_maybe_shared(value).ok()?;
    value.set_sensitive(mark.is_sensitive());
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
        snapshot.fill(head.into(), b"");
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
    fn a_uri_that_was_put_together_survives() {
        let schemes = [
            "", "http", "HTTP", "https", "HttpS", "ftp", "FTP", "a", "0", "+",
        ];
        let paths = ["", "/", "/x?y", "*", "?y"];
        let mut built = 0;
        for scheme in schemes.map(Some).into_iter().chain([None]) {
            for authority in [None, Some("h"), Some("*"), Some("u@h:1"), Some("http:80")] {
                for path in paths.map(Some).into_iter().chain([None]) {
                    let mut uri = Uri::builder();
                    if let Some(scheme) = scheme {
                        uri = uri.scheme(scheme);
                    }
                    if let Some(authority) = authority {
                        uri = uri.authority(authority);
                    }
                    if let Some(path) = path {
                        uri = uri.path_and_query(path);
                    }
                    // One of nothing at all is sent as `/`, and comes back as that.
                    let Some(uri) = uri.build().ok().filter(|uri| !uri.to_string().is_empty())
                    else {
                        continue;
                    };
                    let mut head = head("/");
                    head.uri = uri;
                    let back = round_trip(&head).uri;
                    assert_eq!(back, head.uri);
                    assert_eq!(back.to_string(), head.uri.to_string());
                    assert_eq!(back.scheme_str(), head.uri.scheme_str());
                    built += 1;
                }
            }
        }
        assert!(built > 100, "{built}");
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
        snapshot.fill((&head).into(), b"");
        assert!(!snapshot.sensitive, "nothing to overwrite");
        snapshot.clear();

        let mut secret = HeaderValue::from_static("Bearer s3cr3t");
        secret.set_sensitive(true);
        head.headers.insert("authorization", secret);
        snapshot.fill((&head).into(), b"pin=1234");
        assert!(snapshot.sensitive);
        snapshot.wipe();
        assert!(!snapshot.buffer.is_empty());
        assert!(snapshot.buffer.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_sensitive_value_that_was_copied_before_the_room_ran_out_is_overwritten_too() {
        let mut head = head("http://example.com/x");
        let mut snapshot = Snapshot::default();
        snapshot.fill((&head).into(), b"");
        snapshot.clear();
        let mut secret = HeaderValue::from_static("Bearer s3cr3t");
        secret.set_sensitive(true);
        head.headers.insert("authorization", secret);
        let much = [7; 1000];
        assert!(snapshot.copy((&head).into(), &much).is_none());
        assert!(snapshot.sensitive, "`make_room` overwrites it");
        snapshot.fill((&head).into(), &much);
        assert!(snapshot.sensitive);
    }

    #[test]
    fn every_length_of_name_and_value_survives() {
        let mut snapshot = Snapshot::default();
        for len in (0..=130).chain([65_535, 65_536, 200_000]) {
            let mut head = head("http://example.com/x?y");
            let text: Vec<u8> = (0..len).map(|at| b'a' + (at % 23) as u8).collect();
            let name = text.get(..len.clamp(1, 60_000)).unwrap_or(b"x");
            let name = HeaderName::from_bytes(name).unwrap();
            let value = HeaderValue::from_bytes(&text).unwrap();
            head.headers.append(name, value);
            snapshot.fill((&head).into(), text.get(..len.min(1024)).unwrap());
            let back = snapshot.rebuild();
            assert_eq!(back.headers, head.headers, "{len}");
            assert_eq!(back.uri, head.uri, "{len}");
            snapshot.clear();
        }
    }

    #[test]
    fn a_small_body_lies_behind_the_head_and_is_not_taken_for_a_part_of_it() {
        let mut with = head("http://example.com/x?y");
        with.headers.insert("x-a", HeaderValue::from_static("1"));
        let mut snapshot = Snapshot::default();
        for body in ["", "body"] {
            snapshot.fill((&with).into(), body.as_bytes());
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
        assert_eq!(snapshot.fill((&head).into(), b""), None);
        for value in ["7", "8"] {
            head.headers
                .append(CONTENT_LENGTH, HeaderValue::from_static(value));
        }
        snapshot.clear();
        assert_eq!(snapshot.fill((&head).into(), b"").unwrap(), "7");
    }

    #[test]
    fn a_cleared_snapshot_holds_nothing_of_the_last_request() {
        let mut first = head("http://example.com/first");
        let mut secret = HeaderValue::from_static("Bearer s3cr3t");
        secret.set_sensitive(true);
        first.headers.insert("authorization", secret);
        first.extensions.insert(1_u8);
        let mut snapshot = Snapshot::default();
        snapshot.fill((&first).into(), b"");
        let capacity = snapshot.capacity();
        let _ = snapshot.parts();
        snapshot.clear();
        assert_eq!(snapshot.capacity(), capacity, "the buffer is reused");
        let second = head("/second");
        snapshot.fill((&second).into(), b"");
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
