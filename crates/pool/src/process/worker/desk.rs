//! What lies on a worker's desk: the calls it has, what is on its way to it, what is wished of it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use tokio::io::unix::AsyncFd;

use super::super::os::Leash;
use super::super::outbox::Outbox;
use super::super::pace::Pace;
use super::Wish;
use crate::error::ErrorKind;
use crate::job::{Job, Work};
use crate::protocol::{Encoding, Fault, Outgoing, frame};

/// A body above this is not copied on its way into the pipe.
const LARGE: usize = 16 * 1024;

/// What is on a worker's desk.
pub(super) struct Desk {
    pub(super) open: bool,
    pub(super) pid: Option<u32>,
    pub(super) leash: Option<Arc<Leash>>,
    pub(super) pipe: Option<Arc<AsyncFd<OwnedFd>>>,
    pub(super) outbox: Outbox,
    /// Somebody is at it: nobody else writes.
    pub(super) writing: bool,
    /// It takes nothing more: what was written to it came back as an error.
    pub(super) deaf: bool,
    /// Who reads its answers will soon send what is in the outbox.
    pub(super) collecting: bool,
    pub(super) encoding: Encoding,
    pub(super) concurrency: usize,
    /// Calls that it has, in the order in which they were written.
    pub(super) calls: VecDeque<Entry>,
    pub(super) last_id: u64,
    /// Calls up to this one may be in its pipe; those behind it have never left our outbox.
    pub(super) sent: u64,
    pub(super) answered: u64,
    /// When it last answered or was given its first call.
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

    /// Writes a call into the outbox.
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
        // A line is longer than its arguments, and much longer than bytes in it.
        let bytes = tail.len() - before;
        if bytes > limit {
            tail.truncate(before);
            return Err(ErrorKind::TooLarge { bytes, limit });
        }
        Ok(())
    }

    /// What is to be sent now.
    pub(super) fn letters(&mut self) -> Outbox {
        self.sent = self.last_id;
        std::mem::take(&mut self.outbox)
    }

    /// Since when it is at a call that nobody wants.
    pub(super) fn unwanted_since(&self) -> Option<Instant> {
        match self.concurrency {
            // It got to it when it had answered the one before.
            1 => Some(self.calls.front()?.given_up?.max(self.last_heard)),
            _ => self.calls.iter().filter_map(|entry| entry.given_up).min(),
        }
    }
}
