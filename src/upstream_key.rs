//! Who answers: the key that budgets and registered upstreams go by.

mod normal;

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

use http::header::HOST;
use http::request::Parts;
use http::uri::{Authority, Scheme};

use crate::head::HeadRef;

/// Keyed at random, once: nobody outside can find authorities that collide.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

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
/// # fn main() -> Result<(), http::Error> {
/// let (spelled, ()) = http::Request::get("https://User@EXAMPLE.com:443/path").body(())?.into_parts();
/// let (plain, ()) = http::Request::get("https://example.com").body(())?.into_parts();
/// assert_eq!(UpstreamKey::of(&spelled), UpstreamKey::of(&plain));
/// assert_ne!(UpstreamKey::of(&plain), UpstreamKey::new("https://example.com"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamKey {
    /// Computed once: looking a budget up by its key hashes nothing.
    hash: u64,
    repr: Repr,
}

#[derive(Clone, PartialEq, Eq)]
enum Repr {
    Unnamed,
    Named(Arc<str>),
    /// In normal form.
    Origin(Option<Scheme>, Arc<str>),
}

/// The same, borrowed from a request or a key: looking a budget up allocates nothing.
#[derive(PartialEq, Eq)]
pub(crate) struct UpstreamRef<'a> {
    hash: u64,
    repr: ReprRef<'a>,
}

#[derive(PartialEq, Eq)]
enum ReprRef<'a> {
    Unnamed,
    Named(&'a Arc<str>),
    Origin(Option<&'a Scheme>, Cow<'a, str>),
}

impl UpstreamKey {
    /// An upstream by a name of the caller's. Never equal to an origin, so no `Host` can take it.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        UpstreamRef::new(ReprRef::Named(&name.into())).to_key()
    }

    /// An upstream by scheme and authority. Without a scheme: the `Host` of an origin-form request.
    pub fn origin(scheme: Option<&Scheme>, authority: &Authority) -> Self {
        UpstreamRef::origin(scheme, authority.as_str()).to_key()
    }

    /// Who answers this request: its extension of this type, else its URI, else its `Host`, else
    /// the default key.
    pub fn of(parts: &Parts) -> Self {
        UpstreamRef::of(parts.into()).to_key()
    }

    /// Whether the request names this upstream letter for letter. If not, it may still be
    /// [`UpstreamKey::of`] it; but nearly all authorities are written in normal form.
    #[inline]
    pub(crate) fn is_spelled_in(&self, head: HeadRef<'_>) -> bool {
        if let Some(declared) = head.extensions.get::<Self>() {
            return self == declared;
        }
        match (&self.repr, head.uri.authority()) {
            (Repr::Origin(scheme, own), Some(authority)) => {
                **own == *authority.as_str() && scheme.as_ref() == head.uri.scheme()
            }
            (Repr::Origin(None, own), None) => {
                let host = head.headers.get(HOST);
                host.is_some_and(|host| *host.as_bytes() == *own.as_bytes())
            }
            (Repr::Origin(Some(_), _) | Repr::Named(_), None) => false,
            (Repr::Unnamed | Repr::Named(_), Some(_)) => false,
            (Repr::Unnamed, None) => !head.headers.contains_key(HOST),
        }
    }

    pub(crate) fn as_ref(&self) -> UpstreamRef<'_> {
        let repr = match &self.repr {
            Repr::Unnamed => ReprRef::Unnamed,
            Repr::Named(name) => ReprRef::Named(name),
            Repr::Origin(scheme, authority) => {
                ReprRef::Origin(scheme.as_ref(), Cow::Borrowed(authority))
            }
        };
        UpstreamRef {
            hash: self.hash,
            repr,
        }
    }
}

impl Default for UpstreamKey {
    fn default() -> Self {
        UpstreamRef::new(ReprRef::Unnamed).to_key()
    }
}

impl Hash for UpstreamKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// `http://shop.example`, the caller's own name, or `unnamed`. User information is not part of the
/// key, so it cannot be printed.
impl fmt::Display for UpstreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.repr {
            Repr::Unnamed => f.write_str("unnamed"),
            Repr::Named(name) => f.write_str(name),
            Repr::Origin(Some(scheme), authority) => write!(f, "{scheme}://{authority}"),
            Repr::Origin(None, authority) => write!(f, "//{authority}"),
        }
    }
}

