//! One worker process, as callers and its tasks see it. All mutable parts are in [`state`], under
//! one lock that is held only briefly; no method blocks. Writing to the process is in [`send`],
//! reading from it in [`on_message`], liveness checks in [`liveness`].

mod liveness;
mod on_message;
mod send;
mod state;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use self::state::{InFlightCall, WorkerState};
use super::spawn::KillHandle;
use crate::backend::CancelReason;
use crate::call_state::CallState;
use crate::error::{CancelEffect, WorkerRef};
use crate::job::Job;
use crate::protocol::{Ready, ToWorker};
use crate::scheduler::{EndCause, WorkerId};
use crate::settings::{OnTimeout, PoolSettings};
use crate::shared::Shared;

/// Upper limit for waiting times, so that adding one to a clock's reading cannot overflow.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
/// Calls that a worker is given at a time, whatever concurrency it reports: these calls are not in
/// the queue, so they would bypass the queue's limit.
const MAX_CONCURRENCY: usize = 1024;

/// One worker process.
pub(super) struct Worker {
    pub(super) id: WorkerId,
    one_call: bool,
    max_frame: usize,
    stop_timeout: Duration,
    on_timeout: OnTimeout,
    state: Mutex<WorkerState>,
    /// Wakes the worker's [`super::lifecycle`] task.
    pub(super) changed: Notify,
    /// The pipe was full: the writer task sends the rest.
    full: Notify,
}

/// A request to stop a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopRequest {
    /// Finish its calls, then exit.
    Graceful(EndCause),
    /// Be killed at once.
    Kill(EndCause),
}

/// What the lifecycle task does next.
#[derive(Debug, PartialEq)]
pub(super) enum LivenessAction {
    /// Nothing until this time.
    Wait(Instant),
    /// Kill it.
    Kill(EndCause),
    /// Its input is closed: give it some time to exit.
    AwaitExit,
    /// Give it no more calls, and stop it once its calls are answered.
    Drain(EndCause),
}

/// The calls of a worker that has ended.
#[derive(Default)]
pub(super) struct UnfinishedCalls {
    /// Calls that may have started.
    pub(super) started: Vec<Job>,
    /// Calls sent behind those. They have not started, provided that all answers were read.
    pub(super) sent: Vec<Job>,
    /// Calls that were never written to its pipe.
    pub(super) unsent: Vec<Job>,
    pub(super) answered: u64,
    /// One of the started calls blocked the worker.
    pub(super) blocked: bool,
}

