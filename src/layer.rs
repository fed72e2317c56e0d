//! Configuration.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use tower_layer::Layer;

use crate::budgets::Budgets;
use crate::drain::Drain;
use crate::evidence::{Classify, PeerPromises};
use crate::observe::Observer;
use crate::policy::{Policy, StandardPolicy};
use crate::random::Randomness;
use crate::reconcile::Reconcile;
use crate::refresh::{Refresh, Refresher};
use crate::response::{Delivery, Discard};
use crate::service::Retry;
use crate::shared::Settings;

/// Sends a request again when idempotency, body replayability, execution evidence, deadline and
/// retry budget all permit it.
///
/// Wraps any service of `http::Request<ReplayBody>`. A clone shares budgets and state. Defaults:
/// one retry budget per upstream, no deadline, no attempt timeout, delivery at the headers.
///
/// Every duration means what it says, zero and `Duration::MAX` included; none means "off". What is
/// not set is off.
///
/// ```
/// use std::time::Duration;
/// use tower_http_retry::{RetryLayer, StandardPolicy};
///
/// let layer = RetryLayer::new(StandardPolicy::default())
///     .with_deadline(Duration::from_secs(10))
///     .with_attempt_timeout(Duration::from_secs(2));
/// ```
///
/// If the compiler finds no `oneshot` or `call` on the wrapped service, the inner one is not a
/// service of `http::Request<ReplayBody>`: give the client [`ReplayBody`](crate::ReplayBody) as its
/// body type, and put reqwest's client into `ReqwestService`.
#[must_use]
pub struct RetryLayer<P = StandardPolicy> {
    policy: Arc<P>,
    settings: Settings,
}

impl<P: Policy> RetryLayer<P> {
    /// With `policy`, and the defaults for everything else.
    pub fn new(policy: P) -> Self {
        Self {
            policy: Arc::new(policy),
            settings: Settings::default(),
        }
    }

    /// The retry budgets: one per upstream, or one [`Budget`](crate::Budget) shared by all.
    pub fn with_budgets(mut self, budgets: impl Into<Budgets>) -> Self {
        self.settings.budgets = budgets.into();
        self
    }

    /// Without budgets: nothing then bounds the load that retries add to a failing upstream.
    pub fn without_budgets(mut self) -> Self {
        self.settings.budgets = Budgets::off();
        self
    }

    /// Once `drain` has started there is no new retry, and calls that wait end with their last
    /// outcome.
    pub fn with_drain(mut self, drain: Drain) -> Self {
        self.settings.drain = Some(drain);
        self
    }

    /// Makes the waits reproducible, for tests and simulations: call `n` always draws the same.
    /// Generated idempotency keys stay unpredictable, since a key that comes again makes an
    /// upstream answer with an old operation.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.settings.randomness = Randomness::seeded(seed);
        self
    }

    /// Sends the attempt's number in `header`, from attempt 2 on.
    pub fn with_attempt_header(mut self, header: HeaderName) -> Self {
        self.settings.attempt_header = Some(header);
        self
    }

    /// The longest time that a call may take, everything included. Default: none. A
    /// [`Deadline`](crate::Deadline) in a request's extensions counts if it is earlier.
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = Some(deadline);
        self
    }

    /// The least time that an attempt is worth: with less than this until the deadline there is no
    /// retry. Default: zero.
    pub fn with_min_attempt(mut self, min_attempt: Duration) -> Self {
        self.settings.min_attempt = min_attempt;
        self
    }

    /// The longest time from an attempt's start to its response headers, a retry's wait for the
    /// inner service included. Default: none.
    pub fn with_attempt_timeout(mut self, timeout: Duration) -> Self {
        self.settings.attempt_timeout = Some(timeout);
        self
    }

    /// When a response is handed over. Default: at its headers.
    pub fn with_delivery(mut self, delivery: Delivery) -> Self {
        self.settings.delivery = delivery;
        self
    }

    /// How much of a failed response is read before a wait. Default: 25 ms, 64 KiB.
    pub fn with_discard(mut self, discard: Discard) -> Self {
        self.settings.discard = discard;
        self
    }

    /// Whether REFUSED_STREAM and GOAWAY prove anything. Default: they do.
    pub fn with_peer_promises(mut self, promises: PeerPromises) -> Self {
        self.settings.peer_promises = promises;
        self
    }

    /// Where to get a new credential after a 401. Default: nowhere.
    pub fn with_refresh(mut self, refresh: impl Refresh) -> Self {
        self.settings.refresh = Some(Arc::new(Refresher::new(refresh)));
        self
    }

    /// How to find out what became of an ambiguous operation. Default: not at all.
    pub fn with_reconcile(mut self, reconcile: impl Reconcile) -> Self {
        self.settings.reconcile = Some(Arc::new(reconcile));
        self
    }

    /// How often an error type said "not sent" while the body witness had seen the client consult
    /// the body. The witness won, so no harm was done; but it means that a rule of this crate does
    /// not hold for the transport below: please report it. Zero in every test of the crate.
    pub fn contradictions(&self) -> u64 {
        self.settings.contradictions.get()
    }

    /// Adds an observer.
    pub fn with_observer(mut self, observer: impl Observer) -> Self {
        self.settings.observers.push(Arc::new(observer));
        self
    }

    /// Adds a classifier, asked after those added before and ahead of the built-in ones.
    pub fn with_classifier(mut self, classifier: impl Classify) -> Self {
        let classifier: Arc<dyn Classify> = Arc::new(classifier);
        self.settings.classifiers = self
            .settings
            .classifiers
            .iter()
            .cloned()
            .chain([classifier])
            .collect();
        self
    }
}

impl<P> Clone for RetryLayer<P> {
    fn clone(&self) -> Self {
        Self {
            policy: Arc::clone(&self.policy),
            settings: self.settings.clone(),
        }
    }
}

impl Default for RetryLayer {
    fn default() -> Self {
        Self::new(StandardPolicy::default())
    }
}

impl<P: fmt::Debug> fmt::Debug for RetryLayer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings
            .debug(f.debug_struct("RetryLayer").field("policy", &self.policy))
    }
}

impl<S: Clone, P> Layer<S> for RetryLayer<P> {
    type Service = Retry<S, P>;

    fn layer(&self, inner: S) -> Retry<S, P> {
        Retry::new(inner, Arc::clone(&self.policy), self.settings.clone())
    }
}
