//! Who answers: the key that budgets and registered upstreams go by.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

use http::header::HOST;
use http::request::Parts;
use http::uri::{Authority, Scheme};

/// An upstream: scheme and authority, or a name of the caller's.
///
/// Put one into a request's extensions to say who will answer it; otherwise the request's URI tells,
/// else its `Host`. The default key stands for requests that name nobody.
///
/// Origins are compared in normal form: scheme and host in lower case, without user information,
/// a trailing dot, or the default port of the scheme; IPv6 addresses in their shortest form.
///
/// ```
/// use tower_http_retry::UpstreamKey;
///
/// let (parts, ()) = http::Request::get("https://User@EXAMPLE.com:443/path").body(()).unwrap().into_parts();
/// let (same, ()) = http::Request::get("https://example.com").body(()).unwrap().into_parts();
/// assert_eq!(UpstreamKey::of(&parts), UpstreamKey::of(&same));
/// assert_ne!(UpstreamKey::of(&same), UpstreamKey::new("https://example.com"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct UpstreamKey {
    repr: Repr,
}

#[derive(Clone, PartialEq, Eq, Hash, Default)]
enum Repr {
    #[default]
    Unnamed,
    Named(Arc<str>),
    /// The authority is in normal form.
    Origin(Option<Scheme>, Arc<str>),
}

impl UpstreamKey {
    /// An upstream by a name of the caller's. Never equal to an origin, so no `Host` can take it.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            repr: Repr::Named(name.into()),
        }
    }

    /// An upstream by scheme and authority. Without a scheme: the `Host` of an origin-form request.
    pub fn origin(scheme: Option<&Scheme>, authority: &Authority) -> Self {
        let normal = normal(scheme, authority.as_str());
        Self {
            repr: Repr::Origin(scheme.cloned(), Arc::from(normal)),
        }
    }

    /// Who answers this request: its extension of this type, else its URI, else its `Host`, else
    /// the default key.
    pub fn of(parts: &Parts) -> Self {
        if let Some(declared) = parts.extensions.get::<Self>() {
            return declared.clone();
        }
        if let Some(authority) = parts.uri.authority() {
            return Self::origin(parts.uri.scheme(), authority);
        }
        let host = parts.headers.get(HOST).map(http::HeaderValue::as_bytes);
        match host.and_then(|host| Authority::try_from(host).ok()) {
            Some(authority) => Self::origin(None, &authority),
            None => Self::default(),
        }
    }

    /// Whether this is [`UpstreamKey::of`] the request. Allocates nothing where the request's
    /// authority is in normal form, which nearly all are.
    pub(crate) fn matches(&self, parts: &Parts) -> bool {
        if let Some(declared) = parts.extensions.get::<Self>() {
            return self == declared;
        }
        if let Some(authority) = parts.uri.authority() {
            return self.is_origin(parts.uri.scheme(), authority.as_str());
        }
        match parts.headers.get(HOST) {
            // Bytes that equal a valid authority are one.
            Some(host) => match (&self.repr, Authority::try_from(host.as_bytes())) {
                (Repr::Origin(None, normal), _) if normal.as_bytes() == host.as_bytes() => true,
                (_, Ok(authority)) => self.is_origin(None, authority.as_str()),
                (repr, Err(_)) => *repr == Repr::Unnamed,
            },
            None => self.repr == Repr::Unnamed,
        }
    }

    fn is_origin(&self, scheme: Option<&Scheme>, authority: &str) -> bool {
        match &self.repr {
            Repr::Origin(own, normal_form) => {
                own.as_ref() == scheme
                    && (**normal_form == *authority || **normal_form == *normal(scheme, authority))
            }
            Repr::Unnamed | Repr::Named(_) => false,
        }
    }
}

impl fmt::Debug for UpstreamKey {
    /// User information is not part of the key, so it cannot be printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.repr {
            Repr::Unnamed => f.write_str("UpstreamKey(unnamed)"),
            Repr::Named(name) => write!(f, "UpstreamKey({name:?})"),
            Repr::Origin(Some(scheme), authority) => {
                write!(f, "UpstreamKey({scheme}://{authority})")
            }
            Repr::Origin(None, authority) => write!(f, "UpstreamKey(//{authority})"),
        }
    }
}

/// The authority in normal form (RFC 3986 §6.2.2.1, §6.2.3), borrowed where it has it already.
fn normal<'a>(scheme: Option<&Scheme>, authority: &'a str) -> Cow<'a, str> {
    let authority = authority
        .rsplit_once('@')
        .map_or(authority, |(_userinfo, rest)| rest);
    let (host, port) = match authority.rsplit_once(':') {
        // The colons of an IPv6 address are inside its brackets.
        Some((host, port)) if !port.contains(']') => (host, port),
        Some(_) | None => (authority, ""),
    };
    let host_form = normal_host(host);
    let port_form = normal_port(scheme, port);
    match (&host_form, &port_form) {
        (Cow::Borrowed(host), None) => Cow::Borrowed(host),
        (Cow::Borrowed(host), Some(Cow::Borrowed(port)))
            if host.len() + 1 + port.len() == authority.len() =>
        {
            Cow::Borrowed(authority)
        }
        (host, None) => Cow::Owned(host.to_string()),
        (host, Some(port)) => Cow::Owned(format!("{host}:{port}")),
    }
}

fn normal_host(host: &str) -> Cow<'_, str> {
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

fn normal_port<'a>(scheme: Option<&Scheme>, port: &'a str) -> Option<Cow<'a, str>> {
    let default = match scheme.map(Scheme::as_str) {
        Some(scheme) if scheme.eq_ignore_ascii_case("http") => Some(80),
        Some(scheme) if scheme.eq_ignore_ascii_case("https") => Some(443),
        Some(_) | None => None,
    };
    if port.is_empty() {
        return None;
    }
    match port.parse::<u16>() {
        Ok(number) if Some(number) == default => None,
        Ok(number) if port.starts_with('0') && port.len() > 1 => {
            Some(Cow::Owned(number.to_string()))
        }
        // No port at all: part of the identity as it is, so that it is not taken for another.
        Ok(_) | Err(_) => Some(Cow::Borrowed(port)),
    }
}
