//! One worker process as everybody sees it who has to do with it. All that changes is on its [`desk`],
//! under one short lock; nothing here waits. What goes to it is in [`post`], what comes from it in
//! [`hearing`], whether it is well in [`watch`].

mod desk;
mod hearing;
mod post;
mod watch;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use self::desk::{Desk, Entry};
use super::os::Leash;
use crate::crew::Why;
use crate::error::{Fate, WorkerRef};
use crate::job::Job;
use crate::protocol::{Ready, ToWorker};
use crate::reins::Reins;
use crate::settings::{OnTimeout, Settings};
use crate::shared::Shared;
use crate::table::{Cause, WorkerId};

/// As good as for ever.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);
/// Calls that a worker is given at a time, whatever it promises: what it has is not in the queue, whose
/// limit must mean something.
const AT_ONCE: usize = 1024;

/// One worker process.
pub(super) struct Worker {
    pub(super) id: WorkerId,
    one_call: bool,
    max_frame: usize,
    stop_timeout: Duration,
    on_timeout: OnTimeout,
    desk: Mutex<Desk>,
    /// Something changed that its [`super::life`] should look at.
    pub(super) changed: Notify,
    /// The pipe was full: what is left is for the writer.
    full: Notify,
}

/// What is wished of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// That it ends in good order.
    End(Cause),
    /// That it is gone.
    Kill(Cause),
}

/// What its life has to do next.
#[derive(Debug, PartialEq)]
pub(super) enum Act {
    /// Nothing, until then.
    Wait(Instant),
    /// Kill it.
    Kill(Cause),
    /// It hears nothing any more: it has a moment to end by itself.
    Dismiss,
    /// Give it no more calls, and end it once those that it has are answered.
    Release(Cause),
}

/// What a worker leaves behind.
#[derive(Default)]
pub(super) struct Left {
    /// Calls that it has begun, as far as anybody can know.
    pub(super) begun: Vec<Job>,
    /// Calls that were sent to it behind those. It has not begun them if all that it answered is known.
    pub(super) sent: Vec<Job>,
    /// Calls that it never got.
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

    /// Its process is there. False if it is not wanted any more.
    pub(super) fn attach(&self, pid: u32, leash: Arc<Leash>, pipe: Arc<AsyncFd<OwnedFd>>) -> bool {
        let mut desk = self.desk();
        (desk.pid, desk.leash, desk.pipe) = (Some(pid), Some(leash), Some(pipe));
        !matches!(desk.wish, Some(Wish::Kill(_)))
    }

    /// It is ready: calls may come.
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

    /// Takes no more; what it has is handed over.
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

    /// What is wished of it.
    pub(super) fn wished(&self) -> Option<Wish> {
        self.desk().wish
    }

    /// Says what is wished of it. What is wished first is done, but killing comes before all.
    pub(super) fn wish(&self, wish: Wish) {
        let mut desk = self.desk();
        if desk.wish.is_none() || matches!(wish, Wish::Kill(_)) {
            desk.wish = Some(wish);
        }
        drop(desk);
        self.changed.notify_one();
    }

    /// Kills it at once.
    pub(super) fn kill(&self, wish: Wish) {
        self.wish(wish);
        if let Some(leash) = &self.desk().leash {
            leash.kill();
        }
    }

    /// A call is wanted no more.
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
