//! Bodies of any type as one.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use pin_project_lite::pin_project;

use crate::BoxError;

/// Any body, its type erased.
pub(super) type Erased = UnsyncBoxBody<Bytes, BoxError>;

pub(super) fn erase<B>(body: B) -> Erased
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    UnsyncBoxBody::new(Uniform { body })
}

pin_project! {
    /// `BodyExt::map_frame` would lose the size hint.
    struct Uniform<B> {
        #[pin]
        body: B,
    }
}

impl<B> Body for Uniform<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // Data that are `Bytes` already are not copied.
        let uniform =
            |frame: Frame<B::Data>| frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
        self.project()
            .body
            .poll_frame(cx)
            .map_ok(uniform)
            .map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
