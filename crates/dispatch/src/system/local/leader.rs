//! Leader of a job: a process, identified by its id and start time.

use std::fmt;

use longshore_process::{ProcessStat, Signal, signal_group};

use crate::system::job_state::{JobEnd, JobState};

/// The first process of a job and leader of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leader {
    pid: u32,
    /// In clock ticks since boot.
    started: u64,
}

impl Leader {
    /// The process with this id, if it exists.
    pub(super) fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, started: ProcessStat::of(pid)?.start_time })
    }

    /// Parses the format of `Display`: `4711@123456`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (pid, started) = text.split_once('@')?;
        Some(Self { pid: pid.parse().ok()?, started: started.parse().ok()? })
    }

    /// Its state by `/proc`.
    pub(super) fn state(&self) -> JobState {
        match self.stat() {
            None => JobState::Gone,
            Some(stat) if stat.has_ended() => JobState::Ended(JobEnd::exited(stat.exit)),
            Some(_) => JobState::Running,
        }
    }

    /// Whether it has ended and was not waited for.
    pub(super) fn has_exited(&self) -> bool {
        self.stat().is_some_and(|stat| stat.has_ended())
    }

    fn stat(&self) -> Option<ProcessStat> {
        ProcessStat::of(self.pid).filter(|stat| stat.start_time == self.started)
    }

    /// Sends TERM to its group.
    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends KILL to its group.
    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// While the leader exists, its id is the id of its group.
    fn signal(&self, signal: Signal) {
        if self.stat().is_some() {
            signal_group(self.pid, signal);
        }
    }
}

impl fmt::Display for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.pid, self.started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_given_to_another_process_is_not_taken_for_the_job() {
        let me = Leader::of(std::process::id()).unwrap();
        assert_eq!(me.state(), JobState::Running);
        assert_eq!(Leader { started: me.started + 1, ..me }.state(), JobState::Gone);
        assert_eq!(Leader::parse(&me.to_string()), Some(me));
    }
}
