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

/// The same, borrowed from a request: looking a budget up allocates nothing.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct UpstreamRef<'a> {
    repr: ReprRef<'a>,
}

#[derive(PartialEq, Eq, Hash)]
enum ReprRef<'a> {
    Unnamed,
    Named(&'a Arc<str>),
    Origin(Option<Scheme>, Cow<'a, str>),
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
        UpstreamRef::origin(scheme, authority.as_str()).to_key()
    }

    /// Who answers this request: its extension of this type, else its URI, else its `Host`, else
    /// the default key.
    pub fn of(parts: &Parts) -> Self {
        UpstreamRef::of(parts).to_key()
    }

    /// Whether this is [`UpstreamKey::of`] the request.
    #[cfg(test)]
    pub(crate) fn matches(&self, parts: &Parts) -> bool {
        self.is_spelled_in(parts) || self.as_ref() == UpstreamRef::of(parts)
    }

    /// Whether the request names this upstream letter for letter: the quick half of `matches`.
    #[inline]
    pub(crate) fn is_spelled_in(&self, parts: &Parts) -> bool {
        if let Some(declared) = parts.extensions.get::<Self>() {
            return self == declared;
        }
        match (&self.repr, parts.uri.authority()) {
            (Repr::Origin(scheme, own), Some(authority)) => {
                scheme.as_ref() == parts.uri.scheme() && **own == *authority.as_str()
            }
            (Repr::Origin(None, own), None) => parts
                .headers
                .get(HOST)
                .is_some_and(|host| *host.as_bytes() == *own.as_bytes()),
            (Repr::Origin(Some(_), _) | Repr::Named(_), None) => false,
            (Repr::Unnamed | Repr::Named(_), Some(_)) => false,
            (Repr::Unnamed, None) => !parts.headers.contains_key(HOST),
        }
    }

    pub(crate) fn as_ref(&self) -> UpstreamRef<'_> {
        let repr = match &self.repr {
            Repr::Unnamed => ReprRef::Unnamed,
            Repr::Named(name) => ReprRef::Named(name),
            Repr::Origin(scheme, authority) => {
                ReprRef::Origin(scheme.clone(), Cow::Borrowed(authority))
            }
        };
        UpstreamRef { repr }
    }
}

impl<'a> UpstreamRef<'a> {
    /// As [`UpstreamKey::of`].
    pub(crate) fn of(parts: &'a Parts) -> Self {
        if let Some(declared) = parts.extensions.get::<UpstreamKey>() {
            return declared.as_ref();
        }
        if let Some(authority) = parts.uri.authority() {
            return Self::origin(parts.uri.scheme(), authority.as_str());
        }
        let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
        // What is no authority names nobody.
        match host.filter(|host| Authority::try_from(*host).is_ok()) {
            Some(host) => Self::origin(None, host),
            None => Self {
                repr: ReprRef::Unnamed,
            },
        }
    }

    pub(crate) fn to_key(&self) -> UpstreamKey {
        let repr = match &self.repr {
            ReprRef::Unnamed => Repr::Unnamed,
            ReprRef::Named(name) => Repr::Named(Arc::clone(name)),
            ReprRef::Origin(scheme, authority) => {
                Repr::Origin(scheme.clone(), Arc::from(&**authority))
            }
        };
        UpstreamKey { repr }
    }

