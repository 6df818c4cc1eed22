//! Handles the messages of a worker.

use std::sync::Arc;
use std::time::Instant;

use super::{Wish, Worker};
use crate::error::ErrorKind;
use crate::job::Answer;
use crate::protocol::{FromWorker, Heard};
use crate::scheduler::{Cause, Next};
use crate::shared::Shared;

impl Worker {
    /// Handles one message.
    pub(in super::super) fn hear(&self, shared: &Arc<Shared>, heard: Heard<FromWorker>) {
        match heard {
            Heard::Message(FromWorker::Result { id, value }) => {
                self.answered(shared, id, Ok(value));
            }
            Heard::Message(FromWorker::Error { id, error }) => {
                let error = match error {
                    ErrorKind::UnknownOperation { known } if known.is_empty() => {
                        ErrorKind::UnknownOperation {
                            known: shared.known.list().into_iter().map(|one| one.name).collect(),
                        }
                    }
                    other => other,
                };
                let worker = self.reference(&self.desk());
                self.answered(shared, id, Err((error, worker)));
            }
            Heard::Message(FromWorker::Progress { id, value }) => {
                let desk = self.desk();
                if let Some(entry) = desk.calls.iter().find(|entry| entry.id == id) {
                    entry.job.report(value);
                }
            }
            Heard::Message(FromWorker::Pong(id)) => {
                let mut desk = self.desk();
                desk.last_heard = Instant::now();
                desk.pinged = desk.pinged.filter(|(asked, _)| *asked != id);
            }
            Heard::Message(FromWorker::Retire) => shared.replace(self.id, Cause::OwnWish),
            // Only valid at the start, which is over.
            Heard::Message(FromWorker::Ready(_) | FromWorker::Failed(_)) => {}
            Heard::Stray(line) => {
                tracing::debug!(pool = %shared.name, worker = self.id, %line, "printed");
            }
        }
    }

    fn answered(&self, shared: &Arc<Shared>, id: u64, answer: Answer) {
        let mut desk = self.desk();
        let Some(place) = desk.calls.iter().position(|entry| entry.id == id) else {
            drop(desk);
            tracing::debug!(pool = %shared.name, worker = self.id, id, "an answer to an unknown call");
            return;
        };
        let Some(entry) = desk.calls.remove(place) else { return };
        let now = Instant::now();
        // A call that waited in the pipe started when the call before it was answered.
        let begun =
            if desk.concurrency > 1 { entry.written } else { entry.written.max(desk.last_heard) };
        let took = now.duration_since(begun);
        desk.last_heard = now;
        desk.answered += 1;
        let ahead = if desk.concurrency == 1 { desk.pace.took(took) } else { None };
        let stopping = desk.wish.is_some();
        drop(desk);
        shared.counters.run.record(took);
        entry.job.answer(answer);
        if stopping {
            self.changed.notify_one();
        }
        if self.one_call {
            // The slot stays occupied until the process has exited, so that there are never more
            // processes than `max`.
            return self.wish(Wish::End(Cause::Calls));
        }
        if let Some(ahead) = ahead {
            shared.set_ahead(self.id, ahead);
        }
        self.proceed(shared, shared.finished(self.id));
        if ahead.is_some_and(|ahead| ahead > 0) {
            while let Some(job) = shared.take_ahead(self.id) {
                self.proceed(shared, Next::Take(job));
            }
        }
    }
}
