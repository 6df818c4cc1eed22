//! Snapshots of the core for the launcher and for status requests.

use std::time::Duration;

use super::{ConnectedWorker, Core, LauncherView};
use crate::launch::scaler::PresentWorker;
use crate::request::{PoolStatus, WorkerStatus};
use crate::scheduler::{WorkerEntry, WorkerKey, WorkerState};

/// A unit that has run for this long is recorded with its worker, for the next server process.
const RECORDED_AGE: Duration = Duration::from_secs(1);

impl Core {
    pub(super) fn view(&self) -> LauncherView {
        let present = self.workers.iter().filter_map(|(id, worker)| {
            let entry = self.scheduler.worker(*id)?;
            Some(PresentWorker {
                key: *id,
                launch: worker.launch,
                idle_since: (entry.task_count() == 0).then_some(entry.idle_since),
                working: entry.state != WorkerState::Draining,
            })
        });
        let present = present.collect();
        let mut workers = self.scheduler.running_units(self.now(), RECORDED_AGE);
        workers.extend(self.expected_workers.clone());
        LauncherView {
            now: self.now(),
            demand: self.scheduler.demand(),
            present,
            lost: self.unresolved.launches(),
            shutting_down: self.shutdown.is_some(),
            workers,
        }
    }

    pub(super) fn status(&self) -> PoolStatus {
        let worker_status = |(id, worker): (&WorkerKey, &ConnectedWorker)| {
            Some(Self::worker_status(self.scheduler.worker(*id)?, worker))
        };
        PoolStatus {
            pid: std::process::id(),
            up: self.now(),
            state: if self.shutdown.is_some() { "draining" } else { "working" }.to_owned(),
            workers: self.workers.iter().filter_map(worker_status).collect(),
            claimed: self.scheduler.len() as u64,
            unfit: self.unfit_queued(),
            running: self.workers.values().map(|worker| u64::from(worker.load.running)).sum(),
            ..PoolStatus::default()
        }
    }

    pub(super) fn worker_status(entry: &WorkerEntry, worker: &ConnectedWorker) -> WorkerStatus {
        WorkerStatus {
            uid: entry.uid.clone(),
            host: worker.host.clone(),
            pid: worker.pid,
            threads: entry.threads,
            load: entry.load(),
            tasks: entry.task_count() as u64,
            mood: match entry.state {
                WorkerState::Working => "working",
                WorkerState::Draining => "draining",
                WorkerState::Disconnected(_) => "away",
            }
            .to_owned(),
            average: worker.load.load_average,
        }
    }
}
