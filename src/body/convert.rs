//! What a request body can be made from.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::{Empty, Full};

use super::ReplayBody;

impl From<Bytes> for ReplayBody {
    fn from(bytes: Bytes) -> Self {
        Self::bytes(bytes)
    }
}

impl From<BytesMut> for ReplayBody {
    fn from(bytes: BytesMut) -> Self {
        Self::bytes(bytes)
    }
}

impl From<Vec<u8>> for ReplayBody {
    fn from(bytes: Vec<u8>) -> Self {
        Self::bytes(bytes)
    }
}

impl From<Box<[u8]>> for ReplayBody {
    fn from(bytes: Box<[u8]>) -> Self {
        Self::bytes(bytes)
    }
}

impl From<String> for ReplayBody {
    fn from(text: String) -> Self {
        Self::bytes(text)
    }
}

impl From<&'static str> for ReplayBody {
    fn from(text: &'static str) -> Self {
        Self::bytes(text)
    }
}

impl From<&'static [u8]> for ReplayBody {
    fn from(bytes: &'static [u8]) -> Self {
        Self::bytes(bytes)
    }
}

impl From<()> for ReplayBody {
    fn from((): ()) -> Self {
        Self::empty()
    }
}

impl From<Empty<Bytes>> for ReplayBody {
    fn from(_: Empty<Bytes>) -> Self {
        Self::empty()
    }
}

impl From<Full<Bytes>> for ReplayBody {
    fn from(full: Full<Bytes>) -> Self {
        in_memory(full)
    }
}

/// A body that is one frame or none, and gives it at once.
fn in_memory(mut body: impl Body<Data = Bytes> + Unpin) -> ReplayBody {
    let frame = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
    match frame {
        Poll::Ready(Some(Ok(frame))) => ReplayBody::bytes(frame.into_data().unwrap_or_default()),
        Poll::Ready(Some(Err(_)) | None) | Poll::Pending => ReplayBody::empty(),
    }
}

/// One stream, which can be sent once; [`ReplayBody::buffered`] keeps some of it.
#[cfg(feature = "hyper")]
impl From<hyper::body::Incoming> for ReplayBody {
    fn from(body: hyper::body::Incoming) -> Self {
        Self::one_shot(body)
    }
}

/// Bytes stay bytes; a stream can be sent once.
#[cfg(feature = "reqwest")]
impl From<reqwest::Body> for ReplayBody {
    fn from(body: reqwest::Body) -> Self {
        if body.as_bytes().is_some() {
            in_memory(body)
        } else {
            Self::one_shot(body)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            BodyState, Replayability, Witness,
            script::{body, drain},
        },
        *,
    };

    #[test]
    fn what_is_in_memory_is_replayable_and_whole() {
        let bodies: [ReplayBody; 8] = [
            Bytes::from_static(b"abc").into(),
            BytesMut::from(&b"abc"[..]).into(),
            b"abc".to_vec().into(),
            b"abc".to_vec().into_boxed_slice().into(),
            String::from("abc").into(),
            "abc".into(),
            (&b"abc"[..]).into(),
            Full::new(Bytes::from_static(b"abc")).into(),
        ];
        for replay in bodies {
            assert_eq!(replay.replayability(), Replayability::Replayable);
            assert_eq!(replay.state(), BodyState::Replayable);
            assert_eq!(replay.size_hint().exact(), Some(3));
            let mut source = replay.into_source();
            for _ in 0..2 {
                let mut body = body(source.attempt(Witness::new(), Some(3)));
                assert_eq!(drain(&mut body).expect("whole").0, b"abc");
            }
        }
    }

    #[test]
    fn nothing_is_empty() {
        let bodies: [ReplayBody; 6] = [
            ().into(),
            Empty::new().into(),
            Full::default().into(),
            Bytes::new().into(),
            "".into(),
            ReplayBody::default(),
        ];
        for body in bodies {
            assert_eq!(body.replayability(), Replayability::Replayable);
            assert_eq!(body.state(), BodyState::Empty);
            assert_eq!(body.size_hint().exact(), Some(0));
            assert!(body.is_end_stream());
        }
    }

    #[cfg(feature = "reqwest")]
    #[test]
    fn the_bytes_of_reqwest_stay_bytes() {
        let bytes = Bytes::from(vec![1, 2, 3]);
        let at = bytes.as_ptr();
        let mut body = ReplayBody::from(reqwest::Body::from(bytes));
        assert_eq!(body.state(), BodyState::Replayable);
        let Poll::Ready(Some(Ok(frame))) = super::super::script::poll(&mut body) else {
            panic!("no frame")
        };
        assert_eq!(
            frame.data_ref().expect("data").as_ptr(),
            at,
            "they are not copied"
        );
        assert_eq!(
            ReplayBody::from(reqwest::Body::from("")).state(),
            BodyState::Empty
        );
        let stream = reqwest::Body::wrap(super::super::script::Script::data(&["abc"]));
        let body = ReplayBody::from(stream);
        assert_eq!(body.state(), BodyState::Untouched);
    }

    #[cfg(feature = "hyper")]
    #[tokio::test]
    async fn what_was_received_is_one_stream() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (near, mut far) = tokio::io::duplex(1024);
        let near = hyper_util::rt::TokioIo::new(near);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(near)
            .await
            .expect("connected");
        tokio::spawn(connection);
        let answer = sender.send_request(http::Request::new(ReplayBody::empty()));
        let server = async {
            far.read_u8().await.expect("a request");
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
            far.write_all(response).await.expect("written");
        };
        let (response, ()) = tokio::join!(answer, server);
        let body = ReplayBody::from(response.expect("a response").into_body());
        assert_eq!(body.replayability(), Replayability::OneShot);
        assert_eq!(body.state(), BodyState::Untouched);
        assert_eq!(
            super::super::script::collect(body).await.expect("whole"),
            "abc"
        );
    }
}
