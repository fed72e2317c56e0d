//! Files, opened again for every attempt.

use std::{
    fs, io,
    io::{Seek, SeekFrom},
    path::{Path, PathBuf},
    pin::{Pin, pin},
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
    time::SystemTime,
};

use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use tokio::io::AsyncReadExt;

use super::{
    OpenError, ReplayBody, Replayability,
    content::Content,
    erased::erase,
    template::{Made, Open, Template, Unopened},
};

/// How much is read, and held, at once.
const CHUNK: u64 = 64 * 1024;

/// A file as a request body: reopenable, sent with its exact length.
///
/// The file is opened for each attempt, before anything of the attempt is sent, and read in chunks off the async
/// runtime's threads (in a tokio runtime). If its length, its modification time or its identity is not what the
/// first attempt saw, the call ends with [`FailureKind::BodyChanged`](crate::FailureKind::BodyChanged): another
/// payload is never sent as a replay. A file that shrinks while it is sent is an error, never a short body; what
/// is appended to it meanwhile is not sent.
#[derive(Debug, Clone)]
pub struct FileBody {
    path: PathBuf,
    range: Option<Range>,
}

#[derive(Debug, Clone, Copy)]
struct Range {
    start: u64,
    len: u64,
}

impl ReplayBody {
    /// A file, opened when it is sent. A failure to open it fails the call before anything is sent.
    pub fn file(path: impl AsRef<Path>) -> FileBody {
        FileBody {
            path: path.as_ref().to_path_buf(),
            range: None,
        }
    }
}

impl FileBody {
    /// Sends `len` bytes from byte `start` on, counted from 0, instead of all. A file that does not have them
    /// fails the call before anything is sent.
    #[must_use]
    pub fn range(mut self, start: u64, len: u64) -> Self {
        self.range = Some(Range { start, len });
        self
    }
}

impl From<FileBody> for ReplayBody {
    fn from(file: FileBody) -> Self {
        let source = FileSource {
            file,
            first: OnceLock::new(),
        };
        Self::new(Content::Unopened(Box::new(Unopened::new(source))))
    }
}

/// The file of all attempts, and what the first of them saw.
struct FileSource {
    file: FileBody,
    first: OnceLock<Stamp>,
}

impl FileSource {
    /// The file at the place to read from, and how much to read.
    fn open_now(&self) -> Result<(fs::File, u64), OpenError> {
        let path = &self.file.path;
        // Opening a pipe or a device can block for ever or have effects, so it is asked first.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(failed(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            )));
        }
        let mut file = fs::File::open(path).map_err(failed)?;
        let stamp = Stamp::of(&file.metadata().map_err(failed)?);
        if *self.first.get_or_init(|| stamp) != stamp {
            return Err(OpenError::Changed(
                "the file has changed since the first attempt".into(),
            ));
        }
        let Some(Range { start, len }) = self.file.range else {
            return Ok((file, stamp.len));
        };
        if start.checked_add(len).is_none_or(|end| end > stamp.len) {
            let message = "the file ends before the range that was asked for";
            return Err(failed(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                message,
            )));
        }
        file.seek(SeekFrom::Start(start)).map_err(failed)?;
        Ok((file, len))
    }
}

fn failed(error: io::Error) -> OpenError {
    OpenError::Failed(error.into())
}

impl Template for FileSource {
    fn replayability(&self) -> Replayability {
        Replayability::Reopenable
    }

    fn size_hint(&self) -> SizeHint {
        self.file
            .range
            .map_or_else(SizeHint::new, |range| SizeHint::with_exact(range.len))
    }

    fn open(self: Arc<Self>) -> Open {
        Open::Later(Box::pin(async move {
            let source = Arc::clone(&self);
            let opened = tokio::task::spawn_blocking(move || source.open_now()).await;
            let (file, left) = opened.map_err(|error| OpenError::Failed(error.into()))??;
            let file = tokio::fs::File::from_std(file);
            Ok(Made::content(
                erase(FileStream {
                    file,
                    left,
                    chunk: BytesMut::new(),
                }),
                self,
            ))
        }))
    }
}

