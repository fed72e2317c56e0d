//! Whether an operation may be applied twice.

use http::Method;

/// What a second execution of an operation would do.
///
/// A caller declares it as a request extension; it is then believed as it stands:
///
/// ```
/// use http::Request;
/// use tower_http_retry::{Idempotency, ReplayBody};
///
/// let request = Request::post("http://stock.example/reservations/17/confirm")
///     .extension(Idempotency::Idempotent) // confirming twice confirms once
///     .body(ReplayBody::empty());
/// # assert!(request.is_ok());
/// ```
///
/// Without a declaration the policy's rule, a key, a precondition and last the method decide, in
/// that order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Idempotency {
    /// Changes nothing: GET, HEAD, OPTIONS, TRACE, QUERY.
    Safe,
    /// Twice has the effect of once: PUT, DELETE.
    Idempotent,
    /// Made idempotent by a key that the upstream honours.
    Keyed,
    /// Twice may be a duplicate.
    NonIdempotent,
}

impl Idempotency {
    /// Whether a repetition is harmless: every variant but [`NonIdempotent`](Self::NonIdempotent).
    pub const fn is_safely_idempotent(self) -> bool {
        match self {
            Self::Safe | Self::Idempotent | Self::Keyed => true,
            Self::NonIdempotent => false,
        }
    }

    /// What the method promises (RFC 9110 §9.2; QUERY from the HTTP QUERY method draft, which
    /// registers it as safe). Methods are case-sensitive; an unknown one promises nothing.
    pub fn of_method(method: &Method) -> Self {
        match *method {
            Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE => Self::Safe,
            Method::PUT | Method::DELETE => Self::Idempotent,
            _ if method.as_str() == "QUERY" => Self::Safe,
            _ => Self::NonIdempotent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_promise_what_rfc_9110_says() {
        for (method, promise) in [
            ("GET", Idempotency::Safe),
            ("HEAD", Idempotency::Safe),
            ("OPTIONS", Idempotency::Safe),
            ("TRACE", Idempotency::Safe),
            ("QUERY", Idempotency::Safe),
            ("PUT", Idempotency::Idempotent),
            ("DELETE", Idempotency::Idempotent),
            ("POST", Idempotency::NonIdempotent),
            ("PATCH", Idempotency::NonIdempotent),
            ("CONNECT", Idempotency::NonIdempotent),
            ("PURGE", Idempotency::NonIdempotent),
            ("get", Idempotency::NonIdempotent),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(Idempotency::of_method(&method), promise, "{method}");
        }
    }
}
