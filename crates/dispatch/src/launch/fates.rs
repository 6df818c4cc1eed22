//! Why jobs ended whose workers had come: for whoever has lost such a worker.
//!
//! Systems forget, and some write it into their books a while later; so what is seen of an end is
//! kept here.

use std::collections::BTreeMap;

use crate::system::{Cause, JobId, JobState, System};

/// How many ends are remembered.
const MOST: usize = 1000;

/// Ends of jobs, by what they were launched as.
#[derive(Debug, Default)]
pub(super) struct Fates(BTreeMap<u64, Fate>);

#[derive(Debug)]
enum Fate {
    Known(Cause),
    /// Nobody lists it any more: its system's books may know.
    Gone(JobId),
}

impl Fates {
    /// Notes that a job is over, as its system says.
    pub(super) fn note(&mut self, launch: u64, job: &JobId, state: Option<&JobState>) {
        let fate = match state {
            Some(JobState::Ended(end)) => Fate::Known(end.cause),
            _ => Fate::Gone(job.clone()),
        };
        self.0.insert(launch, fate);
        while self.0.len() > MOST {
            self.0.pop_first();
        }
    }

    /// What is known of these launches, the books included. Those that are not here were never seen
    /// to end: they are left out.
    pub(super) async fn of(&mut self, launches: &[u64], system: &dyn System) -> Vec<(u64, Cause)> {
        let gone = launches.iter().filter_map(|launch| match self.0.get(launch) {
            Some(Fate::Gone(job)) => Some((*launch, job.clone())),
            _ => None,
        });
        let gone: Vec<(u64, JobId)> = gone.collect();
        if !gone.is_empty() {
            let ids: Vec<JobId> = gone.iter().map(|(_, job)| job.clone()).collect();
            match system.ends(&ids).await {
                Ok(ends) => {
                    for (launch, job) in gone {
                        if let Some(end) = ends.get(&job) {
                            self.0.insert(launch, Fate::Known(end.cause));
                        }
                    }
                }
                Err(error) => tracing::debug!(%error, "the system's books cannot be read"),
            }
        }
        let known = launches.iter().filter_map(|launch| match self.0.get(launch)? {
            Fate::Known(cause) => Some((*launch, *cause)),
            Fate::Gone(_) => None,
        });
        known.collect()
    }
}
