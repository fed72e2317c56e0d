//! Requests that the server would refuse a second time.

use http::HeaderMap;
use http::header::{IF_MATCH, IF_NONE_MATCH};

/// RFC 9110 §13.1: after the first application the tag has changed, or something exists. A weak tag
/// never matches; with several tags the new one might be among them.
pub(super) fn fails_a_second_time(headers: &HeaderMap) -> bool {
    let only = |name| {
        let mut values = headers.get_all(name).iter();
        let first = values.next().map(|value| value.as_bytes().trim_ascii());
        first.filter(|_| values.next().is_none())
    };
    only(IF_NONE_MATCH) == Some(b"*") || only(IF_MATCH).is_some_and(is_one_strong_tag)
}

fn is_one_strong_tag(value: &[u8]) -> bool {
    match value {
        [b'"', inner @ .., b'"'] => !inner.contains(&b'"'),
        _ => false,
    }
}