impl fmt::Debug for UpstreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.repr {
            Repr::Named(name) => write!(f, "UpstreamKey({name:?})"),
            Repr::Unnamed | Repr::Origin(..) => write!(f, "UpstreamKey({self})"),
        }
    }
}

impl<'a> UpstreamRef<'a> {
    /// As [`UpstreamKey::of`].
    pub(crate) fn of(head: HeadRef<'a>) -> Self {
        if let Some(declared) = head.extensions.get::<UpstreamKey>() {
            return declared.as_ref();
        }
        if let Some(authority) = head.uri.authority() {
            return Self::origin(head.uri.scheme(), authority.as_str());
        }
        let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
        // What is no authority names nobody.
        match host.filter(|host| Authority::try_from(*host).is_ok()) {
            Some(host) => Self::origin(None, host),
            None => Self::new(ReprRef::Unnamed),
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn to_key(&self) -> UpstreamKey {
        let repr = match &self.repr {
            ReprRef::Unnamed => Repr::Unnamed,
            ReprRef::Named(name) => Repr::Named(Arc::clone(name)),
            ReprRef::Origin(scheme, authority) => {
                Repr::Origin(scheme.cloned(), Arc::from(&**authority))
            }
        };
        UpstreamKey {
            hash: self.hash,
            repr,
        }
    }

    fn origin(scheme: Option<&'a Scheme>, authority: &'a str) -> Self {
        let scheme = scheme.map(normal::scheme);
        Self::new(ReprRef::Origin(
            scheme,
            normal::authority(scheme, authority),
        ))
    }

    fn new(repr: ReprRef<'a>) -> Self {
        let mut hasher = HASHER.build_hasher();
        // Two schemes of one authority share a hash, which costs no more than a comparison.
        match &repr {
            ReprRef::Unnamed => {}
            ReprRef::Named(name) => hasher.write(name.as_bytes()),
            ReprRef::Origin(_, authority) => hasher.write(authority.as_bytes()),
        }
        Self {
            hash: hasher.finish(),
            repr,
        }
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
                assert!(!UpstreamKey::new(name).is_spelled_in((&parts).into()));
                assert_ne!(UpstreamKey::new(name), UpstreamKey::of(&parts));
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
        fn what_is_spelled_in_a_request_is_its_key(one in request(), other in request()) {
            let (key, other_key) = (UpstreamKey::of(&one), UpstreamKey::of(&other));
            prop_assert!(!key.is_spelled_in((&other).into()) || key == other_key);
            // In normal form the quick answer is the whole answer.
            if let Repr::Origin(None, authority) = &key.repr {
                prop_assert!(key.is_spelled_in((&get("/", Some(authority))).into()));
            }
        }

        #[test]
        fn a_borrowed_key_is_equal_and_hashes_alike(one in request(), other in request()) {
            let (key, other_key) = (UpstreamKey::of(&one), UpstreamKey::of(&other));
            let hasher = RandomState::new();
            prop_assert_eq!(hasher.hash_one(&key), hasher.hash_one(UpstreamRef::of((&one).into()).to_key()));
            prop_assert_eq!(key == other_key, UpstreamRef::of((&one).into()) == UpstreamRef::of((&other).into()));
            let map = HashMap::from([(key, ())]);
            prop_assert_eq!(map.contains_key(&other_key), UpstreamRef::of((&one).into()).to_key() == other_key);
        }

        #[test]
        fn normal_form_is_stable(authority in authority()) {
            for scheme in [None, Some(&Scheme::HTTP), Some(&Scheme::HTTPS)] {
                let once = normal::authority(scheme, &authority).into_owned();
                prop_assert!(matches!(normal::authority(scheme, &once), Cow::Borrowed(_)) || once.starts_with('['));
                prop_assert_eq!(normal::authority(scheme, &once), once.as_str());
            }
        }
    }
}
