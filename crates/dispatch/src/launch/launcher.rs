//! Carries out what the scaler decides: submits jobs, watches them, cancels them.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::fates::Fates;
use super::intents::Intents;
use super::outlook::{Explanation, Outlook};
use super::scale::{Launch, Present, Scaler, Size, Step};
use super::watched::Watched;
use crate::board::SeatId;
use crate::system::{Cause, Job, JobId, JobState, Program, System, SystemError, Terms};

/// How often the system is asked about jobs whose workers have not come, at most.
const ASK: Duration = Duration::from_secs(2);
/// How often it is asked about those whose workers are lost.
const ASK_OFTEN: Duration = Duration::from_secs(1);
/// How often it is asked about those whose workers are here.
const ASK_SELDOM: Duration = Duration::from_secs(30);

/// How long a worker of the server's earlier life is waited for before another is started.
const RETURN: Duration = Duration::from_secs(20);

/// Pauses before each try to end the jobs of a pool that ends.
const LAST_TRIES: [Duration; 3] = [Duration::ZERO, Duration::from_secs(2), Duration::from_secs(5)];

/// How a worker is started.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// Its command line; `%n` is what it is launched as.
    pub command: Vec<String>,
    /// Where it runs, and where its log and script go.
    pub folder: PathBuf,
    /// Threads of each.
    pub threads: u32,
    /// What the job is held to.
    pub time: Option<Duration>,
    /// Memory of each, in MiB.
    pub memory: Option<u64>,
    /// On whose account, in which queue.
    pub terms: Terms,
    /// What is passed on to the system as it is.
    pub options: Vec<String>,
}

/// A job that was submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    /// Its id.
    pub job: JobId,
    /// Its worker has been here.
    pub arrived: bool,
}

/// What a launcher has to see.
#[derive(Debug)]
pub struct Sight<'a> {
    /// How long the server has been up.
    pub now: Duration,
    /// Threads of all scripts, waiting and running.
    pub threads: u64,
    /// Workers that are here.
    pub present: &'a [Present],
    /// Launches whose workers are lost: why their jobs ended is wanted.
    pub lost: &'a [u64],
    /// The pool comes to its end: nobody is launched any more, and who has not come need not.
    pub closing: bool,
}

/// What came of a round.
#[derive(Debug, Default)]
pub struct Round {
    /// Workers that are to be let go.
    pub released: Vec<SeatId>,
    /// Why jobs ended whose workers are lost, as far as it is known.
    pub fates: Vec<(u64, Cause)>,
}

/// The launcher of a pool.
pub struct Launcher {
    system: Box<dyn System>,
    recipe: Recipe,
    scaler: Scaler,
    jobs: BTreeMap<u64, Submitted>,
    /// Those whose workers were here in the server's earlier life, and have not come back.
    returning: BTreeSet<u64>,
    said: BTreeMap<u64, String>,
    fates: Fates,
    intents: Intents,
    /// Those that were asked for and nobody knows whether they are there.
    unclear: BTreeSet<u64>,
    asked: Option<Instant>,
    trouble: Option<String>,
    wanted: u32,
    here: u32,
    outlook: Arc<Outlook>,
}

impl Launcher {
    /// A launcher that goes on with the jobs of an earlier life.
    pub fn new(
        system: Box<dyn System>,
        recipe: Recipe,
        size: Size,
        jobs: BTreeMap<u64, Submitted>,
    ) -> Self {
        let mut intents = Intents::unkept();
        intents.pass(jobs.keys().max().copied().unwrap_or(0));
        let outlook = Outlook::new(size);
        let system = Box::new(Watched { system, outlook: Arc::clone(&outlook) });
        let arrived = jobs.iter().filter(|(_, job)| job.arrived);
        Self {
            returning: arrived.map(|(number, _)| *number).collect(),
            system,
            recipe,
            scaler: Scaler::new(size),
            jobs,
            said: BTreeMap::new(),
            fates: Fates::default(),
            intents,
            unclear: BTreeSet::new(),
            asked: None,
            trouble: None,
            wanted: 0,
            here: 0,
            outlook,
        }
    }

    /// The same, with what an earlier life was about to ask for. What of that became jobs is looked for.
    #[must_use]
    pub fn with_intents(mut self, mut intents: Intents) -> Self {
        let known = |number: &u64| self.jobs.contains_key(number);
        self.unclear = intents.last().filter(|number| !known(number)).collect();
        intents.pass(self.jobs.keys().max().copied().unwrap_or(0));
        Self { intents, ..self }
    }

