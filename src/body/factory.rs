//! Bodies from a function: made, opened again, or encoded from a value.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body::{Body, SizeHint};

use super::{
    OpenError, Replayability,
    content::Content,
    erased::{Erased, erase},
    error::Fault,
    source::Opening,
    template::{FirstLength, Made, Open, Template},
};
use crate::BoxError;

/// `make` gives a body at once.
pub(super) struct Factory {
    mark: Replayability,
    make: Box<dyn Fn() -> Erased + Send + Sync>,
    first: FirstLength,
}

impl Factory {
    pub(super) fn new<B>(mark: Replayability, make: impl Fn() -> B + Send + Sync + 'static) -> Self
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        Self {
            mark,
            make: Box::new(move || erase(make())),
            first: FirstLength::default(),
        }
    }
}

impl Template for Factory {
    fn replayability(&self) -> Replayability {
        self.mark
    }

    fn open(self: Arc<Self>) -> Open {
        let body = (self.make)();
        Open::Now(self.first.check(&body).map(|()| Made::content(body, self)))
    }
}

/// `open` gives a body in time, or fails.
pub(super) struct Supplier {
    open: Box<dyn Fn() -> Opening<Erased> + Send + Sync>,
    first: FirstLength,
}

impl Supplier {
    pub(super) fn new<F, Fut, B, E>(open: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<B, E>> + Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
        E: Into<BoxError>,
    {
        let open = move || -> Opening<Erased> {
            let opening = open();
            Box::pin(async move {
                opening
                    .await
                    .map(erase)
                    .map_err(|error| OpenError::Failed(error.into()))
            })
        };
        Self {
            open: Box::new(open),
            first: FirstLength::default(),
        }
    }
}

impl Template for Supplier {
    fn replayability(&self) -> Replayability {
        Replayability::Reopenable
    }

    fn open(self: Arc<Self>) -> Open {
        let opening = (self.open)();
        Open::Later(Box::pin(async move {
            let body = opening.await?;
            self.first.check(&body)?;
            Ok(Made::content(body, self))
        }))
    }
}

/// A value that is encoded when its bytes are first needed, and then never again.
pub(super) struct Encoded(Mutex<Encoding>);

enum Encoding {
    Value(Box<dyn FnOnce() -> Result<Bytes, BoxError> + Send>),
    Done(Bytes),
    Failed(BoxError),
    /// Its error was told, or it panicked.
    Gone,
}

impl Encoded {
    pub(super) fn new<T, O, E>(
        value: T,
        encode: impl Fn(&T) -> Result<O, E> + Send + Sync + 'static,
    ) -> Self
    where
        T: Send + Sync + 'static,
        O: Into<Bytes>,
        E: Into<BoxError>,
    {
        let encode = move || encode(&value).map(Into::into).map_err(Into::into);
        Self(Mutex::new(Encoding::Value(Box::new(encode))))
    }

    fn with<T>(&self, read: impl FnOnce(&mut Encoding) -> T) -> T {
        let mut encoding = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*encoding, Encoding::Value(_))
            && let Encoding::Value(encode) = std::mem::replace(&mut *encoding, Encoding::Gone)
        {
            *encoding = match encode() {
                Ok(bytes) => Encoding::Done(bytes),
                Err(error) => Encoding::Failed(error),
            };
        }
        read(&mut encoding)
    }
}

impl Template for Encoded {
    fn replayability(&self) -> Replayability {
        Replayability::Replayable
    }

