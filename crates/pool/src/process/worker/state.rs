//! The mutable state of a worker: its calls, its outbox, the request to stop it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use tokio::io::unix::AsyncFd;

use super::super::outbox::Outbox;
use super::super::pipelining::Pace;
use super::super::spawn::Leash;
use super::Wish;
use crate::error::ErrorKind;
use crate::job::{Job, Work};
use crate::protocol::{Encoding, Fault, Outgoing, frame};

/// Bodies above this size are written to the pipe without a copy.
const LARGE: usize = 16 * 1024;

/// The mutable state of a worker.
pub(super) struct Desk {
    pub(super) open: bool,
    pub(super) pid: Option<u32>,
    pub(super) leash: Option<Arc<Leash>>,
    pub(super) pipe: Option<Arc<AsyncFd<OwnedFd>>>,
    pub(super) outbox: Outbox,
    /// A thread is writing to the pipe; others leave their messages in the outbox.
    pub(super) writing: bool,
    /// Writing to it has failed: it accepts no more messages.
    pub(super) deaf: bool,
    /// The reader task will soon flush the outbox.
    pub(super) collecting: bool,
    pub(super) encoding: Encoding,
    pub(super) concurrency: usize,
    /// Its unanswered calls, in the order in which they were written.
    pub(super) calls: VecDeque<Entry>,
    pub(super) last_id: u64,
    /// Calls up to this id may be in its pipe; later ones are still in the outbox.
    pub(super) sent: u64,
    pub(super) answered: u64,
    /// When it last answered, or became ready.
    pub(super) last_heard: Instant,
    pub(super) pinged: Option<(u64, Instant)>,
    pub(super) pace: Pace,
    pub(super) wish: Option<Wish>,
    pub(super) stop_sent: bool,
    pub(super) stop_by: Option<Instant>,
}

/// A call that a worker has.
pub(super) struct Entry {
    pub(super) id: u64,
    pub(super) job: Job,
    pub(super) written: Instant,
    pub(super) given_up: Option<Instant>,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self {
            open: false,
            pid: None,
            leash: None,
            pipe: None,
            outbox: Outbox::default(),
            writing: false,
            deaf: false,
            collecting: false,
            encoding: Encoding::Json,
            concurrency: 1,
            calls: VecDeque::new(),
            last_id: 0,
            sent: 0,
            answered: 0,
            last_heard: Instant::now(),
            pinged: None,
            pace: Pace::default(),
            wish: None,
            stop_sent: false,
            stop_by: None,
        }
    }

    /// Encodes a call into the outbox.
    pub(super) fn encode(
        &mut self,
        id: u64,
        job: &Job,
        now: Instant,
        limit: usize,
    ) -> Result<(), ErrorKind> {
        let Work::Operation { arguments, .. } = &job.work else {
            let message = "closures run on threads only".to_owned();
            return Err(ErrorKind::BadArguments { message });
        };
        let call = Outgoing {
            id,
            operation: &job.operation,
            timeout: Some(job.deadline.saturating_duration_since(now)),
            progress: job.wants_progress(),
            arguments,
        };
        let bytes = arguments.as_bytes().len() + job.operation.len() + frame::HEADER;
        if bytes > limit {
            return Err(ErrorKind::TooLarge { bytes, limit });
        }
        let bad = |fault: Fault| ErrorKind::BadArguments { message: fault.0 };
        let tail = self.outbox.tail();
        let before = tail.len();
        if self.encoding == Encoding::Binary && bytes > LARGE {
            frame::call_head(&call, tail).map_err(bad)?;
            self.outbox.body(arguments.clone());
            return Ok(());
        }
        self.encoding.call(&call, tail).map_err(bad)?;
        // A JSON line is longer than its arguments, and much longer if they are bytes in base64.
        let bytes = tail.len() - before;
        if bytes > limit {
            tail.truncate(before);
            return Err(ErrorKind::TooLarge { bytes, limit });
        }
        Ok(())
    }

    /// Takes the messages to be sent now.
    pub(super) fn letters(&mut self) -> Outbox {
        self.sent = self.last_id;
        std::mem::take(&mut self.outbox)
    }

    /// Since when the worker has been running a cancelled call.
    pub(super) fn unwanted_since(&self) -> Option<Instant> {
        match self.concurrency {
            // A cancelled call starts when the call before it is answered.
            1 => Some(self.calls.front()?.given_up?.max(self.last_heard)),
            _ => self.calls.iter().filter_map(|entry| entry.given_up).min(),
        }
    }
}
