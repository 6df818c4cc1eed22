//! Handles connections and messages of workers.

use std::time::Duration;

use longshore::Payload;
use longshore::store::FinishRequest;
use longshore::worker_session::Lease;
use tokio::time::Instant;

use super::{ConnectedWorker, Core};
use crate::scheduler::{WorkerEntry, WorkerKey};
use crate::script;
use crate::server::Timing;
use crate::server::worker_connection::{ConnectionId, WorkerSender};
use crate::wire::{FromWorker, Register, TaskEvent, ToWorker, WorkerLoad};

impl Core {
    pub(super) fn on_registered(
        &mut self,
        connection: ConnectionId,
        register: Register,
        sender: WorkerSender,
    ) {
        let now = self.now();
        let Register { uid, host, pid, version, launch, threads, resources, interrupts_in, held_leases } =
            register;
        self.expected_workers.remove(&uid);
        let mut entry = WorkerEntry::new(uid, threads, resources);
        entry.interrupts_at = interrupts_in.map(|left| now + left);
        let pending: Vec<Lease> =
            held_leases.iter().filter(|lease| self.results.is_pending(**lease)).copied().collect();
        let (id, mut diff) = self.scheduler.on_register(now, entry, &held_leases);
        // Their results are being written; the worker is notified after that.
        diff.forget.retain(|lease| !pending.contains(lease));
        let forget = self.take_back(now, id, diff.forget);
        tracing::info!(worker = %id, host, pid, threads, "worker registered");
        self.scripts.forget_worker(id);
        let Timing { heartbeat_interval, worker_ttl: silence_limit, .. } = self.timing;
        let registered = ToWorker::Registered { heartbeat_interval, silence_limit, forget };
        let _ = sender.send(registered);
        if let Some((_, until)) = self.shutdown {
            let _ = sender.send(ToWorker::Drain(until.saturating_duration_since(Instant::now())));
            self.scheduler.on_draining(id);
        }
        let load = WorkerLoad::default();
        let worker = ConnectedWorker {
            launch,
            connection,
            sender,
            host,
            pid,
            version,
            load,
            released: false,
            drain: None,
        };
        let previous = self.workers.insert(id, worker);
        if let Some(previous) = &previous {
            self.connections.remove(&previous.connection);
        }
        self.connections.insert(connection, id);
        // It may not have heard that it is to leave.
        if let Some(limit) = previous.and_then(|previous| previous.drain) {
            self.release_worker(id, limit);
        }
        self.claimer.retry_now();
        self.worker_count.send_replace(self.workers.len());
    }

    pub(super) fn on_message(&mut self, connection: ConnectionId, message: FromWorker) {
        let Some(id) = self.connections.get(&connection).copied() else { return };
        let now = self.now();
        self.scheduler.on_heartbeat(now, id);
        match message {
            FromWorker::Register(_) => {}
            FromWorker::Heartbeat(load) => {
                if let Some(worker) = self.workers.get_mut(&id) {
                    worker.load = load;
                    let _ = worker.sender.send(ToWorker::HeartbeatReceived);
                }
            }
            FromWorker::TaskEvents(events) => {
                for event in events {
                    self.on_task_event(now, id, event);
                }
            }
            FromWorker::Draining => {
                // Base systems signal a job before they kill it, so a loss after this is not the
                // scripts' fault.
                if let Some(worker) = self.workers.get_mut(&id) {
                    worker.released = true;
                }
                self.scheduler.on_draining(id);
            }
            FromWorker::Leaving => {
                self.scheduler.on_worker_left(now, id);
                self.remove_worker(id);
            }
        }
    }

    fn on_task_event(&mut self, now: Duration, id: WorkerKey, event: TaskEvent) {
        match event {
            TaskEvent::Started(lease) => {
                self.scheduler.on_task_started(now, id, lease);
                self.cut_off.on_started(lease);
            }
            TaskEvent::Returned(lease) => {
                self.scheduler.on_task_returned(now, id, lease);
                self.on_returned(lease.unit);
            }
            TaskEvent::Ended(lease, report) => {
                self.retracted.remove(&lease.unit);
                if let Some(report) = self.cut_off.on_ended(id, lease, report) {
                    self.on_task_ended(now, id, lease, &report);
                }
            }
        }
    }

    pub(super) fn on_task_ended(
        &mut self,
        now: Duration,
        id: WorkerKey,
        lease: Lease,
        report: &script::RunReport,
    ) {
        let ran = u64::try_from(report.ended - report.started).unwrap_or(0);
        match self.scheduler.on_task_done(now, id, lease, Duration::from_micros(ran)) {
            Some(task) => {
                self.release_script(task.data.script_id);
                self.report.count(&report.end);
                let mut finish = FinishRequest::new(task.lease, report.outcome());
                if report.end != script::RunEnd::Exited(0) {
                    // A failure has only a message, so the complete report is stored as the checkpoint.
                    finish.checkpoint = Payload::json(report).ok();
                }
                self.results.push(finish, Some((id, lease)));
                if task.data.is_single() {
                    self.results.flush_soon();
                }
            }
            // Repeated by the worker, or the lease is no longer the worker's.
            None if self.results.is_pending(lease) => {}
            None => self.send(id, ToWorker::ResultsRecorded(vec![lease])),
        }
    }

    pub(super) fn on_disconnected(&mut self, connection: ConnectionId) {
        let Some(id) = self.connections.remove(&connection) else { return };
        self.scheduler.on_disconnect(self.now(), id);
    }

    /// Tells a worker that is not needed any more to leave. Its scripts may run on for `limit`.
    pub(super) fn release_worker(&mut self, id: WorkerKey, limit: Duration) {
        if let Some(worker) = self.workers.get_mut(&id) {
            tracing::info!(worker = %id, host = worker.host, "releasing a worker");
            (worker.released, worker.drain) = (true, Some(limit));
            let _ = worker.sender.send(ToWorker::Drain(limit));
            self.scheduler.on_draining(id);
        }
    }

    pub(super) fn remove_worker(&mut self, id: WorkerKey) {
        if let Some(worker) = self.workers.remove(&id) {
            self.connections.remove(&worker.connection);
        }
        self.scripts.forget_worker(id);
        self.worker_count.send_replace(self.workers.len());
    }
}
