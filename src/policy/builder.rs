//! Building a [`StandardPolicy`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{StatusCode, request};

use super::settings::Settings;
use super::{
    AmbiguousResponses, IdempotentMethods, IoFailures, Preconditions, RetryAfterHints, Rule,
    StandardPolicy, Upstream,
};
use crate::attempt::Attempt;
use crate::backoff::Backoff;
use crate::error::ConfigError;
use crate::idempotency::Idempotency;
use crate::upstream_key::UpstreamKey;

/// Builds a [`StandardPolicy`]: from [`StandardPolicy::builder`], [`StandardPolicy::blank_builder`]
/// or, starting from a preset, [`StandardPolicy::to_builder`].
///
/// ```
/// use std::time::Duration;
/// use tower_http_retry::{StandardPolicy, Upstream, UpstreamKey};
///
/// let policy = StandardPolicy::builder()
///     .retries(3)
///     .base_delay(Duration::from_millis(20))
///     .upstream(UpstreamKey::new("stock"), Upstream::new().transient_500())
///     .build()?;
/// assert_eq!(policy.retries(), 3);
/// # Ok::<(), tower_http_retry::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct StandardPolicyBuilder {
    settings: Settings,
    base_delay: Option<Duration>,
    max_delay: Option<Duration>,
}

impl From<Settings> for StandardPolicyBuilder {
    fn from(settings: Settings) -> Self {
        Self {
            settings,
            base_delay: None,
            max_delay: None,
        }
    }
}

impl StandardPolicyBuilder {
    /// The retries after the first attempt. Default 2; zero: never.
    pub fn retries(mut self, retries: u32) -> Self {
        self.settings.retries = retries;
        self
    }

    /// How long to wait between attempts. [`base_delay`](Self::base_delay) and
    /// [`max_delay`](Self::max_delay) then change its two times, whichever comes first.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// The first retry's longest wait. Default 50 ms. A throttled base that equals the old one
    /// (as in [`StandardPolicy::conventional`]) moves along.
    pub fn base_delay(mut self, base: Duration) -> Self {
        self.base_delay = Some(base);
        self
    }

    /// The longest wait of the backoff. Default 20 s.
    pub fn max_delay(mut self, max: Duration) -> Self {
        self.max_delay = Some(max);
        self
    }

    /// The longest hint of a server that a call waits for. Default: the longest wait of the backoff.
    pub fn max_retry_after(mut self, max: Duration) -> Self {
        self.settings.max_retry_after = Some(max);
        self
    }

    /// Replaces the set of retryable statuses, each from 400 up. The conditions of the table stay:
    /// 425 is retried once, 5xx for safely idempotent operations only, and a status that the table
    /// does not name likewise.
    pub fn retryable_statuses(mut self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        self.settings.statuses = statuses.into_iter().collect();
        self.settings.statuses.sort_unstable();
        self.settings.statuses.dedup();
        self
    }

    /// Whether failures are retried.
    pub fn io_failures(mut self, io_failures: IoFailures) -> Self {
        self.settings.io_failures = io_failures;
        self
    }

    /// Whether hints of the server count.
    pub fn retry_after_hints(mut self, hints: RetryAfterHints) -> Self {
        self.settings.hints = hints;
        self
    }

    /// What the method alone promises.
    pub fn idempotent_methods(mut self, methods: IdempotentMethods) -> Self {
        self.settings.methods = methods;
        self
    }

    /// Whether a precondition can make an operation idempotent.
    pub fn preconditions(mut self, preconditions: Preconditions) -> Self {
        self.settings.preconditions = preconditions;
        self
    }

    /// What to do with a response that leaves the execution unknown.
    pub fn ambiguous_responses(mut self, responses: AmbiguousResponses) -> Self {
        self.settings.ambiguous_responses = responses;
        self
    }

    /// What one upstream is known for. A second registration of a key replaces the first.
    pub fn upstream(mut self, key: UpstreamKey, upstream: Upstream) -> Self {
        self.settings.upstreams.insert(key, upstream);
        self
    }

    /// What every upstream is known for that is not registered by its key.
    pub fn default_upstream(mut self, upstream: Upstream) -> Self {
        self.settings.default_upstream = upstream;
        self
    }

    /// A rule of the caller's, asked first. `None`: the table.
    pub fn rule(
        mut self,
        rule: impl Fn(&Attempt<'_>) -> Option<Rule> + Send + Sync + 'static,
    ) -> Self {
        self.settings.rule = Some(Arc::new(rule));
        self
    }

    /// The caller's knowledge of what a second execution does, asked first (and only where the
    /// request declares nothing). `None`: the key, the precondition and the method decide.
    pub fn idempotency(
        mut self,
        idempotency: impl Fn(&request::Parts) -> Option<Idempotency> + Send + Sync + 'static,
    ) -> Self {
        self.settings.idempotency = Some(Arc::new(idempotency));
        self
    }

    /// The policy.
    ///
    /// # Errors
    /// A base delay above the maximum delay, or a retryable status below 400: those are answers.
    pub fn build(self) -> Result<StandardPolicy, ConfigError> {
        let Self {
            mut settings,
            base_delay,
            max_delay,
        } = self;
        let base = base_delay.unwrap_or(settings.backoff.base());
        let max = max_delay.unwrap_or(settings.backoff.max());
        if settings.backoff.throttled_base() == settings.backoff.base() {
            settings.backoff = settings.backoff.with_throttled_base(base);
        }
        settings.backoff = settings.backoff.with_base(base).with_max(max);
        if base > max {
            return Err(ConfigError::new(
                "base_delay",
                format_args!("{base:?}"),
                "it is above the maximum delay",
            ));
        }
        if let Some(status) = settings
            .statuses
            .first()
            .filter(|status| status.as_u16() < 400)
        {
            return Err(ConfigError::new(
                "retryable_statuses",
                status.as_u16(),
                "1xx, 2xx and 3xx are answers",
            ));
        }
        Ok(StandardPolicy { settings })
    }
}

impl fmt::Debug for StandardPolicyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("StandardPolicyBuilder");
        f.field("base_delay", &self.base_delay)
            .field("max_delay", &self.max_delay);
        self.settings.debug(&mut f)
    }
}
