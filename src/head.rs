//! A request head, wherever it lies.

use http::{Extensions, HeaderMap, Method, Request, Uri, Version, request};

use crate::snapshot::Snapshot;

/// A head to be read: still in its request, or apart. To take a request apart and put it together
/// again moves 224 bytes twice, which costs more than most of what is read.
#[derive(Clone, Copy)]
pub(crate) struct HeadRef<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) version: Version,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) extensions: &'a Extensions,
}

impl<'a, B> From<&'a Request<B>> for HeadRef<'a> {
    #[inline]
    fn from(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

impl<'a> From<&'a request::Parts> for HeadRef<'a> {
    #[inline]
    fn from(parts: &'a request::Parts) -> Self {
        Self {
            method: &parts.method,
            uri: &parts.uri,
            version: parts.version,
            headers: &parts.headers,
            extensions: &parts.extensions,
        }
    }
}

/// A request head as a policy sees it: given, or rebuilt when first looked at.
#[derive(Clone, Copy)]
pub(crate) enum Head<'a> {
    Given(&'a request::Parts),
    Kept(&'a Snapshot),
}

impl<'a> Head<'a> {
    pub(crate) fn parts(self) -> &'a request::Parts {
        match self {
            Self::Given(parts) => parts,
            Self::Kept(snapshot) => snapshot.parts(),
        }
    }
}
