//! Waiting for jobs: many in one query, less and less often.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::System;
use super::error::SystemError;
use super::state::{End, JobId, JobState};

/// How often a job must be gone before we believe it: lists lag behind what was submitted.
const TWICE: u32 = 2;
/// For how long we look for a gone job's end: books lag behind lists, Grid Engine's a quarter of a minute.
const LATE: Duration = Duration::from_secs(60);

/// How often a system is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The first pause between two questions; each is half again as long as the one before.
    pub first: Duration,
    /// The longest.
    pub most: Duration,
    /// For how long in a row a system may not answer before it is an error.
    pub patience: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(250),
            most: Duration::from_secs(30),
            patience: Duration::from_secs(15 * 60),
        }
    }
}

/// Waits until none of the jobs is live any more, and returns how each ended. Of a job that its
/// system forgot meanwhile, that is what the system's books say, or nothing.
pub async fn wait(
    system: &dyn System,
    ids: &[JobId],
    pace: Pace,
) -> Result<BTreeMap<JobId, End>, SystemError> {
    let mut watch = Watch { left: ids.iter().cloned().collect(), ..Watch::default() };
    let (mut pause, mut heard) = (pace.first, Instant::now());
    loop {
        match watch.look(system).await {
            Ok(()) => heard = Instant::now(),
            Err(error) if error.may_ask_again() && heard.elapsed() < pace.patience => {
                tracing::warn!(%error, "asked again after a pause");
            }
            Err(error) => return Err(error),
        }
        if watch.left.is_empty() {
            return Ok(watch.ends);
        }
        tokio::time::sleep(pause).await;
        pause = pace.most.min(pause.mul_f64(1.5));
    }
}

/// What is known of the jobs so far.
#[derive(Default)]
struct Watch {
    left: BTreeSet<JobId>,
    ends: BTreeMap<JobId, End>,
    /// How often in a row a job was gone, and since when.
    gone: BTreeMap<JobId, (u32, Instant)>,
}

impl Watch {
    async fn look(&mut self, system: &dyn System) -> Result<(), SystemError> {
        let ids: Vec<JobId> = self.left.iter().cloned().collect();
        for (id, state) in system.status(&ids).await? {
            match state {
                JobState::Ended(end) => self.end(id, end),
                JobState::Gone => self.gone.entry(id).or_insert_with(|| (0, Instant::now())).0 += 1,
                _ => _ = self.gone.remove(&id),
            }
        }
        let gone = self.gone.iter().filter(|(_, (times, _))| *times >= TWICE);
        let gone: Vec<JobId> = gone.map(|(id, _)| id.clone()).collect();
        self.close(system, &gone).await
    }

    /// Looks for gone jobs in the system's books.
    async fn close(&mut self, system: &dyn System, gone: &[JobId]) -> Result<(), SystemError> {
        if gone.is_empty() {
            return Ok(());
        }
        let mut ends = system.ends(gone).await?;
        for id in gone {
            let given_up = self.gone.get(id).is_none_or(|(_, since)| since.elapsed() > LATE);
            match ends.remove(id) {
                Some(end) => self.end(id.clone(), end),
                None if given_up => self.end(id.clone(), End::unknown()),
                None => {}
            }
        }
        Ok(())
    }

    fn end(&mut self, id: JobId, end: End) {
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
    use crate::system::state::Exit;
    use crate::system::{BaseSystem, Job};

    /// A system that says what it was told to say, look after look; the last for ever.
    struct Scripted {
        looks: Mutex<Vec<Option<JobState>>>,
        /// How often its books are asked before they tell.
        books: Mutex<u32>,
    }

    impl Scripted {
        fn new(looks: impl IntoIterator<Item = Option<JobState>>, books: u32) -> Self {
            Self { looks: Mutex::new(looks.into_iter().collect()), books: Mutex::new(books) }
        }
    }

    #[async_trait]
    impl System for Scripted {
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
            let mut looks = self.looks.lock().unwrap();
            let look = if looks.len() > 1 { looks.remove(0) } else { looks[0].clone() };
            let (system, words) = (BaseSystem::Sge, "down".to_owned());
            let state = look.ok_or(SystemError::Away { system, words })?;
            Ok(ids.iter().map(|id| (id.clone(), state.clone())).collect())
        }

        async fn cancel(&self, _: &[JobId]) -> Result<(), SystemError> {
            Ok(())
        }

        async fn ends(&self, gone: &[JobId]) -> Result<BTreeMap<JobId, End>, SystemError> {
            let mut books = self.books.lock().unwrap();
            *books = books.saturating_sub(1);
            let told = gone.iter().filter(|_| *books == 0);
            Ok(told.map(|id| (id.clone(), End::by_itself(Exit::Code(5)))).collect())
        }
    }

    async fn end_of(system: &Scripted) -> Result<End, SystemError> {
        let id = JobId::new("7");
        let ends = wait(system, std::slice::from_ref(&id), Pace::default()).await?;
        Ok(ends[&id])
    }

    const GONE: Option<JobState> = Some(JobState::Gone);
    const RUNNING: Option<JobState> = Some(JobState::Running);

    #[tokio::test(start_paused = true)]
    async fn a_job_that_is_not_listed_yet_is_not_taken_for_gone() {
        let ended = Some(JobState::Ended(End::by_itself(Exit::Code(0))));
        let system = Scripted::new([GONE, RUNNING, GONE, RUNNING, ended], 1);
        assert_eq!(end_of(&system).await.unwrap().exit, Some(Exit::Code(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_gone_job_is_looked_for_in_books_that_are_late() {
        let system = Scripted::new([RUNNING, GONE], 4);
        assert_eq!(end_of(&system).await.unwrap().exit, Some(Exit::Code(5)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_no_book_knows_has_ended_somehow() {
        let system = Scripted::new([GONE], u32::MAX);
        assert_eq!(end_of(&system).await.unwrap(), End::unknown());
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_waited_out_and_one_without_end_is_told() {
        let mut looks = vec![None; 10];
        looks.extend([RUNNING, GONE]);
        assert_eq!(end_of(&Scripted::new(looks, 1)).await.unwrap().exit, Some(Exit::Code(5)));
        let error = end_of(&Scripted::new([None], 1)).await.unwrap_err();
        assert!(matches!(error, SystemError::Away { .. }), "{error}");
    }
}
