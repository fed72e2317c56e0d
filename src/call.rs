//! What a call knows: the request it keeps, and how far it has come.

use std::cell::Cell;
use std::mem;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Extensions, HeaderMap, HeaderValue, Request, StatusCode, request};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::BoxError;
use crate::attempt::{Attempt, AttemptNumber, NoEarlyData, Outcome};
use crate::body::{
    BodyState, OpenError, Opened, Opening, ReplayBody, Replayability, Source, Witness,
};
use crate::budget::{CallBudget, Token};
use crate::deadline::{Deadline, after};
use crate::evidence::{Execution, FailureKind};
use crate::head::{Head, HeadRef};
use crate::idempotency::Idempotency;
use crate::policy::{Policy, idempotency_for, plan};
use crate::random::Sequence;
use crate::report::{AttemptReport, SharedError};
use crate::response::{Fresh, Reader, content_length};
use crate::retry_after;
use crate::shared::Settings;
use crate::snapshot::Snapshot;

/// One call. Boxed, and reused by the next call on the same thread, so that a call that succeeds at
/// once allocates nothing.
#[derive(Default)]
pub(crate) struct Call {
    pub(crate) kept: Snapshot,
    pub(crate) progress: Progress,
    /// Who waits in the pool behind this one, and how many wait, this one included.
    next: Option<Box<Self>>,
    waiting: usize,
}

/// How far a call has come.
pub(crate) struct Progress {
    pub(crate) number: NonZeroU32,
    pub(crate) max_attempts: NonZeroU32,
    idempotency: OnceLock<Idempotency>,
    pub(crate) prior_unknown: bool,
    pub(crate) body: RequestBody,
    pub(crate) witness: Witness,
    /// The request's `content-length`, so that a body of another length is noticed.
    declared_len: Option<u64>,

    pub(crate) budget: Option<CallBudget>,
    /// Withdrawn for the next attempt. Refunded wherever it is dropped, spent when it is sent.
    pub(crate) token: Option<Token>,
    pub(crate) random: Sequence,

    pub(crate) deadline: Option<Instant>,
    pub(crate) attempt_deadline: Option<Instant>,
    pub(crate) call_started: Option<Instant>,
    attempt_started: Option<Instant>,
    pub(crate) attempt_took: Duration,
    pub(crate) waited: Duration,
    timer: Option<Pin<Box<Sleep>>>,

    pub(crate) credential: Option<HeaderValue>,
    pub(crate) refreshed: bool,
    pub(crate) no_early_data: bool,
    pub(crate) attempts: Vec<AttemptReport>,
    /// An attempt was permitted and never made.
    pub(crate) cut_short: bool,
    /// Of the attempt being judged.
    pub(crate) contradicted: bool,
    pub(crate) reconciled: Option<Execution>,
    pub(crate) reconcile_error: Option<SharedError>,
    pub(crate) reconciled_status: Option<StatusCode>,
    /// Of the attempt of a layer further out that this call is.
    pub(crate) outer: Option<Witness>,
    /// The hint of a response that was found out not to have been an answer.
    pub(crate) reconciled_hint: Option<Duration>,
    /// The transport's last error, for an end that has none of its own.
    pub(crate) prior_error: Option<BoxError>,
}

/// The request body, as the call holds it.
pub(crate) enum RequestBody {
    /// Few bytes, copied behind the head; or none.
    Copied(BodyState),
    /// Outside every attempt, for as many as it is good for.
    Kept(Source),
    /// Given away with the one attempt that there can be.
    Given(Replayability, BodyState),
}

impl RequestBody {
    pub(crate) fn replayability(&self) -> Replayability {
        match self {
            Self::Copied(_) => Replayability::Replayable,
            Self::Kept(source) => source.replayability(),
            Self::Given(mark, _) => *mark,
        }
    }

    fn state(&self, witness: &Witness) -> BodyState {
        match self {
            Self::Copied(state) => *state,
            Self::Kept(source) => source.state(),
            Self::Given(_, BodyState::Untouched) if witness.trace().polled() => BodyState::Consumed,
            Self::Given(_, state) => *state,
        }
    }
}

/// A request on its way: its head, and a body that may have to be opened first.
pub(crate) struct Prepared {
    pub(crate) head: request::Parts,
    pub(crate) body: Opened,
}

