//! Writes calls and control messages to a worker, on the thread of the sender.
//!
//! No thread writes under the lock. A thread that finds another one writing leaves its message in
//! the outbox, and the writing thread sends it too. So many calls go out in one system call under
//! load.

use std::os::fd::OwnedFd;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use tokio::io::unix::AsyncFd;

use super::{InFlightCall, StopRequest, Worker, WorkerState};
use crate::error::{ErrorKind, WorkerRef};
use crate::job::Job;
use crate::protocol::ToWorker;
use crate::scheduler::NextAction;
use crate::shared::Shared;

/// With this many calls before it in the pipe, a new call can wait in the outbox for the next
/// answer: the worker does not run out of work meanwhile, and the reader task sends all of them in
/// one write.
const DEFER_WRITE_DEPTH: usize = 4;

impl Worker {
    /// Gives the worker a call. The caller's thread writes it, as far as the pipe has room.
    pub(in super::super) fn dispatch(&self, shared: &Arc<Shared>, job: Job) {
        let mut state = self.state();
        let result = self.enqueue(&mut state, job);
        // The call is sent with others soon, or would have to wait in the pipe anyway.
        let defer = state.defer_writes || (state.calls.len() > DEFER_WRITE_DEPTH && state.concurrency == 1);
        match defer {
            true => drop(state),
            false => self.send(state),
        }
        if let Some(next) = self.handle_enqueue_result(shared, result) {
            self.execute(shared, next);
            self.flush();
        }
    }

    /// Executes the scheduler's decision. New messages wait in the outbox for [`Worker::flush`].
    pub(in super::super) fn execute(&self, shared: &Arc<Shared>, mut next: NextAction<Job>) {
        loop {
            let job = match next {
                NextAction::Wait => return,
                NextAction::Stop(cause) => return self.request_stop(StopRequest::Graceful(cause)),
                NextAction::Run(job) => job,
            };
            let result = self.enqueue(&mut self.state(), job);
            next = match self.handle_enqueue_result(shared, result) {
                Some(next) => next,
                None => return,
            };
        }
    }

    /// Handles a call that was not added to the outbox. Returns the scheduler's next decision, if
    /// the call has ended.
    fn handle_enqueue_result(&self, shared: &Arc<Shared>, result: EnqueueResult) -> Option<NextAction<Job>> {
        match result {
            EnqueueResult::Queued => {}
            EnqueueResult::Closed(job) => shared.requeue(job),
            EnqueueResult::Cancelled => return Some(shared.call_skipped(self.id)),
            EnqueueResult::Rejected(job, kind, worker) => {
                job.fail(kind, worker);
                return Some(shared.finished(self.id));
            }
        }
        None
    }

    /// Adds a call to the outbox.
    fn enqueue(&self, state: &mut WorkerState, job: Job) -> EnqueueResult {
        if !state.open {
            return EnqueueResult::Closed(job);
        }
        // A thread that cancels a call looks for it in this state, under the lock that is held
        // here. From here on it finds the call. A cancellation before this point did not find it,
        // and would not have killed a worker that hangs in it.
        if job.call_state.is_cancelled() {
            return EnqueueResult::Cancelled;
        }
        let id = state.last_id + 1;
        let now = Instant::now();
        if let Err(kind) = state.encode(id, &job, now, self.max_frame) {
            return EnqueueResult::Rejected(job, kind, self.reference(state));
        }
        state.last_id = id;
        let call = InFlightCall { id, job, written: now, cancelled_at: None };
        if state.concurrency > 1 && call.probe_at() < state.check_at {
            state.check_at = call.probe_at();
            self.changed.notify_one();
        }
        state.calls.push_back(call);
        EnqueueResult::Queued
    }

    /// Defers writes after several answers: their callers may send more calls, and
    /// [`Worker::flush`] will soon send all of them.
    pub(in super::super) fn defer_writes(&self) {
        self.state().defer_writes = true;
    }

    /// Sends the outbox as far as the pipe has room; the writer task sends the rest.
    pub(in super::super) fn flush(&self) {
        let mut state = self.state();
        state.defer_writes = false;
        self.send(state);
    }

