//! Jobs whose parent is this very process. It has to wait for them: nobody else can, and an ended
//! process that nobody waits for keeps its number.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::unix::process::ExitStatusExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::process::Child;

use super::leader::Leader;
use crate::system::job_state::{Cause, End, Exit, JobId, JobState};

/// How many ends are remembered: schedulers forget, too.
const MAX_REMEMBERED: usize = 10_000;
/// What `timeout` exits with after it has ended a job.
const TIMED_OUT: i32 = 124;

/// The children of this process, and how those ended that have.
#[derive(Debug, Default)]
pub(super) struct ChildTable(Mutex<ChildJobs>);

/// A job that has not been waited for.
#[derive(Debug)]
pub(super) struct ChildJob {
    pub(super) leader: Leader,
    pub(super) child: Child,
    /// How long it may run.
    pub(super) time: Option<Duration>,
}

#[derive(Debug, Default)]
struct ChildJobs {
    live: BTreeMap<JobId, ChildJob>,
    /// Those whose end was asked for.
    cancelled: BTreeSet<JobId>,
    ended: BTreeMap<JobId, End>,
    /// The ended, the oldest first.
    order: VecDeque<JobId>,
}

impl ChildTable {
    fn jobs(&self) -> MutexGuard<'_, ChildJobs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, id: JobId, job: ChildJob) {
        self.jobs().live.insert(id, job);
    }

    /// The state of a job that is or was ours.
    pub(super) fn state(&self, id: &JobId) -> Option<JobState> {
        let mut jobs = self.jobs();
        jobs.reap(id);
        if jobs.live.contains_key(id) {
            return Some(JobState::Running);
        }
        jobs.ended.get(id).copied().map(JobState::Ended)
    }

    /// Remembers that somebody wanted it to end.
    pub(super) fn cancel(&self, id: &JobId) {
        let mut jobs = self.jobs();
        if jobs.live.contains_key(id) {
            jobs.cancelled.insert(id.clone());
        }
    }
}

impl ChildJobs {
    /// Waits for a job that has ended, after whatever it left behind was killed: once it has been
    /// waited for, its number may be another's.
    fn reap(&mut self, id: &JobId) {
        let Some(ChildJob { leader, child, time }) = self.live.get_mut(id) else { return };
        if leader.has_exited() {
            leader.kill();
        }
        let Ok(Some(status)) = child.try_wait() else { return };
        let (exit, has_limit) = (Exit::from_wait_status(status.into_raw()), time.is_some());
        let cause = match exit {
            _ if self.cancelled.remove(id) => Cause::Cancelled,
            Exit::Code(TIMED_OUT) if has_limit => Cause::TimeLimit,
            _ => Cause::Itself,
        };
        self.live.remove(id);
        self.ended.insert(id.clone(), End { exit: Some(exit), cause });
        self.order.push_back(id.clone());
        if self.order.len() > MAX_REMEMBERED {
            self.order.pop_front().map(|oldest| self.ended.remove(&oldest));
        }
    }
}
