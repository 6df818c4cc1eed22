//! Lost workers, until the exit reason of their job is known.
//!
//! If the job was cancelled, preempted or out of time, its scripts are not to blame: they run
//! again, and the run does not count as lost. The base system may report the reason late or never;
//! without one, the loss counts.

use std::time::Duration;

use longshore::Outcome;

use crate::scheduler::Task;
use crate::system::JobEndCause;

/// The scripts that were lost with one worker. Their units are still leased.
#[derive(Debug)]
pub(super) struct UnresolvedLoss<C> {
    /// The worker's identity.
    pub(super) uid: String,
    /// The worker's launch number.
    pub(super) launch: u64,
    /// The scripts that it had started, or may have.
    pub(super) tasks: Vec<Task<C>>,
    /// Description of the loss.
    pub(super) description: String,
    /// When the loss counts if no reason is known, in server uptime.
    pub(super) deadline: Duration,
}

impl<C> UnresolvedLoss<C> {
    /// The outcome of each script.
    fn resolve(self, cause: JobEndCause) -> impl Iterator<Item = (Task<C>, Outcome)> {
        let outcome = match is_external(cause) {
            true => Outcome::Interrupted,
            false => Outcome::Lost(format!("{}{}", self.description, detail(cause))),
        };
        self.tasks.into_iter().map(move |task| (task, outcome.clone()))
    }
}

/// All unresolved losses of a server.
#[derive(Debug)]
pub(super) struct UnresolvedLosses<C>(Vec<UnresolvedLoss<C>>);

impl<C> Default for UnresolvedLosses<C> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<C> UnresolvedLosses<C> {
    pub(super) fn push(&mut self, loss: UnresolvedLoss<C>) {
        self.0.push(loss);
    }

    /// The worker is back: returns the scripts that were lost with it.
    pub(super) fn take(&mut self, uid: &str) -> Vec<Task<C>> {
        self.0.extract_if(.., |loss| loss.uid == uid).flat_map(|loss| loss.tasks).collect()
    }

    /// Launch numbers to ask the base system about.
    pub(super) fn launches(&self) -> Vec<u64> {
        self.0.iter().map(|loss| loss.launch).collect()
    }

    /// Resolves the loss of this launch.
    pub(super) fn on_exit_reason(&mut self, launch: u64, cause: JobEndCause) -> Vec<(Task<C>, Outcome)> {
        self.resolve_where(|loss| loss.launch == launch, cause)
    }

    /// Resolves losses at their deadline, with an unknown cause.
    pub(super) fn expire(&mut self, now: Duration) -> Vec<(Task<C>, Outcome)> {
        self.resolve_where(|loss| now >= loss.deadline, JobEndCause::Unknown)
    }

    /// Resolves all losses.
    pub(super) fn resolve_all(&mut self) -> Vec<(Task<C>, Outcome)> {
        self.resolve_where(|_| true, JobEndCause::Unknown)
    }

    fn resolve_where(
        &mut self,
        is_due: impl Fn(&UnresolvedLoss<C>) -> bool,
        cause: JobEndCause,
    ) -> Vec<(Task<C>, Outcome)> {
        let (due, left) = std::mem::take(&mut self.0).into_iter().partition(is_due);
        self.0 = left;
        let due: Vec<UnresolvedLoss<C>> = due;
        due.into_iter().flat_map(|loss| loss.resolve(cause)).collect()
    }
}

/// Whether the cause has nothing to do with the scripts.
fn is_external(cause: JobEndCause) -> bool {
    match cause {
        JobEndCause::Cancelled | JobEndCause::TimeLimit | JobEndCause::Preempted => true,
        JobEndCause::Exited | JobEndCause::Memory | JobEndCause::NodeLost | JobEndCause::Unknown => false,
    }
}

fn detail(cause: JobEndCause) -> &'static str {
    match cause {
        JobEndCause::Memory => ": its job ran out of memory",
        JobEndCause::NodeLost => ": its node was lost",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use longshore::UnitId;
    use longshore::worker_session::Lease;

    use super::*;
    use crate::scheduler::{ResourceRequest, TaskScheduler, WorkerEntry};

    fn loss(launch: u64) -> UnresolvedLoss<()> {
        let (mut scheduler, now) = (TaskScheduler::default(), Duration::ZERO);
        let uid = format!("w{launch}");
        let worker = scheduler.on_register(now, WorkerEntry::new(&uid, 1, BTreeMap::new()), &[]).0;
        scheduler.add(now, Lease { unit: UnitId::new(), fence: 1 }, 1, ResourceRequest::threads(1), ());
        assert_eq!(scheduler.schedule(now).len(), 1);
        let tasks = scheduler.on_worker_lost(now, worker).lost;
        let deadline = Duration::from_secs(launch);
        UnresolvedLoss { uid, launch, tasks, description: "lost".into(), deadline }
    }

    #[test]
    fn only_what_scripts_may_have_a_part_in_counts() {
        let all = [
            (JobEndCause::Cancelled, Outcome::Interrupted),
            (JobEndCause::Preempted, Outcome::Interrupted),
            (JobEndCause::TimeLimit, Outcome::Interrupted),
            (JobEndCause::Exited, Outcome::Lost("lost".into())),
            (JobEndCause::Unknown, Outcome::Lost("lost".into())),
            (JobEndCause::Memory, Outcome::Lost("lost: its job ran out of memory".into())),
            (JobEndCause::NodeLost, Outcome::Lost("lost: its node was lost".into())),
        ];
        for (cause, wanted) in all {
            let mut losses = UnresolvedLosses(vec![loss(1), loss(2)]);
            let resolved = losses.on_exit_reason(2, cause);
            assert!(matches!(&resolved[..], [(_, outcome)] if *outcome == wanted), "{resolved:?}");
            assert_eq!(losses.launches(), [1]);
        }
    }

    #[test]
    fn what_nobody_can_tell_counts_after_a_while() {
        let mut losses = UnresolvedLosses(vec![loss(1), loss(2)]);
        let resolved = losses.expire(Duration::from_secs(1));
        assert!(matches!(&resolved[..], [(_, Outcome::Lost(_))]), "{resolved:?}");
        assert_eq!(losses.resolve_all().len(), 1);
        assert_eq!(losses.launches(), [0; 0]);
    }

    #[test]
    fn a_worker_that_is_back_gets_its_own_scripts_only() {
        let mut losses = UnresolvedLosses(vec![loss(1), loss(2)]);
        let expected = losses.0[0].tasks[0].lease;
        let back = losses.take("w1");
        assert_eq!(back.iter().map(|task| task.lease).collect::<Vec<_>>(), [expected]);
        assert!(losses.take("w1").is_empty());
        assert_eq!(losses.launches(), [2]);
    }
}
