//! Writes calls and control messages to a worker, on the thread of the sender.
//!
//! No thread writes under the lock. A thread that finds another one writing leaves its message in
//! the outbox, and the writing thread sends it too. So many calls go out in one system call under
//! load.

use std::os::fd::OwnedFd;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use tokio::io::unix::AsyncFd;

use super::{Desk, Entry, Wish, Worker};
use crate::error::{ErrorKind, WorkerRef};
use crate::job::Job;
use crate::protocol::ToWorker;
use crate::scheduler::Next;
use crate::shared::Shared;

/// With this many calls before it in the pipe, a new call can wait in the outbox for the next
/// answer: the worker does not run out of work meanwhile, and the reader task sends all of them in
/// one write.
const ENOUGH: usize = 4;

impl Worker {
    /// Gives the worker a call. The caller's thread writes it, as far as the pipe has room.
    pub(in super::super) fn give(&self, shared: &Arc<Shared>, job: Job) {
        let mut desk = self.desk();
        let put = self.put(&mut desk, job);
        // The call is sent with others soon, or would have to wait in the pipe anyway.
        let can_wait = desk.collecting || (desk.calls.len() > ENOUGH && desk.concurrency == 1);
        match can_wait {
            true => drop(desk),
            false => self.send(desk),
        }
        if let Some(next) = self.after(shared, put) {
            self.proceed(shared, next);
            self.flush();
        }
    }

    /// Executes the scheduler's decision. New messages wait in the outbox for [`Worker::flush`].
    pub(in super::super) fn proceed(&self, shared: &Arc<Shared>, mut next: Next<Job>) {
        loop {
            let job = match next {
                Next::Wait => return,
                Next::Leave(cause) => return self.wish(Wish::End(cause)),
                Next::Take(job) => job,
            };
            let put = self.put(&mut self.desk(), job);
            next = match self.after(shared, put) {
                Some(next) => next,
                None => return,
            };
        }
    }

    /// Handles a call that was not added to the outbox. Returns the scheduler's next decision, if
    /// the call has ended.
    fn after(&self, shared: &Arc<Shared>, put: Put) -> Option<Next<Job>> {
        match put {
            Put::Done => {}
            Put::Closed(job) => shared.put_back(job),
            Put::Unwanted => return Some(shared.passed_over(self.id)),
            Put::Refused(job, kind, worker) => {
                job.fail(kind, worker);
                return Some(shared.finished(self.id));
            }
        }
        None
    }

    /// Adds a call to the outbox.
    fn put(&self, desk: &mut Desk, job: Job) -> Put {
        if !desk.open {
            return Put::Closed(job);
        }
        // A thread that cancels a call looks for it in this state, under the lock that is held
        // here. From here on it finds the call. A cancellation before this point did not find it,
        // and would not have killed a worker that hangs in it.
        if job.reins.is_given_up() {
            return Put::Unwanted;
        }
        let id = desk.last_id + 1;
        let now = Instant::now();
        if let Err(kind) = desk.encode(id, &job, now, self.max_frame) {
            return Put::Refused(job, kind, self.reference(desk));
        }
        desk.last_id = id;
        desk.calls.push_back(Entry { id, job, written: now, given_up: None });
        Put::Done
    }

    /// Defers writes after several answers: their callers may send more calls, and
    /// [`Worker::flush`] will soon send all of them.
    pub(in super::super) fn collect(&self) {
        self.desk().collecting = true;
    }

    /// Sends the outbox as far as the pipe has room; the writer task sends the rest.
    pub(in super::super) fn flush(&self) {
        let mut desk = self.desk();
        desk.collecting = false;
        self.send(desk);
    }

