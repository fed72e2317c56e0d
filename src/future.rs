//! One call, as a state machine.
//!
//! ```text
//!            ┌──────────┐  opened   ┌─────────┐  head   ┌─────────┐
//!  call ───▶ │ Opening  │ ────────▶ │ Calling │ ──────▶ │ Reading │ (Delivery::AtFirstByte, Whole)
//!            └──────────┘           └─────────┘         └─────────┘
//!                 ▲                      │                   │
//!                 │                      ▼                   ▼
//!                 │               judge: the nine steps, then the gates ───▶ the answer
//!                 │                      │           │              ▲
//!                 │                retry │           ▼ ambiguous    │
//!                 │                      │     ┌─────────────┐      │
//!                 │                      │◀─── │ Reconciling │ ─────┤
//!                 │                      ▼     └─────────────┘      │
//!            ┌──────────┐  ┌─────────┐  ┌────────────┐  ┌────────────┐
//!            │ Readying │◀─│ Waiting │◀─│ Refreshing │◀─│ Discarding │──▶ drain, deadline:
//!            └──────────┘  └─────────┘  └────────────┘  └────────────┘    the last real outcome
//! ```
//!
//! From `Discarding` to `Readying` no connection and no permit is held, and the last real outcome
//! is kept: whatever ends the call there, the caller gets that outcome. Dropping the future at any
//! point stops everything; a token whose attempt was not sent goes back.

mod between;

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response, response};
use http_body::Body;
use pin_project_lite::pin_project;
use sync_wrapper::SyncWrapper;
use tokio::time::Instant;
use tower::Service;

#[cfg(feature = "reqwest")]
pub use crate::adapter::ReqwestFuture;

use self::between::{Between, Discarded, Stale, Unopened, Unready, why_not_opened};
use crate::BoxError;
use crate::attempt::Retried;
use crate::body::ReplayBody;
use crate::call::{Call, Held, earlier};
use crate::ended::{Ended, Last};
use crate::error::Error;
use crate::evidence::{Failure, FailureKind};
use crate::judge::{Judge, Ruling};
use crate::policy::{Policy, RetryDenied, Step, Verdict};
use crate::reconcile::{Asking, Reconciled};
use crate::report::{AttemptReport, shared};
use crate::response::{Ahead, Fresh, ResponseBody, Until, is_bodiless};
use crate::shared::Shared;

pin_project! {
    /// A call in progress. Dropping it stops everything.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, P, B>
    where
        S: Service<Request<ReplayBody>>,
    {
        // The inner service has an attempt: this comes before every stage.
        #[pin]
        attempt: Option<S::Future>,
        stage: Stage<S, B>,
        // `None`: the answer was given, or it is being polled.
        call: Option<Box<Call>>,
        shared: Arc<Shared<S, P>>,
    }
}

/// Where a call is, named after what it waits for. Boxed, so that a call that succeeds at once
/// carries nothing of it.
enum Stage<S, B> {
    /// Nothing: the attempt was over before it was sent.
    Unsent(Box<Ended<B>>),
    /// The request body is being opened; the ready service waits with it.
    Opening(Box<Unopened<S, B>>),
    /// The head is here; its body is read before it is delivered.
    Reading(Box<Ahead<B>>),
    /// Somebody is asked what became of an ambiguous attempt.
    Reconciling(Box<Question<B>>),
    /// The failed response is read out, so that its connection can be used again.
    Discarding(Box<Discarded<B>>),
    /// A new credential is on its way.
    Refreshing(Box<Stale<B>>),
    /// Time passes.
    Waiting(Box<Between<B>>),
    /// The instance that will be called is asked for readiness.
    Readying(Box<Unready<S, B>>),
    /// Nothing: an attempt is on its way, or the answer was given.
    Done,
}

struct Question<B> {
    asking: Asking,
    ended: Ended<B>,
    /// The last real outcome, where this attempt never came to be one.
    earlier: Option<Last<B>>,
    verdict: Verdict,
    drained: Option<Drained>,
}

