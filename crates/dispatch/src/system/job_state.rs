//! What a system says about a job.

use std::collections::BTreeMap;
use std::fmt;

/// A job's name in its system, as the system wrote it.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct JobId(String);

impl JobId {
    /// An id that a system gave.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// An id that is a number; `None` if it is none.
    pub(super) fn from_digits(id: &str) -> Option<Self> {
        let is_number = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| Self::new(id))
    }

    /// The id as it is typed.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a job is in its life. For an array, that of its tasks together: it waits or runs as long as
/// one of them does, and then ends as the worst of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// It waits for its turn.
    Waiting {
        /// What it waits for, in the system's words, if it says so.
        why: Option<String>,
    },
    /// It will not run unless somebody does something about it.
    Stuck {
        /// The system's words.
        why: String,
    },
    /// It runs.
    Running,
    /// It has ended.
    Ended(End),
    /// The system does not know it, or not any more.
    Gone,
}

impl JobState {
    /// Whether it may still run, or does.
    pub fn is_live(&self) -> bool {
        match self {
            Self::Waiting { .. } | Self::Stuck { .. } | Self::Running => true,
            Self::Ended(_) | Self::Gone => false,
        }
    }

    /// The state of an array one of whose tasks is in this state and another in `other`.
    pub(super) fn merge(self, other: Self) -> Self {
        if self.precedence() >= other.precedence() { self } else { other }
    }

    /// What outweighs what in an array.
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

/// The state of each of `ids`: what was seen of it, tasks of an array together, or that it is gone.
pub(super) fn merge_states(
    ids: &[JobId],
    seen: impl IntoIterator<Item = (JobId, JobState)>,
) -> BTreeMap<JobId, JobState> {
    let mut states: BTreeMap<JobId, JobState> =
        ids.iter().map(|id| (id.clone(), JobState::Gone)).collect();
    for (id, state) in seen {
        if let Some(known) = states.get_mut(&id) {
            *known = std::mem::replace(known, JobState::Gone).merge(state);
        }
    }
    states
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Its program's exit, if the system tells it.
    pub exit: Option<Exit>,
    /// Who ended it.
    pub cause: Cause,
}

impl End {
    /// The end of a program that ended by itself.
    pub fn exited(exit: Exit) -> Self {
        Self { exit: Some(exit), cause: Cause::Itself }
    }

    /// An end of which nothing is known.
    pub fn unknown() -> Self {
        Self { exit: None, cause: Cause::Unknown }
    }

    /// Whether the program did what it was there for.
    pub fn is_success(&self) -> bool {
        self.exit == Some(Exit::Code(0)) && self.cause == Cause::Itself
    }
}

/// What a program left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// An exit code.
    Code(i32),
    /// The signal that it died of.
    Signal(i32),
}

impl Exit {
    /// The exit that the kernel's wait status tells.
    pub(super) fn from_wait_status(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Code((status >> 8) & 0xff),
            signal => Self::Signal(signal),
        }
    }

    /// The exit that a shell's `$?` tells: 128 and more is a signal.
    pub(super) fn from_shell(code: i32) -> Self {
        if (129..=192).contains(&code) { Self::Signal(code - 128) } else { Self::Code(code) }
    }

    /// The one number that a shell has for it.
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// Who or what ended a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Its own program.
    Itself,
    /// Somebody who asked for it.
    Cancelled,
    /// Its time limit.
    TimeLimit,
    /// Its memory limit.
    Memory,
    /// Its node was lost.
    NodeLost,
    /// A job that was more important.
    Preempted,
    /// The system does not say.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_live_as_long_as_one_of_its_tasks() {
        let ended = |exit| JobState::Ended(End::exited(exit));
        let waiting = JobState::Waiting { why: None };
        let all = [ended(Exit::Code(0)), JobState::Running, waiting.clone()];
        assert_eq!(all.into_iter().reduce(JobState::merge), Some(JobState::Running));
        let some = [ended(Exit::Code(3)), waiting.clone(), ended(Exit::Code(0))];
        assert_eq!(some.into_iter().reduce(JobState::merge), Some(waiting));
        let none = [ended(Exit::Code(0)), ended(Exit::Signal(9)), ended(Exit::Code(0))];
        assert_eq!(none.into_iter().reduce(JobState::merge), Some(ended(Exit::Signal(9))));
    }

    #[test]
    fn wait_statuses_and_shells_tell_the_same_exits() {
        assert_eq!(Exit::from_wait_status(42 << 8), Exit::Code(42));
        assert_eq!(Exit::from_wait_status(9), Exit::Signal(9));
        assert_eq!(Exit::from_wait_status(139), Exit::Signal(11), "with a core dump");
        assert_eq!(Exit::from_shell(139), Exit::Signal(11));
        assert_eq!(Exit::from_shell(127), Exit::Code(127));
        assert_eq!(Exit::from_shell(255), Exit::Code(255));
    }
}
