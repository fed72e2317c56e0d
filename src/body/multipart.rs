//! `multipart/form-data` (RFC 7578).

use std::{borrow::Cow, fmt};

use bytes::{BufMut, BytesMut};
use http::HeaderValue;

use super::ReplayBody;

/// A form of named parts, as browsers send one.
///
/// Its boundary is random, drawn once, so every attempt carries the same bytes. It is as replayable as the weakest
/// of its parts, and its length is exact where that of each part is. The request's `content-type` is the caller's
/// to set, from [`content_type`](Self::content_type).
pub struct Multipart {
    boundary: String,
    parts: Vec<ReplayBody>,
    /// What comes after the last of the parts.
    text: BytesMut,
}

impl Multipart {
    /// A form without parts.
    pub fn new() -> Self {
        // 128 random bits meet no content by chance, and nobody can have planned for them.
        let boundary = format!("{:032x}", rand::random::<u128>());
        Self {
            boundary,
            parts: Vec::new(),
            text: BytesMut::new(),
        }
    }

    /// Adds a text field. The value goes out as it is.
    #[must_use]
    pub fn text(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Cow<'static, str>>,
    ) -> Self {
        self.head(&name.into(), None, None);
        self.text.put(value.into().as_bytes());
        self.text.put(&b"\r\n"[..]);
        self
    }

    /// Adds a part of any body.
    #[must_use]
    pub fn part(mut self, name: impl Into<Cow<'static, str>>, part: Part) -> Self {
        let Part {
            body,
            file_name,
            content_type,
        } = part;
        self.head(&name.into(), file_name.as_deref(), content_type.as_ref());
        self.parts.push(self.text.split().freeze().into());
        self.parts.push(body);
        self.text.put(&b"\r\n"[..]);
        self
    }

    /// What the request's `content-type` has to be: `multipart/form-data` with this form's boundary.
    pub fn content_type(&self) -> HeaderValue {
        let value = format!("multipart/form-data; boundary={}", self.boundary);
        // Hexadecimal digits are a header value; the other branch is there because nothing may panic.
        HeaderValue::try_from(value)
            .unwrap_or_else(|_| HeaderValue::from_static("multipart/form-data"))
    }

    fn head(&mut self, name: &str, file_name: Option<&str>, content_type: Option<&HeaderValue>) {
        let text = &mut self.text;
        text.put(&b"--"[..]);
        text.put(self.boundary.as_bytes());
        text.put(&b"\r\nContent-Disposition: form-data; name=\""[..]);
        quote(&one_kind_of_line_end(name), text);
        if let Some(file_name) = file_name {
            text.put(&b"\"; filename=\""[..]);
            quote(file_name, text);
        }
        text.put(&b"\"\r\n"[..]);
        // RFC 7578 §4.4: a file of an unknown type says so; other parts are text/plain by default.
        let unknown = || file_name.map(|_| &b"application/octet-stream"[..]);
        if let Some(value) = content_type.map(HeaderValue::as_bytes).or_else(unknown) {
            text.put(&b"Content-Type: "[..]);
            text.put(value);
            text.put(&b"\r\n"[..]);
        }
        text.put(&b"\r\n"[..]);
    }
}

impl Default for Multipart {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Multipart> for ReplayBody {
    fn from(form: Multipart) -> Self {
        let Multipart {
            boundary,
            mut parts,
            mut text,
        } = form;
        text.put(&b"--"[..]);
        text.put(boundary.as_bytes());
        text.put(&b"--\r\n"[..]);
        parts.push(text.freeze().into());
        Self::chain(parts)
    }
}

impl fmt::Debug for Multipart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multipart").finish_non_exhaustive()
    }
}

/// One part of a [`Multipart`] form.
pub struct Part {
    body: ReplayBody,
    file_name: Option<Cow<'static, str>>,
    content_type: Option<HeaderValue>,
}

impl Part {
    /// A part of any body: bytes, a file, a stream.
    pub fn new(body: impl Into<ReplayBody>) -> Self {
        Self {
            body: body.into(),
            file_name: None,
            content_type: None,
        }
    }

