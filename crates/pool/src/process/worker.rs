//! One worker process, as callers and its tasks see it. All mutable parts are in [`state`], under
//! one lock that is held shortly; no method blocks. Writing to the process is in [`send`], reading
//! from it in [`on_message`], liveness checks in [`liveness`].

mod liveness;
mod on_message;
mod send;
mod state;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use self::state::{Desk, Entry};
use super::spawn::Leash;
use crate::backend::Why;
use crate::call_state::Reins;
use crate::error::{Fate, WorkerRef};
use crate::job::Job;
use crate::protocol::{Ready, ToWorker};
use crate::scheduler::{Cause, WorkerId};
use crate::settings::{OnTimeout, Settings};
use crate::shared::Shared;

/// Upper limit for waiting times, so that adding one to a clock's reading cannot overflow.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);
/// Calls that a worker is given at a time, whatever concurrency it reports: these calls are not in
/// the queue, so they would bypass the queue's limit.
const AT_ONCE: usize = 1024;

/// One worker process.
pub(super) struct Worker {
    pub(super) id: WorkerId,
    one_call: bool,
    max_frame: usize,
    stop_timeout: Duration,
    on_timeout: OnTimeout,
    desk: Mutex<Desk>,
    /// Wakes the worker's [`super::lifecycle`] task.
    pub(super) changed: Notify,
    /// The pipe was full: the writer task sends the rest.
    full: Notify,
}

/// A request to stop a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// Finish its calls, then exit.
    End(Cause),
    /// Be killed at once.
    Kill(Cause),
}

/// What the lifecycle task does next.
#[derive(Debug, PartialEq)]
pub(super) enum Act {
    /// Nothing until this time.
    Wait(Instant),
    /// Kill it.
    Kill(Cause),
    /// Its input is closed: give it some time to exit.
    Dismiss,
    /// Give it no more calls, and stop it once its calls are answered.
    Release(Cause),
}

/// The calls of a worker that has ended.
#[derive(Default)]
pub(super) struct Left {
    /// Calls that may have started.
    pub(super) begun: Vec<Job>,
    /// Calls sent behind those. They have not started, provided that all answers were read.
    pub(super) sent: Vec<Job>,
    /// Calls that were never written to its pipe.
    pub(super) unbegun: Vec<Job>,
    pub(super) answered: u64,
}

impl Worker {
    pub(super) fn new(id: WorkerId, one_call: bool, settings: &Settings) -> Self {
        Self {
            id,
            one_call,
            max_frame: settings.max_frame,
            stop_timeout: settings.stop_timeout.min(LONG),
            on_timeout: settings.on_timeout,
            desk: Mutex::new(Desk::new()),
            changed: Notify::new(),
            full: Notify::new(),
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.desk().pid
    }

    fn reference(&self, desk: &Desk) -> Option<WorkerRef> {
        Some(WorkerRef { id: self.id, pid: desk.pid })
    }

    /// Stores the process's pid, kill handle and pipe. False if the pool has cancelled the start.
    pub(super) fn attach(&self, pid: u32, leash: Arc<Leash>, pipe: Arc<AsyncFd<OwnedFd>>) -> bool {
        let mut desk = self.desk();
        (desk.pid, desk.leash, desk.pipe) = (Some(pid), Some(leash), Some(pipe));
        !matches!(desk.wish, Some(Wish::Kill(_)))
    }

    /// Marks the worker as ready for calls.
    pub(super) fn open(&self, ready: &Ready) {
        let mut desk = self.desk();
        desk.open = true;
        desk.encoding = ready.encoding;
        desk.concurrency = if self.one_call { 1 } else { ready.concurrency.clamp(1, AT_ONCE) };
        desk.last_heard = Instant::now();
    }

    /// How many calls it performs at a time.
    pub(super) fn concurrency(&self) -> usize {
        self.desk().concurrency
    }

    /// Accepts no more calls, and returns its unfinished ones.
    pub(super) fn close(&self) -> Left {
        let mut desk = self.desk();
        desk.open = false;
        desk.outbox.clear();
        desk.pipe = None;
        let begun = if desk.concurrency > 1 { usize::MAX } else { 1 };
        let (mut left, sent) = (Left::default(), desk.sent);
        left.answered = desk.answered;
        for (place, entry) in std::mem::take(&mut desk.calls).into_iter().enumerate() {
            let list = match place {
                _ if entry.id > sent => &mut left.unbegun,
                place if place < begun => &mut left.begun,
                _ => &mut left.sent,
            };
            list.push(entry.job);
        }
        left
    }

    /// Whether it was ever given a call.
    pub(super) fn has_worked(&self) -> bool {
        let desk = self.desk();
        desk.answered > 0 || !desk.calls.is_empty()
    }

    /// The request to stop it, if there is one.
    pub(super) fn wished(&self) -> Option<Wish> {
        self.desk().wish
    }

    /// Requests that the worker stops. The first request holds, but a kill replaces it.
    pub(super) fn wish(&self, wish: Wish) {
        let mut desk = self.desk();
        if desk.wish.is_none() || matches!(wish, Wish::Kill(_)) {
            desk.wish = Some(wish);
        }
        drop(desk);
        self.changed.notify_one();
    }

    /// Kills the process at once.
    pub(super) fn kill(&self, wish: Wish) {
        self.wish(wish);
        if let Some(leash) = &self.desk().leash {
            leash.kill();
        }
    }

    /// Cancels a call.
    pub(super) fn give_up(&self, shared: &Arc<Shared>, reins: &Arc<Reins>, why: Why) -> Fate {
        let mut desk = self.desk();
        let place = desk.calls.iter().position(|entry| Arc::ptr_eq(&entry.job.reins, reins));
        let Some(place) = place else { return Fate::LeftRunning };
        desk.calls[place].given_up = Some(Instant::now());
        let id = desk.calls[place].id;
        let at_it = place == 0 && desk.concurrency == 1;
        drop(desk);
        if self.on_timeout == OnTimeout::Replace && why == Why::TimedOut && at_it {
            shared.abandon(self.id);
            self.kill(Wish::Kill(Cause::Timeout));
            return Fate::Killed;
        }
        self.tell(&ToWorker::Cancel(id));
        match self.on_timeout {
            OnTimeout::Leave => Fate::LeftRunning,
            OnTimeout::Replace => {
                self.changed.notify_one();
                Fate::Asked
            }
        }
    }
}
