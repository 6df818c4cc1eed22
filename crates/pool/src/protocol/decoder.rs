//! Finds messages in the pieces that a pipe delivers, in bounded memory.

use std::marker::PhantomData;

use super::frame::{Frame, HEADER, Header};
use super::{Decoded, Encoding, Message, ProtocolError};

/// Bytes per read.
pub(crate) const READ_SIZE: usize = 64 * 1024;
/// A body above this size gets its own buffer, and is read right into it.
const LARGE_BODY: usize = 16 * 1024;
/// Initial capacity for a large body. The buffer grows only as bytes arrive.
const INITIAL_CAPACITY: usize = 2 * 1024 * 1024;
/// Bytes of a stray line that are shown.
const STRAY_PREVIEW: usize = 200;

/// Finds messages. The reader appends bytes to [`Decoder::space`].
pub(crate) struct Decoder<M> {
    encoding: Encoding,
    max_frame: usize,
    buffer: Vec<u8>,
    /// Bytes of the buffer that are decoded.
    start: usize,
    /// Bytes after `start` that were searched for the end of a line.
    searched: usize,
    large: Option<LargeBody>,
    messages: PhantomData<fn() -> M>,
}

/// A large body that has not arrived completely.
struct LargeBody {
    header: Header,
    name: Vec<u8>,
    body: Vec<u8>,
}

impl LargeBody {
    fn space(&mut self) -> &mut Vec<u8> {
        let (received, total) = (self.body.len(), self.header.body);
        if self.body.capacity() == received {
            // The buffer grows only as bytes arrive: a header with a false length costs little.
            self.body
                .reserve_exact(total.saturating_sub(received).min(received.max(INITIAL_CAPACITY)).max(1));
        }
        &mut self.body
    }
}

impl<M: Message> Decoder<M> {
    /// A decoder of JSON lines, with which every connection begins.
    pub(crate) fn new(max_frame: usize) -> Self {
        Self {
            encoding: Encoding::Json,
            max_frame,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            large: None,
            messages: PhantomData,
        }
    }

    /// Switches the encoding.
    pub(crate) fn switch(&mut self, encoding: Encoding) {
        self.encoding = encoding;
        self.searched = 0;
    }

    /// The buffer to which the next bytes are appended.
    pub(crate) fn space(&mut self) -> &mut Vec<u8> {
        if self.large.is_none() {
            self.compact();
        }
        match &mut self.large {
            Some(large) => large.space(),
            None => &mut self.buffer,
        }
    }

    fn compact(&mut self) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            (self.start, self.searched) = (0, 0);
        }
        if self.buffer.capacity() - self.buffer.len() < READ_SIZE / 2 {
            self.make_room();
        }
    }

    fn make_room(&mut self) {
        self.buffer.drain(..self.start);
        self.start = 0;
        // A long line grows by half each time: few copies, and little unused capacity.
        self.buffer.reserve_exact(READ_SIZE.max(self.buffer.len() / 2));
    }

    #[cfg(test)]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.space().extend_from_slice(bytes);
    }

    /// Allocated memory.
    #[cfg(test)]
    pub(crate) fn allocated(&self) -> usize {
        self.buffer.capacity() + self.large.as_ref().map_or(0, |large| large.body.capacity())
    }

    /// The next message, if it has arrived completely.
    pub(crate) fn next(&mut self) -> Result<Option<Decoded<M>>, ProtocolError> {
        match self.encoding {
            Encoding::Json => self.next_line(),
            Encoding::Binary => self.next_frame(),
        }
    }

    fn next_line(&mut self) -> Result<Option<Decoded<M>>, ProtocolError> {
        loop {
            let rest = &self.buffer[self.start..];
            let Some(end) = memchr::memchr(b'\n', &rest[self.searched..]) else { break };
            let end = self.searched + end;
            let line = rest[..end].trim_ascii();
            (self.start, self.searched) = (self.start + end + 1, 0);
            if line.is_empty() {
                continue;
            }
            if line.len() > self.max_frame {
                return Err(too_long(self.max_frame));
            }
            let message = M::from_line(line)?;
            return Ok(Some(message.map_or_else(|| Decoded::Stray(preview(line)), Decoded::Message)));
        }
        self.searched = self.buffer.len() - self.start;
        match self.searched > self.max_frame {
            true => Err(too_long(self.max_frame)),
            false => Ok(None),
        }
    }

    fn next_frame(&mut self) -> Result<Option<Decoded<M>>, ProtocolError> {
        loop {
            let Some(frame) = self.frame()? else { return Ok(None) };
            // Unknown types are skipped.
            if let Some(message) = M::from_frame(frame)? {
                return Ok(Some(Decoded::Message(message)));
            }
        }
    }

    fn frame(&mut self) -> Result<Option<Frame>, ProtocolError> {
        if let Some(large) = &mut self.large {
            if large.body.len() < large.header.body {
                return Ok(None);
            }
            // Bytes after its end belong to the next frame.
            self.buffer.clear();
            self.buffer.extend_from_slice(&large.body[large.header.body..]);
            large.body.truncate(large.header.body);
            self.start = 0;
            return Ok(self.large.take().map(|LargeBody { header, name, body }| Frame {
                header,
                name,
                body,
            }));
        }
        let bytes = &self.buffer[self.start..];
        let Some(header) = Header::read(bytes, self.max_frame)? else { return Ok(None) };
        let (body_at, end) = (HEADER + header.name, HEADER + header.name + header.body);
        if bytes.len() >= end {
            let (name, body) = (bytes[HEADER..body_at].to_vec(), bytes[body_at..end].to_vec());
            self.start += end;
            return Ok(Some(Frame { header, name, body }));
        }
        if header.body > LARGE_BODY && bytes.len() >= body_at {
            let mut body = Vec::with_capacity(header.body.min(INITIAL_CAPACITY));
            body.extend_from_slice(&bytes[body_at..]);
            self.large = Some(LargeBody { header, name: bytes[HEADER..body_at].to_vec(), body });
            self.buffer.clear();
            self.start = 0;
        }
        Ok(None)
    }
}

fn too_long(limit: usize) -> ProtocolError {
    ProtocolError(format!("a line of more than {limit} bytes"))
}

fn preview(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(STRAY_PREVIEW)]).into_owned()
}