    fn send<'a>(&'a self, mut desk: MutexGuard<'a, Desk>) {
        while !desk.writing && !desk.outbox.is_empty() {
            let Some(pipe) = desk.pipe.clone() else { return };
            let mut letters = desk.letters();
            desk.writing = true;
            drop(desk);
            let written = letters.write(pipe.get_ref());
            desk = self.desk();
            match written {
                Ok(false) => {
                    desk.outbox.put_before(letters);
                    return self.full.notify_one();
                }
                Ok(true) => desk.outbox.reuse(letters),
                // The worker has closed its input. The lifecycle task handles that.
                Err(_) => self.refused(&mut desk),
            }
            desk.writing = false;
            if desk.stop_sent {
                // Its input can be closed now.
                self.changed.notify_one();
            }
        }
    }

    /// The writer task: sends what did not fit into the pipe.
    pub(in super::super) async fn write(self: Arc<Self>, pipe: Arc<AsyncFd<OwnedFd>>) {
        loop {
            self.full.notified().await;
            loop {
                let Ok(mut ready) = pipe.writable().await else { return };
                let mut letters = self.desk().letters();
                let written = letters.write(pipe.get_ref());
                let mut desk = self.desk();
                match written {
                    Ok(false) => {
                        desk.outbox.put_before(letters);
                        ready.clear_ready();
                        continue;
                    }
                    Ok(true) => desk.outbox.reuse(letters),
                    Err(_) => self.refused(&mut desk),
                }
                if desk.outbox.is_empty() {
                    desk.writing = false;
                    if desk.stop_sent {
                        // Ending this task closes the worker's input.
                        desk.pipe = None;
                        return;
                    }
                    break;
                }
            }
        }
    }

    fn refused(&self, desk: &mut Desk) {
        desk.outbox.clear();
        desk.deaf = true;
        self.changed.notify_one();
    }

    /// Sends a control message.
    pub(in super::super) fn tell(&self, message: &ToWorker) {
        let mut desk = self.desk();
        let desk_now = &mut *desk;
        // Encoding a control message cannot fail.
        let _ = desk_now.encoding.tell(message, desk_now.outbox.tail());
        self.send(desk);
    }

    /// Closes the worker's input once all is written: some workers understand no other signal to
    /// stop.
    pub(in super::super) fn close_input(&self) {
        let mut desk = self.desk();
        if desk.stop_sent && !desk.writing {
            desk.pipe = None;
            drop(desk);
            self.full.notify_one();
        }
    }
}

/// What happened to a call that was to be added to the outbox.
enum Put {
    Done,
    Closed(Job),
    /// Its caller cancelled it meanwhile.
    Unwanted,
    Refused(Job, ErrorKind, Option<WorkerRef>),
}

#[cfg(all(test, not(feature = "_shuttle")))]
mod tests {
    use super::*;
    use crate::one_shot::Limits;
    use crate::payload::Payload;
    use crate::process::{Habits, Processes};
    use crate::protocol::{Encoding, Ready};
    use crate::{Program, Settings};

    fn job(reply: tokio::sync::oneshot::Sender<crate::job::Answer>) -> Job {
        let now = Instant::now();
        Job {
            operation: "noop".into(),
            work: crate::job::Work::Operation { arguments: Payload::null(), reply },
            priority: 5,
            sent: now,
            deadline: now + std::time::Duration::from_secs(60),
            reins: Arc::default(),
            progress: None,
            span: tracing::Span::none(),
        }
    }

    #[tokio::test]
    async fn a_call_given_up_on_its_way_to_a_worker_does_not_get_there() {
        let habits = Habits {
            program: Program::command("true"),
            one_call: false,
            limits: Limits::default(),
        };
        let settings = Settings::default();
        let crew = Box::new(Processes::new(habits));
        let shared = Arc::new(Shared::new("test".to_owned(), settings.clone(), crew));
        let worker = Worker::new(7, false, &settings);
        let (version, concurrency) = (crate::protocol::VERSION, 1);
        let (pid, operations, name) = (None, Vec::new(), None);
        let encoding = Encoding::Json;
        worker.open(&Ready { version, pid, encoding, operations, concurrency, name });
        let (reply, _answer) = tokio::sync::oneshot::channel();
        let given_up = job(reply);
        // The call is assigned to this worker, but not in its state yet, so a cancellation cannot
        // find it there.
        assert!(given_up.reins.begin(7));
        given_up.reins.give_up();
        worker.give(&shared, given_up);
        assert!(!worker.has_worked());
        let (reply, _answer) = tokio::sync::oneshot::channel();
        worker.give(&shared, job(reply));
        assert!(worker.has_worked());
    }
}
