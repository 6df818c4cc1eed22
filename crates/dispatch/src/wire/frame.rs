//! Frames messages: a length of four bytes, then the message.

use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout_at};

/// A started frame must be complete within this time, so that a slow peer does not hold memory.
const FRAME_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes to read at once.
const READ_CHUNK: usize = 64 * 1024;

/// Reads frames.
#[derive(Debug)]
pub struct FrameReader<R> {
    reader: R,
    buffer: BytesMut,
    limit: usize,
    frame_started: Option<Instant>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads frames of at most `limit` bytes.
    pub fn new(reader: R, limit: usize) -> Self {
        Self { reader, buffer: BytesMut::new(), limit, frame_started: None }
    }

    /// Changes the maximum frame size.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The next frame; `None` once the peer has closed the connection. Cancel safe.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(frame) = self.buffered_frame()? {
                self.frame_started = None;
                return Ok(Some(frame));
            }
            self.buffer.reserve(READ_CHUNK);
            let read = self.reader.read_buf(&mut self.buffer);
            let count = match self.frame_started {
                Some(frame_started) => {
                    timeout_at(frame_started + FRAME_TIMEOUT, read).await.map_err(|_| frame_timeout())??
                }
                None => read.await?,
            };
            self.frame_started.get_or_insert_with(Instant::now);
            match (count, self.buffer.is_empty()) {
                (0, true) => return Ok(None),
                (0, false) => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => {}
            }
        }
    }

    /// The next frame, if it is already buffered.
    pub fn ready(&mut self) -> io::Result<Option<Bytes>> {
        self.buffered_frame()
    }

    fn buffered_frame(&mut self) -> io::Result<Option<Bytes>> {
        let Some(length) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > self.limit {
            let message = format!("a frame of {length} bytes exceeds the limit of {}", self.limit);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        if self.buffer.len() < 4 + length {
            return Ok(None);
        }
        self.buffer.advance(4);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}

fn frame_timeout() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the frame was not complete in time")
}

/// Appends a message in postcard.
pub fn encode<M: Serialize>(message: &M, buffer: &mut Vec<u8>) -> io::Result<()> {
    with_length(buffer, |buffer| postcard::to_io(message, buffer).map(drop).map_err(invalid))
}

/// Decodes a message from postcard.
pub fn decode<M: DeserializeOwned>(frame: &[u8]) -> io::Result<M> {
    postcard::from_bytes(frame).map_err(invalid)
}

/// Appends a message in JSON.
pub fn encode_json<M: Serialize>(message: &M, buffer: &mut Vec<u8>) -> io::Result<()> {
    with_length(buffer, |buffer| serde_json::to_writer(buffer, message).map_err(invalid))
}

/// Decodes a message from JSON.
pub fn decode_json<M: DeserializeOwned>(frame: &[u8]) -> io::Result<M> {
    serde_json::from_slice(frame).map_err(invalid)
}

fn with_length(buffer: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; 4]);
    write(buffer).inspect_err(|_| buffer.truncate(start))?;
    let length = u32::try_from(buffer.len() - start - 4).map_err(invalid)?;
    buffer[start..start + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::wire::{FromWorker, WorkerLoad};

    #[tokio::test]
    async fn messages_arrive_whole_in_whatever_pieces_they_come() {
        let mut bytes = Vec::new();
        let beat = FromWorker::Heartbeat(WorkerLoad { running: 3, ..WorkerLoad::default() });
        for message in [&beat, &FromWorker::Leaving] {
            encode(message, &mut bytes).unwrap();
        }
        let (pieces, mut theirs) = tokio::io::duplex(1);
        let send = async move { theirs.write_all(&bytes).await.unwrap() };
        let mut frames = FrameReader::new(pieces, 100);
        let receive = async {
            for message in [beat, FromWorker::Leaving] {
                let frame = frames.next().await.unwrap().unwrap();
                assert_eq!(decode::<FromWorker>(&frame).unwrap(), message);
            }
            assert!(frames.next().await.unwrap().is_none());
        };
        tokio::join!(send, receive);
    }

    #[tokio::test]
    async fn a_message_above_the_limit_is_refused_before_it_is_read() {
        let mut frames = FrameReader::new(&[0xff, 0xff, 0xff, 0x7f, 1][..], 100);
        let error = frames.next().await.unwrap_err();
        assert!(error.to_string().contains("the limit of 100"), "{error}");
    }

    #[tokio::test]
    async fn a_message_that_breaks_off_is_an_error() {
        let mut frames = FrameReader::new(&[9, 0, 0, 0, 1][..], 100);
        let error = frames.next().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_comes_too_slowly_is_an_error() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        theirs.write_all(&[9, 0, 0, 0, 1]).await.unwrap();
        let error = FrameReader::new(ours, 100).next().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes: Vec<u8>) {
            let _ = decode::<FromWorker>(&bytes);
            let _ = decode::<crate::wire::ToWorker>(&bytes);
            let _ = decode_json::<crate::wire::Hello>(&bytes);
        }
    }
}
