//! What a policy says of a request before it is sent.

use std::mem;
use std::num::NonZeroU32;

use http::Request;

use super::{Policy, idempotency_for};
use crate::body::ReplayBody;
use crate::idempotency::Idempotency;
use crate::random::idempotency_key;

/// What has to be known before a request is sent.
pub(crate) struct Plan {
    pub(crate) max_attempts: NonZeroU32,
    /// `None`: the standard policy tells, when somebody needs to know. That is never, for a call that
    /// is answered at once.
    pub(crate) idempotency: Option<Idempotency>,
}

/// The plan for a request, which may get an idempotency key of the layer's own.
#[inline]
pub(crate) fn plan<P: Policy>(policy: &P, request: &mut Request<ReplayBody>) -> Plan {
    match policy.standard() {
        Some(standard) if standard.needs_no_parts() => Plan {
            max_attempts: standard.attempts(),
            idempotency: None,
        },
        Some(_) | None => ask(policy, request),
    }
}

/// Asks with the whole head. For that the request is taken apart and put together again, which
/// costs more than the answers.
#[inline(never)]
fn ask<P: Policy>(policy: &P, request: &mut Request<ReplayBody>) -> Plan {
    let (mut head, body) = mem::take(request).into_parts();
    if let Some(name) = policy.generated_key(&head)
        && !head.headers.contains_key(&name)
        && let Some(key) = idempotency_key()
    {
        // A map that is full takes none: the request goes out as it is, without a key.
        let _ = head.headers.try_insert(name, key);
    }
    let plan = Plan {
        max_attempts: policy.max_attempts(&head),
        idempotency: Some(idempotency_for(policy, &head)),
    };
    *request = Request::from_parts(head, body);
    plan
}
