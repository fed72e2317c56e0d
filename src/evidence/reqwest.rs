//! Errors of reqwest.
//!
//! `reqwest::Error::is_connect()`, `is_timeout()` and `is_dns()` walk the whole chain, and a
//! redirect or a retry below makes an executed request end in a connect error (evidence G1, G4).
//! So only the direct source counts, and only where the client is known to send one request a
//! call.

use std::error::Error as _;

use reqwest::Error;

use super::proof::Proof;
use super::{FailureKind, StdErr, hyper};
use crate::body::BodyTrace;

pub(super) fn proof(error: &StdErr, body: BodyTrace) -> Option<Proof> {
    let error = error.downcast_ref::<Error>()?;
    if error.is_redirect() || error.is_status() || error.is_decode() {
        return Some(Proof::Answered);
    }
    if !body.is_alone() {
        return Some(Proof::None);
    }
    if error.is_builder() {
        return Some(Proof::BeforeDispatch);
    }
    let client = error.source().and_then(|source| source.downcast_ref());
    Some(client.map_or(Proof::None, hyper::legacy_proof))
}

pub(super) fn kind(error: &StdErr) -> Option<FailureKind> {
    let error = error.downcast_ref::<Error>()?;
    if error.is_redirect() {
        Some(FailureKind::RedirectLoop)
    } else if error.is_builder() {
        Some(FailureKind::InvalidRequest)
    } else if error.is_timeout() {
        Some(FailureKind::ResponseTimeout)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use reqwest::{Body, Response};

    use super::*;
    use crate::BoxError;

    #[tokio::test]
    async fn a_response_that_was_refused_or_not_read_whole_was_a_response() {
        let refused = http::Response::builder().status(500).body("").unwrap();
        let refused = Response::from(refused).error_for_status().unwrap_err();
        assert!(refused.is_status());
        let broken = tokio_stream::once(Err::<Frame<Bytes>, BoxError>("broken".into()));
        let broken = http::Response::new(Body::wrap(StreamBody::new(broken)));
        let broken = Response::from(broken).bytes().await.unwrap_err();
        assert!(broken.is_decode());
        for error in [refused, broken] {
            assert_eq!(proof(&error, BodyTrace::default()), Some(Proof::Answered));
        }
    }
}
