//! Executes the scaler's decisions: submits, polls and cancels jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::allocation::DEFAULT_ALLOCATION;
use super::exit_reasons::ExitReasons;
use super::instrumented::Instrumented;
use super::launch_journal::SharedJournal;
use super::scaler::{LaunchState, PoolSize, PresentWorker, ScaleAction, Scaler};
use super::status_snapshot::{Explanation, LauncherStatus};
use crate::scheduler::WorkerKey;
use crate::system::{Job, JobAttributes, JobEndCause, JobId, JobProgram, JobState, System, SystemError};

/// Poll interval while there are jobs without a registered worker: it has not come yet, or has left.
const POLL_PENDING: Duration = Duration::from_secs(2);
/// Poll interval while workers are lost.
const POLL_LOST: Duration = Duration::from_secs(1);
/// Poll interval while all workers are registered.
const POLL_PRESENT: Duration = Duration::from_secs(30);

/// How long a worker may take to reconnect after a server restart before another one is launched.
const RECONNECT_WAIT: Duration = Duration::from_secs(20);

/// Delays before the attempts to cancel all jobs at shutdown.
const FINAL_CANCEL_DELAYS: [Duration; 3] = [Duration::ZERO, Duration::from_secs(2), Duration::from_secs(5)];

/// Maximum number of jobs that a round submits.
const MAX_LAUNCHES: u32 = 64;
/// A round submits no further job after this long.
const MAX_LAUNCH_TIME: Duration = Duration::from_secs(2);

/// Description of a worker's job.
#[derive(Debug, Clone)]
pub struct JobTemplate {
    /// Command line; `%n` is the launch number.
    pub command: Vec<String>,
    /// Working directory, and folder of the logs.
    pub folder: PathBuf,
    /// Threads per worker.
    pub threads: u32,
    /// Time limit of the job.
    pub time: Option<Duration>,
    /// Memory per worker in MiB.
    pub memory: Option<u64>,
    /// Account, queue and other attributes of the job.
    pub terms: JobAttributes,
    /// Additional options for the base system, passed on unchanged.
    pub options: Vec<String>,
}

impl JobTemplate {
    /// The job of a launch.
    pub(super) fn job(&self, name: String, number: u64) -> Job {
        let Self { command, folder, threads, time, memory, terms, options } = self;
        let arguments = command.iter().map(|argument| argument.replace("%n", &number.to_string())).collect();
        let log = folder.join(format!("{number:04}.log"));
        Job {
            threads: NonZeroU32::new(*threads).unwrap_or(NonZeroU32::MIN),
            memory: *memory,
            time: *time,
            stdout: Some(log.clone()),
            stderr: Some(log),
            attributes: terms.clone(),
            options: options.clone(),
            ..Job::new(name, JobProgram::Command(arguments), folder)
        }
    }
}

/// A submitted job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmittedJob {
    /// The allocation that it belongs to.
    #[serde(default = "default_allocation")]
    pub allocation: String,
    /// Its id in the base system.
    pub job: JobId,
    /// Its worker has registered.
    pub arrived: bool,
}

fn default_allocation() -> String {
    DEFAULT_ALLOCATION.to_owned()
}

/// Input of a launcher round.
#[derive(Debug)]
pub(super) struct RoundInput<'a> {
    /// Uptime of the server.
    pub(super) now: Duration,
    /// Workers that the scripts need.
    pub(super) workers: u32,
    /// Registered workers.
    pub(super) present: &'a [PresentWorker],
    /// Launch numbers of lost workers. The exit reasons of their jobs are needed.
    pub(super) lost: &'a [u64],
    /// Launch no workers.
    pub(super) paused: bool,
    /// The pool shuts down: launch no workers, and cancel jobs without a registered worker.
    pub(super) shutting_down: bool,
}

/// Result of a launcher round.
#[derive(Debug, Default)]
pub(super) struct RoundReport {
    /// Workers to release.
    pub(super) released: Vec<WorkerKey>,
    /// Known exit reasons of lost workers' jobs.
    pub(super) exit_reasons: Vec<(u64, JobEndCause)>,
}

/// The launcher of an allocation.
pub(super) struct Launcher {
    allocation: String,
    system: Box<dyn System>,
    recipe: JobTemplate,
    scaler: Scaler,
    jobs: BTreeMap<u64, SubmittedJob>,
    /// Launches with a worker that was registered before the server was restarted and has not
    /// reconnected.
    returning: BTreeSet<u64>,
    pending_reasons: BTreeMap<u64, String>,
    exit_reasons: ExitReasons,
    journal: SharedJournal,
    /// Launches that may or may not have become jobs.
    unconfirmed: BTreeSet<u64>,
    last_poll: Option<Instant>,
    last_error: Option<String>,
    wanted: u32,
    present_count: u32,
    status: Arc<LauncherStatus>,
}

