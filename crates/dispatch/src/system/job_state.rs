//! The state of a job as its base system reports it.

use std::collections::BTreeMap;
use std::fmt;

use longshore_process::Exit;

/// A job's id, in the base system's format.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct JobId(String);

impl JobId {
    /// An id from the base system.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// An id that consists of digits.
    pub(super) fn from_digits(id: &str) -> Option<Self> {
        let is_number = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| Self::new(id))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// State of a job. An array waits or runs as long as one of its tasks does. Then its state is the
/// worst of its tasks'.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// It waits to be started.
    Waiting {
        /// The system's reason, if it gives one.
        why: Option<String>,
    },
    /// It will not start without intervention.
    Stuck {
        /// The system's reason.
        why: String,
    },
    /// It runs.
    Running,
    /// It has ended.
    Ended(JobEnd),
    /// The system does not list it, or no longer.
    Gone,
}

impl JobState {
    /// Whether it waits or runs.
    pub fn is_live(&self) -> bool {
        match self {
            Self::Waiting { .. } | Self::Stuck { .. } | Self::Running => true,
            Self::Ended(_) | Self::Gone => false,
        }
    }

    /// The state of an array with a task in this state and another in `other`.
    pub(super) fn merge(self, other: Self) -> Self {
        if self.precedence() >= other.precedence() { self } else { other }
    }

    /// The state with the highest precedence is the array's.
    fn precedence(&self) -> u8 {
        match self {
            Self::Gone => 0,
            Self::Ended(end) if end.is_success() => 1,
            Self::Ended(_) => 2,
            Self::Stuck { .. } => 3,
            Self::Waiting { .. } => 4,
            Self::Running => 5,
        }
    }
}

/// The state of each id: merged over the tasks of an array, or `Gone` if it was not found.
pub(super) fn merge_states(
    ids: &[JobId],
    found: impl IntoIterator<Item = (JobId, JobState)>,
) -> BTreeMap<JobId, JobState> {
    let mut states: BTreeMap<JobId, JobState> = ids.iter().map(|id| (id.clone(), JobState::Gone)).collect();
    for (id, state) in found {
        if let Some(merged) = states.get_mut(&id) {
            *merged = std::mem::replace(merged, JobState::Gone).merge(state);
        }
    }
    states
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobEnd {
    /// Exit of its program, if the system reports it.
    pub exit: Option<Exit>,
    /// The cause of the end.
    pub cause: JobEndCause,
}

impl JobEnd {
    /// The end of a program that exited by itself.
    pub fn exited(exit: Exit) -> Self {
        Self { exit: Some(exit), cause: JobEndCause::Exited }
    }

    /// An end without information.
    pub fn unknown() -> Self {
        Self { exit: None, cause: JobEndCause::Unknown }
    }

    /// Whether the program exited by itself with code 0.
    pub fn is_success(&self) -> bool {
        self.exit == Some(Exit::Code(0)) && self.cause == JobEndCause::Exited
    }
}

/// The cause of a job's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEndCause {
    /// The program exited by itself.
    Exited,
    /// A user cancelled it.
    Cancelled,
    /// It exceeded its time limit.
    TimeLimit,
    /// It exceeded its memory limit.
    Memory,
    /// Its node was lost.
    NodeLost,
    /// A job with higher priority preempted it.
    Preempted,
    /// The system reports no cause.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_live_as_long_as_one_of_its_tasks() {
        let ended = |exit| JobState::Ended(JobEnd::exited(exit));
        let waiting = JobState::Waiting { why: None };
        let all = [ended(Exit::Code(0)), JobState::Running, waiting.clone()];
        assert_eq!(all.into_iter().reduce(JobState::merge), Some(JobState::Running));
        let some = [ended(Exit::Code(3)), waiting.clone(), ended(Exit::Code(0))];
        assert_eq!(some.into_iter().reduce(JobState::merge), Some(waiting));
        let none = [ended(Exit::Code(0)), ended(Exit::Signal(9)), ended(Exit::Code(0))];
        assert_eq!(none.into_iter().reduce(JobState::merge), Some(ended(Exit::Signal(9))));
    }
}