type Drained = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What comes of a stage.
enum Go<S, B> {
    /// It is pending: the same stage, again.
    Stay(Stage<S, B>),
    /// On to another stage.
    To(Stage<S, B>),
    /// The request goes out, by a service that is ready.
    Send(S, Request<ReplayBody>),
    /// The call is over.
    Answer(Result<Response<ResponseBody<B>>, Error>),
}

/// What a stay between two attempts came to.
enum Woken {
    /// What was waited for.
    Time,
    /// Something that ends the call.
    End(RetryDenied, Step),
}

impl<S, P, B> ResponseFuture<S, P, B>
where
    S: Service<Request<ReplayBody>, Response = Response<B>> + Clone,
    P: Policy,
{
    /// A call whose first attempt is on its way.
    #[inline]
    pub(crate) fn sent(attempt: S::Future, call: Box<Call>, shared: Arc<Shared<S, P>>) -> Self {
        Self {
            attempt: Some(attempt),
            stage: Stage::Done,
            call: Some(call),
            shared,
        }
    }

    /// A call whose first attempt cannot be sent yet, or not at all. `ready`: the instance that the
    /// caller made ready.
    #[cold]
    pub(crate) fn held(
        mut call: Box<Call>,
        request: Request<ReplayBody>,
        held: Held,
        shared: Arc<Shared<S, P>>,
        ready: &mut S,
    ) -> Self {
        // The instance that was ready is the one that will be called. Where nothing is sent it is
        // let go, with whatever it has reserved: the caller takes it for called.
        let service = mem::replace(ready, shared.instance());
        let stage = match held {
            Held::Late => unsent(FailureKind::DeadlineReached, None),
            Held::Opening(opening) => {
                call.progress.start_clock();
                let (head, _) = request.into_parts();
                Stage::Opening(Box::new(Unopened {
                    opening: SyncWrapper::new(opening),
                    head,
                    service,
                    between: None,
                }))
            }
            Held::Failed(error) => {
                let (kind, source) = why_not_opened(error);
                unsent(kind, Some(source))
            }
        };
        Self {
            attempt: None,
            stage,
            call: Some(call),
            shared,
        }
    }
}

impl<S, P, B> Future for ResponseFuture<S, P, B>
where
    S: Service<Request<ReplayBody>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
    P: Policy,
{
    type Output = Result<Response<ResponseBody<B>>, Error>;

    /// The way of almost every call, whose first attempt is the answer. It is small, so that it
    /// becomes a part of whoever polls: to move a response through one more frame costs more than all
    /// that is decided about it.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.as_mut().project();
        // Polled again after its answer, or after a panic, it has nothing more to say.
        let Some(mut call) = this.call.take() else {
            return Poll::Pending;
        };
        let polled = match this.attempt.as_mut().as_pin_mut() {
            Some(attempt) => match attempt.poll(cx) {
                Poll::Ready(Ok(mut response)) => {
                    this.attempt.set(None);
                    match at_once(call, this.shared, &mut response) {
                        Ok(fresh) => {
                            let answer = response.map(|body| ResponseBody::fresh(body, fresh));
                            return Poll::Ready(Ok(answer));
                        }
                        Err(call) => return self.go_on(cx, call, Some(Poll::Ready(Ok(response)))),
                    }
                }
                Poll::Pending if call.progress.is_unlimited() => {
                    call.progress.start_clock();
                    *this.call = Some(call);
                    return Poll::Pending;
                }
                polled @ (Poll::Ready(Err(_)) | Poll::Pending) => Some(polled),
            },
            None => None,
        };
        self.go_on(cx, call, polled)
    }
}

