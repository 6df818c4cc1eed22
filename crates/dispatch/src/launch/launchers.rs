//! The launchers of a pool's allocations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::allocation::{Allocation, AllocationEntry, AllocationTable, DEFAULT_ALLOCATION};
use super::demand::{Demand, Supply, divide};
use super::launch_journal::SharedJournal;
use super::launcher::{JobTemplate, Launcher, RoundInput, SubmittedJob};
use super::scaler::PresentWorker;
use crate::scheduler::WorkerKey;
use crate::system::{JobEndCause, SystemConfig, SystemError, open_system};

/// Makes the job of an allocation's workers.
pub type JobFactory = Arc<dyn Fn(&Allocation) -> JobTemplate + Send + Sync>;

/// How workers are launched.
#[derive(Clone)]
pub struct LaunchSetup {
    /// The job of an allocation's workers.
    pub job: JobFactory,
    /// Commands and settings of the base systems.
    pub site: SystemConfig,
}

impl LaunchSetup {
    /// The job script of an allocation's workers, or why there can be none.
    pub(crate) fn script(&self, allocation: &Allocation) -> Result<String, SystemError> {
        let job = (self.job)(allocation).job("longshore-N".to_owned(), 0);
        open_system(allocation.base, self.site.clone()).script(&job)
    }
}

/// Executes the rounds of all launchers.
pub(crate) struct Launchers {
    table: Arc<AllocationTable>,
    setup: LaunchSetup,
    journal: SharedJournal,
    launchers: BTreeMap<String, Launcher>,
    /// Jobs of an earlier server process, until their launcher exists.
    inherited: BTreeMap<u64, SubmittedJob>,
}

/// Result of a round.
#[derive(Debug, Default)]
pub(crate) struct LaunchersReport {
    /// Workers to release, and how long their scripts may run on.
    pub(crate) released: Vec<(Vec<WorkerKey>, Duration)>,
    /// Known exit reasons of lost workers' jobs.
    pub(crate) exit_reasons: Vec<(u64, JobEndCause)>,
}

impl Launchers {
    /// Launchers that continue with the jobs of an earlier server process.
    pub(crate) fn new(
        table: Arc<AllocationTable>,
        setup: LaunchSetup,
        jobs: BTreeMap<u64, SubmittedJob>,
        journal: SharedJournal,
    ) -> Self {
        journal.skip_to(jobs.keys().max().copied().unwrap_or(0));
        let mut launchers = Self { table, setup, journal, launchers: BTreeMap::new(), inherited: jobs };
        launchers.open();
        launchers
    }

    /// Makes the launchers of new allocations. Returns all allocations.
    fn open(&mut self) -> Vec<AllocationEntry> {
        let entries = self.table.entries();
        for AllocationEntry { allocation, status, .. } in &entries {
            if self.launchers.contains_key(&allocation.name) {
                continue;
            }
            let is_its_own = |job: &SubmittedJob| {
                job.allocation == allocation.name
                    || !entries.iter().any(|entry| entry.allocation.name == job.allocation)
            };
            let (jobs, others) =
                std::mem::take(&mut self.inherited).into_iter().partition(|(_, job)| is_its_own(job));
            self.inherited = others;
            let system = open_system(allocation.base, self.setup.site.clone());
            let launcher = Launcher::new(system, (self.setup.job)(allocation), Arc::clone(status), jobs);
            let launcher = launcher.with_journal(&allocation.name, self.journal.clone());
            self.launchers.insert(allocation.name.clone(), launcher);
        }
        entries
    }

    /// Whether the number of workers depends on the scripts.
    pub(crate) fn is_elastic(&self) -> bool {
        self.table.entries().iter().any(|entry| entry.allocation.min < entry.allocation.max)
    }

    /// The submitted jobs, by launch number.
    pub(crate) fn jobs(&self) -> BTreeMap<u64, SubmittedJob> {
        let jobs = self.launchers.values().flat_map(Launcher::jobs);
        jobs.chain(&self.inherited).map(|(number, job)| (*number, job.clone())).collect()
    }

    /// A round of each launcher, all at the same time: a base system that hangs does not delay the others.
    pub(crate) async fn run_round(
        &mut self,
        now: Duration,
        demand: &[Demand],
        present: &[PresentWorker],
        lost: &[u64],
        shutting_down: bool,
    ) -> LaunchersReport {
        let entries = self.open();
        let owner = |worker: &PresentWorker| {
            let owner = worker.launch.and_then(|number| {
                self.launchers.iter().find(|(_, launcher)| launcher.jobs().contains_key(&number))
            });
            owner.map_or_else(|| DEFAULT_ALLOCATION.to_owned(), |(name, _)| name.clone())
        };
        let mut present_by_owner: BTreeMap<String, Vec<PresentWorker>> = BTreeMap::new();
        for worker in present {
            present_by_owner.entry(owner(worker)).or_default().push(*worker);
        }
        let supplies: Vec<Supply> = entries
            .iter()
            .map(|AllocationEntry { allocation, .. }| {
                let jobs = self.launchers.get(&allocation.name).map_or(0, |launcher| launcher.jobs().len());
                let present = u32::try_from(jobs).unwrap_or(u32::MAX);
                let max = if allocation.paused { present } else { allocation.size().max };
                Supply { worker: allocation.worker(), present: present.max(allocation.min), max }
            })
            .collect();
        let needed = divide(demand, &supplies);
        let needed: BTreeMap<&str, u32> =
            entries.iter().map(|entry| entry.allocation.name.as_str()).zip(needed).collect();
        let paused =
            |name: &str| entries.iter().any(|entry| entry.allocation.name == name && entry.allocation.paused);
        let rounds = self.launchers.iter_mut().map(async |(name, launcher)| {
            let input = RoundInput {
                now,
                workers: needed.get(name.as_str()).copied().unwrap_or(0),
                present: present_by_owner.get(name).map_or(&[], Vec::as_slice),
                lost,
                paused: paused(name),
                shutting_down,
            };
            (launcher.run_round(input).await, launcher.size().drain)
        });
        let mut report = LaunchersReport::default();
        for (round, drain) in join_all(rounds).await {
            report.exit_reasons.extend(round.exit_reasons);
            if !round.released.is_empty() {
                report.released.push((round.released, drain));
            }
        }
        for AllocationEntry { allocation, is_leaving, .. } in &entries {
            let is_empty = |launcher: &Launcher| launcher.jobs().is_empty();
            if *is_leaving && self.launchers.get(&allocation.name).is_some_and(is_empty) {
                self.launchers.remove(&allocation.name);
                self.table.finish_removal(&allocation.name);
            }
        }
        report
    }

    /// Cancels all jobs. Call this after the workers were told to leave.
    pub(crate) async fn cancel_all(&mut self) {
        join_all(self.launchers.values_mut().map(Launcher::cancel_all)).await;
    }
}
