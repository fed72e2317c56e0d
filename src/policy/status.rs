//! Statuses by what they say of the execution.

use http::StatusCode;

/// Answers of a server, or of a proxy in front of it, that did not process the request: RFC 9110
/// §15.5.9, RFC 8470 §5.2, RFC 6585 §4.
pub(super) fn is_refusal(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
    )
}

/// Answers of a gateway that cannot tell what the server behind it did.
pub(super) fn is_gateway(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    )
}

/// 4xx, 5xx, and what servers invent above.
pub(super) fn is_error(status: StatusCode) -> bool {
    status.as_u16() >= 400
}
