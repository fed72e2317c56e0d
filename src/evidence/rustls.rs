//! TLS failures that will happen again.

use rustls::{AlertDescription, Error};

use super::{FailureKind, StdErr};

/// A certificate that one side does not accept, and peers that have no protocol in common, are
/// permanent, also where a late alert leaves open what became of the request (evidence A5).
pub(super) fn kind(error: &StdErr) -> Option<FailureKind> {
    let error = error.downcast_ref::<Error>()?;
    if let Error::AlertReceived(alert) = error {
        return Some(alert_kind(*alert));
    }
    if matches!(
        error,
        Error::InvalidCertificate(_)
            | Error::InvalidCertRevocationList(_)
            | Error::NoCertificatesPresented
    ) {
        Some(FailureKind::Certificate)
    } else if matches!(
        error,
        Error::InvalidMessage(_)
            | Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. }
            | Error::PeerIncompatible(_)
            | Error::PeerMisbehaved(_)
            | Error::PeerSentOversizedRecord
            | Error::NoApplicationProtocol
    ) {
        Some(FailureKind::Protocol)
    } else {
        Some(FailureKind::Tls)
    }
}

fn alert_kind(alert: AlertDescription) -> FailureKind {
    const CERTIFICATE: [AlertDescription; 12] = [
        AlertDescription::NoCertificate,
        AlertDescription::BadCertificate,
        AlertDescription::UnsupportedCertificate,
        AlertDescription::CertificateRevoked,
        AlertDescription::CertificateExpired,
        AlertDescription::CertificateUnknown,
        AlertDescription::UnknownCA,
        AlertDescription::AccessDenied,
        AlertDescription::CertificateUnobtainable,
        AlertDescription::BadCertificateStatusResponse,
        AlertDescription::BadCertificateHashValue,
        AlertDescription::CertificateRequired,
    ];
    // The peer's own trouble, or somebody's on the way.
    const PASSING: [AlertDescription; 5] = [
        AlertDescription::CloseNotify,
        AlertDescription::InternalError,
        AlertDescription::UserCanceled,
        AlertDescription::BadRecordMac,
        AlertDescription::DecryptError,
    ];
    if CERTIFICATE.contains(&alert) {
        FailureKind::Certificate
    } else if PASSING.contains(&alert) {
        FailureKind::Tls
    } else {
        FailureKind::Protocol
    }
}

#[cfg(test)]
mod tests {
    use rustls::{CertificateError, InvalidMessage};

    use super::*;

    #[test]
    fn what_will_happen_again_is_permanent() {
        let table = [
            (
                Error::InvalidCertificate(CertificateError::Expired),
                FailureKind::Certificate,
            ),
            (
                Error::AlertReceived(AlertDescription::UnknownCA),
                FailureKind::Certificate,
            ),
            (
                Error::AlertReceived(AlertDescription::ProtocolVersion),
                FailureKind::Protocol,
            ),
            (
                Error::InvalidMessage(InvalidMessage::InvalidContentType),
                FailureKind::Protocol,
            ),
            (
                Error::AlertReceived(AlertDescription::InternalError),
                FailureKind::Tls,
            ),
            (Error::General("something".into()), FailureKind::Tls),
        ];
        for (error, expected) in table {
            assert_eq!(kind(&error), Some(expected), "{error}");
        }
    }
}