/// What keeps a first attempt from being sent.
pub(crate) enum Held {
    /// Its deadline has passed.
    Late,
    /// Its body has to be opened first.
    Opening(Opening<ReplayBody>),
    /// It has none.
    Failed(OpenError),
}

fn held(first: Opened, body: &mut ReplayBody) -> Option<Held> {
    match first {
        Opened::Body(first) => {
            *body = first;
            None
        }
        Opened::Opening(opening) => Some(Held::Opening(opening)),
        Opened::Failed(error) => Some(Held::Failed(error)),
    }
}

impl Call {
    /// Takes note of a request. Its body becomes that of the first attempt, unless that is held up.
    #[inline(never)]
    pub(crate) fn begin<P: Policy>(
        request: &mut Request<ReplayBody>,
        policy: &P,
        settings: &Settings,
    ) -> (Box<Self>, Option<Box<Held>>) {
        let plan = plan(policy, request);
        let mut call = pool::take();
        let Self { kept, progress, .. } = &mut *call;
        progress.max_attempts = plan.max_attempts;
        if let Some(idempotency) = plan.idempotency {
            progress.idempotency = idempotency.into();
        }
        let head = HeadRef::from(&*request);
        settings.budgets.for_call(head, &mut progress.budget);
        progress.random = settings.randomness.of_call();
        progress.start(head.extensions, settings);

        // What is kept of a request that is never sent again costs less than to find out beforehand
        // what would have to be known of it, should it fail.
        let few = request.body().few_bytes();
        let bytes = few.map_or(&[][..], |(bytes, _)| bytes);
        progress.declared_len = kept.fill(head, bytes).and_then(length);
        let held = match few {
            Some((_, state)) => {
                progress.body = RequestBody::Copied(state);
                progress.watch(request.body_mut())
            }
            None => progress.begin_body(request.body_mut()),
        };
        let late = progress.is_late();
        let held = if late { Some(Held::Late) } else { held };
        (call, held.map(Box::new))
    }

    /// The caller's own head, as it was before any layer below changed it, with the credential that
    /// replaced its own.
    pub(crate) fn head(&self, settings: &Settings) -> request::Parts {
        let mut head = self.kept.rebuild();
        self.renew_credential(&mut head, settings);
        head
    }

    fn renew_credential(&self, head: &mut request::Parts, settings: &Settings) {
        if let (Some(refresher), Some(credential)) = (&settings.refresh, &self.progress.credential)
        {
            refresher.apply(credential, head);
        }
    }

    /// The next attempt's request: the caller's own, as it was before any layer below changed it.
    pub(crate) fn next_request(&mut self, settings: &Settings) -> Prepared {
        let mut head = self.kept.take_parts();
        self.renew_credential(&mut head, settings);
        let progress = &mut self.progress;
        if let Some(name) = &settings.attempt_header {
            let number = HeaderValue::from(progress.number.get());
            let _ = head.headers.try_insert(name.clone(), number);
        }
        head.extensions
            .insert(AttemptNumber::new(progress.number, progress.max_attempts));
        if progress.no_early_data {
            head.extensions.insert(NoEarlyData);
        }
        let witness = progress.witness.clone();
        let body = match &mut progress.body {
            RequestBody::Copied(_) => self.kept.body().witnessed(witness, progress.declared_len),
            RequestBody::Kept(source) => source.attempt(witness, progress.declared_len),
            // Never here: such a call has no second attempt. An empty body under a head that
            // declares another is refused before it is sent.
            RequestBody::Given(..) => ReplayBody::empty().witnessed(witness, progress.declared_len),
        };
        Prepared { head, body }
    }

    /// The facts of the attempt that ended with `outcome`.
    #[inline]
    pub(crate) fn attempt<'a>(
        kept: &'a Snapshot,
        progress: &Progress,
        policy: &impl Policy,
        settings: &Settings,
        outcome: Outcome<'a>,
        body: Option<&'a [u8]>,
    ) -> Attempt<'a> {
        let hint = outcome.response().map_or(progress.reconciled_hint, |head| {
            retry_after::of(&head.headers)
        });
        Attempt {
            number: progress.number,
            max_attempts: progress.max_attempts,
            head: Head::Kept(kept),
            outcome,
            idempotency: progress.idempotency(kept, policy),
            replayability: progress.body.replayability(),
            body_state: progress.body.state(&progress.witness),
            budget_empty: progress.budget.as_ref().is_some_and(CallBudget::is_empty),
            delivered: false,
            draining: settings.is_draining(),
            can_refresh: settings.refresh.is_some() && !progress.refreshed,
            prior_unknown: progress.prior_unknown,
            remaining: progress.remaining(),
            min_attempt: settings.min_attempt,
            retry_after: hint,
            body,
        }
    }

    /// What a response body is to be, by its head.
    #[inline]
    pub(crate) fn fresh_body(
        &self,
        settings: &Settings,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Fresh {
        let reader = self.progress.body_reader(settings);
        Fresh::new(self.kept.method(), status, headers, reader)
    }

    /// Gives the memory to the next call on this thread. Only where the first attempt was the
    /// answer: then there is little to clear, and the others' waits cost more than an allocation.
    #[inline]
    pub(crate) fn recycle(mut self: Box<Self>) {
        self.kept.clear();
        self.progress.clear();
        pool::give(self);
    }
}

