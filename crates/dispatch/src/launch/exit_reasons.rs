//! Why jobs ended whose workers had come: for whoever has lost such a worker.
//!
//! Systems forget, and some write it into their books a while later; so what is seen of an end is
//! kept here.

use std::collections::BTreeMap;

use crate::system::{Cause, JobId, JobState, System};

/// How many ends are remembered.
const MAX_REMEMBERED: usize = 1000;

/// Ends of jobs, by what they were launched as.
#[derive(Debug, Default)]
pub(super) struct ExitReasons(BTreeMap<u64, ExitReason>);

#[derive(Debug)]
enum ExitReason {
    Known(Cause),
    /// Nobody lists it any more: its system's books may know.
    Unlisted(JobId),
}

impl ExitReasons {
    /// Notes that a job is over, as its system says.
    pub(super) fn record(&mut self, launch: u64, job: &JobId, state: Option<&JobState>) {
        let reason = match state {
            Some(JobState::Ended(end)) => ExitReason::Known(end.cause),
            _ => ExitReason::Unlisted(job.clone()),
        };
        self.0.insert(launch, reason);
        while self.0.len() > MAX_REMEMBERED {
            self.0.pop_first();
        }
    }

    /// What is known of these launches, the books included. Those that are not here were never seen
    /// to end: they are left out.
    pub(super) async fn lookup(
        &mut self,
        launches: &[u64],
        system: &dyn System,
    ) -> Vec<(u64, Cause)> {
        let unlisted = launches.iter().filter_map(|launch| match self.0.get(launch) {
            Some(ExitReason::Unlisted(job)) => Some((*launch, job.clone())),
            _ => None,
        });
        let unlisted: Vec<(u64, JobId)> = unlisted.collect();
        if !unlisted.is_empty() {
            let ids: Vec<JobId> = unlisted.iter().map(|(_, job)| job.clone()).collect();
            match system.ends(&ids).await {
                Ok(ends) => {
                    for (launch, job) in unlisted {
                        if let Some(end) = ends.get(&job) {
                            self.0.insert(launch, ExitReason::Known(end.cause));
                        }
                    }
                }
                Err(error) => tracing::debug!(%error, "the system's books cannot be read"),
            }
        }
        let known = launches.iter().filter_map(|launch| match self.0.get(launch)? {
            ExitReason::Known(cause) => Some((*launch, *cause)),
            ExitReason::Unlisted(_) => None,
        });
        known.collect()
    }
}
