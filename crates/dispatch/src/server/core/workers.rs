//! Describes, drains and stops single workers.

use longshore::HumanDuration;

use super::Core;
use crate::request::{WorkerAction, WorkerDetails};
use crate::scheduler::WorkerKey;
use crate::wire::ToWorker;

/// Minimum length of the beginning of an identity that names a worker.
const MIN_PREFIX: usize = 4;

impl Core {
    /// The workers with these identities, beginnings of identities, or hosts; all, if none is named.
    pub(super) fn act_on_workers(
        &mut self,
        names: &[String],
        action: WorkerAction,
    ) -> Result<Vec<WorkerDetails>, String> {
        let mut found: Vec<WorkerKey> = Vec::new();
        if names.is_empty() {
            found.extend(self.workers.keys());
        }
        for name in names {
            let named: Vec<WorkerKey> =
                self.workers.keys().copied().filter(|id| self.is_named(*id, name)).collect();
            if named.is_empty() {
                return Err(format!("no worker of this pool is `{name}`, or on a host of that name"));
            }
            found.extend(named);
        }
        found.sort_unstable();
        found.dedup();
        let details = found.iter().filter_map(|id| self.worker_details(*id)).collect();
        for id in found {
            match action {
                WorkerAction::Show => {}
                WorkerAction::Drain(limit) => self.release_worker(id, limit),
                WorkerAction::Stop => {
                    self.release_worker(id, std::time::Duration::ZERO);
                    self.send(id, ToWorker::Stop("it was told to stop".into()));
                }
            }
        }
        Ok(details)
    }

    fn is_named(&self, id: WorkerKey, name: &str) -> bool {
        let host = self.workers.get(&id).is_some_and(|worker| worker.host == name);
        let uid = self.scheduler.worker(id).is_some_and(|entry| {
            entry.uid == name || (name.len() >= MIN_PREFIX && entry.uid.starts_with(name))
        });
        host || uid
    }

    fn worker_details(&self, id: WorkerKey) -> Option<WorkerDetails> {
        let (entry, worker) = (self.scheduler.worker(id)?, self.workers.get(&id)?);
        let left = entry.interrupts_at.map(|at| HumanDuration(at.saturating_sub(self.now())));
        let (running, waiting) =
            entry.tasks().into_iter().partition(|unit| self.scheduler.has_started(*unit));
        let resources = entry
            .free_resources()
            .map(|(name, free)| (name.to_owned(), (entry.resources.get(name).copied().unwrap_or(0), free)));
        Some(WorkerDetails {
            status: Self::worker_status(entry, worker),
            version: worker.version.clone(),
            launch: worker.launch,
            resources: resources.collect(),
            available_memory: worker.load.available_memory,
            interrupts_in: left,
            running,
            waiting,
        })
    }
}
