//! What an error wraps.

use std::{io, iter};

use super::StdErr;

/// Enough for any stack; an error that is its own source ends here.
const DEEPEST: usize = 32;

/// An error and what it wraps, outermost first. Good enough to name a failure, never to prove
/// anything: what is deep inside may belong to the request body.
///
/// An `io::Error` is asked for what it wraps, since its `source()` skips that.
pub(crate) fn causes(error: &StdErr) -> impl Iterator<Item = &StdErr> {
    iter::successors(Some(error), |error| {
        match error.downcast_ref::<io::Error>() {
            Some(io) => io.get_ref().map(|inner| inner as &StdErr),
            None => error.source(),
        }
    })
    .take(DEEPEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("itself")]
    struct Itself;

    #[test]
    fn wrapped_io_errors_are_not_skipped() {
        let inner = io::Error::new(io::ErrorKind::InvalidData, Itself);
        let outer = io::Error::other(inner);
        let seen: Vec<_> = causes(&outer).collect();
        assert_eq!(seen.len(), 3);
        assert!(seen[2].is::<Itself>());
    }

    #[test]
    fn an_endless_chain_ends() {
        #[derive(Debug)]
        struct Endless;
        impl std::fmt::Display for Endless {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("endless")
            }
        }
        impl std::error::Error for Endless {
            fn source(&self) -> Option<&StdErr> {
                Some(self)
            }
        }
        assert_eq!(causes(&Endless).count(), DEEPEST);
    }
}
