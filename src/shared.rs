//! What a layer, its services and their calls share.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderName;

use crate::budgets::Budgets;
use crate::drain::Drain;
use crate::evidence::{Classify, Contradictions, PeerPromises};
use crate::observe::Observer;
use crate::random::Randomness;
use crate::reconcile::DynReconcile;
use crate::refresh::Refresher;
use crate::response::{Delivery, Discard};

/// What a call needs of its service after it began.
pub(crate) struct Shared<S, P> {
    /// Retries clone it; calls that succeed at once never do. Behind a lock only so that a service
    /// that is not `Sync` leaves the future `Send`.
    template: Mutex<S>,
    pub(crate) policy: Arc<P>,
    pub(crate) settings: Arc<Settings>,
}

impl<S, P> Shared<S, P> {
    pub(crate) fn new(template: S, policy: Arc<P>, settings: Arc<Settings>) -> Arc<Self> {
        let template = Mutex::new(template);
        Arc::new(Self {
            template,
            policy,
            settings,
        })
    }
}

impl<S: Clone, P> Shared<S, P> {
    /// An instance for a retry: not ready yet.
    pub(crate) fn instance(&self) -> S {
        self.template
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Everything but the policy.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) budgets: Budgets,
    pub(crate) drain: Option<Drain>,
    pub(crate) randomness: Randomness,
    pub(crate) attempt_header: Option<HeaderName>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) min_attempt: Duration,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) delivery: Delivery,
    pub(crate) discard: Discard,
    pub(crate) peer_promises: PeerPromises,
    pub(crate) refresh: Option<Arc<Refresher>>,
    pub(crate) reconcile: Option<Arc<dyn DynReconcile>>,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
    pub(crate) classifiers: Arc<[Arc<dyn Classify>]>,
    pub(crate) contradictions: Contradictions,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            budgets: Budgets::default(),
            drain: None,
            randomness: Randomness::system(),
            attempt_header: None,
            deadline: None,
            min_attempt: Duration::ZERO,
            attempt_timeout: None,
            delivery: Delivery::AtHeaders,
            discard: Discard::default(),
            peer_promises: PeerPromises::Trust,
            refresh: None,
            reconcile: None,
            observers: Vec::new(),
            classifiers: Arc::new([]),
            contradictions: Contradictions::default(),
        }
    }
}

impl Settings {
    pub(crate) fn is_draining(&self) -> bool {
        self.drain.as_ref().is_some_and(Drain::is_draining)
    }

    /// Whether anything needs to know when a call began.
    pub(crate) fn reads_clock(&self) -> bool {
        self.deadline.is_some() || self.attempt_timeout.is_some() || !self.observers.is_empty()
    }

    pub(crate) fn debug(&self, f: &mut fmt::DebugStruct<'_, '_>) -> fmt::Result {
        f.field("budgets", &self.budgets)
            .field("drain", &self.drain)
            .field("attempt_header", &self.attempt_header)
            .field("deadline", &self.deadline)
            .field("min_attempt", &self.min_attempt)
            .field("attempt_timeout", &self.attempt_timeout)
            .field("delivery", &self.delivery)
            .field("discard", &self.discard)
            .field("peer_promises", &self.peer_promises)
            .field("refresh", &self.refresh.is_some())
            .field("reconcile", &self.reconcile.is_some())
            .field("observers", &self.observers.len())
            .field("classifiers", &self.classifiers.len())
            .finish()
    }
}
