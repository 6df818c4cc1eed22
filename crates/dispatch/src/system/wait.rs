//! Waiting for jobs: many in one query, less and less often.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::System;
use super::error::SystemError;
use super::state::{End, JobId, JobState};

/// How often a job must be gone before we believe it: lists lag behind what was submitted.
const TWICE: u32 = 2;
/// How often we look for a gone job's end: books lag behind lists.
const LOOKS: u32 = 6;

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
    /// How often in a row a job was gone.
    gone: BTreeMap<JobId, u32>,
}

impl Watch {
    async fn look(&mut self, system: &dyn System) -> Result<(), SystemError> {
        let ids: Vec<JobId> = self.left.iter().cloned().collect();
        for (id, state) in system.status(&ids).await? {
            match state {
                JobState::Ended(end) => self.end(id, end),
                JobState::Gone => *self.gone.entry(id).or_default() += 1,
                _ => _ = self.gone.remove(&id),
            }
        }
        let gone = self.gone.iter().filter(|(_, times)| **times >= TWICE);
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
            let given_up = self.gone.get(id).is_none_or(|times| *times >= TWICE + LOOKS);
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
