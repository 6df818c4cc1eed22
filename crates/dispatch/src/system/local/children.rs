//! Jobs that this process started. It must wait for them: no other process can, and an ended
//! process keeps its id until it is waited for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_process::Exit;
use tokio::process::Child;

use super::leader::Leader;
use crate::system::job_state::{JobEnd, JobEndCause, JobId, JobState};

/// Number of ends to remember.
const MAX_REMEMBERED: usize = 10_000;
/// Exit code of `timeout` after it has ended a job.
const TIMED_OUT: i32 = 124;

/// Jobs of this process: running and ended.
#[derive(Debug, Default)]
pub(super) struct ChildTable(Mutex<ChildJobs>);

/// A job that has not been waited for.
#[derive(Debug)]
pub(super) struct ChildJob {
    pub(super) leader: Leader,
    pub(super) child: Child,
    /// Time limit.
    pub(super) time: Option<Duration>,
}

#[derive(Debug, Default)]
struct ChildJobs {
    live: BTreeMap<JobId, ChildJob>,
    /// Jobs that were cancelled.
    cancelled: BTreeSet<JobId>,
    ended: BTreeMap<JobId, JobEnd>,
    /// Ended jobs, oldest first.
    order: VecDeque<JobId>,
}

impl ChildTable {
    fn jobs(&self) -> MutexGuard<'_, ChildJobs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, id: JobId, job: ChildJob) {
        self.jobs().live.insert(id, job);
    }

    /// The state of a job that this process started.
    pub(super) fn state(&self, id: &JobId) -> Option<JobState> {
        let mut jobs = self.jobs();
        jobs.reap(id);
        if jobs.live.contains_key(id) {
            return Some(JobState::Running);
        }
        jobs.ended.get(id).copied().map(JobState::Ended)
    }

    /// Records that the job was cancelled.
    pub(super) fn cancel(&self, id: &JobId) {
        let mut jobs = self.jobs();
        if jobs.live.contains_key(id) {
            jobs.cancelled.insert(id.clone());
        }
    }
}

impl ChildJobs {
    /// Waits for a job that has ended. Kills its group first, because its id may be reused once it
    /// has been waited for.
    fn reap(&mut self, id: &JobId) {
        let Some(ChildJob { leader, child, time }) = self.live.get_mut(id) else { return };
        if leader.has_exited() {
            leader.kill();
        }
        let Ok(Some(status)) = child.try_wait() else { return };
        let (exit, has_limit) = (Exit::from(status), time.is_some());
        let cause = match exit {
            _ if self.cancelled.remove(id) => JobEndCause::Cancelled,
            Exit::Code(TIMED_OUT) if has_limit => JobEndCause::TimeLimit,
            _ => JobEndCause::Exited,
        };
        self.live.remove(id);
        self.ended.insert(id.clone(), JobEnd { exit: Some(exit), cause });
        self.order.push_back(id.clone());
        if self.order.len() > MAX_REMEMBERED {
            self.order.pop_front().map(|oldest| self.ended.remove(&oldest));
        }
    }
}