impl Progress {
    /// Takes note of a body that is not just a few bytes.
    fn begin_body(&mut self, body: &mut ReplayBody) -> Option<Held> {
        self.outer = body.outer();
        let state = body.state();
        let once = self.max_attempts == NonZeroU32::MIN || !state.is_replayable();
        let witness = self.witness.clone();
        if !once {
            let mut source = mem::take(body).into_source();
            let first = source.attempt(witness, self.declared_len);
            self.body = RequestBody::Kept(source);
            return held(first, body);
        }
        self.body = RequestBody::Given(body.replayability(), state);
        if body.is_in_memory() {
            return self.watch(body);
        }
        let first = mem::take(body).witnessed(witness, self.declared_len);
        held(first, body)
    }

    /// Watches a body in memory where it is: nothing is moved.
    #[inline]
    fn watch(&self, body: &mut ReplayBody) -> Option<Held> {
        let watched = body.watch(self.witness.clone(), self.declared_len);
        watched.err().map(Held::Failed)
    }

    #[inline]
    fn start(&mut self, extensions: &Extensions, settings: &Settings) {
        // The clock is read only where something needs to know when the call began.
        if settings.reads_clock() {
            let now = Instant::now();
            self.call_started = Some(now);
            self.attempt_started = Some(now);
            self.attempt_deadline = settings.attempt_timeout.and_then(|time| after(now, time));
            self.deadline = settings.deadline.and_then(|time| after(now, time));
        }
        let own = extensions.get::<Deadline>();
        if let Some(own) = own.and_then(|own| own.instant()) {
            self.deadline = Some(self.deadline.map_or(own, |layer| layer.min(own)));
        }
    }

    /// What a second execution would do. Asked once a call, when somebody needs to know.
    pub(crate) fn idempotency(&self, kept: &Snapshot, policy: &impl Policy) -> Idempotency {
        *self
            .idempotency
            .get_or_init(|| idempotency_for(policy, kept.parts()))
    }

    /// The start of a retry: from here its time runs.
    pub(crate) fn begin_attempt(&mut self, waited: Duration, settings: &Settings) {
        let now = Instant::now();
        self.number = self.number.saturating_add(1);
        self.waited = waited;
        self.attempt_started = Some(now);
        self.attempt_took = Duration::ZERO;
        self.attempt_deadline = settings.attempt_timeout.and_then(|time| after(now, time));
        self.contradicted = false;
        self.reconciled = None;
        self.reconcile_error = None;
        self.reconciled_status = None;
        self.reconciled_hint = None;
        if !self.witness.reset_if_unique() {
            self.witness = Witness::new();
        }
    }

    /// A first attempt's clock starts when it is first pending: one that answers at once never
    /// reads it.
    pub(crate) fn start_clock(&mut self) {
        self.attempt_started.get_or_insert_with(Instant::now);
    }

    /// The attempt has its response head, or its failure: its time is taken. Where nobody asks for
    /// it, the clock is not read.
    pub(crate) fn stop_clock(&mut self) {
        if let Some(start) = self.attempt_started.take() {
            self.attempt_took = start.elapsed();
        }
    }

    /// For the response body: where the defaults do not do to read its failures, because there are
    /// classifiers, or because the request body is still on its way up or has failed.
    #[inline]
    pub(crate) fn body_reader(&self, settings: &Settings) -> Option<Box<Reader>> {
        let trace = self.witness.trace();
        let needed = !settings.classifiers.is_empty() || !trace.dropped() || trace.failed();
        needed.then(|| {
            let classifiers = Arc::clone(&settings.classifiers);
            Box::new(Reader {
                classifiers,
                witness: self.witness.clone(),
            })
        })
    }

