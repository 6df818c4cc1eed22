//! A worker that runs no script: it reports the success of each task after a fixed time. The figures are then the
//! server's alone.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use longshore::worker_session::Lease;
use longshore::{Clock, SessionId, SystemClock};
use longshore_dispatch::access::Access;
use longshore_dispatch::connection::{ServerConnection, connect as connect_to};
use longshore_dispatch::script::{RunEnd, RunReport};
use longshore_dispatch::wire::frame::{decode, encode};
use longshore_dispatch::wire::{FromWorker, PeerRole, Register, TaskEvent, TaskOrder, ToWorker, WorkerLoad};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep_until};

/// The interval between heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// Tasks that wait, and tasks that "run" with their ends: all take the same time, so the first to start ends first.
#[derive(Default)]
struct Tasks {
    queued: VecDeque<TaskOrder>,
    running: VecDeque<(Instant, TaskOrder)>,
}

impl Tasks {
    /// Starts and ends what is due.
    fn advance(&mut self, threads: usize, takes: Duration) -> Vec<TaskEvent> {
        let (mut events, now) = (Vec::new(), Instant::now());
        loop {
            while self.running.len() < threads
                && let Some(order) = self.queued.pop_front()
            {
                events.push(TaskEvent::Started(order.lease));
                self.running.push_back((now + takes, order));
            }
            if self.running.front().is_none_or(|(end, _)| *end > now) {
                return events;
            }
            let Some((_, order)) = self.running.pop_front() else { return events };
            events.push(TaskEvent::Ended(order.lease, Box::new(report(&order, takes))));
        }
    }

    /// Returns tasks that have not started.
    fn retract(&mut self, leases: &[Lease]) -> Vec<TaskEvent> {
        let (retracted, queued): (VecDeque<_>, VecDeque<_>) =
            self.queued.drain(..).partition(|order| leases.contains(&order.lease));
        self.queued = queued;
        retracted.into_iter().map(|order| TaskEvent::Returned(order.lease)).collect()
    }
}

fn report(order: &TaskOrder, takes: Duration) -> RunReport {
    let ended = SystemClock.now().as_micros();
    RunReport {
        end: RunEnd::Exited(0),
        host: "simulated".to_owned(),
        queued: order.queued,
        started: ended - i64::try_from(takes.as_micros()).unwrap_or_default(),
        ended,
        cpu: Duration::ZERO,
        peak_memory: 0,
        tail: String::new(),
        remarks: Vec::new(),
        output: None,
    }
}

/// Connects to the server with this folder.
pub(crate) async fn connect(folder: &Path) -> Result<ServerConnection> {
    Ok(connect_to(&Access::read(folder, PeerRole::Worker)?, PeerRole::Worker).await?)
}

/// Works until the connection ends. Each of `threads` concurrent tasks takes this long.
pub(crate) async fn work(mut link: ServerConnection, threads: u32, takes: Duration) -> Result<()> {
    let register = Register {
        uid: SessionId::new().to_string(),
        host: "simulated".to_owned(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        launch: None,
        threads,
        resources: BTreeMap::new(),
        interrupts_in: None,
        held_leases: Vec::new(),
    };
    let mut bytes = Vec::new();
    encode(&FromWorker::Register(Box::new(register)), &mut bytes)?;
    let (mut tasks, mut returned, mut heartbeat) = (Tasks::default(), Vec::new(), Instant::now());
    loop {
        let mut events = std::mem::take(&mut returned);
        events.extend(tasks.advance(threads as usize, takes));
        if !events.is_empty() {
            encode(&FromWorker::TaskEvents(events), &mut bytes)?;
        }
        if heartbeat <= Instant::now() {
            heartbeat = Instant::now() + HEARTBEAT;
            let running = u32::try_from(tasks.running.len())?;
            encode(&FromWorker::Heartbeat(WorkerLoad { running, ..WorkerLoad::default() }), &mut bytes)?;
        }
        if !bytes.is_empty() {
            link.writer.write_all(&bytes).await?;
            link.writer.flush().await?;
            bytes.clear();
        }
        let wake = tasks.running.front().map_or(heartbeat, |(end, _)| heartbeat.min(*end));
        tokio::select! {
            frame = link.reader.next() => {
                let Some(mut frame) = frame? else { return Ok(()) };
                loop {
                    match decode(&frame)? {
                        ToWorker::Run(orders) => tasks.queued.extend(orders),
                        ToWorker::Retract(leases) => returned.extend(tasks.retract(&leases)),
                        _ => {}
                    }
                    let Some(next) = link.reader.ready()? else { break };
                    frame = next;
                }
            }
            () = sleep_until(wake) => {}
        }
    }
}