impl Launcher {
    /// A launcher that continues with the jobs of an earlier server process.
    pub(super) fn new(
        system: Box<dyn System>,
        recipe: JobTemplate,
        status: Arc<LauncherStatus>,
        jobs: BTreeMap<u64, SubmittedJob>,
    ) -> Self {
        let journal = SharedJournal::in_memory();
        journal.skip_to(jobs.keys().max().copied().unwrap_or(0));
        let system = Box::new(Instrumented { system, status: Arc::clone(&status) });
        let arrived = jobs.iter().filter(|(_, job)| job.arrived);
        Self {
            allocation: DEFAULT_ALLOCATION.to_owned(),
            returning: arrived.map(|(number, _)| *number).collect(),
            system,
            recipe,
            scaler: Scaler::new(status.size()),
            jobs,
            pending_reasons: BTreeMap::new(),
            exit_reasons: ExitReasons::default(),
            journal,
            unconfirmed: BTreeSet::new(),
            last_poll: None,
            last_error: None,
            wanted: 0,
            present_count: 0,
            status,
        }
    }

    /// Uses this journal, in the name of the allocation. Jobs that were journalled and are not known are
    /// looked for by name.
    #[must_use]
    pub(super) fn with_journal(mut self, allocation: &str, journal: SharedJournal) -> Self {
        let is_known = |number: &u64| self.jobs.contains_key(number);
        let last = journal.lock().last_numbers(allocation);
        self.unconfirmed = last.filter(|number| !is_known(number)).collect();
        Self { journal, allocation: allocation.to_owned(), ..self }
    }

    /// The wanted size, as of the last round.
    pub(super) fn size(&self) -> PoolSize {
        self.scaler.size
    }

