//! Waits for jobs: one query for all, with growing intervals.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::System;
use super::error::SystemError;
use super::job_state::{JobEnd, JobId, JobState};

/// A job counts as gone after this many queries without it, because lists lag behind submissions.
const MIN_MISSES: u32 = 2;
/// How long to look for a gone job in the accounting, which lags behind the list; in Grid Engine by
/// 15 s.
const ACCOUNTING_WAIT: Duration = Duration::from_secs(60);

/// Intervals of the queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollPolicy {
    /// First interval; each is one and a half times the one before.
    pub first_interval: Duration,
    /// Maximum interval.
    pub max_interval: Duration,
    /// How long queries may fail in a row.
    pub outage_limit: Duration,
}

impl Default for PollPolicy {
    fn default() -> Self {
        Self {
            first_interval: Duration::from_millis(250),
            max_interval: Duration::from_secs(30),
            outage_limit: Duration::from_secs(15 * 60),
        }
    }
}

/// Waits until all jobs have ended, and returns how. For a job that the system no longer lists,
/// that is what its accounting says, or `End::unknown()`.
pub async fn wait_for_jobs(
    system: &dyn System,
    ids: &[JobId],
    pace: PollPolicy,
) -> Result<BTreeMap<JobId, JobEnd>, SystemError> {
    let mut waiter = JobWaiter { left: ids.iter().cloned().collect(), ..JobWaiter::default() };
    let (mut pause, mut last_answer) = (pace.first_interval, Instant::now());
    loop {
        match waiter.poll(system).await {
            Ok(()) => last_answer = Instant::now(),
            Err(error) if error.is_query_retryable() && last_answer.elapsed() < pace.outage_limit => {
                tracing::warn!(%error, "query failed; retrying after a pause");
            }
            Err(error) => return Err(error),
        }
        if waiter.left.is_empty() {
            return Ok(waiter.ends);
        }
        tokio::time::sleep(pause).await;
        pause = pace.max_interval.min(pause.mul_f64(1.5));
    }
}

/// Progress of [`wait`].
#[derive(Default)]
struct JobWaiter {
    left: BTreeSet<JobId>,
    ends: BTreeMap<JobId, JobEnd>,
    /// Number of queries in a row without the job, and the time of the first.
    gone: BTreeMap<JobId, (u32, Instant)>,
}

impl JobWaiter {
    async fn poll(&mut self, system: &dyn System) -> Result<(), SystemError> {
        let ids: Vec<JobId> = self.left.iter().cloned().collect();
        for (id, state) in system.status(&ids).await? {
            match state {
                JobState::Ended(end) => self.end(id, end),
                JobState::Gone => self.gone.entry(id).or_insert_with(|| (0, Instant::now())).0 += 1,
                _ => _ = self.gone.remove(&id),
            }
        }
        let gone = self.gone.iter().filter(|(_, (times, _))| *times >= MIN_MISSES);
        let gone: Vec<JobId> = gone.map(|(id, _)| id.clone()).collect();
        self.read_accounting(system, &gone).await
    }

    /// Looks for gone jobs in the system's accounting.
    async fn read_accounting(&mut self, system: &dyn System, gone: &[JobId]) -> Result<(), SystemError> {
        if gone.is_empty() {
            return Ok(());
        }
        let mut ends = system.ends(gone).await?;
        for id in gone {
            let expired = self.gone.get(id).is_none_or(|(_, since)| since.elapsed() > ACCOUNTING_WAIT);
            match ends.remove(id) {
                Some(end) => self.end(id.clone(), end),
                None if expired => self.end(id.clone(), JobEnd::unknown()),
                None => {}
            }
        }
        Ok(())
    }

    fn end(&mut self, id: JobId, end: JobEnd) {
        self.left.remove(&id);
        self.gone.remove(&id);
        self.ends.insert(id, end);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;

    use super::*;
    use crate::system::{BaseSystem, Job};
    use longshore_process::Exit;

    /// A system with scripted answers; the last one is repeated.
    struct ScriptedSystem {
        polls: Mutex<Vec<Option<JobState>>>,
        /// Number of accounting queries until the first with an answer.
        accounting_delay: Mutex<u32>,
    }

    impl ScriptedSystem {
        fn new(polls: impl IntoIterator<Item = Option<JobState>>, accounting_delay: u32) -> Self {
            Self {
                polls: Mutex::new(polls.into_iter().collect()),
                accounting_delay: Mutex::new(accounting_delay),
            }
        }
    }

    #[async_trait]
    impl System for ScriptedSystem {
        fn base(&self) -> BaseSystem {
            BaseSystem::Sge
        }

        fn script(&self, _: &Job) -> Result<String, SystemError> {
            Ok(String::new())
        }

        async fn submit(&self, _: &Job) -> Result<JobId, SystemError> {
            Ok(JobId::new("7"))
        }

        async fn status(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, JobState>, SystemError> {
            let mut polls = self.polls.lock().unwrap();
            let poll = if polls.len() > 1 { polls.remove(0) } else { polls[0].clone() };
            let (system, message) = (BaseSystem::Sge, "down".to_owned());
            let state = poll.ok_or(SystemError::Unreachable { system, message })?;
            Ok(ids.iter().map(|id| (id.clone(), state.clone())).collect())
        }

        async fn cancel(&self, _: &[JobId]) -> Result<(), SystemError> {
            Ok(())
        }

        async fn ends(&self, gone: &[JobId]) -> Result<BTreeMap<JobId, JobEnd>, SystemError> {
            let mut accounting_delay = self.accounting_delay.lock().unwrap();
            *accounting_delay = accounting_delay.saturating_sub(1);
            let reported = gone.iter().filter(|_| *accounting_delay == 0);
            Ok(reported.map(|id| (id.clone(), JobEnd::exited(Exit::Code(5)))).collect())
        }
    }

    async fn end_of(system: &ScriptedSystem) -> Result<JobEnd, SystemError> {
        let id = JobId::new("7");
        let ends = wait_for_jobs(system, std::slice::from_ref(&id), PollPolicy::default()).await?;
        Ok(ends[&id])
    }

    const GONE: Option<JobState> = Some(JobState::Gone);
    const RUNNING: Option<JobState> = Some(JobState::Running);

    #[tokio::test(start_paused = true)]
    async fn a_job_that_is_not_listed_yet_is_not_taken_for_gone() {
        let ended = Some(JobState::Ended(JobEnd::exited(Exit::Code(0))));
        let system = ScriptedSystem::new([GONE, RUNNING, GONE, RUNNING, ended], 1);
        assert_eq!(end_of(&system).await.unwrap().exit, Some(Exit::Code(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_gone_job_is_looked_for_in_books_that_are_late() {
        let system = ScriptedSystem::new([RUNNING, GONE], 4);
        assert_eq!(end_of(&system).await.unwrap().exit, Some(Exit::Code(5)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_no_book_knows_has_ended_somehow() {
        let system = ScriptedSystem::new([GONE], u32::MAX);
        assert_eq!(end_of(&system).await.unwrap(), JobEnd::unknown());
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_waited_out_and_one_without_end_is_told() {
        let mut polls = vec![None; 10];
        polls.extend([RUNNING, GONE]);
        assert_eq!(end_of(&ScriptedSystem::new(polls, 1)).await.unwrap().exit, Some(Exit::Code(5)));
        let error = end_of(&ScriptedSystem::new([None], 1)).await.unwrap_err();
        assert!(matches!(error, SystemError::Unreachable { .. }), "{error}");
    }
}
