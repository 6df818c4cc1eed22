//! Messages from this worker to the pool. Several answers go out in one write where the pool does
//! not need the first one earlier.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::error::ErrorKind;
use crate::payload::CallPayload;
use crate::protocol::{Encoding, FromWorker, ProtocolError, frame};

/// Values above this size are written without a copy.
const LARGE_VALUE: usize = 16 * 1024;
/// Bytes of answers that are held back at most.
const MAX_BUFFERED: usize = 32 * 1024;

/// Buffers and writes messages to the pool.
pub(super) struct Output {
    pipe: OwnedFd,
    encoding: Encoding,
    /// The pool accepts no longer message: it would kill this worker.
    max_frame: usize,
    buffer: Vec<u8>,
}

impl Output {
    pub(super) fn new(pipe: OwnedFd) -> Self {
        Self { pipe, encoding: Encoding::Json, max_frame: usize::MAX, buffer: Vec::new() }
    }

    pub(super) fn switch(&mut self, encoding: Encoding, max_frame: usize) {
        (self.encoding, self.max_frame) = (encoding, max_frame);
    }

    /// Adds a message to the buffer.
    pub(super) fn put(&mut self, message: &FromWorker) -> io::Result<()> {
        let before = self.buffer.len();
        self.encoding
            .encode_from_worker(message, &mut self.buffer)
            .map_err(|error| io::Error::other(error.0))?;
        let bytes = self.buffer.len() - before;
        if bytes > self.max_frame {
            self.buffer.truncate(before);
            return self.put_truncated(message);
        }
        if self.buffer.len() > MAX_BUFFERED { self.flush() } else { Ok(()) }
    }

    /// Truncates an error message that exceeds the frame limit. Other messages that are too long
    /// are dropped: no caller waits for them.
    fn put_truncated(&mut self, message: &FromWorker) -> io::Result<()> {
        let FromWorker::Error { id, error } = message else { return Ok(()) };
        // JSON may need six bytes for one.
        let max_chars = (self.max_frame / 16).min(4_000);
        let message = error.to_string().chars().take(max_chars).collect();
        let error = ErrorKind::Handler { message, chain: Vec::new(), data: None };
        self.encoding
            .encode_from_worker(&FromWorker::Error { id: *id, error }, &mut self.buffer)
            .map_err(|error| io::Error::other(error.0))
    }

    /// Adds a result to the buffer. A large value is written at once, and a value that cannot be
    /// encoded becomes an error.
    pub(super) fn result(&mut self, id: u64, value: CallPayload) -> io::Result<()> {
        if self.encoding == Encoding::Binary && value.as_bytes().len() > LARGE_VALUE {
            let bytes = value.as_bytes().len() + frame::HEADER;
            if bytes > self.max_frame {
                return self.put_error(id, self.too_large(bytes));
            }
            if let Err(error) = frame::result_head(id, &value, &mut self.buffer) {
                return self.put_error(id, error);
            }
            write_all(&self.pipe, &self.buffer, value.as_bytes())?;
            self.buffer.clear();
            return Ok(());
        }
        let before = self.buffer.len();
        let encoded = self.encoding.encode_from_worker(&FromWorker::Result { id, value }, &mut self.buffer);
        let bytes = self.buffer.len() - before;
        let fits = bytes <= self.max_frame;
        match encoded.and_then(|()| fits.then_some(()).ok_or_else(|| self.too_large(bytes))) {
            Ok(()) if self.buffer.len() > MAX_BUFFERED => self.flush(),
            Ok(()) => Ok(()),
            Err(error) => {
                self.buffer.truncate(before);
                self.put_error(id, error)
            }
        }
    }

    fn too_large(&self, bytes: usize) -> ProtocolError {
        ProtocolError(format!("{bytes} bytes, of at most {}", self.max_frame))
    }

    fn put_error(&mut self, id: u64, error: ProtocolError) -> io::Result<()> {
        let (message, chain) = ("the result cannot be sent".to_owned(), vec![error.0]);
        let error = ErrorKind::Handler { message, chain, data: None };
        self.put(&FromWorker::Error { id, error })
    }

    /// Writes the buffer to the pipe.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            write_all(&self.pipe, &self.buffer, &[])?;
            self.buffer.clear();
        }
        Ok(())
    }
}

fn write_all(pipe: &OwnedFd, first: &[u8], second: &[u8]) -> io::Result<()> {
    let mut slices = [IoSlice::new(first), IoSlice::new(second)];
    let mut left = &mut slices[..];
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match rustix::io::writev(pipe, left) {
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
