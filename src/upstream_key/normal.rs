//! The normal form of schemes and authorities (RFC 3986 §6.2.2.1, §6.2.3).

use std::borrow::Cow;
use std::net::Ipv6Addr;

use http::uri::Scheme;

static HTTP: Scheme = Scheme::HTTP;
static HTTPS: Scheme = Scheme::HTTPS;

/// Schemes compare without case, except that a spelled-out `HTTP` is not [`Scheme::HTTP`].
pub(super) fn scheme(scheme: &Scheme) -> &Scheme {
    match scheme.as_str() {
        known if known.eq_ignore_ascii_case("http") => &HTTP,
        known if known.eq_ignore_ascii_case("https") => &HTTPS,
        _ => scheme,
    }
}

/// Borrowed where the authority is in normal form, or a part of it is.
pub(super) fn authority<'a>(scheme: Option<&Scheme>, authority: &'a str) -> Cow<'a, str> {
    let authority = authority
        .rsplit_once('@')
        .map_or(authority, |(_userinfo, rest)| rest);
    let (name, digits) = match authority.rsplit_once(':') {
        // The colons of an IPv6 address are inside its brackets.
        Some((name, digits)) if !digits.contains(']') => (name, digits),
        Some(_) | None => (authority, ""),
    };
    match (host(name), port(scheme, digits)) {
        (host, None) => host,
        (Cow::Borrowed(host), Some(port)) if host.len() + 1 + port.len() == authority.len() => {
            Cow::Borrowed(authority)
        }
        (host, Some(port)) => Cow::Owned(format!("{host}:{port}")),
    }
}

fn host(host: &str) -> Cow<'_, str> {
    let literal = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    if let Some(address) = literal.and_then(|literal| literal.parse::<Ipv6Addr>().ok()) {
        return Cow::Owned(format!("[{address}]"));
    }
    // The root's dot: `example.com.` is `example.com`, written so that no search domain is tried.
    let host = host
        .strip_suffix('.')
        .filter(|host| !host.is_empty())
        .unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

/// `None`: the port goes without saying.
fn port<'a>(scheme: Option<&Scheme>, port: &'a str) -> Option<&'a str> {
    let default = match scheme.map(Scheme::as_str) {
        Some("http") => "80",
        Some("https") => "443",
        Some(_) | None => "",
    };
    // As text: what is too large for a port must not be taken for another.
    let port = match port.trim_start_matches('0') {
        "" if !port.is_empty() => "0",
        digits => digits,
    };
    (!port.is_empty() && port != default).then_some(port)
}
