//! How long a server asks to wait: `Retry-After` and its relatives.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{DATE, HeaderMap, HeaderValue};

/// The wait that a response's headers ask for, at the wall clock time `now`; `None` if they ask for none.
///
/// The first of these that is valid counts:
///
/// 1. `retry-after-ms` and then `x-ms-retry-after-ms`: milliseconds;
/// 2. `Retry-After` (RFC 9110 §10.2.3): seconds, or one of the three HTTP-date forms, relative to the response's own
///    `Date` if it has a valid one, so that a client's wrong clock does no harm, and to `now` otherwise.
///
/// Numbers are digits and nothing else: no sign, no fraction, no exponent, no unit. A number too large for a
/// `Duration` is longer than any limit: [`Duration::MAX`]. A date in the past is zero, as is `0`: a hint all the same.
/// Of several lines of one header the longest valid one counts. Whatever is malformed is ignored, like dates that do
/// not exist, a weekday that does not belong to its date, or lines that somebody joined (`7, 2`).
///
/// ```
/// # use std::time::{Duration, SystemTime};
/// use tower_http_retry::retry_after;
///
/// let mut headers = http::HeaderMap::new();
/// headers.insert("retry-after", "120".parse()?);
/// assert_eq!(retry_after::parse(&headers, SystemTime::UNIX_EPOCH), Some(Duration::from_secs(120)));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
pub fn parse(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let millis = |name| longest(headers, name, |value| number(value, Duration::from_millis));
    let seconds_or_date = |value: &str| {
        number(value, Duration::from_secs)
            .or_else(|| until(value, sent(headers, now).unwrap_or(now)))
    };
    millis("retry-after-ms")
        .or_else(|| millis("x-ms-retry-after-ms"))
        .or_else(|| longest(headers, "retry-after", seconds_or_date))
}

/// The wall clock. Nothing else in the crate reads it: all other time is `tokio::time`'s.
#[allow(clippy::disallowed_methods, dead_code)]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// A repeated line is a server's mistake; the longest is never earlier than any of them asked for.
fn longest(
    headers: &HeaderMap,
    name: &str,
    parse: impl Fn(&str) -> Option<Duration>,
) -> Option<Duration> {
    let lines = headers.get_all(name).into_iter();
    lines.filter_map(|line| parse(text(line)?)).max()
}

/// Without optional whitespace, RFC 9110 §5.6.3.
fn text(line: &HeaderValue) -> Option<&str> {
    Some(line.to_str().ok()?.trim_matches([' ', '\t']))
}

/// Digits only: a parser of floats or of signed numbers would accept `nan`, `1e9`, `+5` and `-1`.
fn number(value: &str, unit: fn(u64) -> Duration) -> Option<Duration> {
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Only a number that is too large fails to parse now.
    Some(value.parse().map_or(Duration::MAX, unit))
}

/// When the server says that it sent this.
fn sent(headers: &HeaderMap, now: SystemTime) -> Option<SystemTime> {
    http_date(text(headers.get(DATE)?)?, now)
}

/// A date in the past asks for no wait.
fn until(date: &str, now: SystemTime) -> Option<Duration> {
    Some(
        http_date(date, now)?
            .duration_since(now)
            .unwrap_or_default(),
    )
}

fn http_date(value: &str, now: SystemTime) -> Option<SystemTime> {
    // Of the three forms only RFC 850's has hyphens, and only its year is short.
    if value.contains('-') {
        rfc850_date(value, now)
    } else {
        httpdate::parse_http_date(value).ok()
    }
}

/// RFC 9110 §5.6.7: a two-digit year that seems to be more than 50 years ahead lies in the past. `httpdate` has a fixed
/// century instead, so it is given the whole year.
fn rfc850_date(value: &str, now: SystemTime) -> Option<SystemTime> {
    let (weekday, rest) = value.split_once(", ")?;
    let weekday = WEEKDAYS.contains(&weekday).then(|| weekday.get(..3))??;
    let (date, time) = rest.split_once(' ')?;
    let mut parts = date.splitn(3, '-');
    let (day, month, year) = (parts.next()?, parts.next()?, two_digits(parts.next()?)?);

    let fifty_years_on = now.checked_add(50 * YEAR)?;
    let newest = 1970 + fifty_years_on.duration_since(UNIX_EPOCH).ok()?.as_secs() / YEAR.as_secs();
    let newest = newest - (newest - year) % 100;
    [newest, newest - 100]
        .into_iter()
        .filter_map(|year| {
            httpdate::parse_http_date(&format!("{weekday}, {day} {month} {year} {time}")).ok()
        })
        .find(|date| *date <= fifty_years_on)
}

fn two_digits(value: &str) -> Option<u64> {
    let digits = value.len() == 2 && value.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| value.parse().ok())?
}

const WEEKDAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

/// The mean year of the calendar.
const YEAR: Duration = Duration::from_secs(31_556_952);