    /// Makes it a file of this name. Nothing is taken from the name but the name.
    #[must_use]
    pub fn file_name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.file_name = Some(name.into());
        self
    }

    /// Says what it holds. Default: nothing, which means text; for a file `application/octet-stream`.
    #[must_use]
    pub fn content_type(mut self, value: HeaderValue) -> Self {
        self.content_type = Some(value);
        self
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part")
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

/// Browsers escape just what would end the quotes or the line (HTML, "multipart/form-data encoding algorithm").
fn quote(name: &str, text: &mut BytesMut) {
    for byte in name.bytes() {
        match byte {
            b'"' => text.put(&b"%22"[..]),
            b'\r' => text.put(&b"%0D"[..]),
            b'\n' => text.put(&b"%0A"[..]),
            other => text.put_u8(other),
        }
    }
}

/// In names of fields, not of files, browsers make every line end CR LF (same place).
fn one_kind_of_line_end(name: &str) -> Cow<'_, str> {
    if name.contains(['\r', '\n']) {
        name.replace("\r\n", "\n")
            .replace('\r', "\n")
            .replace('\n', "\r\n")
            .into()
    } else {
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body::Body;
    use proptest::prelude::*;

    use super::{
        super::{
            BodyState, Replayability, Source, Witness,
            script::{self, Script, drain, text},
        },
        *,
    };

    fn attempt(source: &mut Source) -> ReplayBody {
        script::body(source.attempt(Witness::new(), None))
    }

    fn sent(form: Multipart) -> (String, Vec<u8>) {
        let boundary = form.boundary.clone();
        let body = ReplayBody::from(form);
        (
            boundary,
            drain(&mut attempt(&mut body.into_source()))
                .expect("whole")
                .0,
        )
    }

    /// The parts of a form as a strict server reads them: the lines of each head, and the content.
    fn parse(boundary: &str, body: &[u8]) -> Vec<(Vec<String>, Vec<u8>)> {
        let body = [b"\r\n", body].concat();
        let delimiter = format!("\r\n--{boundary}");
        let mut pieces = split(&body, delimiter.as_bytes());
        assert_eq!(pieces.remove(0), b"", "nothing comes before the first part");
        assert_eq!(pieces.pop().expect("an end"), b"--\r\n");
        let part = |piece: Vec<u8>| {
            let piece = piece.strip_prefix(b"\r\n").expect("a line").to_vec();
            let head_and_content = split(&piece, b"\r\n\r\n");
            let (head, content) = head_and_content.split_first().expect("a head");
            let head = String::from_utf8(head.clone()).expect("text");
            (
                head.split("\r\n").map(str::to_owned).collect(),
                content.join(&b"\r\n\r\n"[..]),
            )
        };
        pieces.into_iter().map(part).collect()
    }

    fn split(text: &[u8], by: &[u8]) -> Vec<Vec<u8>> {
        let mut pieces = vec![Vec::new()];
        let mut at = 0;
        while at < text.len() {
            if text[at..].starts_with(by) {
                pieces.push(Vec::new());
                at += by.len();
            } else {
                pieces.last_mut().expect("one").push(text[at]);
                at += 1;
            }
        }
        pieces
    }

    #[test]
    fn a_form_is_written_as_browsers_write_it() {
        let form = Multipart::new()
            .text("name", "Ada")
            .part("file", Part::new("content").file_name("a.txt"))
            .part(
                "typed",
                Part::new("{}").content_type(HeaderValue::from_static("text/json")),
            );
        let (boundary, body) = sent(form);
        let expected = format!(
            "--{boundary}\r\n\
             Content-Disposition: form-data; name=\"name\"\r\n\
             \r\n\
             Ada\r\n\
             --{boundary}\r\n\
             Content-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\
             Content-Type: application/octet-stream\r\n\
             \r\n\
             content\r\n\
             --{boundary}\r\n\
             Content-Disposition: form-data; name=\"typed\"\r\n\
             Content-Type: text/json\r\n\
             \r\n\
             {{}}\r\n\
             --{boundary}--\r\n"
        );
        assert_eq!(String::from_utf8(body).expect("text"), expected);
    }

    #[test]
    fn a_form_without_parts_is_its_end() {
        let (boundary, body) = sent(Multipart::default());
        assert_eq!(body, format!("--{boundary}--\r\n").as_bytes());
    }

    #[test]
    fn names_are_quoted_as_browsers_quote_them() {
        let form = Multipart::new().part(
            "a\"b\\c\nd\re\r\nf\u{e9}%22",
            Part::new("").file_name("a\"b\\c\nd\re\r\nf\u{e9}%22"),
        );
        let (boundary, body) = sent(form);
        let (head, _) = parse(&boundary, &body).remove(0);
        assert_eq!(
            head[0],
            "Content-Disposition: form-data; \
             name=\"a%22b\\c%0D%0Ad%0D%0Ae%0D%0Af\u{e9}%22\"; \
             filename=\"a%22b\\c%0Ad%0De%0D%0Af\u{e9}%22\""
        );
    }

    #[test]
    fn the_boundary_is_one_per_form_and_in_its_content_type() {
        let (one, other) = (Multipart::new(), Multipart::new());
        assert_ne!(one.boundary, other.boundary);
        assert_eq!(
            one.content_type(),
            format!("multipart/form-data; boundary={}", one.boundary).as_str()
        );
        let mut source = ReplayBody::from(one.text("a", "b")).into_source();
        let first = drain(&mut attempt(&mut source)).expect("whole");
        assert_eq!(drain(&mut attempt(&mut source)).expect("whole"), first);
    }

    #[test]
    fn a_form_is_its_weakest_part_and_has_its_length_where_all_have() {
        let form = |body: ReplayBody| {
            ReplayBody::from(Multipart::new().text("a", "b").part("c", Part::new(body)))
        };
        let bytes = form("abc".into());
        assert_eq!(bytes.replayability(), Replayability::Replayable);
        let len = bytes.size_hint().exact().expect("exact");
        let mut source = bytes.into_source();
        assert_eq!(
            drain(&mut attempt(&mut source)).expect("whole").0.len() as u64,
            len
        );
        let exact = form(ReplayBody::one_shot(Script::data(&["abc"]).exact(3)));
        assert_eq!(exact.size_hint().exact(), Some(len));
        assert_eq!(exact.state(), BodyState::Untouched);
        let stream = form(ReplayBody::one_shot(Script::data(&["abc"])));
        assert_eq!(stream.replayability(), Replayability::OneShot);
        assert_eq!(stream.size_hint().exact(), None);
        let mut source = stream.into_source();
        assert!(text(&mut attempt(&mut source)).contains("name=\"a\""));
        assert_eq!(
            source.state(),
            BodyState::Untouched,
            "its stream was not reached"
        );
        drain(&mut attempt(&mut source)).expect("whole");
        assert_eq!(source.state(), BodyState::Consumed);
    }

    #[test]
    fn nothing_of_a_form_is_printed() {
        let form = Multipart::new()
            .text("secret", "secret")
            .part("p", Part::new("secret"));
        assert_eq!(format!("{form:?}"), "Multipart { .. }");
        let part = Part::new("secret").file_name("secret");
        let body = "ReplayBody { replayability: Replayable, .. }";
        assert_eq!(format!("{part:?}"), format!("Part {{ body: {body}, .. }}"));
    }

    proptest! {
        #[test]
        fn no_name_and_no_content_makes_or_breaks_a_part(
            parts in prop::collection::vec((
                "[a\"\r\n;= -]{0,8}",
                prop::option::of("[a\"\r\n;= -]{0,8}"),
                prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'-'), any::<u8>()], 0..20),
            ), 0..5),
        ) {
            let mut form = Multipart::new();
            for (name, file_name, content) in &parts {
                let part = Part::new(Bytes::from(content.clone()));
                form = form.part(name.clone(), match file_name {
                    Some(file_name) => part.file_name(file_name.clone()),
                    None => part,
                });
            }
            let (boundary, body) = sent(form);
            let read = parse(&boundary, &body);
            prop_assert_eq!(read.len(), parts.len());
            for ((name, file_name, content), (head, got)) in parts.iter().zip(read) {
                prop_assert_eq!(&got, content);
                prop_assert_eq!(head.len(), if file_name.is_some() { 2 } else { 1 });
                let quotes = head[0].matches('"').count();
                prop_assert_eq!(quotes, if file_name.is_some() { 4 } else { 2 }, "{} in {:?}", name, head);
            }
        }
    }
}