    /// What starts the workers.
    pub fn base(&self) -> &'static str {
        self.system.name()
    }

    /// The jobs, for whoever keeps them.
    pub fn jobs(&self) -> &BTreeMap<u64, Submitted> {
        &self.jobs
    }

    /// What others may see of it at any time, and how its size is changed.
    pub fn outlook(&self) -> Arc<Outlook> {
        Arc::clone(&self.outlook)
    }

    /// Looks, decides and acts.
    pub async fn round(&mut self, sight: Sight<'_>) -> Round {
        let now = sight.now;
        self.scaler.size = self.outlook.size();
        let round = self.carry_out(sight).await;
        self.tell(now);
        round
    }

    async fn carry_out(&mut self, sight: Sight<'_>) -> Round {
        let Sight { now, threads, present, lost, closing } = sight;
        self.note_arrivals(present);
        self.find_unclear(now).await;
        self.ask_system(now, lost).await;
        let mut round = Round { fates: self.fates_of(lost).await, ..Round::default() };
        self.here = u32::try_from(present.len()).unwrap_or(u32::MAX);
        if closing {
            self.withdraw_pending().await;
            return round;
        }
        if now >= RETURN {
            self.returning.clear();
        }
        self.wanted = self.scaler.wanted(threads);
        self.tell(now);
        for step in self.scaler.decide(now, threads, present, &self.launches()) {
            match step {
                Step::Launch(count) => self.launch(now, count).await,
                Step::Release(seat) => round.released.push(seat),
                Step::Withdraw(number) => self.withdraw(&[number]).await,
            }
        }
        round
    }

    fn launches(&self) -> BTreeMap<u64, Launch> {
        let launches = self.jobs.iter().map(|(number, job)| {
            let launch = match job.arrived {
                _ if self.returning.contains(number) => Launch::Returning,
                true => Launch::Arrived,
                false => Launch::Pending,
            };
            (*number, launch)
        });
        launches.collect()
    }

    /// Why the jobs of these ended. One that is nobody's job, or an earlier life's, is not known.
    async fn fates_of(&mut self, lost: &[u64]) -> Vec<(u64, Cause)> {
        if lost.is_empty() {
            return Vec::new();
        }
        self.fates.of(lost, self.system.as_ref()).await
    }

    async fn withdraw_pending(&mut self) {
        let pending = self.jobs.iter().filter(|(_, job)| !job.arrived);
        let pending: Vec<u64> = pending.map(|(number, _)| *number).collect();
        if !pending.is_empty() {
            self.withdraw(&pending).await;
        }
    }

    fn note_arrivals(&mut self, present: &[Present]) {
        for number in present.iter().filter_map(|worker| worker.launch) {
            self.returning.remove(&number);
            if let Some(job) = self.jobs.get_mut(&number).filter(|job| !job.arrived) {
                job.arrived = true;
                self.said.remove(&number);
                self.scaler.on_arrival();
                self.trouble = None;
            }
        }
    }

    async fn launch(&mut self, now: Duration, count: u32) {
        let numbers = match self.intents.next(count) {
            Ok(numbers) => numbers,
            Err(error) => return self.fail(now, format!("launches cannot be noted: {error}")),
        };
        for number in numbers {
            match self.system.submit(&self.job(number)).await {
                Ok(job) => {
                    tracing::info!(%job, system = self.base(), number, "a worker was asked for");
                    self.jobs.insert(number, Submitted { job, arrived: false });
                }
                Err(error) => {
                    if let SystemError::Silent { .. } = error {
                        self.unclear.insert(number);
                    }
                    return self.fail(now, error.to_string());
                }
            }
        }
    }

    fn fail(&mut self, now: Duration, words: String) {
        tracing::warn!(words, system = self.base(), "no worker could be asked for");
        self.trouble = Some(words);
        self.scaler.on_failure(now);
    }

    /// Looks for jobs that may have been submitted, though nobody heard their ids.
    async fn find_unclear(&mut self, now: Duration) {
        if self.unclear.is_empty() || self.scaler.waits(now).is_some() {
            return;
        }
        let names = self.unclear.iter().map(|number| (self.intents.name(*number), *number));
        let numbers: BTreeMap<String, u64> = names.collect();
        let names: Vec<String> = numbers.keys().cloned().collect();
        let found = match self.system.find(&names).await {
            Ok(found) => found,
            Err(error) => return self.fail(now, error.to_string()),
        };
        self.unclear.clear();
        for (name, job) in found {
            let Some(number) = numbers.get(&name) else { continue };
            tracing::info!(%job, number, "a job was found whose id nobody had heard");
            self.jobs.insert(*number, Submitted { job, arrived: false });
        }
    }

    fn job(&self, number: u64) -> Job {
        let Recipe { command, folder, threads, time, memory, terms, options } = &self.recipe;
        let words = command.iter().map(|word| word.replace("%n", &number.to_string())).collect();
        let log = folder.join(format!("{number:04}.log"));
        Job {
            threads: NonZeroU32::new(*threads).unwrap_or(NonZeroU32::MIN),
            memory: *memory,
            time: *time,
            stdout: Some(log.clone()),
            stderr: Some(log),
            terms: terms.clone(),
            options: options.clone(),
            ..Job::new(self.intents.name(number), Program::Command(words), folder)
        }
    }

    /// Asks the system about all jobs in one query, now and then.
    async fn ask_system(&mut self, now: Duration, lost: &[u64]) {
        let waiting = self.jobs.values().any(|job| !job.arrived);
        let wanted = lost.iter().any(|number| self.jobs.contains_key(number));
        let every = match (wanted, waiting) {
            (true, _) => ASK_OFTEN,
            (false, true) => ASK,
            (false, false) => ASK_SELDOM,
        };
        if self.jobs.is_empty() || self.asked.is_some_and(|asked| asked.elapsed() < every) {
            return;
        }
        self.asked = Some(Instant::now());
        let ids: Vec<JobId> = self.jobs.values().map(|job| job.job.clone()).collect();
        let states = match self.system.status(&ids).await {
            Ok(states) => states,
            Err(error) => return self.trouble = Some(error.to_string()),
        };
        let mut over = Vec::new();
        for (number, job) in &self.jobs {
            match states.get(&job.job) {
                Some(state) if job.arrived && state.is_live() => {}
                Some(JobState::Waiting { why }) => {
                    let why = why.as_deref().unwrap_or("it waits for its turn");
                    self.said.insert(*number, format!("job {}: {why}", job.job));
                }
                Some(JobState::Stuck { why }) => {
                    self.said.insert(*number, format!("job {} is stuck: {why}", job.job));
                }
                Some(JobState::Running) => {
                    let words = format!("job {} runs, its worker has not come yet", job.job);
                    self.said.insert(*number, words);
                }
                state @ (Some(JobState::Ended(_) | JobState::Gone) | None) => {
                    self.fates.note(*number, &job.job, state);
                    over.push(*number);
                }
            }
        }
        for number in over {
            let Some(job) = self.jobs.remove(&number) else { continue };
            self.said.remove(&number);
            self.returning.remove(&number);
            if !job.arrived {
                let log = self.recipe.folder.join(format!("{number:04}.log"));
                let words = format!("job {} ended before its worker came", job.job);
                let words = format!("{words}; see {}", log.display());
                tracing::warn!("{words}");
                self.trouble = Some(words);
                self.scaler.on_failure(now);
            }
        }
    }

    /// Cancels these jobs.
    async fn withdraw(&mut self, numbers: &[u64]) {
        let ids: Vec<JobId> =
            numbers.iter().filter_map(|number| Some(self.jobs.get(number)?.job.clone())).collect();
        match self.system.cancel(&ids).await {
            Ok(()) => self.jobs.retain(|number, _| !numbers.contains(number)),
            Err(error) => self.trouble = Some(error.to_string()),
        }
    }

    /// Ends every job that is left. To be called when the workers have been told to go. Those that
    /// the system could not be asked to end are still among the [`jobs`](Self::jobs).
    pub async fn end(&mut self) {
        let all: Vec<u64> = self.jobs.keys().copied().collect();
        for pause in LAST_TRIES {
            if self.jobs.is_empty() {
                return;
            }
            tokio::time::sleep(pause).await;
            self.withdraw(&all).await;
        }
        if !self.jobs.is_empty() {
            let left: Vec<&str> = self.jobs.values().map(|job| job.job.as_str()).collect();
            let trouble = self.trouble.as_deref().unwrap_or_default();
            tracing::warn!(jobs = ?left, system = self.base(), trouble, "jobs could not be ended");
        }
    }

    /// Lets others see how things are.
    fn tell(&self, now: Duration) {
        let explanation = Explanation {
            wanted: self.wanted,
            here: self.here,
            pending: self.said.values().cloned().collect(),
            trouble: self.trouble.clone(),
            ..Explanation::default()
        };
        let left = self.scaler.waits(now).map(|(left, _)| left).unwrap_or_default();
        self.outlook.note(explanation, now + left);
    }
}
