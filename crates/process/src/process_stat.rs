//! `/proc/PID/stat` on Linux.

use std::fs::read_to_string;

use crate::exit::Exit;

/// Fields of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy)]
pub struct ProcessStat {
    state: char,
    /// Its parent's id.
    pub parent: u32,
    /// Its session. 0 if that began outside of this process's PID namespace, as for a program that `unshare --pid` or
    /// `nsenter` started in a container.
    pub session: u32,
    threads: u64,
    /// In clock ticks since boot.
    pub start_time: u64,
    /// How it ended, if it has: [`ProcessStat::has_ended`]. Success if it belongs to another user.
    pub exit: Exit,
}

impl ProcessStat {
    /// The fields of this process, if the system reports them.
    pub fn own() -> Option<Self> {
        Self::parse(&read_to_string("/proc/self/stat").ok()?)
    }

    /// The fields of a process, if it exists and the system reports them.
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, which may contain spaces and parentheses.
        let (_, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // The manual counts fields from 1, and the field after the name is the third.
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            state: field(3)?.chars().next()?,
            parent: field(4)?.parse().ok()?,
            session: field(6)?.parse().ok()?,
            threads: field(20)?.parse().ok()?,
            start_time: field(22)?.parse().ok()?,
            exit: Exit::from_wait_status(field(52).and_then(|status| status.parse().ok()).unwrap_or(0)),
        })
    }

    /// Whether all its threads have ended; only its parent has not asked for its exit status.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') && self.threads <= 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_have_any_name() {
        let unused = "0 ".repeat(29);
        let line = format!("42 (a) R (b) Z 1 7 8 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 {unused}10752\n");
        let stat = ProcessStat::parse(&line).unwrap();
        assert_eq!((stat.parent, stat.session, stat.start_time, stat.exit), (1, 8, 777, Exit::Code(42)));
        assert!(stat.has_ended());
    }

    #[test]
    fn a_process_whose_first_thread_ended_has_not() {
        let stat = "7 (a) Z 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 2 0 4711 0 0";
        assert!(!ProcessStat::parse(stat).unwrap().has_ended());
    }
}