/// What tells a file from another one, or from itself later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    len: u64,
    /// None where the system has no such time.
    modified: Option<SystemTime>,
    /// Device and number.
    #[cfg(unix)]
    identity: (u64, u64),
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        #[cfg(unix)]
        use std::os::unix::fs::MetadataExt;
        Self {
            len: metadata.len(),
            modified: metadata.modified().ok(),
            #[cfg(unix)]
            identity: (metadata.dev(), metadata.ino()),
        }
    }
}

/// An open file's bytes, `left` of them.
struct FileStream {
    file: tokio::fs::File,
    left: u64,
    chunk: BytesMut,
}

impl Body for FileStream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Self { file, left, chunk } = self.get_mut();
        if *left == 0 {
            return Poll::Ready(None);
        }
        let size = usize::try_from(CHUNK.min(*left)).unwrap_or(usize::MAX);
        chunk.reserve(size);
        match ready!(pin!(file.read_buf(&mut chunk.limit(size))).poll(cx)) {
            Ok(0) => {
                let message = "the file shrank while it was sent";
                Poll::Ready(Some(Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    message,
                ))))
            }
            Ok(read) => {
                *left = left.saturating_sub(read as u64);
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(chunk).freeze()))))
            }
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        time::Duration,
    };

    use super::{
        super::{
            BodyState, Source, Witness,
            script::{self, collect, next},
        },
        *,
    };

    /// A file that is gone after the test.
    struct Temporary(PathBuf);

    impl Temporary {
        fn new(content: &[u8]) -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("tower-http-retry-{}-{count}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::write(&path, content).expect("written");
            Self(path)
        }

        fn body(&self) -> FileBody {
            ReplayBody::file(&self.0)
        }

        fn source(&self) -> Source {
            ReplayBody::from(self.body()).into_source()
        }

        /// Writes without a trace in the modification time.
        fn write_unnoticed(&self, content: &[u8]) {
            let modified = fs::metadata(&self.0)
                .and_then(|data| data.modified())
                .expect("known");
            fs::write(&self.0, content).expect("written");
            self.touch(modified);
        }

        fn touch(&self, modified: SystemTime) {
            let file = fs::File::options()
                .append(true)
                .open(&self.0)
                .expect("opened");
            file.set_modified(modified).expect("set");
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn assert_changed(opened: Result<ReplayBody, OpenError>) {
        assert!(matches!(opened, Err(OpenError::Changed(_))), "{opened:?}");
    }

    fn assert_failed(opened: Result<ReplayBody, OpenError>) {
        assert!(matches!(opened, Err(OpenError::Failed(_))), "{opened:?}");
    }

    #[tokio::test]
    async fn a_file_is_sent_with_its_exact_length_as_often_as_needed() {
        let content: Vec<u8> = (0..200_000_u32).map(|at| at as u8).collect();
        let file = Temporary::new(&content);
        let mut source = file.source();
        assert_eq!(source.replayability(), Replayability::Reopenable);
        for _ in 0..3 {
            assert_eq!(source.state(), BodyState::Reopenable);
            let body = next(&mut source).await.expect("opened");
            assert_eq!(body.size_hint().exact(), Some(200_000));
            assert_eq!(collect(body).await.expect("whole"), content);
        }
    }

    #[tokio::test]
    async fn a_file_is_read_in_chunks_in_a_layer_or_without_one() {
        use http_body_util::BodyExt;
        let file = Temporary::new(&[7; 150_000]);
        let opened = next(&mut file.source()).await.expect("opened");
        for mut body in [opened, file.body().into()] {
            let (mut frames, mut left) = (0, 150_000);
            while let Some(frame) = body.frame().await {
                let data = frame.expect("read").into_data().expect("data");
                assert!(data.len() <= 64 * 1024);
                left -= data.len() as u64;
                assert_eq!(body.size_hint().exact(), Some(left));
                assert_eq!(body.is_end_stream(), left == 0);
                frames += 1;
            }
            assert_eq!(left, 0);
            // A read may give less than it was asked for, but not much less.
            assert!((3..10).contains(&frames), "{frames}");
        }
    }

    #[tokio::test]
    async fn a_range_is_honoured() {
        let file = Temporary::new(b"0123456789");
        for (start, len, sent) in [
            (0, 10, "0123456789"),
            (3, 4, "3456"),
            (9, 1, "9"),
            (10, 0, ""),
            (4, 0, ""),
        ] {
            let mut source = ReplayBody::from(file.body().range(start, len)).into_source();
            for _ in 0..2 {
                let body = next(&mut source).await.expect("opened");
                assert_eq!(body.size_hint().exact(), Some(len));
                assert_eq!(collect(body).await.expect("whole"), sent);
            }
        }
        for (start, len) in [(0, 11), (10, 1), (11, 0), (u64::MAX, 2)] {
            let mut source = ReplayBody::from(file.body().range(start, len)).into_source();
            assert_failed(next(&mut source).await);
        }
    }

    #[test]
    fn before_it_is_opened_only_a_range_has_a_length() {
        let file = ReplayBody::file("unopened");
        let range = ReplayBody::from(file.clone().range(3, 4));
        assert_eq!(range.size_hint().exact(), Some(4));
        assert_eq!(ReplayBody::from(file).size_hint().exact(), None);
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_opened_is_never_sent() {
        let missing = std::env::temp_dir().join("tower-http-retry-there-is-no-such-file");
        assert_failed(next(&mut ReplayBody::from(ReplayBody::file(missing)).into_source()).await);
        let directory = ReplayBody::from(ReplayBody::file(std::env::temp_dir()));
        assert_failed(next(&mut directory.into_source()).await);
    }

    #[tokio::test]
    async fn a_file_that_changed_between_attempts_is_not_sent() {
        type Change = fn(&Temporary);
        let changes: &[(&str, Change)] = &[
            ("grew", |file| file.write_unnoticed(b"0123456789a")),
            ("shrank", |file| file.write_unnoticed(b"012345678")),
            ("below the range", |file| file.write_unnoticed(b"0")),
            ("touched", |file| {
                file.touch(SystemTime::UNIX_EPOCH + Duration::from_secs(1))
            }),
            #[cfg(unix)]
            ("replaced", |file| {
                let modified = fs::metadata(&file.0).and_then(|data| data.modified());
                let other = Temporary::new(b"0123456789");
                other.touch(modified.expect("known"));
                fs::rename(&other.0, &file.0).expect("renamed");
            }),
        ];
        for (name, change) in changes {
            let file = Temporary::new(b"0123456789");
            let mut whole = file.source();
            let mut range = ReplayBody::from(file.body().range(2, 3)).into_source();
            for source in [&mut whole, &mut range] {
                assert!(next(source).await.is_ok(), "{name}");
            }
            change(&file);
            for source in [&mut whole, &mut range] {
                assert_changed(next(source).await);
            }
            assert!(
                next(&mut file.source()).await.is_ok(),
                "{name}: it is what a new call sends"
            );
        }
    }

    #[tokio::test]
    async fn a_file_that_shrinks_while_it_is_sent_is_an_error() {
        let file = Temporary::new(&[7; 200_000]);
        let witness = Witness::new();
        let opened = file.source().attempt(witness.clone(), None);
        let body = script::open(opened).await.expect("opened");
        fs::File::options()
            .write(true)
            .open(&file.0)
            .and_then(|file| file.set_len(100))
            .expect("cut");
        let error = collect(body).await.expect_err("it is short");
        assert_eq!(error, "the file shrank while it was sent");
        assert!(witness.trace().failed() && !witness.trace().ended());
    }

    #[tokio::test]
    async fn what_is_appended_while_a_file_is_sent_is_not_sent() {
        let file = Temporary::new(b"0123456789");
        let body = next(&mut file.source()).await.expect("opened");
        fs::write(&file.0, b"0123456789abc").expect("written");
        assert_eq!(collect(body).await.expect("whole"), "0123456789");
    }

    #[tokio::test]
    async fn an_empty_file_is_an_empty_body() {
        let file = Temporary::new(b"");
        let mut source = file.source();
        let body = next(&mut source).await.expect("opened");
        assert!(body.is_end_stream());
        assert_eq!(collect(body).await.expect("whole"), "");
        file.write_unnoticed(b"a");
        assert_changed(next(&mut source).await);
    }

    #[tokio::test]
    async fn a_declared_length_that_is_not_the_files_is_never_sent() {
        let file = Temporary::new(b"0123456789");
        assert_failed(script::open(file.source().attempt(Witness::new(), Some(9))).await);
        assert!(
            script::open(file.source().attempt(Witness::new(), Some(10)))
                .await
                .is_ok()
        );
    }
}
