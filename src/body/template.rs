//! Bodies that are made anew for every attempt.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
};

use http_body::{Body, SizeHint};
use sync_wrapper::SyncWrapper;

use super::{
    BodyState, OpenError, PolledFrame, Replayability, content::Content, erased::Erased,
    error::Fault, metered::less, source::Opening,
};

/// What makes the bodies. All attempts of a call share one, so that it can compare them.
pub(super) trait Template: Send + Sync + 'static {
    /// [`Replayability::Replayable`] or [`Replayability::Reopenable`].
    fn replayability(&self) -> Replayability;

    /// What is known of the size before the body is made.
    fn size_hint(&self) -> SizeHint {
        SizeHint::new()
    }

    fn open(self: Arc<Self>) -> Open;
}

/// The content of an attempt, or the way to it.
pub(super) enum Open {
    Now(Result<Content, OpenError>),
    Later(Opening<Content>),
}

pub(super) fn state(template: &dyn Template) -> BodyState {
    match template.replayability() {
        Replayability::OneShot => BodyState::Untouched,
        Replayability::Reopenable => BodyState::Reopenable,
        Replayability::Replayable => BodyState::Replayable,
    }
}

/// A body that nobody has opened: it goes through no retry layer, or has not yet.
pub(super) struct Unopened {
    template: Arc<dyn Template>,
    opening: Option<SyncWrapper<Opening<Content>>>,
}

impl Unopened {
    pub(super) fn new(template: impl Template) -> Self {
        Self {
            template: Arc::new(template),
            opening: None,
        }
    }

    pub(super) fn template(&self) -> &dyn Template {
        &*self.template
    }

    pub(super) fn into_template(self) -> Arc<dyn Template> {
        self.template
    }

    /// Without a layer nobody opens the body before it is sent, so its first poll does.
    pub(super) fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<Content, OpenError>> {
        let opening = match &mut self.opening {
            Some(opening) => opening,
            None => match Arc::clone(&self.template).open() {
                Open::Now(content) => return Poll::Ready(content),
                Open::Later(opening) => self.opening.insert(SyncWrapper::new(opening)),
            },
        };
        let content = ready!(opening.get_mut().as_mut().poll(cx));
        self.opening = None;
        Poll::Ready(content)
    }
}

/// A body that was made for this attempt, and what makes the next.
pub(super) struct Made {
    body: SyncWrapper<Erased>,
    // What the body says can be asked only of an exclusive one: it need not be `Sync`.
    at_end: bool,
    hint: SizeHint,
    polled: bool,
    template: Arc<dyn Template>,
}

impl Made {
    pub(super) fn content(body: Erased, template: Arc<dyn Template>) -> Content {
        let (at_end, hint) = (body.is_end_stream(), body.size_hint());
        let body = SyncWrapper::new(body);
        Content::Made(Box::new(Self {
            body,
            at_end,
            hint,
            polled: false,
            template,
        }))
    }

    pub(super) fn template(&self) -> &Arc<dyn Template> {
        &self.template
    }

    pub(super) fn is_untouched(&self) -> bool {
        !self.polled
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        self.polled = true;
        let body = self.body.get_mut();
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        self.at_end = frame.is_none() || body.is_end_stream();
        self.hint = body.size_hint();
        Poll::Ready(frame)
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.at_end
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        less(&self.hint, 0)
    }
}

/// The exact length of the first body that a template made; none if it did not say.
#[derive(Default)]
pub(super) struct FirstLength(OnceLock<Option<u64>>);

impl FirstLength {
    /// A later body of another length is another payload, which is never sent as a replay.
    pub(super) fn check(&self, body: &Erased) -> Result<(), OpenError> {
        let now = body.size_hint().exact();
        let first = *self.0.get_or_init(|| now);
        if first == now {
            Ok(())
        } else {
            Err(OpenError::Changed(Fault::Resized.into()))
        }
    }
}
