//! What went wrong, and what that proves.

use std::fmt;

use super::Evidence;

/// A failed attempt in two independent words: what it proves about the server, and what kind of
/// failure it was. The kind never influences the evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Failure {
    evidence: Evidence,
    kind: FailureKind,
}

impl Failure {
    /// Proven: the server never received, or never processed, the request.
    pub const fn not_sent(kind: FailureKind) -> Self {
        Self {
            evidence: Evidence::NotSent,
            kind,
        }
    }

    /// The request was, or may have been, written, and no final header arrived.
    pub const fn sent_no_response(kind: FailureKind) -> Self {
        Self {
            evidence: Evidence::SentNoResponse,
            kind,
        }
    }

    /// Final headers arrived, and then no byte of the body.
    pub const fn response_received(kind: FailureKind) -> Self {
        Self {
            evidence: Evidence::ResponseReceived,
            kind,
        }
    }

    /// Final headers and a part of the body arrived.
    pub const fn partial_response(kind: FailureKind) -> Self {
        Self {
            evidence: Evidence::PartialResponse,
            kind,
        }
    }

    /// What the failure proves about the server.
    pub const fn evidence(&self) -> Evidence {
        self.evidence
    }

    /// What kind of failure it was.
    pub const fn kind(&self) -> FailureKind {
        self.kind
    }

    pub(crate) const fn new(evidence: Evidence, kind: FailureKind) -> Self {
        Self { evidence, kind }
    }

    /// The same failure, with evidence never below what was seen on the wire.
    pub(crate) fn at_least(self, seen: Evidence) -> Self {
        Self {
            evidence: self.evidence.max(seen),
            ..self
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind, self.evidence)
    }
}

/// The kind of a failure: for people, for policies, and for step 7 (permanent failures are not
/// retried).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The host name did not resolve.
    Dns,
    /// No connection: refused, unreachable, reset while connecting.
    Connect,
    /// No connection within the connector's time limit.
    ConnectTimeout,
    /// No pooled connection or permit within its time limit.
    PoolTimeout,
    /// The TLS handshake was cut off.
    Tls,
    /// A certificate was refused, by either side. Permanent.
    Certificate,
    /// The peer refused the HTTP/2 stream: REFUSED_STREAM, RFC 9113 §8.7.
    StreamRefused,
    /// The peer is going away: HTTP/2 GOAWAY.
    GoAway,
    /// The connection was closed before an answer.
    Closed,
    /// The connection or the stream was reset.
    Reset,
    /// The response body ended short of its content-length.
    Truncated,
    /// No response headers within the attempt timeout.
    ResponseTimeout,
    /// The call's deadline passed.
    DeadlineReached,
    /// The protocol is not supported, or not spoken by the peer. Permanent.
    Protocol,
    /// Rejected on the caller's side: by its own rules, or by a proxy that wants credentials. Permanent.
    Rejected,
    /// The request or its URI is invalid. Permanent.
    InvalidRequest,
    /// The request body's own source failed, panicked, or ended short. Permanent.
    RequestBody,
    /// A reopened request body is no longer the one that was sent first. Permanent.
    BodyChanged,
    /// A redirect layer below gave up. Permanent.
    RedirectLoop,
    /// This process refused for its own protection: load shed, circuit breaker. Permanent.
    LocalOverload,
    /// A retry layer below already gave up. Permanent.
    AlreadyRetried,
    /// The inner service failed while it was asked for readiness.
    Readiness,
    /// Nothing that this crate can read. Transient.
    Unknown,
}

impl FailureKind {
    /// Whether trying again cannot help, or must not (step 7).
    pub const fn is_permanent(self) -> bool {
        match self {
            Self::Certificate
            | Self::Protocol
            | Self::Rejected
            | Self::InvalidRequest
            | Self::RequestBody
            | Self::BodyChanged
            | Self::RedirectLoop
            | Self::LocalOverload
            | Self::AlreadyRetried => true,
            Self::Dns
            | Self::Connect
            | Self::ConnectTimeout
            | Self::PoolTimeout
            | Self::Tls
            | Self::StreamRefused
            | Self::GoAway
            | Self::Closed
            | Self::Reset
            | Self::Truncated
            | Self::ResponseTimeout
            | Self::DeadlineReached
            | Self::Readiness
            | Self::Unknown => false,
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dns => "host name not resolved",
            Self::Connect => "no connection",
            Self::ConnectTimeout => "connect timed out",
            Self::PoolTimeout => "no pooled connection in time",
            Self::Tls => "TLS handshake cut off",
            Self::Certificate => "certificate refused",
            Self::StreamRefused => "stream refused by the peer",
            Self::GoAway => "peer going away",
            Self::Closed => "connection closed",
            Self::Reset => "connection or stream reset",
            Self::Truncated => "response body truncated",
            Self::ResponseTimeout => "no response headers in time",
            Self::DeadlineReached => "deadline reached",
            Self::Protocol => "protocol not spoken or not supported",
            Self::Rejected => "rejected on the caller's side",
            Self::InvalidRequest => "invalid request",
            Self::RequestBody => "request body failed",
            Self::BodyChanged => "request body changed between attempts",
            Self::RedirectLoop => "too many redirects",
            Self::LocalOverload => "local overload",
            Self::AlreadyRetried => "already retried below",
            Self::Readiness => "inner service not ready",
            Self::Unknown => "unknown failure",
        })
    }
}
