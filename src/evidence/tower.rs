//! Errors of tower's own middleware, below the layer.

use tower::load_shed::error::Overloaded;
use tower::timeout::error::Elapsed;

use super::proof::Proof;
use super::{FailureKind, StdErr};
use crate::body::BodyTrace;

/// Load shed drops a request without calling what is below, but something between it and the layer
/// may have sent the request before (evidence E8), so the witness has to agree. A timeout says
/// nothing about the request, and a buffer that closed may have called its service (E5).
pub(super) fn proof(error: &StdErr, _: BodyTrace) -> Option<Proof> {
    error.is::<Overloaded>().then_some(Proof::IfUntouched)
}

pub(super) fn kind(error: &StdErr) -> Option<FailureKind> {
    if error.is::<Overloaded>() {
        Some(FailureKind::LocalOverload)
    } else if error.is::<Elapsed>() || error.is::<tokio::time::error::Elapsed>() {
        Some(FailureKind::ResponseTimeout)
    } else {
        None
    }
}
