//! A worker's connection to its server: registers, sends events and handles messages.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use longshore::UnitId;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::cancel::StopReason;
use super::script_run::{self, CheckedScript};
use super::{Phase, ProgramCommand, Worker, lifetime};
use crate::connection::ServerConnection;
use crate::script::RunEnd;
use crate::wire::frame::{decode, encode};
use crate::wire::{FromWorker, Register, TaskEvent, ToWorker, WorkerLoad};

/// A process that wakes up this late was stalled.
const STALL_THRESHOLD: Duration = Duration::from_secs(1);
/// How long events are buffered while the worker has queued tasks, because each message costs time
/// on both sides.
const EVENT_BATCH_DELAY: Duration = Duration::from_millis(20);

/// Whether the server can still be reached over a connection: a link may fail without a word to either side.
struct ServerLiveness {
    heartbeat_interval: Duration,
    silence_limit: Duration,
    last_message: Instant,
    /// When this process wanted to be awake again.
    wanted_wakeup: Instant,
}

impl ServerLiveness {
    /// Before the server has said how long it may be silent.
    fn new() -> Self {
        let now = Instant::now();
        Self {
            heartbeat_interval: Duration::from_secs(2),
            silence_limit: Duration::from_secs(60),
            last_message: now,
            wanted_wakeup: now,
        }
    }

    /// Fails if the server was silent for too long. A time in which this process did not run does not count.
    fn check(&mut self, next_wakeup: Instant) -> io::Result<()> {
        let now = Instant::now();
        if now >= self.wanted_wakeup + STALL_THRESHOLD {
            self.last_message = now;
        }
        self.wanted_wakeup = next_wakeup.max(now);
        match now.duration_since(self.last_message) {
            silence if silence >= self.silence_limit => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the server sent nothing for {silence:?}"),
            )),
            _ => Ok(()),
        }
    }
}

impl Worker {
    fn registration(&self) -> Register {
        let interrupts_after = self.options.lifetime.map(lifetime::interrupts_after);
        Register {
            uid: self.uid.clone(),
            host: self.context.host.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            launch: self.options.launch,
            threads: self.options.threads,
            resources: self.options.resources.clone(),
            interrupts_in: interrupts_after.map(|time| time.saturating_sub(self.started.elapsed())),
            held_leases: self.tasks.held_leases(),
        }
    }

    /// Serves the connection until the worker ends. An error means that the connection broke.
    pub(super) async fn serve(
        &mut self,
        mut connection: ServerConnection,
        commands: &mut mpsc::Receiver<ProgramCommand>,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        encode(&FromWorker::Register(Box::new(self.registration())), &mut bytes)?;
        // Replaces buffered events, so that nothing is reported twice.
        self.events = self.tasks.unacknowledged_events();
        let mut liveness = ServerLiveness::new();
        let mut next_heartbeat = Instant::now();
        let mut drain_announced = false;
        let mut batch_until = None;
        loop {
            self.start_scripts();
            if self.phase != Phase::Working && !drain_announced {
                drain_announced = true;
                encode(&FromWorker::Draining, &mut bytes)?;
            }
            if Instant::now() >= next_heartbeat {
                next_heartbeat = Instant::now() + liveness.heartbeat_interval;
                encode(&FromWorker::Heartbeat(self.load()), &mut bytes)?;
            }
            // A worker with queued tasks can delay its events: it needs no tasks now.
            let batch_deadline = match self.tasks.has_backlog() && bytes.is_empty() {
                true if !self.events.is_empty() => {
                    Some(*batch_until.get_or_insert(Instant::now() + EVENT_BATCH_DELAY))
                }
                _ => None,
            };
            let batch_deadline = batch_deadline.filter(|until| Instant::now() < *until);
            if batch_deadline.is_none() && !self.events.is_empty() {
                batch_until = None;
                encode(&FromWorker::TaskEvents(std::mem::take(&mut self.events)), &mut bytes)?;
            }
            let finished = self.is_finished();
            if finished {
                encode(&FromWorker::Leaving, &mut bytes)?;
            }
            if !bytes.is_empty() {
                connection.writer.write_all(&bytes).await?;
                connection.writer.flush().await?;
                bytes.clear();
            }
            if finished {
                let _ = connection.writer.shutdown().await;
                return Ok(());
            }
            let wake = self.next_wakeup().min(next_heartbeat).min(batch_deadline.unwrap_or(next_heartbeat));
            liveness.check(wake)?;
            tokio::select! {
                frame = connection.reader.next() => {
                    liveness.last_message = Instant::now();
                    let frame = frame?.ok_or(io::ErrorKind::UnexpectedEof)?;
                    self.on_message(decode(&frame)?, &mut liveness);
                    while let Some(frame) = connection.reader.ready()? {
                        self.on_message(decode(&frame)?, &mut liveness);
                    }
                }
                Some((lease, report)) = self.running.next() => self.on_end(lease, report),
                command = commands.recv() => self.on_command(command.unwrap_or(ProgramCommand::Stop)),
                () = sleep_until(wake) => self.check_deadlines(),
            }
            while let Some(Some((lease, report))) = self.running.next().now_or_never() {
                self.on_end(lease, report);
            }
        }
    }

