//! How long a server asks to wait: `Retry-After` and its relatives.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{DATE, HeaderMap, HeaderValue};

/// The wait that a response's headers ask for, at the wall clock time `now`; `None` if they ask for
/// none.
///
/// The first of these that is valid counts:
///
/// 1. `retry-after-ms` and then `x-ms-retry-after-ms`: milliseconds;
/// 2. `Retry-After` (RFC 9110 §10.2.3): seconds, or one of the three HTTP-date forms, relative to
///    the response's own `Date` if it has a valid one, so that a client's wrong clock does no harm,
///    and to `now` otherwise.
///
/// Numbers are digits and nothing else: no sign, no fraction, no exponent, no unit. A number too
/// large for a `Duration` is longer than any limit: [`Duration::MAX`]. A date in the past is zero,
/// as is `0`: a hint all the same. Of several lines of one header the longest valid one counts.
/// Whatever is malformed is ignored, like dates that do not exist, a weekday that does not belong
/// to its date, or lines that somebody joined (`7, 2`).
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

/// As [`parse`], by the wall clock, which is not read where there is nothing to parse.
// Nothing else in the crate reads it: all other time is `tokio::time`'s.
#[allow(clippy::disallowed_methods)]
pub(crate) fn of(headers: &HeaderMap) -> Option<Duration> {
    if headers.is_empty() {
        return None;
    }
    parse(headers, SystemTime::now())
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

/// RFC 9110 §5.6.7: a two-digit year that seems to be more than 50 years ahead lies in the past.
/// `httpdate` has a fixed century instead, so it is given the whole year, and checks the rest:
/// positions, calendar, weekday.
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

#[cfg(test)]
mod tests {
    use http::header::{HeaderName, RETRY_AFTER};
    use httpdate::fmt_http_date;
    use proptest::prelude::*;

    use super::*;

    fn seconds(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(784_111_777)
    }

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let lines = lines.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            )
        });
        let mut headers = HeaderMap::new();
        lines.for_each(|(name, value)| _ = headers.append(name, value));
        headers
    }

    fn parsed(lines: &[(&'static str, &str)]) -> Option<Duration> {
        parse(&headers(lines), now())
    }

    fn line(value: &str) -> Option<Duration> {
        parsed(&[("retry-after", value)])
    }

    #[test]
    fn nothing_asked_is_no_hint() {
        assert_eq!(parsed(&[]), None);
        assert_eq!(parsed(&[("date", "Sun, 06 Nov 1994 08:49:37 GMT")]), None);
    }

    #[test]
    fn seconds_are_digits_with_whitespace_around_them() {
        assert_eq!(line("120"), seconds(120));
        assert_eq!(line("\t 007 "), seconds(7));
        assert_eq!(line("0"), seconds(0));
    }

    #[test]
    fn what_is_not_digits_is_no_number() {
        for value in [
            "", " ", "-1", "+1", "1.0", "1e3", "0x10", "nan", "inf", "-inf", "1e400", "1s", "1 2",
            "1_000", "7, 2", "7;", "\u{b2}", "\u{663}",
        ] {
            assert_eq!(line(value), None, "{value:?}");
            for name in ["retry-after-ms", "x-ms-retry-after-ms"] {
                assert_eq!(parsed(&[(name, value)]), None, "{name}: {value:?}");
            }
        }
    }

    #[test]
    fn a_number_too_large_is_longer_than_any_limit() {
        assert_eq!(line("18446744073709551615"), seconds(u64::MAX));
        for value in ["18446744073709551616", &"9".repeat(4_000)] {
            assert_eq!(line(value), Some(Duration::MAX));
            assert_eq!(parsed(&[("retry-after-ms", value)]), Some(Duration::MAX));
        }
        assert_eq!(line(&format!("{}5", "0".repeat(4_000))), seconds(5));
    }

    #[test]
    fn all_three_date_forms_are_read() {
        for value in [
            "Sun, 06 Nov 1994 08:49:42 GMT",
            "Sunday, 06-Nov-94 08:49:42 GMT",
            "Sun Nov  6 08:49:42 1994",
        ] {
            assert_eq!(line(value), seconds(5), "{value}");
        }
    }

    #[test]
    fn a_date_that_has_passed_is_zero() {
        for value in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:36 GMT",
            "Thu, 01 Jan 1970 00:00:00 GMT",
        ] {
            assert_eq!(line(value), seconds(0), "{value}");
        }
    }

    #[test]
    fn dates_that_do_not_exist_are_ignored() {
        for value in [
            "Tue, 31 Feb 1995 00:00:00 GMT",
            "Fri, 31 Feb 1995 00:00:00 GMT",
            "Wed, 29 Feb 1995 00:00:00 GMT",
            "Wednesday, 29-Feb-95 00:00:00 GMT",
            "Wed Feb 29 00:00:00 1995",
            "Sun, 00 Jan 1995 00:00:00 GMT",
            "Sun, 01 Jan 1995 24:00:00 GMT",
            "Sun, 01 Jan 1995 00:60:00 GMT",
        ] {
            assert_eq!(line(value), None, "{value}");
        }
        assert!(line("Thu, 29 Feb 1996 00:00:00 GMT").is_some());
    }

    #[test]
    fn dates_in_another_shape_are_ignored() {
        for value in [
            "Mon, 06 Nov 1994 08:49:42 GMT", // it was a Sunday
            "Sunny, 06-Nov-94 08:49:42 GMT",
            "Sun, 06-Nov-94 08:49:42 GMT",
            "Sunday, 06-Nov-1994 08:49:42 GMT",
            "Sunday, 6-Nov-94 08:49:42 GMT",
            "Sunday, 06-Nov-9x 08:49:42 GMT",
            "Sunday, 06-Nov-94-1 08:49:42 GMT",
            "Sunday, 06-Nov 08:49:42 GMT",
            "Sunday, 06-Nov-94",
            "Sunday, - GMT",
            "-",
            "Sun, 6 Nov 1994 08:49:42 GMT",
            "Sun, 06 Nov 1994 08:49:42 UTC",
            "Sun, 06 Nov 1994 08:49:42 +0000",
            "sun, 06 nov 1994 08:49:42 gmt",
            "Sun, 06 Nov 11994 08:49:42 GMT",
            "1994-11-06T08:49:42Z",
        ] {
            assert_eq!(line(value), None, "{value}");
        }
    }

    #[test]
    fn the_last_year_there_is_is_far_away_and_no_more() {
        let wait = line("Fri, 31 Dec 9999 23:59:59 GMT").unwrap();
        assert_eq!(wait.as_secs() / YEAR.as_secs(), 9999 - 1994);
    }

    #[test]
    fn a_two_digit_year_is_the_last_one_at_most_fifty_years_ahead() {
        let in_2026 = httpdate::parse_http_date("Fri, 20 Feb 2026 00:00:00 GMT").unwrap();
        let in_2090 = httpdate::parse_http_date("Sun, 01 Jan 2090 00:00:00 GMT").unwrap();
        for (value, now, year) in [
            ("Friday, 20-Feb-26 00:00:05 GMT", in_2026, Some("2026")),
            ("Sunday, 06-Nov-94 08:49:37 GMT", in_2026, Some("1994")),
            ("Saturday, 06-Nov-94 08:49:37 GMT", in_2090, Some("2094")),
            ("Sunday, 01-Jan-30 00:00:00 GMT", in_2090, Some("2130")),
            // Where the limit is; a weekday can only be right in one of the two centuries.
            ("Thursday, 20-Feb-76 00:00:00 GMT", in_2026, Some("2076")),
            ("Friday, 21-Feb-76 00:00:00 GMT", in_2026, None),
            ("Saturday, 21-Feb-76 00:00:00 GMT", in_2026, Some("1976")),
        ] {
            let date = http_date(value, now).map(fmt_http_date);
            assert_eq!(date.as_deref().map(|date| &date[12..16]), year, "{value}");
        }
    }

    #[test]
    fn a_date_is_relative_to_the_responses_own() {
        let retry_after = ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT");
        assert_eq!(
            parsed(&[retry_after, ("date", "Sun, 06 Nov 1994 08:50:00 GMT")]),
            seconds(7)
        );
        assert_eq!(
            parsed(&[retry_after, ("date", " Sunday, 06-Nov-94 08:50:00 GMT")]),
            seconds(7)
        );
        assert_eq!(
            parsed(&[retry_after, ("date", "Sun, 06 Nov 1994 08:51:00 GMT")]),
            seconds(0)
        );
        assert_eq!(parsed(&[retry_after, ("date", "yesterday")]), seconds(30));
        assert_eq!(parsed(&[retry_after]), seconds(30));
    }

    #[test]
    fn the_date_has_no_part_in_seconds() {
        let date = ("date", "Sun, 06 Nov 1994 08:50:00 GMT");
        assert_eq!(parsed(&[date, ("retry-after", "3")]), seconds(3));
    }

    #[test]
    fn the_first_valid_header_counts() {
        let (ms, x_ms, plain) = (
            ("retry-after-ms", "1500"),
            ("x-ms-retry-after-ms", "900"),
            ("retry-after", "3"),
        );
        let (bad_ms, bad_x_ms) = (("retry-after-ms", "-1"), ("x-ms-retry-after-ms", "soon"));
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(parsed(&[plain, x_ms, ms]), millis(1_500));
        assert_eq!(parsed(&[plain, x_ms, bad_ms]), millis(900));
        assert_eq!(parsed(&[plain, bad_x_ms, bad_ms]), millis(3_000));
        assert_eq!(parsed(&[("retry-after", "later"), bad_x_ms, bad_ms]), None);
    }

    #[test]
    fn of_several_lines_the_longest_valid_one_counts() {
        let lines = |values: &[&'static str]| {
            parsed(
                &values
                    .iter()
                    .map(|value| ("retry-after", *value))
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(lines(&["7", "2"]), seconds(7));
        assert_eq!(lines(&["2", "soon", "3"]), seconds(3));
        assert_eq!(lines(&["2", "Sun, 06 Nov 1994 08:49:42 GMT"]), seconds(5));
        assert_eq!(
            parsed(&[("retry-after-ms", "10"), ("retry-after-ms", "100")]),
            Some(Duration::from_millis(100))
        );
    }

    #[test]
    fn a_clock_before_1970_or_after_9999_does_no_harm() {
        let early = UNIX_EPOCH - Duration::from_secs(1 << 40);
        let late = UNIX_EPOCH + Duration::from_secs(1 << 50);
        for value in [
            "Sunday, 06-Nov-94 08:49:42 GMT",
            "Sun, 06 Nov 1994 08:49:42 GMT",
        ] {
            let headers = headers(&[("retry-after", value)]);
            _ = parse(&headers, early);
            assert!(parse(&headers, late).is_none_or(|wait| wait.is_zero()));
        }
    }

    /// RFC 850 and asctime, from IMF-fixdate.
    fn obsolete_forms(imf: &str) -> [String; 2] {
        let [weekday, day, month, year, time] = [
            &imf[..3],
            &imf[5..7],
            &imf[8..11],
            &imf[12..16],
            &imf[17..25],
        ];
        let full = WEEKDAYS
            .iter()
            .find(|full| full.starts_with(weekday))
            .unwrap();
        let day_number: u8 = day.parse().unwrap();
        [
            format!("{full}, {day}-{month}-{} {time} GMT", &year[2..]),
            format!("{weekday} {month} {day_number:2} {time} {year}"),
        ]
    }

    proptest! {
        #[test]
        fn no_value_panics(values: Vec<(usize, Vec<u8>)>, unix: u64) {
            let names = [RETRY_AFTER, DATE, HeaderName::from_static("retry-after-ms")];
            let mut headers = HeaderMap::new();
            for (name, value) in values {
                if let Ok(value) = HeaderValue::from_bytes(&value) {
                    headers.append(&names[name % names.len()], value);
                }
            }
            let now = UNIX_EPOCH.checked_add(Duration::from_secs(unix)).unwrap_or(UNIX_EPOCH);
            parse(&headers, now);
        }

        #[test]
        fn no_value_in_the_shape_of_a_date_panics(
            value in "([MTWFS][a-z]{2,8}, )?[0-9]{0,2}[ -]?[JFMASOND][a-z]{2}[ -][0-9]{1,5} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT",
        ) {
            line(&value);
            parsed(&[("date", &value), ("retry-after", &value)]);
        }

        #[test]
        fn every_number_of_seconds_is_read(number: u64) {
            prop_assert_eq!(line(&number.to_string()), seconds(number));
        }

        #[test]
        fn every_date_form_says_how_far_it_is_from_the_responses_own(
            sent in 0_u64..200_000_000_000, ahead in 0_u64..1_500_000_000, clock: u32,
        ) {
            let at = |unix| fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix));
            let imf = at(sent + ahead);
            let [rfc850, asctime] = obsolete_forms(&imf);
            let wrong_clock = UNIX_EPOCH + Duration::from_secs(clock.into());
            for form in [imf, rfc850, asctime] {
                let headers = headers(&[("date", &at(sent)), ("retry-after", &form)]);
                prop_assert_eq!(parse(&headers, wrong_clock), seconds(ahead), "{}", form);
            }
        }
    }
}
