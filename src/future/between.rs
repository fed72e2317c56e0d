//! From one attempt to the next: the failed response is read out, a credential refreshed, time
//! passes, an instance gets ready, and the body is opened.
//!
//! Nothing of a connection or a permit is held here, and the last real outcome is kept: whatever
//! ends the call, the caller gets that.

use std::task::{Context, Poll};

use http::{Request, Response, request};
use http_body::Body;
use sync_wrapper::SyncWrapper;
use tokio::time::Instant;
use tower::Service;

use super::{Drained, Go, Run, Stage, Woken};
use crate::BoxError;
use crate::body::{OpenError, Opened, Opening, ReplayBody};
use crate::budget::CallBudget;
use crate::call::Prepared;
use crate::deadline::after;
use crate::ended::{Ended, Last, earlier_error};
use crate::evidence::{Failure, FailureKind};
use crate::judge::Wait;
use crate::policy::{Policy, RetryDenied, Step};
use crate::refresh::Refreshing;
use crate::report::{SharedError, shared};
use crate::response::{Ahead, Until};

pub(super) struct Discarded<B> {
    pub(super) ahead: Ahead<B>,
    /// `None`: there is no end to the time.
    pub(super) until: Option<Instant>,
    pub(super) wait: Wait,
    pub(super) drained: Option<Drained>,
}

pub(super) struct Stale<B> {
    pub(super) refreshing: Refreshing,
    pub(super) between: Between<B>,
}

pub(super) struct Unready<S, B> {
    pub(super) service: S,
    pub(super) between: Between<B>,
}

/// What a call keeps between two attempts.
pub(super) struct Between<B> {
    pub(super) last: Last<B>,
    pub(super) wait: Wait,
    pub(super) drained: Option<Drained>,
}

pub(super) struct Unopened<S, B> {
    pub(super) opening: SyncWrapper<Opening<ReplayBody>>,
    pub(super) head: request::Parts,
    pub(super) service: S,
    /// `None`: it is the first attempt.
    pub(super) between: Option<Between<B>>,
}