impl<S, P, B> ResponseFuture<S, P, B>
where
    S: Service<Request<ReplayBody>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
    P: Policy,
{
    /// From what polling the attempt gave, if there is one, to where the call has to wait or ends.
    #[inline(never)]
    fn go_on(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut call: Box<Call>,
        mut polled: Option<Poll<Result<Response<B>, S::Error>>>,
    ) -> Poll<Result<Response<ResponseBody<B>>, Error>> {
        let mut this = self.project();
        loop {
            let mut run = Run {
                call: &mut call,
                shared: this.shared,
                body: PhantomData,
            };
            let go = match polled.take() {
                Some(Poll::Ready(Ok(response))) => {
                    this.attempt.set(None);
                    run.call.progress.attempt_deadline = None;
                    let (mut head, body) = response.into_parts();
                    if run.shared.settings.delivery.until().is_some() {
                        run.responded(head, body)
                    } else if let Some(ruling) = run.judge().respond(&mut head) {
                        let body = run.counted(&head, body);
                        run.follow(ruling, Ended::Response(head, body), None)
                    } else {
                        let body = run.counted(&head, body);
                        call.recycle();
                        return Poll::Ready(Ok(Response::from_parts(head, body)));
                    }
                }
                Some(Poll::Ready(Err(error))) => {
                    // Dropped before its error is read: only then the body witness has seen
                    // everything.
                    this.attempt.set(None);
                    run.failed(error.into())
                }
                Some(Poll::Pending) => match run.overdue(cx) {
                    Poll::Ready(limit) => {
                        this.attempt.set(None);
                        let ended = run.judge().timed_out(limit);
                        run.ended(ended, None, None)
                    }
                    Poll::Pending => Go::Stay(Stage::Done),
                },
                None => match mem::replace(this.stage, Stage::Done) {
                    Stage::Unsent(ended) => run.ended(*ended, None, None),
                    Stage::Opening(unopened) => run.opening(cx, unopened),
                    Stage::Reading(ahead) => run.reading(cx, ahead),
                    Stage::Reconciling(question) => run.reconciling(cx, question),
                    Stage::Discarding(discarded) => run.discarding(cx, discarded),
                    Stage::Refreshing(stale) => run.refreshing(cx, stale),
                    Stage::Waiting(between) => run.waiting(cx, between),
                    Stage::Readying(unready) => run.readying(cx, unready),
                    // Never here: without an attempt there is a stage.
                    Stage::Done => Go::Stay(Stage::Done),
                },
            };
            match go {
                Go::Stay(stage) => {
                    *this.stage = stage;
                    *this.call = Some(call);
                    return Poll::Pending;
                }
                Go::To(stage) => *this.stage = stage,
                Go::Send(mut service, request) => {
                    this.attempt.set(Some(service.call(request)));
                    polled = this
                        .attempt
                        .as_mut()
                        .as_pin_mut()
                        .map(|attempt| attempt.poll(cx));
                }
                Go::Answer(answer) => return Poll::Ready(answer),
            }
        }
    }
}

/// Whether a response ends its call at once, and then what its body is to be: a first attempt that
/// is accepted, where nobody observes it and its body is not read first.
#[inline(never)]
fn at_once<S, P, B>(
    mut call: Box<Call>,
    shared: &Shared<S, P>,
    response: &mut Response<B>,
) -> Result<Fresh, Box<Call>>
where
    P: Policy,
{
    let Shared {
        policy, settings, ..
    } = shared;
    let judge = Judge {
        call: &mut call,
        policy,
        settings,
    };
    if settings.delivery.until().is_some() || !judge.accepts_at_once(response) {
        return Err(call);
    }
    let fresh = call.fresh_body(settings, response.status(), response.headers());
    call.recycle();
    Ok(fresh)
}

/// A call, for the time of one poll.
struct Run<'a, S, P, B> {
    call: &'a mut Call,
    shared: &'a Arc<Shared<S, P>>,
    body: PhantomData<fn() -> B>,
}