impl Worker {
    pub(super) fn new(id: WorkerId, one_call: bool, settings: &PoolSettings) -> Self {
        Self {
            id,
            one_call,
            max_frame: settings.max_frame,
            stop_timeout: settings.stop_timeout.min(MAX_WAIT),
            on_timeout: settings.on_timeout,
            state: Mutex::new(WorkerState::new()),
            changed: Notify::new(),
            full: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, WorkerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.state().pid
    }

    fn reference(&self, state: &WorkerState) -> Option<WorkerRef> {
        Some(WorkerRef { id: self.id, pid: state.pid })
    }

    /// Stores the process's pid, kill handle and pipe. False if the pool has cancelled the start.
    pub(super) fn attach(&self, pid: u32, kill_handle: Arc<KillHandle>, pipe: Arc<AsyncFd<OwnedFd>>) -> bool {
        let mut state = self.state();
        (state.pid, state.kill_handle, state.pipe) = (Some(pid), Some(kill_handle), Some(pipe));
        !matches!(state.stop_request, Some(StopRequest::Kill(_)))
    }

    /// Marks the worker as ready for calls.
    pub(super) fn mark_ready(&self, ready: &Ready) {
        let mut state = self.state();
        state.open = true;
        state.encoding = ready.encoding;
        state.concurrency = if self.one_call { 1 } else { ready.concurrency.clamp(1, MAX_CONCURRENCY) };
        state.last_activity = Instant::now();
    }

    /// How many calls it performs at a time.
    pub(super) fn concurrency(&self) -> usize {
        self.state().concurrency
    }

    /// Accepts no more calls, and returns its unfinished ones.
    pub(super) fn close(&self) -> UnfinishedCalls {
        let mut state = self.state();
        state.open = false;
        state.outbox.clear();
        state.pipe = None;
        let started = if state.concurrency > 1 { usize::MAX } else { 1 };
        let (mut unfinished, sent) = (UnfinishedCalls::default(), state.sent);
        (unfinished.answered, unfinished.blocked) = (state.answered, state.blocked);
        for (index, entry) in std::mem::take(&mut state.calls).into_iter().enumerate() {
            let list = match index {
                _ if entry.id > sent => &mut unfinished.unsent,
                index if index < started => &mut unfinished.started,
                _ => &mut unfinished.sent,
            };
            list.push(entry.job);
        }
        unfinished
    }

    /// Whether it was ever given a call.
    pub(super) fn was_given_calls(&self) -> bool {
        let state = self.state();
        state.answered > 0 || !state.calls.is_empty()
    }

    /// Whether a caller waits for one of its calls.
    pub(super) fn has_awaited_calls(&self) -> bool {
        self.state().has_awaited_calls()
    }

    /// The request to stop it, if there is one.
    pub(super) fn stop_request(&self) -> Option<StopRequest> {
        self.state().stop_request
    }

    /// Requests that the worker stops. The first request holds, but a kill replaces it.
    pub(super) fn request_stop(&self, stop_request: StopRequest) {
        let mut state = self.state();
        if state.stop_request.is_none() || matches!(stop_request, StopRequest::Kill(_)) {
            state.stop_request = Some(stop_request);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Kills the process at once.
    pub(super) fn kill(&self, stop_request: StopRequest) {
        self.request_stop(stop_request);
        if let Some(kill_handle) = &self.state().kill_handle {
            kill_handle.kill();
        }
    }

    /// Cancels a call.
    pub(super) fn cancel(
        &self,
        shared: &Arc<Shared>,
        call_state: &Arc<CallState>,
        reason: CancelReason,
    ) -> CancelEffect {
        let mut state = self.state();
        let index = state.calls.iter().position(|entry| Arc::ptr_eq(&entry.job.call_state, call_state));
        let Some(index) = index else { return CancelEffect::LeftRunning };
        let now = Instant::now();
        state.calls[index].cancelled_at = Some(now);
        let id = state.calls[index].id;
        if self.on_timeout == OnTimeout::Replace && reason == CancelReason::Timeout {
            let kill = match state.concurrency {
                1 => index == 0,
                _ => state.is_blocked(now),
            };
            if kill {
                return self.kill_hung(shared, state);
            }
        }
        drop(state);
        self.send_message(&ToWorker::Cancel(id));
        match self.on_timeout {
            OnTimeout::Leave => CancelEffect::LeftRunning,
            OnTimeout::Replace => {
                self.changed.notify_one();
                CancelEffect::Asked
            }
        }
    }

    /// Kills the worker, because a call on it timed out. If it had several calls, any of them may
    /// have blocked it: none is blamed, and all run alone from now on.
    fn kill_hung(&self, shared: &Arc<Shared>, mut state: MutexGuard<'_, WorkerState>) -> CancelEffect {
        let several = state.concurrency > 1 && state.calls.len() > 1;
        if state.concurrency > 1 && !state.blocked {
            let sent = state.sent;
            let started = state.calls.iter().filter(|call| call.id <= sent);
            started.for_each(|call| shared.suspects.add(&call.job));
        }
        state.blocked |= several;
        drop(state);
        shared.abandon(self.id);
        self.kill(StopRequest::Kill(EndCause::Timeout));
        if several { CancelEffect::Blocked } else { CancelEffect::Killed }
    }
}