    #[inline]
    pub(crate) fn is_late(&self) -> bool {
        self.remaining()
            .is_some_and(|remaining| remaining.is_zero())
    }

    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Whether a pending attempt may take as long as it does.
    #[inline]
    pub(crate) fn is_unlimited(&self) -> bool {
        self.deadline.is_none() && self.attempt_deadline.is_none()
    }

    /// Ready when the attempt may not take longer: with the limit that was reached.
    pub(crate) fn poll_limit(&mut self, cx: &mut Context<'_>) -> Poll<FailureKind> {
        let Some(at) = earlier(self.deadline, self.attempt_deadline) else {
            return Poll::Pending;
        };
        ready!(self.poll_until(cx, at));
        Poll::Ready(if self.deadline == Some(at) {
            FailureKind::DeadlineReached
        } else {
            FailureKind::ResponseTimeout
        })
    }

    /// Ready at `at`. The timer is created when something is first pending, and then moved.
    pub(crate) fn poll_until(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx)
    }

    /// Cuts the running attempt's body off. Whether there can be another one.
    pub(crate) fn cut(&mut self) -> BodyState {
        match &mut self.body {
            RequestBody::Copied(_) => self.witness.cut(),
            RequestBody::Kept(source) => source.cut(),
            RequestBody::Given(..) => {}
        }
        self.body.state(&self.witness)
    }

    /// Makes a call that was answered by its first attempt as new. The budget stays: the next call
    /// probably goes to the same upstream. What is seldom there is looked at before it is dropped,
    /// which takes a call each.
    #[inline]
    fn clear(&mut self) {
        // First: it may hold the witness, too.
        if !matches!(self.body, RequestBody::Copied(_)) {
            self.body = RequestBody::Copied(BodyState::Empty);
        }
        if !self.witness.reset_if_unique() {
            self.witness = Witness::new();
        }
        if self.idempotency.get().is_some() {
            self.idempotency = OnceLock::new();
        }
        self.deadline = None;
        self.attempt_deadline = None;
        self.call_started = None;
        self.attempt_started = None;
        self.attempt_took = Duration::ZERO;
        if self.timer.is_some() {
            self.timer = None;
        }
        if self.outer.is_some() {
            self.outer = None;
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            number: NonZeroU32::MIN,
            max_attempts: NonZeroU32::MIN,
            idempotency: OnceLock::new(),
            prior_unknown: false,
            body: RequestBody::Copied(BodyState::Empty),
            witness: Witness::new(),
            declared_len: None,
            budget: None,
            token: None,
            random: Sequence::default(),
            deadline: None,
            attempt_deadline: None,
            call_started: None,
            attempt_started: None,
            attempt_took: Duration::ZERO,
            waited: Duration::ZERO,
            timer: None,
            credential: None,
            refreshed: false,
            no_early_data: false,
            attempts: Vec::new(),
            cut_short: false,
            contradicted: false,
            reconciled: None,
            reconcile_error: None,
            reconciled_status: None,
            outer: None,
            reconciled_hint: None,
            prior_error: None,
        }
    }
}

pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn length(value: &HeaderValue) -> Option<u64> {
    content_length(value.as_bytes())
}

/// Calls that ended, for those to come on the same thread.
mod pool {
    use super::{Call, Cell};

    thread_local! {
        static FREE: Cell<Option<Box<Call>>> = const { Cell::new(None) };
    }

    /// Enough for the calls that one task interleaves with others; what is more is freed.
    const MOST: usize = 32;
    /// A head with huge headers does not stay in memory.
    const LARGEST: usize = 16 * 1024;

    #[inline]
    pub(super) fn take() -> Box<Call> {
        // The thread's locals may be gone already, while it ends.
        let taken = FREE.try_with(|free| {
            let mut call = free.take()?;
            free.set(call.next.take());
            Some(call)
        });
        taken.ok().flatten().unwrap_or_default()
    }

    #[inline]
    pub(super) fn give(mut call: Box<Call>) {
        if call.kept.capacity() > LARGEST {
            return;
        }
        let _ = FREE.try_with(|free| {
            let next = free.take();
            call.waiting = next.as_ref().map_or(1, |next| next.waiting + 1);
            free.set(if call.waiting > MOST {
                next
            } else {
                call.next = next;
                Some(call)
            });
        });
    }
}