    fn on_message(&mut self, message: ToWorker, liveness: &mut ServerLiveness) {
        match message {
            ToWorker::Registered { heartbeat_interval, silence_limit, forget } => {
                (liveness.heartbeat_interval, liveness.silence_limit) = (heartbeat_interval, silence_limit);
                let gone = self.tasks.forget(&forget);
                self.events
                    .retain(|event| !matches!(event, TaskEvent::Ended(lease, _) if forget.contains(lease)));
                self.cancel_all(gone, StopReason::Cancelled);
            }
            ToWorker::Script(script_id, definition) => {
                self.scripts.insert(script_id, Arc::new(CheckedScript::new(*definition)));
            }
            ToWorker::DropScript(script_id) => _ = self.scripts.remove(&script_id),
            ToWorker::Run(orders) => {
                for order in orders {
                    let script = self.scripts.get(&order.script_id);
                    let is_pinned = script.is_some_and(|script| script.definition.script.pin);
                    match self.phase {
                        Phase::Working => self.tasks.enqueue(Instant::now(), order, is_pinned),
                        _ => self.events.push(TaskEvent::Returned(order.lease)),
                    }
                }
            }
            ToWorker::Retract(leases) => {
                self.events.extend(self.tasks.return_queued(Some(&leases)));
            }
            ToWorker::Cancel(units) => self.cancel(units),
            ToWorker::ResultsRecorded(leases) => self.tasks.acknowledge(&leases),
            ToWorker::Drain(limit) => self.drain(limit),
            ToWorker::HeartbeatReceived => {}
            ToWorker::Stop(why) => {
                self.summary.end_reason = why;
                self.apply_command(ProgramCommand::Stop);
            }
        }
    }

    fn cancel(&mut self, units: Vec<UnitId>) {
        for unit in &units {
            if let Some(order) = self.tasks.remove_queued(*unit) {
                let report = script_run::report_unstarted(&self.context, &order, RunEnd::Cancelled);
                self.events.push(self.tasks.finish_unstarted(order.lease, report));
            }
        }
        self.cancel_all(units, StopReason::Cancelled);
    }

    pub(super) fn cancel_all(&mut self, units: Vec<UnitId>, why: StopReason) {
        for unit in units {
            if let Some(signal) = self.cancel_signals.get(&unit) {
                signal.cancel(why);
            }
        }
    }

    fn load(&self) -> WorkerLoad {
        let read_file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let average = read_file("/proc/loadavg");
        let average = average.split(' ').next().and_then(|text| text.parse().ok());
        let memory = read_file("/proc/meminfo");
        let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
        let available = available.and_then(|text| text.trim().split(' ').next()?.parse::<u64>().ok());
        WorkerLoad {
            running: u32::try_from(self.tasks.running()).unwrap_or(u32::MAX),
            load_average: average.unwrap_or(0.0),
            available_memory: available.unwrap_or(0) / 1024,
        }
    }
}
