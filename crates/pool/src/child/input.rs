//! Messages from the pool to this worker.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::lock;
use super::output::Output;
use crate::call_state::CallState;
use crate::error::{CancelEffect, ErrorKind};
use crate::protocol::decoder::Decoder;
use crate::protocol::{CallMessage, Decoded, Encoding, FromWorker, Hello, ProtocolError, ToWorker};

/// Polls no more often than this, so that an operation that checks for cancellation in a tight loop
/// costs few system calls.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Calls that are read ahead. Further calls stay in the pipe.
const MAX_READ_AHEAD: usize = 64;
/// The pool enforces its own limit on what it sends. This one protects from a peer that is not a
/// pool.
const MAX_FRAME: usize = 1 << 30;

/// Reads and queues messages from the pool.
pub(super) struct Input {
    pipe: OwnedFd,
    decoder: Decoder<ToWorker>,
    calls: VecDeque<CallMessage>,
    /// The call that is being performed.
    pub(super) current: Option<(u64, Arc<CallState>)>,
    closed: bool,
    last_poll: Instant,
}

impl Input {
    pub(super) fn new(pipe: OwnedFd) -> Self {
        Self {
            pipe,
            decoder: Decoder::new(MAX_FRAME),
            calls: VecDeque::new(),
            current: None,
            closed: false,
            last_poll: Instant::now(),
        }
    }

    pub(super) fn switch(&mut self, encoding: Encoding) {
        self.decoder.switch(encoding);
    }

    pub(super) fn pop(&mut self) -> Option<CallMessage> {
        self.calls.pop_front()
    }

    /// Whether the pool will send no more calls.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Reads the first message; `None` if the pool stops the worker before it.
    pub(super) fn hello(&mut self) -> io::Result<Option<Hello>> {
        loop {
            match self.decoder.next().map_err(protocol_error)? {
                Some(Decoded::Message(ToWorker::Hello(hello))) => return Ok(Some(hello)),
                Some(Decoded::Message(ToWorker::Stop)) => return Ok(None),
                Some(_) => {}
                None if !self.read()? => return Ok(None),
                None => {}
            }
        }
    }

    /// Blocks until more messages arrive. The output is not locked meanwhile, so that other threads
    /// can report progress.
    pub(super) fn wait(&mut self, output: &Mutex<Output>) -> io::Result<()> {
        self.closed |= !self.read()?;
        self.handle_messages(&mut lock(output))
    }

    /// Reads messages that have arrived, without blocking, while an operation runs.
    pub(super) fn poll(&mut self, output: &mut Output) -> io::Result<()> {
        if self.closed || self.calls.len() >= MAX_READ_AHEAD || self.last_poll.elapsed() < POLL_INTERVAL {
            return Ok(());
        }
        self.last_poll = Instant::now();
        let mut fds = [PollFd::new(&self.pipe, PollFlags::IN)];
        if poll(&mut fds, Some(&Timespec::default()))? > 0 {
            self.closed |= !self.read()?;
            self.handle_messages(output)?;
            output.flush()?;
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<bool> {
        loop {
            match rustix::io::read(&self.pipe, spare_capacity(self.decoder.space())) {
                Ok(read) => return Ok(read > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn handle_messages(&mut self, output: &mut Output) -> io::Result<()> {
        while let Some(message) = self.decoder.next().map_err(protocol_error)? {
            match message {
                Decoded::Message(ToWorker::Call(call)) => self.calls.push_back(call),
                Decoded::Message(ToWorker::Cancel(id)) => self.cancel(id, output)?,
                Decoded::Message(ToWorker::Ping(id)) => output.put(&FromWorker::Pong(id))?,
                Decoded::Message(ToWorker::Stop) => self.closed = true,
                Decoded::Message(ToWorker::Hello(_)) | Decoded::Stray(_) => {}
            }
        }
        Ok(())
    }

    /// Cancels a call. A call that has not started is removed and answered as not started.
    fn cancel(&mut self, id: u64, output: &mut Output) -> io::Result<()> {
        if let Some((_, call_state)) = self.current.as_ref().filter(|(current, _)| *current == id) {
            call_state.cancel();
        }
        if let Some(index) = self.calls.iter().position(|call| call.id == id) {
            self.calls.remove(index);
            let error = ErrorKind::Cancelled { effect: CancelEffect::NotStarted };
            output.put(&FromWorker::Error { id, error })?;
        }
        Ok(())
    }
}

fn protocol_error(error: ProtocolError) -> io::Error {
    io::Error::other(format!("the pool violated the protocol: {error}"))
}
