//! What a failure proves: the one frame for every transport.

use std::sync::Arc;

use super::proof::Proof;
use super::reading;
use super::{
    Classify, Evidence, EvidenceError, FailedAttempt, Failure, FailureKind, PeerPromises, Phase,
};

/// The judgement on one failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Judged {
    pub(crate) failure: Failure,
    /// The error type said "not sent", the witness says "consulted": a defect of a rule here or of
    /// a transport. The proof was dropped.
    pub(crate) contradiction: bool,
    /// A classifier or the error itself said so.
    pub(crate) stated: bool,
}

/// Reads a failure of an attempt whose phase is [`Phase::Call`] or [`Phase::Body`]. `kind` names
/// it where the layer itself ended the attempt and there is no error.
pub(crate) fn judge(
    failed: &FailedAttempt<'_>,
    kind: FailureKind,
    promises: PeerPromises,
    classifiers: &[Arc<dyn Classify>],
) -> Judged {
    let floor = match failed.phase() {
        Phase::Ready => return Judged::stated(Failure::not_sent(FailureKind::Readiness)),
        Phase::Call => Evidence::NotSent,
        Phase::Body => Evidence::ResponseReceived,
    };
    let stated = classifiers
        .iter()
        .find_map(|c| c.classify(failed))
        .or_else(|| {
            failed
                .error()?
                .downcast_ref::<EvidenceError>()
                .map(|e| *e.failure())
        });
    let body = failed.body();
    if let Some(failure) = stated {
        // The witness does not overrule a statement's evidence, but it saw what broke.
        let kind = if body.failed() {
            FailureKind::RequestBody
        } else {
            failure.kind()
        };
        return Judged::stated(Failure::new(failure.evidence(), kind).at_least(floor));
    }

    let proof = failed
        .error()
        .map_or(Proof::None, |error| reading::proof(error, body));
    // h2 hides a failure of the request body, and h1 may show it as a close by the peer; and the
    // error of a body that is itself an HTTP stream is foreign. The witness saw it happen.
    let kind = if body.failed() {
        FailureKind::RequestBody
    } else {
        failed
            .error()
            .and_then(|error| reading::kind(error, failed.phase()))
            .unwrap_or(kind)
    };
    // A hyper client consults the body before it encodes the head. Dropped without that: nothing
    // was written and nothing will be, whatever the error. Alive without that: it may still be
    // (an h2 request that timed out while pending was written 400 ms later).
    let untouched = body.dropped() && !body.consulted();
    let trusted = promises == PeerPromises::Trust && !body.failed();
    let evidence = match proof {
        _ if untouched && body.reached_client() => Evidence::NotSent,
        Proof::BeforeDispatch if !body.consulted() => Evidence::NotSent,
        Proof::IfUntouched if untouched => Evidence::NotSent,
        Proof::PeerRefused if trusted => Evidence::NotSent,
        Proof::PeerGone if trusted && body.polled() => Evidence::NotSent,
        Proof::Answered => Evidence::ResponseReceived,
        Proof::BeforeDispatch
        | Proof::IfUntouched
        | Proof::PeerRefused
        | Proof::PeerGone
        | Proof::None => Evidence::SentNoResponse,
    };
    Judged {
        failure: Failure::new(evidence, kind).at_least(floor),
        contradiction: proof == Proof::BeforeDispatch && body.consulted(),
        stated: false,
    }
}

impl Judged {
    fn stated(failure: Failure) -> Self {
        Self {
            failure,
            contradiction: false,
            stated: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use tower::load_shed::error::Overloaded;

    use super::*;
    use crate::BoxError;
    use crate::body::BodyTrace;

    /// All that a witness can have seen.
    fn traces() -> impl Iterator<Item = BodyTrace> {
        let marks: [fn(BodyTrace) -> BodyTrace; 6] = [
            BodyTrace::with_reached_client,
            BodyTrace::with_consulted,
            BodyTrace::with_polled,
            BodyTrace::with_ended,
            BodyTrace::with_failed,
            BodyTrace::with_dropped,
        ];
        (0..1 << marks.len()).map(move |seen: u32| {
            let set = |trace, (bit, mark): (usize, &fn(BodyTrace) -> BodyTrace)| {
                if seen & (1 << bit) == 0 {
                    trace
                } else {
                    mark(trace)
                }
            };
            marks.iter().enumerate().fold(BodyTrace::default(), set)
        })
    }

    fn read(phase: Phase, error: Option<&BoxError>, trace: BodyTrace) -> Judged {
        let error = error.map(|error| &**error as &(dyn std::error::Error + 'static));
        let failed = FailedAttempt::new(phase, error, trace);
        judge(&failed, FailureKind::Unknown, PeerPromises::Trust, &[])
    }

    #[test]
    fn without_an_error_only_an_untouched_body_proves_anything() {
        for trace in traces() {
            let judged = read(Phase::Call, None, trace);
            let untouched = trace.reached_client() && trace.dropped() && !trace.consulted();
            let not_sent = judged.failure.evidence() == Evidence::NotSent;
            assert_eq!(not_sent, untouched, "{trace:?}");
            assert!(!judged.contradiction);
        }
    }

    #[test]
    fn after_a_head_nothing_is_below_it() {
        let overloaded: BoxError = Overloaded::new().into();
        for trace in traces() {
            for error in [None, Some(&overloaded)] {
                let evidence = read(Phase::Body, error, trace).failure.evidence();
                assert_eq!(evidence, Evidence::ResponseReceived, "{trace:?}");
            }
        }
    }

    #[test]
    fn a_body_that_failed_names_the_failure() {
        let foreign: BoxError = std::io::Error::from(std::io::ErrorKind::TimedOut).into();
        for trace in traces() {
            for error in [None, Some(&foreign)] {
                let kind = read(Phase::Call, error, trace).failure.kind();
                assert_eq!(
                    kind == FailureKind::RequestBody,
                    trace.failed(),
                    "{trace:?}"
                );
            }
        }
    }

    #[test]
    fn load_shed_proves_what_the_witness_does_not_contradict() {
        let overloaded: BoxError = Overloaded::new().into();
        for trace in traces() {
            let judged = read(Phase::Call, Some(&overloaded), trace);
            let untouched = trace.dropped() && !trace.consulted();
            let not_sent = judged.failure.evidence() == Evidence::NotSent;
            assert_eq!(not_sent, untouched, "{trace:?}");
        }
    }

    #[test]
    fn a_statement_stands_whatever_the_witness_saw_but_a_failed_body_is_its_kind() {
        let failure = Failure::not_sent(FailureKind::PoolTimeout);
        let stated: BoxError = EvidenceError::new(failure, "no permit").into();
        for trace in traces() {
            let kind = if trace.failed() {
                FailureKind::RequestBody
            } else {
                FailureKind::PoolTimeout
            };
            let early = read(Phase::Call, Some(&stated), trace).failure;
            assert_eq!(early, Failure::not_sent(kind));
            let late = read(Phase::Body, Some(&stated), trace).failure;
            assert_eq!(late, Failure::response_received(kind));
        }
    }

    #[test]
    fn a_statement_counts_only_where_it_is_outermost() {
        let inner = EvidenceError::new(Failure::not_sent(FailureKind::Connect), "refused");
        let outer: BoxError = std::io::Error::other(inner).into();
        let failure = read(Phase::Call, Some(&outer), BodyTrace::default()).failure;
        assert_eq!(failure, Failure::sent_no_response(FailureKind::Unknown));
    }
}
