//! The mutable state of a worker: its calls, its outbox, the request to stop it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;

use super::super::outbox::Outbox;
use super::super::pipelining::PipelineDepth;
use super::super::spawn::KillHandle;
use super::StopRequest;
use crate::error::ErrorKind;
use crate::job::{Job, Work};
use crate::protocol::{Encoding, OutgoingCall, ProtocolError, frame};

/// Bodies above this size are written to the pipe without a copy.
const LARGE_BODY: usize = 16 * 1024;

/// A worker with several calls is pinged a quarter of a call's time before its deadline, within
/// these limits.
const PROBE_AHEAD: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// How long a responsive worker may take to answer such a ping.
pub(super) const PROBE_REPLY_TIME: Duration = Duration::from_millis(50);

/// The mutable state of a worker.
pub(super) struct WorkerState {
    pub(super) open: bool,
    pub(super) pid: Option<u32>,
    pub(super) kill_handle: Option<Arc<KillHandle>>,
    pub(super) pipe: Option<Arc<AsyncFd<OwnedFd>>>,
    pub(super) outbox: Outbox,
    /// A thread is writing to the pipe; others leave their messages in the outbox.
    pub(super) writing: bool,
    /// Writing to it has failed: it accepts no more messages.
    pub(super) input_broken: bool,
    /// The reader task will soon flush the outbox.
    pub(super) defer_writes: bool,
    pub(super) encoding: Encoding,
    pub(super) concurrency: usize,
    /// Its unanswered calls, in the order in which they were written.
    pub(super) calls: VecDeque<InFlightCall>,
    pub(super) last_id: u64,
    /// Calls up to this id may be in its pipe; later ones are still in the outbox.
    pub(super) sent: u64,
    pub(super) answered: u64,
    /// When it last answered, or became ready.
    pub(super) last_activity: Instant,
    pub(super) pinged: Option<(u64, Instant)>,
    /// When it last sent a message.
    pub(super) last_heard: Instant,
    /// When it was last pinged because a call neared its deadline.
    pub(super) probed_at: Option<Instant>,
    /// When the lifecycle task checks it again.
    pub(super) check_at: Instant,
    /// It is killed because one of several calls blocked it.
    pub(super) blocked: bool,
    pub(super) pipeline: PipelineDepth,
    pub(super) stop_request: Option<StopRequest>,
    pub(super) stop_sent: bool,
    pub(super) stop_by: Option<Instant>,
}

/// A call that a worker has.
pub(super) struct InFlightCall {
    pub(super) id: u64,
    pub(super) job: Job,
    pub(super) written: Instant,
    pub(super) cancelled_at: Option<Instant>,
}

impl InFlightCall {
    /// When to ping a worker with several calls, before this one times out.
    pub(super) fn probe_at(&self) -> Instant {
        let limit = self.job.deadline.saturating_duration_since(self.written);
        let ahead = (limit / 4).clamp(PROBE_AHEAD.0, PROBE_AHEAD.1);
        self.job.deadline.checked_sub(ahead).unwrap_or(self.written).max(self.written)
    }
}

impl WorkerState {
    pub(super) fn new() -> Self {
        Self {
            open: false,
            pid: None,
            kill_handle: None,
            pipe: None,
            outbox: Outbox::default(),
            writing: false,
            input_broken: false,
            defer_writes: false,
            encoding: Encoding::Json,
            concurrency: 1,
            calls: VecDeque::new(),
            last_id: 0,
            sent: 0,
            answered: 0,
            last_activity: Instant::now(),
            pinged: None,
            last_heard: Instant::now(),
            probed_at: None,
            check_at: Instant::now(),
            blocked: false,
            pipeline: PipelineDepth::default(),
            stop_request: None,
            stop_sent: false,
            stop_by: None,
        }
    }

    /// Encodes a call into the outbox.
    pub(super) fn encode(&mut self, id: u64, job: &Job, now: Instant, limit: usize) -> Result<(), ErrorKind> {
        let Work::Operation { arguments, .. } = &job.work else {
            let message = "closures run on threads only".to_owned();
            return Err(ErrorKind::BadArguments { message });
        };
        let call = OutgoingCall {
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
        let to_error = |error: ProtocolError| ErrorKind::BadArguments { message: error.0 };
        let buffer = self.outbox.buffer();
        let before = buffer.len();
        if self.encoding == Encoding::Binary && bytes > LARGE_BODY {
            frame::call_head(&call, buffer).map_err(to_error)?;
            self.outbox.push_body(arguments.clone());
            return Ok(());
        }
        self.encoding.encode_call(&call, buffer).map_err(to_error)?;
        // A JSON line is longer than its arguments, and much longer if they are bytes in base64.
        let bytes = buffer.len() - before;
        if bytes > limit {
            buffer.truncate(before);
            return Err(ErrorKind::TooLarge { bytes, limit });
        }
        Ok(())
    }

    /// Takes the messages to be sent now.
    pub(super) fn take_outbox(&mut self) -> Outbox {
        self.sent = self.last_id;
        std::mem::take(&mut self.outbox)
    }

    /// Whether one of several calls blocks the whole worker: it did not answer a ping.
    pub(super) fn is_blocked(&self, now: Instant) -> bool {
        let unanswered = self.probed_at.filter(|at| self.last_heard < *at);
        unanswered.is_some_and(|at| now.duration_since(at) >= PROBE_REPLY_TIME)
    }

    /// Whether a caller waits for one of the calls.
    pub(super) fn has_awaited_calls(&self) -> bool {
        self.calls.iter().any(|entry| entry.cancelled_at.is_none())
    }

    /// Since when the worker has been running a cancelled call.
    pub(super) fn running_cancelled_since(&self) -> Option<Instant> {
        match self.concurrency {
            // A cancelled call starts when the call before it is answered.
            1 => Some(self.calls.front()?.cancelled_at?.max(self.last_activity)),
            _ => self.calls.iter().filter_map(|entry| entry.cancelled_at).min(),
        }
    }
}