impl<S, P, B> Run<'_, S, P, B>
where
    S: Service<Request<ReplayBody>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
    P: Policy,
{
    /// Another attempt follows. First the failed response is read out, so that its connection can be
    /// used again; while a new credential is fetched it stays whole, whatever its size.
    pub(super) fn again(
        &mut self,
        ended: Ended<B>,
        earlier: Option<Last<B>>,
        wait: Wait,
    ) -> Go<S, B> {
        let discard = self.shared.settings.discard;
        match ended {
            Ended::Response(head, body) if earlier.is_none() && !body.is_end_stream() => {
                if discard.bytes() == 0 {
                    return self.discarded(Last::Response(head, body), wait);
                }
                let until = after(wait.from, discard.time());
                let ahead = Ahead::new(head, body);
                Go::To(Stage::Discarding(Box::new(Discarded {
                    ahead,
                    until,
                    wait,
                    drained: None,
                })))
            }
            Ended::Response(..) | Ended::Broken(..) | Ended::Failure(..) => {
                let last = earlier.unwrap_or(ended.into());
                self.discarded(last, wait)
            }
        }
    }

    pub(super) fn discarding(
        &mut self,
        cx: &mut Context<'_>,
        mut discarded: Box<Discarded<B>>,
    ) -> Go<S, B> {
        let Discarded {
            ahead,
            until,
            drained,
            ..
        } = &mut *discarded;
        let bytes = self.shared.settings.discard.bytes();
        if ahead.poll_read(cx, Until::Bytes(bytes)).is_pending() {
            match self.poll_between(cx, drained, *until) {
                Poll::Pending => return Go::Stay(Stage::Discarding(discarded)),
                Poll::Ready(Woken::Time) => {}
                Poll::Ready(Woken::End(reason, step)) => {
                    let (head, body) = discarded.ahead.into_response();
                    return self.stop(Last::Response(head, body), reason, step);
                }
            }
        }
        let Discarded { ahead, wait, .. } = *discarded;
        let (head, body) = ahead.into_response();
        self.discarded(Last::Response(head, body), wait)
    }

    fn discarded(&mut self, last: Last<B>, wait: Wait) -> Go<S, B> {
        if !wait.refresh {
            return self.wait(Between {
                last: last.let_go(),
                wait,
                drained: None,
            });
        }
        match (self.judge().refresh(&last), last) {
            (Some(refreshing), last) => Go::To(Stage::Refreshing(Box::new(Stale {
                refreshing,
                between: Between {
                    last,
                    wait,
                    drained: None,
                },
            }))),
            (None, last) => self.stop(last, RetryDenied::Unauthorized, Step::Rule),
        }
    }

    pub(super) fn refreshing(
        &mut self,
        cx: &mut Context<'_>,
        mut stale: Box<Stale<B>>,
    ) -> Go<S, B> {
        match stale.refreshing.as_mut().poll(cx) {
            Poll::Ready(Ok(credential)) => {
                self.call.progress.credential = Some(credential);
                let Between {
                    last,
                    wait,
                    drained,
                } = stale.between;
                self.wait(Between {
                    last: last.let_go(),
                    wait,
                    drained,
                })
            }
            Poll::Ready(Err(error)) => {
                self.note(|attempt| attempt.refresh_error = Some(error));
                self.stop(stale.between.last, RetryDenied::Unauthorized, Step::Rule)
            }
            Poll::Pending => match self.poll_between(cx, &mut stale.between.drained, None) {
                Poll::Pending => Go::Stay(Stage::Refreshing(stale)),
                // Without a time to wait for, only an end wakes it.
                Poll::Ready(Woken::Time) => Go::To(Stage::Refreshing(stale)),
                Poll::Ready(Woken::End(reason, step)) => {
                    self.stop(stale.between.last, reason, step)
                }
            },
        }
    }

    /// Nothing is held from here. A wait of zero touches no timer.
    fn wait(&mut self, between: Between<B>) -> Go<S, B> {
        if between.wait.is_over() {
            return self.ready(between);
        }
        Go::To(Stage::Waiting(Box::new(between)))
    }

    pub(super) fn waiting(
        &mut self,
        cx: &mut Context<'_>,
        mut between: Box<Between<B>>,
    ) -> Go<S, B> {
        let wake = between.wait.wake();
        match self.poll_between(cx, &mut between.drained, wake) {
            Poll::Pending => {
                self.call.kept.shrink();
                Go::Stay(Stage::Waiting(between))
            }
            Poll::Ready(Woken::Time) => self.ready(*between),
            Poll::Ready(Woken::End(reason, step)) => self.stop(between.last, reason, step),
        }
    }

    fn ready(&mut self, between: Between<B>) -> Go<S, B> {
        self.call
            .progress
            .begin_attempt(between.wait.time, &self.shared.settings);
        let service = self.shared.instance();
        Go::To(Stage::Readying(Box::new(Unready { service, between })))
    }

    pub(super) fn readying(
        &mut self,
        cx: &mut Context<'_>,
        mut unready: Box<Unready<S, B>>,
    ) -> Go<S, B> {
        // Also where everything is ready at once: no new attempt while draining, or too late.
        if let Some((reason, step)) = self.judge().ends_before_attempt() {
            return self.stop(unready.between.last, reason, step);
        }
        match unready.service.poll_ready(cx) {
            Poll::Ready(Ok(())) => {
                let Unready { service, between } = *unready;
                self.open(service, between)
            }
            Poll::Ready(Err(error)) => {
                let error: SharedError = shared(error.into());
                self.note(|attempt| attempt.readiness_error = Some(error));
                let reason = RetryDenied::Failure(FailureKind::Readiness);
                self.stop(unready.between.last, reason, Step::Rule)
            }
            Poll::Pending => {
                let limit = self.call.progress.attempt_deadline;
                match self.poll_between(cx, &mut unready.between.drained, limit) {
                    Poll::Pending => Go::Stay(Stage::Readying(unready)),
                    Poll::Ready(Woken::Time) => self.never_sent(unready.between.last),
                    Poll::Ready(Woken::End(reason, step)) => {
                        self.stop(unready.between.last, reason, step)
                    }
                }
            }
        }
    }

    fn open(&mut self, service: S, between: Between<B>) -> Go<S, B> {
        let Prepared { head, body } = self.call.next_request(&self.shared.settings);
        match body {
            Opened::Body(body) => self.send(service, head, body, Some(between)),
            Opened::Opening(opening) => {
                let opening = SyncWrapper::new(opening);
                let unopened = Unopened {
                    opening,
                    head,
                    service,
                    between: Some(between),
                };
                Go::To(Stage::Opening(Box::new(unopened)))
            }
            Opened::Failed(error) => self.not_opened(error),
        }
    }

    pub(super) fn opening(
        &mut self,
        cx: &mut Context<'_>,
        mut unopened: Box<Unopened<S, B>>,
    ) -> Go<S, B> {
        match unopened.opening.get_mut().as_mut().poll(cx) {
            Poll::Ready(Ok(body)) => {
                let Unopened {
                    head,
                    service,
                    between,
                    ..
                } = *unopened;
                // Opening may have taken until now.
                return match between {
                    Some(between) => match self.judge().ends_before_attempt() {
                        Some((reason, step)) => self.stop(between.last, reason, step),
                        None => self.send(service, head, body, Some(between)),
                    },
                    None if self.call.progress.is_late() => {
                        self.too_late(FailureKind::DeadlineReached)
                    }
                    None => self.send(service, head, body, None),
                };
            }
            Poll::Ready(Err(error)) => return self.not_opened(error),
            Poll::Pending => {}
        }
        let Some(between) = &mut unopened.between else {
            return match self.call.progress.poll_limit(cx) {
                Poll::Pending => Go::Stay(Stage::Opening(unopened)),
                Poll::Ready(limit) => self.too_late(limit),
            };
        };
        let limit = self.call.progress.attempt_deadline;
        let woken = self.poll_between(cx, &mut between.drained, limit);
        match (woken, unopened.between.take()) {
            (Poll::Ready(Woken::Time), Some(between)) => self.never_sent(between.last),
            (Poll::Ready(Woken::End(reason, step)), Some(between)) => {
                self.stop(between.last, reason, step)
            }
            (Poll::Pending | Poll::Ready(_), between) => {
                unopened.between = between;
                Go::Stay(Stage::Opening(unopened))
            }
        }
    }

    /// The time of a first attempt was up before it was sent.
    fn too_late(&mut self, limit: FailureKind) -> Go<S, B> {
        self.call.progress.stop_clock();
        let ended = Ended::Failure(Failure::not_sent(limit), None);
        self.ended(ended, None, None)
    }

    /// Opening fails before anything is sent; for a retry that is an outcome of its own: the body
    /// is no longer the one that was sent first.
    fn not_opened(&mut self, error: OpenError) -> Go<S, B> {
        let (kind, source) = why_not_opened(error);
        self.ended(
            Ended::Failure(Failure::not_sent(kind), Some(source)),
            None,
            None,
        )
    }

    /// A retry's time was up before it was sent. It counts as an attempt, but never takes the place
    /// of the last real outcome.
    fn never_sent(&mut self, last: Last<B>) -> Go<S, B> {
        let failure = Failure::not_sent(FailureKind::ResponseTimeout);
        self.ended(Ended::Failure(failure, None), None, Some(last))
    }

    fn send(
        &mut self,
        service: S,
        mut head: request::Parts,
        body: ReplayBody,
        between: Option<Between<B>>,
    ) -> Go<S, B> {
        let progress = &mut self.call.progress;
        if let Some(token) = progress.token.take() {
            token.spend();
        }
        if let Some(Between { last, .. }) = between {
            let (response, error) = last.into_parts();
            if let Some(response) = response {
                let budget = &mut progress.budget;
                CallBudget::carry(budget, &response.extensions, &mut head.extensions);
            }
            progress.prior_error = error
                .and_then(earlier_error)
                .or(progress.prior_error.take());
        }
        Go::Send(service, Request::from_parts(head, body))
    }
}

pub(super) fn why_not_opened(error: OpenError) -> (FailureKind, BoxError) {
    match error {
        OpenError::Failed(source) => (FailureKind::RequestBody, source),
        OpenError::Changed(source) => (FailureKind::BodyChanged, source),
    }
}
