//! Holds a body to its length, so that neither a short nor a long one looks fine.

use std::task::{Context, Poll};

use http_body::SizeHint;

use super::{PolledFrame, content::Content, error::Fault, trace::Recorder};

/// An attempt's body with its length watched.
///
/// HTTP/2 clients end a stream that is too short as if it were whole, and HTTP/1 clients cut one that is too
/// long (evidence D8s, A8), so both become errors here, before the client can send them.
pub(super) struct Metered {
    content: Content,
    /// What `content-length` or the body itself promised.
    expected: Option<u64>,
    sent: u64,
    over: bool,
}

impl Metered {
    pub(super) fn new(content: Content, declared: Option<u64>) -> Self {
        let start = content.size_hint();
        let expected = declared.or(start.exact());
        Self {
            content,
            expected,
            sent: 0,
            over: false,
        }
    }

    pub(super) fn content(&self) -> &Content {
        &self.content
    }

    pub(super) fn into_content(self) -> Content {
        self.content
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        recorder: Option<&Recorder>,
    ) -> PolledFrame {
        if self.over {
            return Poll::Ready(None);
        }
        let polled = self.content.poll_frame(cx, recorder);
        let fault = match &polled {
            Poll::Pending => None,
            Poll::Ready(Some(Ok(frame))) => match frame.data_ref() {
                Some(data) => {
                    self.sent = self.sent.saturating_add(data.len() as u64);
                    self.long()
                }
                None => {
                    self.over = true;
                    self.short()
                }
            },
            Poll::Ready(Some(Err(_))) => {
                self.over = true;
                None
            }
            Poll::Ready(None) => {
                self.over = true;
                self.short()
            }
        };
        match fault {
            None => polled,
            Some(fault) => {
                self.over = true;
                Poll::Ready(Some(Err(fault.into())))
            }
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.over || (self.content.is_end_stream() && self.short().is_none())
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }

    fn short(&self) -> Option<Fault> {
        let expected = self.expected.filter(|expected| self.sent < *expected)?;
        Some(Fault::Short {
            expected,
            sent: self.sent,
        })
    }

    fn long(&self) -> Option<Fault> {
        let expected = self.expected.filter(|expected| self.sent > *expected)?;
        Some(Fault::Long { expected })
    }
}

/// What is left of a size after `sent` bytes.
pub(super) fn less(start: &SizeHint, sent: u64) -> SizeHint {
    let mut hint = SizeHint::new();
    if let Some(upper) = start.upper() {
        hint.set_upper(upper.saturating_sub(sent));
    }
    hint.set_lower(start.lower().saturating_sub(sent));
    hint
}