    /// Name of the base system.
    fn base(&self) -> &'static str {
        self.system.name()
    }

    /// The submitted jobs, by launch number.
    pub(super) fn jobs(&self) -> &BTreeMap<u64, SubmittedJob> {
        &self.jobs
    }

    /// Polls the base system, scales the pool and publishes the status.
    pub(super) async fn run_round(&mut self, input: RoundInput<'_>) -> RoundReport {
        let now = input.now;
        self.scaler.size = self.status.size();
        let round = self.reconcile(input).await;
        self.publish_status(now);
        round
    }

    async fn reconcile(&mut self, input: RoundInput<'_>) -> RoundReport {
        let RoundInput { now, workers, present, lost, paused, shutting_down } = input;
        self.record_arrivals(present);
        self.present_count = u32::try_from(present.len()).unwrap_or(u32::MAX);
        self.find_unconfirmed(now).await;
        self.poll_system(now, lost).await;
        let mut round =
            RoundReport { exit_reasons: self.exit_reasons_of(lost).await, ..RoundReport::default() };
        if shutting_down {
            self.cancel_pending().await;
            return round;
        }
        if now >= RECONNECT_WAIT {
            self.returning.clear();
        }
        self.wanted = self.scaler.wanted(workers);
        self.publish_status(now);
        let mut surplus = Vec::new();
        for action in self.scaler.decide(now, workers, present, &self.launches()) {
            match action {
                ScaleAction::Launch(_) if paused => {}
                ScaleAction::Launch(count) => self.launch(now, count).await,
                ScaleAction::Release(worker) => round.released.push(worker),
                ScaleAction::CancelPending(number) => surplus.push(number),
            }
        }
        if !surplus.is_empty() {
            self.cancel_jobs(&surplus).await;
        }
        round
    }

    fn launches(&self) -> BTreeMap<u64, LaunchState> {
        let launches = self.jobs.iter().map(|(number, job)| {
            let launch = match job.arrived {
                _ if self.returning.contains(number) => LaunchState::Returning,
                true => LaunchState::Arrived,
                false => LaunchState::Pending,
            };
            (*number, launch)
        });
        launches.collect()
    }

    /// Exit reasons of these launches' jobs. Those of unknown jobs are left out.
    async fn exit_reasons_of(&mut self, lost: &[u64]) -> Vec<(u64, JobEndCause)> {
        if lost.is_empty() {
            return Vec::new();
        }
        self.exit_reasons.lookup(lost, self.system.as_ref()).await
    }

    async fn cancel_pending(&mut self) {
        let pending = self.jobs.iter().filter(|(_, job)| !job.arrived);
        let pending: Vec<u64> = pending.map(|(number, _)| *number).collect();
        if !pending.is_empty() {
            self.cancel_jobs(&pending).await;
        }
    }

    fn record_arrivals(&mut self, present: &[PresentWorker]) {
        for number in present.iter().filter_map(|worker| worker.launch) {
            self.returning.remove(&number);
            if let Some(job) = self.jobs.get_mut(&number).filter(|job| !job.arrived) {
                job.arrived = true;
                self.pending_reasons.remove(&number);
                self.scaler.on_arrival();
                self.last_error = None;
            }
        }
    }

    /// Submits jobs until there are `count` more, the pool's wanted size changes, or the round has
    /// lasted long enough; the next round continues.
    async fn launch(&mut self, now: Duration, count: u32) {
        let began = Instant::now();
        let reserved = self.journal.lock().reserve(&self.allocation, count.min(MAX_LAUNCHES));
        let numbers = match reserved {
            Ok(numbers) => numbers,
            Err(error) => {
                return self.record_failure(now, format!("cannot write the launch journal: {error}"));
            }
        };
        for number in numbers {
            if self.status.size() != self.scaler.size || began.elapsed() >= MAX_LAUNCH_TIME {
                return;
            }
            let name = self.journal.lock().job_name(number);
            match self.system.submit(&self.recipe.job(name, number)).await {
                Ok(job) => {
                    tracing::info!(%job, system = self.base(), number, "submitted a worker's job");
                    self.insert_job(number, job);
                }
                Err(error) => {
                    if let SystemError::NoAnswer { .. } = error {
                        self.unconfirmed.insert(number);
                    }
                    return self.record_failure(now, error.to_string());
                }
            }
        }
    }

    fn record_failure(&mut self, now: Duration, message: String) {
        tracing::warn!(error = message, system = self.base(), "launching a worker failed");
        self.last_error = Some(message);
        self.scaler.on_failure(now);
    }

    /// Whether it has no jobs, not even jobs of a submission that was not answered.
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs().is_empty() && self.unconfirmed.is_empty()
    }

    /// Looks for jobs that may have been submitted although their ids were not received.
    async fn find_unconfirmed(&mut self, now: Duration) {
        if self.unconfirmed.is_empty() || self.scaler.backoff(now).is_some() {
            return;
        }
        let names = self.unconfirmed.iter().map(|number| (self.journal.lock().job_name(*number), *number));
        let numbers: BTreeMap<String, u64> = names.collect();
        let names: Vec<String> = numbers.keys().cloned().collect();
        let found = match self.system.find(&names).await {
            Ok(found) => found,
            Err(error) => return self.record_failure(now, error.to_string()),
        };
        self.unconfirmed.clear();
        for (name, job) in found {
            let Some(number) = numbers.get(&name) else { continue };
            tracing::info!(%job, number, "found a job by its name; its id had not been received");
            self.insert_job(*number, job);
        }
    }

    fn insert_job(&mut self, number: u64, job: JobId) {
        let allocation = self.allocation.clone();
        self.jobs.insert(number, SubmittedJob { allocation, job, arrived: false });
    }

    /// Polls the state of all jobs in one query, if the interval has passed.
    async fn poll_system(&mut self, now: Duration, lost: &[u64]) {
        let waiting = self.jobs.len() > self.present_count as usize;
        let wanted = lost.iter().any(|number| self.jobs.contains_key(number));
        let interval = match (wanted, waiting) {
            (true, _) => POLL_LOST,
            (false, true) => POLL_PENDING,
            (false, false) => POLL_PRESENT,
        };
        if self.jobs.is_empty() || self.last_poll.is_some_and(|at| at.elapsed() < interval) {
            return;
        }
        self.last_poll = Some(Instant::now());
        let ids: Vec<JobId> = self.jobs.values().map(|job| job.job.clone()).collect();
        let states = match self.system.status(&ids).await {
            Ok(states) => states,
            Err(error) => return self.last_error = Some(error.to_string()),
        };
        let mut over = Vec::new();
        for (number, job) in &self.jobs {
            match states.get(&job.job) {
                Some(state) if job.arrived && state.is_live() => {}
                Some(JobState::Waiting { why }) => {
                    let why = why.as_deref().unwrap_or("it waits in the queue");
                    self.pending_reasons.insert(*number, format!("job {}: {why}", job.job));
                }
                Some(JobState::Stuck { why }) => {
                    self.pending_reasons.insert(*number, format!("job {} is stuck: {why}", job.job));
                }
                Some(JobState::Running) => {
                    let message = format!("job {} runs, but its worker has not registered yet", job.job);
                    self.pending_reasons.insert(*number, message);
                }
                state @ (Some(JobState::Ended(_) | JobState::Gone) | None) => {
                    self.exit_reasons.record(*number, &job.job, state);
                    over.push(*number);
                }
            }
        }
        for number in over {
            let Some(job) = self.jobs.remove(&number) else { continue };
            self.pending_reasons.remove(&number);
            self.returning.remove(&number);
            if !job.arrived {
                let log = self.recipe.folder.join(format!("{number:04}.log"));
                let message = format!("job {} ended before its worker registered", job.job);
                let message = format!("{message}; see {}", log.display());
                tracing::warn!("{message}");
                self.last_error = Some(message);
                self.scaler.on_failure(now);
            }
        }
    }

    /// Cancels these jobs.
    async fn cancel_jobs(&mut self, numbers: &[u64]) {
        let ids: Vec<JobId> =
            numbers.iter().filter_map(|number| Some(self.jobs.get(number)?.job.clone())).collect();
        match self.system.cancel(&ids).await {
            Ok(()) => self.jobs.retain(|number, _| !numbers.contains(number)),
            Err(error) => self.last_error = Some(error.to_string()),
        }
    }

    /// Cancels all jobs. Call this after the workers were told to leave. Jobs that could not be
    /// cancelled stay in [`jobs`](Self::jobs).
    pub(super) async fn cancel_all(&mut self) {
        let all: Vec<u64> = self.jobs.keys().copied().collect();
        for pause in FINAL_CANCEL_DELAYS {
            if self.jobs.is_empty() {
                return;
            }
            tokio::time::sleep(pause).await;
            self.cancel_jobs(&all).await;
        }
        if !self.jobs.is_empty() {
            let left: Vec<&str> = self.jobs.values().map(|job| job.job.as_str()).collect();
            let error = self.last_error.as_deref().unwrap_or_default();
            tracing::warn!(jobs = ?left, system = self.base(), error, "jobs could not be cancelled");
        }
    }

    /// Publishes the launcher's status.
    fn publish_status(&self, now: Duration) {
        let explanation = Explanation {
            wanted: self.wanted,
            registered: self.present_count,
            pending: self.pending_reasons.values().cloned().collect(),
            last_error: self.last_error.clone(),
            ..Explanation::default()
        };
        let left = self.scaler.backoff(now).map(|(left, _)| left).unwrap_or_default();
        self.status.update(explanation, now + left);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::system::BaseSystem;

    /// Counts jobs. With the tenth one, the pool's wanted size becomes two.
    struct CountingSystem {
        submitted: Arc<Mutex<Vec<JobId>>>,
        cancelled: Arc<Mutex<Vec<JobId>>>,
        status: Arc<Mutex<Option<Arc<LauncherStatus>>>>,
    }

    #[async_trait::async_trait]
    impl System for CountingSystem {
        fn base(&self) -> BaseSystem {
            BaseSystem::Local
        }

        fn script(&self, _: &Job) -> Result<String, SystemError> {
            Ok(String::new())
        }

        async fn submit(&self, job: &Job) -> Result<JobId, SystemError> {
            let mut submitted = self.submitted.lock().unwrap();
            submitted.push(JobId::new(job.name.as_str()));
            if submitted.len() == 10 {
                let status = self.status.lock().unwrap();
                let status = status.as_ref().unwrap();
                status.set_size(PoolSize { min: 2, max: 2, ..status.size() });
            }
            Ok(JobId::new(job.name.as_str()))
        }

        async fn status(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, JobState>, SystemError> {
            Ok(ids.iter().map(|id| (id.clone(), JobState::Waiting { why: None })).collect())
        }

        async fn cancel(&self, ids: &[JobId]) -> Result<(), SystemError> {
            self.cancelled.lock().unwrap().extend_from_slice(ids);
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_latest_size_counts_also_while_jobs_are_submitted() {
        let (submitted, cancelled, status) = (Arc::default(), Arc::default(), Arc::default());
        let system = CountingSystem {
            submitted: Arc::clone(&submitted),
            cancelled: Arc::clone(&cancelled),
            status: Arc::clone(&status),
        };
        let template = JobTemplate {
            command: vec!["worker".to_owned()],
            folder: PathBuf::from("/"),
            threads: 1,
            time: None,
            memory: None,
            terms: JobAttributes::default(),
            options: Vec::new(),
        };
        let hour = Duration::from_secs(3600);
        let size = PoolSize { min: 10_000, max: 10_000, idle: hour, drain: hour };
        let published = LauncherStatus::new(size);
        *status.lock().unwrap() = Some(Arc::clone(&published));
        let mut launcher = Launcher::new(Box::new(system), template, published, BTreeMap::new());
        for round in 1..4 {
            let now = Duration::from_secs(round);
            let (paused, shutting_down) = (false, false);
            let input = RoundInput { now, workers: 0, present: &[], lost: &[], paused, shutting_down };
            launcher.run_round(input).await;
        }
        let submitted: usize = Mutex::lock(&submitted).unwrap().len();
        assert_eq!((submitted, Mutex::lock(&cancelled).unwrap().len()), (10, 8));
        assert_eq!(launcher.jobs().len(), 2);
    }
}