impl<S, P, B> Run<'_, S, P, B>
where
    S: Service<Request<ReplayBody>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
    P: Policy,
{
    /// The attempt is pending: ready when it may not take longer.
    fn overdue(&mut self, cx: &mut Context<'_>) -> Poll<FailureKind> {
        let progress = &mut self.call.progress;
        progress.start_clock();
        progress.poll_limit(cx)
    }

    /// The inner service failed. A layer below may have failed with a whole response: the third
    /// answer to one is an answer to judge here.
    fn failed(&mut self, error: BoxError) -> Go<S, B> {
        let witness = &self.call.progress.witness;
        let error: BoxError = match error.downcast::<Error>() {
            Ok(error) if error.is_of(witness) => {
                let report = error.report().clone();
                match error.into_response_of::<B>() {
                    Ok((response, retried)) => {
                        let (mut head, body) = response.into_parts();
                        // What it knows of the attempts before this response.
                        head.extensions.insert(report);
                        if retried {
                            head.extensions.insert(Retried);
                        }
                        let body = self.counted(&head, body);
                        return self.ended(Ended::Response(head, body), None, None);
                    }
                    Err(error) => error.into(),
                }
            }
            // Of a side call: its response is no answer to this request.
            Ok(error) => error,
            Err(error) => error,
        };
        let ended = self.judge().failed(error);
        self.ended(ended, None, None)
    }

    /// A response whose body is read before it is delivered, if it has one.
    fn responded(&mut self, head: response::Parts, body: B) -> Go<S, B> {
        self.call.progress.stop_clock();
        let body = self.counted(&head, body);
        if is_bodiless(self.call.kept.method(), head.status) || body.is_end_stream() {
            let whole: Option<&[u8]> = match self.shared.settings.delivery.until() {
                Some(Until::Bytes(_)) => Some(&[]),
                Some(Until::FirstFrame) | None => None,
            };
            return self.ended(Ended::Response(head, body), whole, None);
        }
        Go::To(Stage::Reading(Box::new(Ahead::new(head, body))))
    }

    fn counted(&self, head: &response::Parts, body: B) -> ResponseBody<B> {
        let settings = &self.shared.settings;
        let fresh = self.call.fresh_body(settings, head.status, &head.headers);
        ResponseBody::fresh(body, fresh)
    }

    /// Only the deadline cuts this short: the attempt timeout was for the headers.
    fn reading(&mut self, cx: &mut Context<'_>, mut ahead: Box<Ahead<B>>) -> Go<S, B> {
        let until = self
            .shared
            .settings
            .delivery
            .until()
            .unwrap_or(Until::FirstFrame);
        if ahead.poll_read(cx, until).is_pending() {
            match self.call.progress.poll_limit(cx) {
                Poll::Pending => return Go::Stay(Stage::Reading(ahead)),
                Poll::Ready(limit) => ahead.cut(limit),
            }
        }
        let whole = match until {
            Until::Bytes(limit) => ahead.whole(limit),
            Until::FirstFrame => None,
        };
        let failure = ahead.failure();
        let (head, body) = ahead.into_response();
        let ended = match failure {
            Some(failure) => Ended::Broken(head, body, failure),
            None => Ended::Response(head, body),
        };
        self.ended(ended, whole.as_deref(), None)
    }

    /// An attempt is over: judge it. `earlier` is the last real outcome, where this attempt never
    /// came to be one; the caller gets that, should there be no other.
    fn ended(
        &mut self,
        ended: Ended<B>,
        whole: Option<&[u8]>,
        earlier: Option<Last<B>>,
    ) -> Go<S, B> {
        let ruling = self.judge().rule(ended.outcome(), whole);
        self.follow(ruling, ended, earlier)
    }

    fn follow(&mut self, ruling: Ruling, ended: Ended<B>, earlier: Option<Last<B>>) -> Go<S, B> {
        match ruling {
            Ruling::Again(wait) => self.again(ended, earlier, wait),
            Ruling::Final(verdict) => self.answer(earlier.unwrap_or(ended.into()), verdict),
            Ruling::Ask(verdict) => match self.judge().ask(ended.outcome()) {
                Some(asking) => Go::To(Stage::Reconciling(Box::new(Question {
                    asking,
                    ended,
                    earlier,
                    verdict,
                    drained: None,
                }))),
                None => self.answer(earlier.unwrap_or(ended.into()), verdict),
            },
        }
    }

    fn reconciling(&mut self, cx: &mut Context<'_>, mut question: Box<Question<B>>) -> Go<S, B> {
        let answer = match question.asking.poll(cx) {
            Poll::Ready(answer) => answer,
            Poll::Pending => match self.poll_between(cx, &mut question.drained, None) {
                Poll::Pending => return Go::Stay(Stage::Reconciling(question)),
                Poll::Ready(_) => Ok(Reconciled::Unknown),
            },
        };
        let Question {
            ended,
            earlier,
            verdict,
            ..
        } = *question;
        let (last, verdict) = match answer {
            Ok(Reconciled::NotExecuted) => {
                // A response stays what the caller gets, should there be no other attempt.
                let (failure, ruling) = self.judge().not_executed(ended.outcome(), verdict);
                let ended = ended.not_sent(failure);
                match ruling {
                    Ruling::Again(wait) => return self.again(ended, earlier, wait),
                    Ruling::Final(verdict) | Ruling::Ask(verdict) => (ended.into(), verdict),
                }
            }
            Ok(Reconciled::Executed(response)) => {
                let verdict = self.judge().executed(ended.outcome(), verdict);
                let (head, body) = response.into_parts();
                let answer = Last::Response(head, ResponseBody::whole(body));
                return self.answer(answer, verdict);
            }
            Ok(Reconciled::Unknown) => {
                self.judge().unknown(ended.outcome(), verdict, None);
                (ended.into(), verdict)
            }
            Err(error) => {
                let error = Some(shared(error));
                self.judge().unknown(ended.outcome(), verdict, error);
                (ended.into(), verdict)
            }
        };
        self.answer(earlier.unwrap_or(last), verdict)
    }

    /// The call ends between two attempts: the last real outcome is the answer.
    fn stop(&mut self, last: Last<B>, reason: RetryDenied, step: Step) -> Go<S, B> {
        match self.judge().stop(reason, step) {
            Some(verdict) => self.answer(last, verdict),
            // Never here: there is no stay between attempts before the first.
            None => Go::Stay(Stage::Done),
        }
    }

    fn answer(&mut self, last: Last<B>, verdict: Verdict) -> Go<S, B> {
        Go::Answer(self.judge().answer(last, verdict))
    }

    /// Ready when the time has come, or when something ends the call. The handle of the drain is
    /// asked only by calls that wait.
    fn poll_between(
        &mut self,
        cx: &mut Context<'_>,
        drained: &mut Option<Drained>,
        time: Option<Instant>,
    ) -> Poll<Woken> {
        if let Some(drain) = &self.shared.settings.drain {
            let drained = drained.get_or_insert_with(|| Box::pin(drain.started()));
            if drained.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Woken::End(RetryDenied::RuntimeDraining, Step::Draining));
            }
        }
        let progress = &mut self.call.progress;
        let Some(at) = earlier(time, progress.deadline) else {
            return Poll::Pending;
        };
        ready!(progress.poll_until(cx, at));
        Poll::Ready(if progress.deadline == Some(at) {
            Woken::End(RetryDenied::Deadline, Step::Deadline)
        } else {
            Woken::Time
        })
    }

    fn note(&mut self, note: impl FnOnce(&mut AttemptReport)) {
        if let Some(attempt) = self.call.progress.attempts.last_mut() {
            note(attempt);
        }
    }

    fn judge(&mut self) -> Judge<'_, P> {
        Judge {
            call: self.call,
            policy: &self.shared.policy,
            settings: &self.shared.settings,
        }
    }
}

fn unsent<S, B>(kind: FailureKind, source: Option<BoxError>) -> Stage<S, B> {
    Stage::Unsent(Box::new(Ended::Failure(Failure::not_sent(kind), source)))
}

impl<S, P, B> fmt::Debug for ResponseFuture<S, P, B>
where
    S: Service<Request<ReplayBody>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            Stage::Unsent(_) => "unsent",
            Stage::Opening(_) => "opening the request body",
            Stage::Reading(_) => "reading the response body",
            Stage::Reconciling(_) => "reconciling",
            Stage::Discarding(_) => "reading out a failed response",
            Stage::Refreshing(_) => "refreshing the credential",
            Stage::Waiting(_) => "waiting",
            Stage::Readying(_) => "asking for readiness",
            Stage::Done if self.attempt.is_some() => "calling",
            Stage::Done => "done",
        };
        f.debug_struct("ResponseFuture")
            .field("stage", &stage)
            .finish_non_exhaustive()
    }
}
