//! Messages on their way into a worker's pipe: written at once as far as they fit, in order.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::payload::CallPayload;

/// Slices per `writev` call.
const MAX_SLICES: usize = 8;
/// Capacity of a buffer that is kept for the next messages.
const MAX_SPARE: usize = 64 * 1024;

/// The queue of bytes for a pipe.
#[derive(Default)]
pub(super) struct Outbox {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that are written.
    written: usize,
    spare: Vec<u8>,
}

enum Piece {
    Buffer(Vec<u8>),
    /// A large body, not copied.
    Body(CallPayload),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Buffer(bytes) => bytes,
            Self::Body(body) => body.as_bytes(),
        }
    }
}

impl Outbox {
    /// The buffer for small messages.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        if !matches!(self.pieces.back(), Some(Piece::Buffer(_))) {
            self.pieces.push_back(Piece::Buffer(std::mem::take(&mut self.spare)));
        }
        match self.pieces.back_mut() {
            Some(Piece::Buffer(tail)) => tail,
            // Unreachable: the piece was just added.
            _ => &mut self.spare,
        }
    }

    /// Appends a large body.
    pub(super) fn push_body(&mut self, body: CallPayload) {
        self.pieces.push_back(Piece::Body(body));
    }

    /// Puts pieces that were taken out and not sent before those added since.
    pub(super) fn put_before(&mut self, first: Self) {
        let since = std::mem::replace(self, first);
        self.pieces.extend(since.pieces);
    }

    /// Reuses the memory of an outbox that has been sent.
    pub(super) fn reuse(&mut self, sent: Self) {
        if self.spare.capacity() < sent.spare.capacity() {
            self.spare = sent.spare;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.written = 0;
    }

    /// Writes what fits. True once all is written; false if the pipe is full.
    pub(super) fn write(&mut self, pipe: impl AsFd) -> io::Result<bool> {
        while !self.pieces.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                *slice = IoSlice::new(piece.bytes());
            }
            slices[0].advance(self.written);
            let count = self.pieces.len().min(MAX_SLICES);
            match rustix::io::writev(&pipe, &slices[..count]) {
                Ok(written) => self.advance(written),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn advance(&mut self, written: usize) {
        self.written += written;
        while let Some(first) = self.pieces.front() {
            let length = first.bytes().len();
            if self.written < length {
                return;
            }
            self.written -= length;
            if let Some(Piece::Buffer(mut bytes)) = self.pieces.pop_front()
                && bytes.capacity() <= MAX_SPARE
            {
                bytes.clear();
                self.spare = bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_comes_later_and_in_order() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let mut outbox = Outbox::default();
        let mut expected = Vec::new();
        for n in 0..40_u8 {
            outbox.buffer().extend_from_slice(&[n; 10]);
            expected.extend_from_slice(&[n; 10]);
            let body = vec![n; 9_000];
            expected.extend_from_slice(&body);
            outbox.push_body(CallPayload::bytes(body));
        }
        let mut read = Vec::new();
        loop {
            let all = outbox.write(&writer).unwrap();
            let mut piece = [0; 7_001];
            let n = rustix::io::read(&reader, &mut piece).unwrap();
            read.extend_from_slice(&piece[..n]);
            if all {
                break;
            }
        }
        drop(writer);
        let mut piece = [0; 7_001];
        while let Ok(n @ 1..) = rustix::io::read(&reader, &mut piece) {
            read.extend_from_slice(&piece[..n]);
        }
        assert_eq!((outbox.is_empty(), read == expected), (true, true));
    }

    #[test]
    fn what_was_taken_out_goes_before_what_came_since() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut outbox = Outbox::default();
        outbox.buffer().extend_from_slice(b"first ");
        let mut taken = std::mem::take(&mut outbox);
        taken.advance(2);
        outbox.buffer().extend_from_slice(b"second");
        outbox.put_before(taken);
        assert!(outbox.write(&writer).unwrap());
        let mut read = [0; 20];
        let n = rustix::io::read(&reader, &mut read).unwrap();
        assert_eq!(&read[..n], b"rst second");
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_an_error() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let mut outbox = Outbox::default();
        outbox.buffer().push(1);
        assert!(outbox.write(&writer).is_err());
    }
}
