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
        let mut launchers = Self { table, setup, journal, launchers: BTreeMap::new() };
        launchers.open(jobs);
        launchers
    }

    /// Makes the launchers of new allocations, which continue with these jobs. Returns all allocations.
    fn open(&mut self, mut jobs: BTreeMap<u64, SubmittedJob>) -> Vec<AllocationEntry> {
        let entries = self.table.entries();
        for AllocationEntry { allocation, status, .. } in &entries {
            if self.launchers.contains_key(&allocation.name) {
                continue;
            }
            let is_its_own = |job: &SubmittedJob| {
                job.allocation == allocation.name
                    || !entries.iter().any(|entry| entry.allocation.name == job.allocation)
            };
            let (own, others) = jobs.into_iter().partition(|(_, job)| is_its_own(job));
            jobs = others;
            let system = open_system(allocation.base, self.setup.site.clone());
            let launcher = Launcher::new(system, (self.setup.job)(allocation), Arc::clone(status), own);
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
        jobs.map(|(number, job)| (*number, job.clone())).collect()
    }

    /// A round of each launcher, all at the same time. The next round waits for the slowest base system.
    pub(crate) async fn run_round(
        &mut self,
        now: Duration,
        demand: &[Demand],
        present: &[PresentWorker],
        lost: &[u64],
        shutting_down: bool,
    ) -> LaunchersReport {
        let entries = self.open(BTreeMap::new());
        let present = self.present_by_allocation(present);
        let supplies: Vec<Supply> = entries.iter().map(|entry| self.supply(&entry.allocation)).collect();
        let allocations = entries.iter().map(|entry| &entry.allocation).zip(divide(demand, &supplies));
        let allocations: BTreeMap<&str, (&Allocation, u32)> = allocations
            .map(|(allocation, needed)| (allocation.name.as_str(), (allocation, needed)))
            .collect();
        let rounds = self.launchers.iter_mut().map(async |(name, launcher)| {
            let allocation = allocations.get(name.as_str());
            let input = RoundInput {
                now,
                workers: allocation.map_or(0, |(_, needed)| *needed),
                present: present.get(name).map_or(&[], Vec::as_slice),
                lost,
                paused: allocation.is_some_and(|(allocation, _)| allocation.paused),
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
        self.remove_empty(&entries);
        report
    }

    /// The registered workers by the allocation that launched them.
    fn present_by_allocation(&self, present: &[PresentWorker]) -> BTreeMap<String, Vec<PresentWorker>> {
        let mut by_allocation: BTreeMap<String, Vec<PresentWorker>> = BTreeMap::new();
        for worker in present {
            let launched = |launcher: &Launcher| {
                worker.launch.is_some_and(|number| launcher.jobs().contains_key(&number))
            };
            let name = self.launchers.iter().find(|(_, launcher)| launched(launcher));
            let name = name.map_or(DEFAULT_ALLOCATION, |(name, _)| name.as_str());
            by_allocation.entry(name.to_owned()).or_default().push(*worker);
        }
        by_allocation
    }

    fn supply(&self, allocation: &Allocation) -> Supply {
        let jobs = self.launchers.get(&allocation.name).map_or(0, |launcher| launcher.jobs().len());
        let present = u32::try_from(jobs).unwrap_or(u32::MAX);
        let max = if allocation.paused { present } else { allocation.size().max };
        Supply { worker: allocation.worker(), present: present.max(allocation.min), max }
    }

    /// Removes allocations that are leaving and have no job any more.
    fn remove_empty(&mut self, entries: &[AllocationEntry]) {
        for AllocationEntry { allocation, .. } in entries.iter().filter(|entry| entry.is_leaving) {
            let launcher = self.launchers.get(&allocation.name);
            if launcher.is_some_and(Launcher::is_empty) {
                self.launchers.remove(&allocation.name);
                self.table.finish_removal(&allocation.name);
            }
        }
    }

    /// Cancels all jobs. Call this after the workers were told to leave.
    pub(crate) async fn cancel_all(&mut self) {
        join_all(self.launchers.values_mut().map(Launcher::cancel_all)).await;
    }
}
