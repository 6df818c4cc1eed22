//! Why jobs of lost workers ended.
//!
//! Base systems list ended jobs only for a while, and some write their accounting late. So the
//! reasons are remembered here.

use std::collections::BTreeMap;

use crate::system::{JobEndCause, JobId, JobState, System};

/// Maximum number of remembered jobs.
const MAX_REMEMBERED: usize = 1000;

/// Exit reasons by launch number.
#[derive(Debug, Default)]
pub(super) struct ExitReasons(BTreeMap<u64, ExitReason>);

#[derive(Debug)]
enum ExitReason {
    Known(JobEndCause),
    /// The base system does not list the job any more; its accounting may know the reason.
    Unlisted(JobId),
}

impl ExitReasons {
    /// Records that a job has ended.
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

    /// The known reasons of these launches; asks the base system's accounting if needed. Launches
    /// that were never seen to end are left out.
    pub(super) async fn lookup(&mut self, launches: &[u64], system: &dyn System) -> Vec<(u64, JobEndCause)> {
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
                Err(error) => {
                    tracing::debug!(%error, "reading the base system's accounting failed");
                }
            }
        }
        let reasons = launches.iter().filter_map(|launch| match self.0.get(launch)? {
            ExitReason::Known(cause) => Some((*launch, *cause)),
            ExitReason::Unlisted(_) => None,
        });
        reasons.collect()
    }
}