    fn send<'a>(&'a self, mut state: MutexGuard<'a, WorkerState>) {
        while !state.writing && !state.outbox.is_empty() {
            let Some(pipe) = state.pipe.clone() else { return };
            let mut outbox = state.take_outbox();
            state.writing = true;
            drop(state);
            let written = outbox.write(pipe.get_ref());
            state = self.state();
            match written {
                Ok(false) => {
                    state.outbox.put_before(outbox);
                    return self.full.notify_one();
                }
                Ok(true) => state.outbox.reuse(outbox),
                // The worker has closed its input. The lifecycle task handles that.
                Err(_) => self.mark_input_broken(&mut state),
            }
            state.writing = false;
            if state.stop_sent {
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
                let mut outbox = self.state().take_outbox();
                let written = outbox.write(pipe.get_ref());
                let mut state = self.state();
                match written {
                    Ok(false) => {
                        state.outbox.put_before(outbox);
                        ready.clear_ready();
                        continue;
                    }
                    Ok(true) => state.outbox.reuse(outbox),
                    Err(_) => self.mark_input_broken(&mut state),
                }
                if state.outbox.is_empty() {
                    state.writing = false;
                    if state.stop_sent {
                        // Ending this task closes the worker's input.
                        state.pipe = None;
                        return;
                    }
                    break;
                }
            }
        }
    }

    fn mark_input_broken(&self, state: &mut WorkerState) {
        state.outbox.clear();
        state.input_broken = true;
        self.changed.notify_one();
    }

    /// Sends a control message.
    pub(in super::super) fn send_message(&self, message: &ToWorker) {
        let mut state = self.state();
        let inner = &mut *state;
        // Encoding a control message cannot fail.
        let _ = inner.encoding.encode_to_worker(message, inner.outbox.buffer());
        self.send(state);
    }

    /// Closes the worker's input once all is written: some workers understand no other signal to
    /// stop.
    pub(in super::super) fn close_input(&self) {
        let mut state = self.state();
        if state.stop_sent && !state.writing {
            state.pipe = None;
            drop(state);
            self.full.notify_one();
        }
    }
}

/// What happened to a call that was to be added to the outbox.
enum EnqueueResult {
    Queued,
    Closed(Job),
    /// Its caller cancelled it meanwhile.
    Cancelled,
    Rejected(Job, ErrorKind, Option<WorkerRef>),
}

#[cfg(all(test, not(feature = "_shuttle")))]
mod tests {
    use super::*;
    use crate::one_shot::ResourceLimits;
    use crate::payload::CallPayload;
    use crate::process::{ProcessConfig, Processes};
    use crate::protocol::{Encoding, Ready};
    use crate::{PoolSettings, Program};

    fn job(reply: tokio::sync::oneshot::Sender<crate::job::CallResult>) -> Job {
        let now = Instant::now();
        Job {
            operation: "noop".into(),
            work: crate::job::Work::Operation { arguments: CallPayload::null(), reply },
            priority: 5,
            sent: now,
            deadline: now + std::time::Duration::from_secs(60),
            call_state: Arc::default(),
            isolated: false,
            progress: None,
            span: tracing::Span::none(),
        }
    }

    #[tokio::test]
    async fn a_call_cancelled_at_on_its_way_to_a_worker_does_not_get_there() {
        let config = ProcessConfig {
            program: Program::command("true"),
            one_call: false,
            limits: ResourceLimits::default(),
        };
        let settings = PoolSettings::default();
        let backend = Box::new(Processes::new(config));
        let shared = Arc::new(Shared::new("test".to_owned(), settings.clone(), backend));
        let worker = Worker::new(7, false, &settings);
        let (version, concurrency) = (crate::protocol::VERSION, 1);
        let (pid, operations, name) = (None, Vec::new(), None);
        let encoding = Encoding::Json;
        worker.mark_ready(&Ready { version, pid, encoding, operations, concurrency, name });
        let (reply, _answer) = tokio::sync::oneshot::channel();
        let cancelled = job(reply);
        // The call is assigned to this worker, but not in its state yet, so a cancellation cannot
        // find it there.
        assert!(cancelled.call_state.assign(7));
        cancelled.call_state.cancel();
        worker.dispatch(&shared, cancelled);
        assert!(!worker.was_given_calls());
        let (reply, _answer) = tokio::sync::oneshot::channel();
        worker.dispatch(&shared, job(reply));
        assert!(worker.was_given_calls());
    }
}
