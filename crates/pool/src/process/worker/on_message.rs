//! Handles the messages of a worker.

use std::sync::Arc;
use std::time::Instant;

use super::{StopRequest, Worker};
use crate::error::ErrorKind;
use crate::job::{CallFailure, CallResult};
use crate::protocol::{Decoded, FromWorker};
use crate::scheduler::{EndCause, NextAction};
use crate::shared::Shared;

impl Worker {
    /// Handles one message.
    pub(in super::super) fn on_message(&self, shared: &Arc<Shared>, message: Decoded<FromWorker>) {
        match message {
            Decoded::Message(FromWorker::Result { id, value }) => {
                self.on_answer(shared, id, Ok(value));
            }
            Decoded::Message(FromWorker::Error { id, error }) => {
                let error = match error {
                    ErrorKind::UnknownOperation { known } if known.is_empty() => {
                        ErrorKind::UnknownOperation {
                            known: shared.registry.list().into_iter().map(|one| one.name).collect(),
                        }
                    }
                    other => other,
                };
                let worker = self.reference(&self.state());
                self.on_answer(shared, id, Err(CallFailure { kind: error, worker }));
            }
            Decoded::Message(FromWorker::Progress { id, value }) => {
                let mut state = self.state();
                state.last_heard = Instant::now();
                if let Some(entry) = state.calls.iter().find(|entry| entry.id == id) {
                    entry.job.report(value);
                }
            }
            Decoded::Message(FromWorker::Pong(id)) => {
                let mut state = self.state();
                state.last_activity = Instant::now();
                state.last_heard = state.last_activity;
                state.pinged = state.pinged.filter(|(asked, _)| *asked != id);
            }
            Decoded::Message(FromWorker::Retire) => shared.replace(self.id, EndCause::Requested),
            // Only valid at the start, which is over.
            Decoded::Message(FromWorker::Ready(_) | FromWorker::Failed(_)) => {}
            Decoded::Stray(line) => {
                tracing::debug!(pool = %shared.name, worker = self.id, %line, "printed");
            }
        }
    }

    fn on_answer(&self, shared: &Arc<Shared>, id: u64, answer: CallResult) {
        let mut state = self.state();
        let Some(index) = state.calls.iter().position(|entry| entry.id == id) else {
            drop(state);
            tracing::debug!(pool = %shared.name, worker = self.id, id, "an answer to an unknown call");
            return;
        };
        let Some(entry) = state.calls.remove(index) else { return };
        let now = Instant::now();
        // A call that waited in the pipe started when the call before it was answered.
        let started =
            if state.concurrency > 1 { entry.written } else { entry.written.max(state.last_activity) };
        let took = now.duration_since(started);
        (state.last_activity, state.last_heard) = (now, now);
        state.answered += 1;
        let concurrent = state.concurrency > 1;
        let prefetch = if concurrent { None } else { state.pipeline.record(took) };
        let stopping = state.stop_request.is_some();
        drop(state);
        shared.counters.run.record(took);
        if entry.job.isolated {
            shared.suspects.remove(&entry.job);
        }
        entry.job.answer(answer);
        if stopping {
            self.changed.notify_one();
        }
        if self.one_call {
            // The slot stays occupied until the process has exited, so that there are never more
            // processes than `max`.
            return self.request_stop(StopRequest::Graceful(EndCause::Calls));
        }
        if let Some(prefetch) = prefetch {
            shared.set_prefetch(self.id, prefetch);
        }
        self.execute(shared, shared.finished(self.id));
        if concurrent || prefetch.is_some_and(|prefetch| prefetch > 0) {
            self.prefetch(shared);
        }
    }

    /// Gives the worker as many waiting calls as it accepts beside the running ones.
    pub(in super::super) fn prefetch(&self, shared: &Arc<Shared>) {
        while let Some(job) = shared.prefetch_next(self.id) {
            self.execute(shared, NextAction::Run(job));
        }
    }
}
