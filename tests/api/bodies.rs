//! Request and response bodies.

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::{Empty, Full};
use tower_http_retry::*;

fn made<B>(stream: fn() -> B) -> [ReplayBody; 9]
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    [
        ReplayBody::empty(),
        ReplayBody::bytes("bytes"),
        ReplayBody::one_shot(stream()),
        ReplayBody::buffered(stream(), ReplayBody::DEFAULT_BUFFER_LIMIT),
        ReplayBody::encoded(7, |number| Ok::<_, std::fmt::Error>(number.to_string())),
        ReplayBody::factory(Replayability::Reopenable, stream),
        ReplayBody::reopenable(move || async move { Ok::<_, std::io::Error>(stream()) }),
        ReplayBody::reopenable(async || Ok::<_, std::io::Error>(Empty::<Bytes>::new())),
        ReplayBody::chain([ReplayBody::default(), ReplayBody::from("part")]),
    ]
}

fn converted() -> [ReplayBody; 10] {
    [
        Bytes::new().into(),
        BytesMut::new().into(),
        Vec::new().into(),
        Box::<[u8]>::default().into(),
        String::new().into(),
        "text".into(),
        (&b"bytes"[..]).into(),
        ().into(),
        Full::<Bytes>::default().into(),
        Empty::<Bytes>::new().into(),
    ]
}

fn asked(body: &mut ReplayBody) -> bool {
    let _: usize = ReplayBody::DEFAULT_BUFFER_LIMIT;
    let _: fn(&ReplayBody) -> Replayability = ReplayBody::replayability;
    let _: fn(&ReplayBody) -> BodyState = ReplayBody::state;
    body.sits_on_client();
    body.state().is_replayable()
}

/// Exhaustive.
fn marks(mark: Replayability) -> &'static str {
    match mark {
        Replayability::OneShot => "ONE_SHOT",
        Replayability::Reopenable => "REOPENABLE",
        Replayability::Replayable => "REPLAYABLE",
    }
}

fn states() -> [BodyState; 6] {
    [
        BodyState::Empty,
        BodyState::Replayable,
        BodyState::Reopenable,
        BodyState::Untouched,
        BodyState::Consumed,
        BodyState::Overflowed,
    ]
}

fn is_body<B: Body<Data = Bytes, Error = E>, E>() {}

fn the_types<B: Body>()
where
    B::Error: Into<BoxError>,
{
    is_body::<ReplayBody, BoxError>();
    is_body::<ResponseBody<B>, BodyError>();
    is_body::<BoxedBody, BodyError>();
}

fn broken(error: &BodyError) -> (Evidence, &Failure, RetryDenied, u64) {
    (
        error.evidence(),
        error.failure(),
        error.denied(),
        error.delivered_bytes(),
    )
}

#[test]
fn marks_are_ordered_weakest_first_and_print_as_named() {
    assert!(Replayability::OneShot < Replayability::Reopenable);
    assert!(Replayability::Reopenable < Replayability::Replayable);
    for mark in [
        Replayability::OneShot,
        Replayability::Reopenable,
        Replayability::Replayable,
    ] {
        assert_eq!(mark.to_string(), marks(mark));
    }
}

#[cfg(feature = "fs")]
fn file() -> ReplayBody {
    let file: FileBody = ReplayBody::file("a/path");
    file.clone().range(0, 1).into()
}

#[cfg(feature = "multipart")]
fn multipart(stream: ReplayBody) -> (http::HeaderValue, ReplayBody) {
    let part = Part::new(stream)
        .file_name("picture.png")
        .content_type(http::HeaderValue::from_static("image/png"));
    let form = Multipart::new()
        .text("name", String::from("value"))
        .part("picture", part)
        .part("empty", Part::new(()));
    let _ = Multipart::default();
    (form.content_type(), form.into())
}