    fn origin(scheme: Option<&Scheme>, authority: &'a str) -> Self {
        let scheme = scheme.map(normal_scheme);
        let authority = normal(scheme.as_ref(), authority);
        Self {
            repr: ReprRef::Origin(scheme, authority),
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

/// Schemes compare without case, except that a spelled-out `HTTP` is not [`Scheme::HTTP`].
fn normal_scheme(scheme: &Scheme) -> Scheme {
    match scheme.as_str() {
        known if known.eq_ignore_ascii_case("http") => Scheme::HTTP,
        known if known.eq_ignore_ascii_case("https") => Scheme::HTTPS,
        _ => scheme.clone(),
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
        Some("http") => Some(80),
        Some("https") => Some(443),
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::hash::{BuildHasher, RandomState};

    use http::Request;
    use proptest::prelude::*;

    use super::*;

    fn origin(scheme: &str, authority: &str) -> UpstreamKey {
        let scheme = (!scheme.is_empty()).then(|| scheme.parse().unwrap());
        UpstreamKey::origin(scheme.as_ref(), &authority.parse().unwrap())
    }

    fn get(uri: &str, host: Option<&str>) -> Parts {
        let mut request = Request::get(uri);
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn one_upstream_has_one_key_however_it_is_spelled() {
        for (scheme, spelled, normal) in [
            ("http", "EXAMPLE.com", "example.com"),
            ("http", "example.com:80", "example.com"),
            ("https", "example.com:443", "example.com"),
            ("https", "example.com:0443", "example.com"),
            ("http", "example.com:", "example.com"),
            ("http", "example.com.", "example.com"),
            ("http", "Example.com.:08080", "example.com:8080"),
            ("http", "user:secret@example.com", "example.com"),
            ("http", "user:secret@Example.com:81", "example.com:81"),
            ("http", "[2001:DB8:0:0::1]:80", "[2001:db8::1]"),
            ("http", "[::1]:81", "[0:0:0:0:0:0:0:1]:81"),
            ("", "EXAMPLE.com:80", "example.com:80"),
            ("grpc", "EXAMPLE.com:80", "example.com:80"),
            ("HTTP", "example.com:80", "example.com"),
        ] {
            let (spelled_key, normal_key) = (origin(scheme, spelled), origin(scheme, normal));
            assert_eq!(spelled_key, normal_key, "{spelled}");
            let hasher = RandomState::new();
            assert_eq!(hasher.hash_one(&spelled_key), hasher.hash_one(&normal_key));
        }
        assert_eq!(origin("HTTP", "a"), origin("http", "a"));
    }

    #[test]
    fn different_upstreams_have_different_keys() {
        let keys = [
            origin("http", "example.com"),
            origin("https", "example.com"),
            origin("", "example.com"),
            origin("http", "example.com:443"),
            origin("http", "example.com:99999"),
            origin("http", "example.com:8080"),
            origin("", "example.com:80"),
            origin("http", "example.org"),
            origin("http", "[::1]"),
            origin("http", "."),
            UpstreamKey::new("http://example.com"),
            UpstreamKey::new("example.com"),
            UpstreamKey::new("//example.com"),
            UpstreamKey::new(""),
            UpstreamKey::default(),
        ];
        for (i, one) in keys.iter().enumerate() {
            for (j, other) in keys.iter().enumerate() {
                assert_eq!(one == other, i == j, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn the_extension_speaks_before_the_uri_and_the_uri_before_the_host() {
        let mut parts = get("http://a/path", Some("b"));
        assert_eq!(UpstreamKey::of(&parts), origin("http", "a"));
        parts.extensions.insert(UpstreamKey::new("mine"));
        assert_eq!(UpstreamKey::of(&parts), UpstreamKey::new("mine"));

        assert_eq!(
            UpstreamKey::of(&get("/path", Some("B:80"))),
            origin("", "b:80")
        );
        assert_eq!(UpstreamKey::of(&get("/path", None)), UpstreamKey::default());
        assert_eq!(
            UpstreamKey::of(&get("/", Some("a b"))),
            UpstreamKey::default()
        );
        assert_eq!(UpstreamKey::of(&get("/", Some(""))), UpstreamKey::default());

        let mut connect = get("/", Some("b"));
        connect.uri = "a:443".parse().unwrap();
        assert_eq!(UpstreamKey::of(&connect), origin("", "a:443"));
    }

    #[test]
    fn no_request_can_spell_a_name() {
        for name in ["a", "http://a", "//a", "a:80", ""] {
            for parts in [get("http://a", None), get("/", Some("a")), get("/", None)] {
                assert!(!UpstreamKey::new(name).matches(&parts));
            }
        }
    }

    #[test]
    fn user_information_is_never_printed() {
        let parts = get("http://user:secret@example.com/path?token=1", None);
        let key = UpstreamKey::of(&parts);
        assert_eq!(format!("{key:?}"), "UpstreamKey(http://example.com)");
        let host = UpstreamKey::of(&get("/", Some("user:secret@example.com")));
        assert_eq!(format!("{host:?}"), "UpstreamKey(//example.com)");
    }

    fn authority() -> impl Strategy<Value = String> {
        let user = prop_oneof![Just(""), Just("u@"), Just("u:p@")];
        let host = prop_oneof![
            Just("a"),
            Just("A"),
            Just("a."),
            Just("b.c"),
            Just("[::1]"),
            Just("[::0:1]")
        ];
        let port = prop_oneof![
            Just(""),
            Just(":"),
            Just(":80"),
            Just(":443"),
            Just(":080"),
            Just(":1")
        ];
        (user, host, port).prop_map(|(user, host, port)| format!("{user}{host}{port}"))
    }

    fn request() -> impl Strategy<Value = Parts> {
        let uri = prop_oneof![
            authority().prop_map(|authority| get(&format!("http://{authority}/"), None)),
            authority().prop_map(|authority| get(&format!("HTTPS://{authority}/"), Some("x"))),
            authority().prop_map(|authority| get("/", Some(&authority))),
            Just(get("/", None)),
        ];
        (uri, proptest::option::weighted(0.1, Just("a"))).prop_map(|(mut parts, name)| {
            if let Some(name) = name {
                parts.extensions.insert(UpstreamKey::new(name));
            }
            parts
        })
    }

    proptest! {
        #[test]
        fn a_key_matches_the_requests_that_have_it_and_no_other(one in request(), other in request()) {
            let key = UpstreamKey::of(&one);
            prop_assert!(key.matches(&one));
            let same = key == UpstreamKey::of(&other);
            prop_assert_eq!(key.matches(&other), same);
            if key.is_spelled_in(&other) {
                prop_assert!(same);
            }
        }

        #[test]
        fn a_borrowed_key_is_equal_and_hashes_alike(one in request(), other in request()) {
            let (key, other_key) = (UpstreamKey::of(&one), UpstreamKey::of(&other));
            let hasher = RandomState::new();
            prop_assert_eq!(hasher.hash_one(key.as_ref()), hasher.hash_one(UpstreamRef::of(&one)));
            prop_assert_eq!(key == other_key, UpstreamRef::of(&one) == UpstreamRef::of(&other));
            let map = HashMap::from([(key, ())]);
            prop_assert_eq!(map.contains_key(&other_key), UpstreamRef::of(&one).to_key() == other_key);
        }

        #[test]
        fn normal_form_is_stable(authority in authority()) {
            for scheme in [None, Some(&Scheme::HTTP), Some(&Scheme::HTTPS)] {
                let once = normal(scheme, &authority).into_owned();
                prop_assert!(matches!(normal(scheme, &once), Cow::Borrowed(_)) || once.starts_with('['));
                prop_assert_eq!(normal(scheme, &once), once.as_str());
            }
        }
    }
}