    fn size_hint(&self) -> SizeHint {
        self.with(|encoding| match encoding {
            Encoding::Done(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Encoding::Value(_) | Encoding::Failed(_) | Encoding::Gone => SizeHint::new(),
        })
    }

    fn open(self: Arc<Self>) -> Open {
        Open::Now(self.with(|encoding| match encoding {
            Encoding::Done(bytes) => Ok(Content::bytes(bytes.clone())),
            Encoding::Value(_) | Encoding::Failed(_) | Encoding::Gone => {
                match std::mem::replace(encoding, Encoding::Gone) {
                    Encoding::Failed(error) => Err(OpenError::Failed(error)),
                    Encoding::Value(_) | Encoding::Done(_) | Encoding::Gone => {
                        Err(OpenError::Failed(Fault::Gone.into()))
                    }
                }
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use http_body::Body;
    use http_body_util::Full;

    use super::{
        super::{
            BodyState, Opened, ReplayBody, Source, Witness,
            script::{Script, body, collect, drain, next, text},
        },
        *,
    };

    fn counted() -> (Arc<AtomicUsize>, impl Fn() -> usize) {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        (count, move || counter.fetch_add(1, Ordering::SeqCst))
    }

    fn attempt(source: &mut Source) -> ReplayBody {
        body(source.attempt(Witness::new(), None))
    }

    #[test]
    fn a_value_is_encoded_once_and_only_when_it_is_sent() {
        let (count, add) = counted();
        let value = ReplayBody::encoded(vec![1_u8, 2], move |value| {
            add();
            Ok::<_, Infallible>(value.clone())
        });
        assert_eq!(value.replayability(), Replayability::Replayable);
        assert_eq!(value.state(), BodyState::Replayable);
        let mut source = value.into_source();
        assert_eq!(count.load(Ordering::SeqCst), 0);
        for _ in 0..3 {
            let mut body = attempt(&mut source);
            assert_eq!(body.size_hint().exact(), Some(2));
            assert_eq!(drain(&mut body).expect("whole").0, [1, 2]);
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_value_that_cannot_be_encoded_is_never_sent() {
        let value = ReplayBody::encoded((), |()| Err::<Bytes, _>("no such thing"));
        let Opened::Failed(OpenError::Failed(error)) =
            value.into_source().attempt(Witness::new(), None)
        else {
            panic!("it was opened")
        };
        assert_eq!(error.to_string(), "no such thing");
    }

    #[test]
    fn a_value_has_its_length_without_a_layer_too() {
        let mut value = ReplayBody::encoded("abc", |text| Ok::<_, Infallible>(*text));
        assert_eq!(value.size_hint().exact(), Some(3));
        assert!(!value.is_end_stream());
        assert_eq!(text(&mut value), "abc");
        assert!(value.is_end_stream());
    }

    #[test]
    fn a_factory_makes_one_body_per_attempt() {
        for (mark, state) in [
            (Replayability::Replayable, BodyState::Replayable),
            (Replayability::Reopenable, BodyState::Reopenable),
        ] {
            let (count, add) = counted();
            let factory = ReplayBody::factory(mark, move || {
                add();
                Script::data(&["a", "b"]).exact(2)
            });
            assert_eq!(factory.replayability(), mark);
            let mut source = factory.into_source();
            for made in 1..4 {
                assert_eq!(source.state(), state);
                let mut body = attempt(&mut source);
                assert_eq!(body.size_hint().exact(), Some(2));
                if made != 2 {
                    assert_eq!(drain(&mut body).expect("whole").0, b"ab");
                }
                assert_eq!(count.load(Ordering::SeqCst), made);
            }
        }
    }

    #[test]
    fn a_made_body_of_unknown_length_is_at_its_end_when_it_says_so() {
        let factory = ReplayBody::factory(Replayability::Replayable, || Script::data(&["a", "b"]));
        let mut body = attempt(&mut factory.into_source());
        for chunk in ["a", "b"] {
            assert!(!body.is_end_stream());
            assert_eq!(text(&mut body), chunk);
        }
        assert!(body.is_end_stream());
    }

    #[test]
    fn a_factory_of_one_shots_makes_one() {
        let (count, add) = counted();
        let factory = ReplayBody::factory(Replayability::OneShot, move || {
            add();
            Script::data(&["a"])
        });
        let mut source = factory.into_source();
        drop(attempt(&mut source));
        assert_eq!(source.state(), BodyState::Untouched);
        assert_eq!(text(&mut attempt(&mut source)), "a");
        assert_eq!(source.state(), BodyState::Consumed);
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_body_of_another_length_is_another_payload() {
        let (_, add) = counted();
        let factory = ReplayBody::factory(Replayability::Replayable, move || {
            Full::<Bytes>::from(vec![0; 3 + add()])
        });
        let mut source = factory.into_source();
        drop(attempt(&mut source));
        let changed = source.attempt(Witness::new(), None);
        assert!(matches!(changed, Opened::Failed(OpenError::Changed(_))));
    }

    #[tokio::test]
    async fn a_supplier_is_asked_before_every_attempt() {
        let (count, add) = counted();
        let add = Arc::new(add);
        let body = ReplayBody::reopenable(move || {
            let add = Arc::clone(&add);
            async move {
                tokio::task::yield_now().await;
                match add() {
                    2 => Err("it is gone"),
                    _ => Ok(Script::data(&["a", "b"])),
                }
            }
        });
        assert_eq!(body.replayability(), Replayability::Reopenable);
        let mut source = body.into_source();
        for _ in 0..2 {
            assert_eq!(source.state(), BodyState::Reopenable);
            let body = next(&mut source).await.expect("opened");
            assert_eq!(collect(body).await.expect("whole"), "ab");
        }
        let Err(OpenError::Failed(error)) = next(&mut source).await else {
            panic!("opened")
        };
        assert_eq!(error.to_string(), "it is gone");
        assert_eq!(count.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_supplied_body_of_another_length_is_another_payload() {
        let (_, add) = counted();
        let mut source = ReplayBody::reopenable(move || {
            let len = 3 + add() as u64;
            async move { Ok::<_, Infallible>(Script::data(&["a"]).exact(len)) }
        })
        .into_source();
        drop(next(&mut source).await.expect("opened"));
        assert!(matches!(
            next(&mut source).await,
            Err(OpenError::Changed(_))
        ));
    }

    #[tokio::test]
    async fn without_a_layer_the_first_poll_opens() {
        let body = ReplayBody::reopenable(async || Ok::<_, Infallible>(Script::data(&["a", "b"])));
        assert_eq!(collect(body).await.expect("whole"), "ab");
        let body = ReplayBody::reopenable(async || Err::<Full<Bytes>, _>("it is gone"));
        assert_eq!(collect(body).await.expect_err("not there"), "it is gone");
    }

    #[tokio::test]
    async fn an_inner_layer_uses_what_the_outer_one_opened_and_opens_again_itself() {
        let (count, add) = counted();
        let mut outer = ReplayBody::reopenable(move || {
            add();
            async { Ok::<_, Infallible>(Script::data(&["a", "b"])) }
        })
        .into_source();
        let mut inner = next(&mut outer).await.expect("opened").into_source();
        assert_eq!(inner.state(), BodyState::Reopenable);
        for opened in 1..3 {
            let body = next(&mut inner).await.expect("opened");
            assert_eq!(collect(body).await.expect("whole"), "ab");
            assert_eq!(count.load(Ordering::SeqCst), opened);
        }
    }

    #[test]
    fn an_inner_layer_never_sends_the_rest_of_what_was_read_before() {
        let factory = ReplayBody::factory(Replayability::Replayable, || Script::data(&["a", "b"]));
        let mut read = attempt(&mut factory.into_source());
        assert_eq!(text(&mut read), "a");
        let mut inner = read.into_source();
        assert_eq!(drain(&mut attempt(&mut inner)).expect("whole").0, b"ab");
    }
}
