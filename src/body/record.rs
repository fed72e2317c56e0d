//! What is kept of a stream, so that another attempt can send it again.

use std::mem;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;

/// A record of many small frames is folded into pieces of about this size.
const PIECE: usize = 1024;
/// What a frame weighs beside its bytes, and what all of them may weigh before small ones are folded.
const FRAME_WEIGHT: usize = 64;
const FREE_WEIGHT: usize = 16 * 1024;

/// All frames that were taken from a stream, in order, within a limit.
pub(super) struct Record {
    frames: Vec<Kept>,
    bytes: usize,
    limit: usize,
    /// Frames before this one stay as they are: a call may start its attempts at any of them.
    floor: usize,
}

enum Kept {
    Data(Bytes),
    Trailers(HeaderMap),
}

/// The frame does not fit: the record is of no use any more.
pub(super) struct Full;

impl Record {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            frames: Vec::new(),
            bytes: 0,
            limit,
            floor: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// A call's attempts start at this frame: it keeps its number.
    pub(super) fn starts_at(&mut self, index: usize) {
        self.floor = self.floor.max(index);
    }

    /// A frame again. Its bytes are shared, not copied.
    pub(super) fn get(&self, index: usize) -> Option<Frame<Bytes>> {
        self.frames.get(index).map(|kept| match kept {
            Kept::Data(data) => Frame::data(data.clone()),
            Kept::Trailers(trailers) => Frame::trailers(trailers.clone()),
        })
    }

    /// A frame for the last time.
    pub(super) fn take(&mut self, index: usize) -> Option<Frame<Bytes>> {
        let kept = self.frames.get_mut(index)?;
        Some(match mem::replace(kept, Kept::Data(Bytes::new())) {
            Kept::Data(data) => Frame::data(data),
            Kept::Trailers(trailers) => Frame::trailers(trailers),
        })
    }

    /// Keeps a frame. The limit counts data; trailers are as small as the peers' header limits.
    pub(super) fn push(&mut self, frame: &Frame<Bytes>) -> Result<(), Full> {
        if let Some(data) = frame.data_ref() {
            self.bytes = self.bytes.saturating_add(data.len());
            if self.bytes > self.limit {
                return Err(Full);
            }
            self.frames.push(Kept::Data(data.clone()));
            let foldable = self.frames.len().saturating_sub(self.floor);
            if foldable.saturating_mul(FRAME_WEIGHT) > FREE_WEIGHT.saturating_add(self.bytes) {
                self.fold();
            }
        } else if let Some(trailers) = frame.trailers_ref() {
            self.frames.push(Kept::Trailers(trailers.clone()));
        }
        Ok(())
    }

    /// A stream of tiny frames would weigh many times its limit: here, and only here, bytes are copied.
    fn fold(&mut self) {
        let foldable = self.frames.split_off(self.floor.min(self.frames.len()));
        let mut folded = mem::take(&mut self.frames);
        let mut piece = BytesMut::new();
        let flush = |piece: &mut BytesMut, folded: &mut Vec<Kept>| {
            if !piece.is_empty() {
                folded.push(Kept::Data(mem::take(piece).freeze()));
            }
        };
        for frame in foldable {
            match frame {
                Kept::Data(data) if data.len() < PIECE => {
                    piece.extend_from_slice(&data);
                    if piece.len() >= PIECE {
                        flush(&mut piece, &mut folded);
                    }
                }
                whole @ (Kept::Data(_) | Kept::Trailers(_)) => {
                    flush(&mut piece, &mut folded);
                    folded.push(whole);
                }
            }
        }
        flush(&mut piece, &mut folded);
        self.frames = folded;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(frames: impl IntoIterator<Item = Bytes>) -> Record {
        let mut record = Record::new(usize::MAX);
        for data in frames {
            assert!(record.push(&Frame::data(data)).is_ok());
        }
        record
    }

    fn bytes(len: usize) -> Bytes {
        vec![7; len].into()
    }

    #[test]
    fn small_frames_are_folded_once_they_weigh_more_than_their_bytes_and_what_is_free() {
        // 512 of 64 are 16 KiB above their bytes.
        assert_eq!(record(vec![bytes(32); 512]).len(), 512);
        // Sixteen pieces of 1 KiB, and the frame that was one too many.
        assert_eq!(record(vec![bytes(32); 513]).len(), 17);
    }

    #[test]
    fn a_frame_of_a_pieces_size_is_shared_among_the_smallest() {
        let piece = bytes(PIECE);
        let small = || vec![bytes(1); 500];
        let record = record([small(), vec![piece.clone()], small()].concat());
        assert!(record.len() < 500);
        let shared = |index| {
            let frame: Frame<Bytes> = record.get(index).unwrap();
            frame.data_ref().unwrap().as_ptr() == piece.as_ptr()
        };
        assert!((0..record.len()).any(shared));
    }
}
