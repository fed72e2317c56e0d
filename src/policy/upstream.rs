//! What an upstream is known for.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};

/// What the caller knows of an upstream that no standard says. Registered with
/// [`StandardPolicyBuilder::upstream`](crate::StandardPolicyBuilder::upstream).
///
/// A header can narrow what is retried, or prove non-execution where it is registered; it never
/// widens.
#[derive(Clone, Default)]
#[must_use]
pub struct Upstream {
    pub(super) transient_500: bool,
    honours_key: bool,
    generates_key: Option<HeaderName>,
    refusals: Vec<(HeaderName, HeaderValue)>,
    stops: Vec<(HeaderName, HeaderValue)>,
}

impl Upstream {
    /// Nothing special.
    pub fn new() -> Self {
        Self::default()
    }

    /// Its 500 is worth a retry, for safely idempotent operations.
    pub fn transient_500(mut self) -> Self {
        self.transient_500 = true;
        self
    }

    /// It executes an operation once for one `Idempotency-Key`: requests that carry the header are
    /// [`Keyed`](crate::Idempotency::Keyed).
    pub fn honours_idempotency_key(mut self) -> Self {
        self.honours_key = true;
        self
    }

    /// It honours a key in `header`, and the layer sends a random one, the same on all attempts of
    /// a call, with every request that is not idempotent by its method and carries none.
    pub fn generates_key(mut self, header: HeaderName) -> Self {
        self.generates_key = Some(header);
        self
    }

    /// An error response (400 and above) with this header proves that the operation was not
    /// executed: retry for any operation. Several may be registered; a
    /// [`stop_header`](Self::stop_header) on the same response wins.
    pub fn refusal_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.refusals.push((name, value));
        self
    }

    /// A response with this header is not retried, whatever its status, and whether or not its
    /// body breaks. Several may be registered.
    pub fn stop_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.stops.push((name, value));
        self
    }

    pub(super) fn refused(&self, headers: &HeaderMap) -> bool {
        carries(headers, &self.refusals)
    }

    pub(super) fn stops(&self, headers: &HeaderMap) -> bool {
        carries(headers, &self.stops)
    }

    /// Whether the request carries a key that this upstream honours.
    pub(super) fn honours_key_of(&self, headers: &HeaderMap) -> bool {
        let standard = self.honours_key && carries_key(headers, &IDEMPOTENCY_KEY);
        standard
            || self
                .generates_key
                .as_ref()
                .is_some_and(|name| carries_key(headers, name))
    }

    pub(super) fn generated_key(&self) -> Option<&HeaderName> {
        self.generates_key.as_ref()
    }
}

static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// An empty key identifies nothing.
fn carries_key(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers
        .get(name)
        .is_some_and(|key| !key.as_bytes().trim_ascii().is_empty())
}

fn carries(headers: &HeaderMap, registered: &[(HeaderName, HeaderValue)]) -> bool {
    registered
        .iter()
        .any(|(name, value)| headers.get_all(name).iter().any(|found| found == value))
}

// Names only: a registered value may be a secret between two services.
impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |headers: &[(HeaderName, HeaderValue)]| -> Vec<HeaderName> {
            headers.iter().map(|(name, _)| name.clone()).collect()
        };
        f.debug_struct("Upstream")
            .field("transient_500", &self.transient_500)
            .field("honours_idempotency_key", &self.honours_key)
            .field("generates_key", &self.generates_key)
            .field("refusal_headers", &names(&self.refusals))
            .field("stop_headers", &names(&self.stops))
            .finish()
    }
}
