//! Leader of a job: a process, identified by its id and start time.

use std::fmt;
use std::fs;

use longshore_process::{Exit, Signal, signal_group};

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
        Some(Self { pid, started: Stat::of(pid)?.started })
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
            Some(stat) if stat.has_exited => JobState::Ended(JobEnd::exited(stat.exit)),
            Some(_) => JobState::Running,
        }
    }

    /// Whether it has ended and was not waited for.
    pub(super) fn has_exited(&self) -> bool {
        self.stat().is_some_and(|stat| stat.has_exited)
    }

    fn stat(&self) -> Option<Stat> {
        Stat::of(self.pid).filter(|stat| stat.started == self.started)
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

/// Fields of `/proc/PID/stat`.
struct Stat {
    started: u64,
    has_exited: bool,
    /// Exit of an ended process.
    exit: Exit,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The second field is a name in parentheses, which may contain parentheses itself.
    fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // Fields are counted from 1, and the field after the name is the third.
        let field = |number: usize| fields.get(number - 3).copied();
        let exit = field(52).and_then(|status| status.parse().ok()).unwrap_or(0);
        Some(Self {
            started: field(22)?.parse().ok()?,
            has_exited: matches!(field(3)?, "Z" | "X" | "x"),
            exit: Exit::from_wait_status(exit),
        })
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

    #[test]
    fn a_process_may_have_any_name() {
        let fields = "1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 \
                      0 0 0 0 0 0 0 0 0 0 0 0 10752";
        let stat = Stat::parse(&format!("42 (a) Z (b) Z {fields}")).unwrap();
        assert_eq!((stat.started, stat.has_exited, stat.exit), (777, true, Exit::Code(42)));
    }
}
