//! Commands must not outlive a worker that was killed: their units run again elsewhere, and two
//! runs of one unit at once is what leases are there to prevent.
//!
//! A killed worker can do nothing, so it has a warden: a child process that reads from a pipe
//! which process groups are alive, and kills them when the pipe ends without them having ended.
//! It is started with the first command. What remains open: a command started in the very moment
//! of the kill, and processes that left their group (`setsid`).

use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

/// The worker's end of the pipe.
#[derive(Debug, Default)]
pub struct Warden(Mutex<Option<Process>>);

#[derive(Debug)]
struct Process {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Warden {
    /// Has the group killed if this process dies before the returned guard is dropped.
    pub fn watch(&self, group: i32) -> Watched<'_> {
        self.tell('+', group);
        Watched { warden: self, group }
    }

    fn tell(&self, sign: char, group: i32) {
        let mut process = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if process.is_none() {
            *process = Process::start();
        }
        let pipe = process.as_mut().and_then(|process| process.pipe.as_mut());
        if let Some(Err(error)) = pipe.map(|pipe| writeln!(pipe, "{sign}{group}")) {
            tracing::warn!(%error, "the warden is gone; commands would outlive a killed worker");
        }
    }
}

impl Process {
    fn start() -> Option<Self> {
        use std::os::unix::process::CommandExt;
        let program = std::env::current_exe().ok()?;
        // Its own group: what is typed at the worker's terminal must not end it first.
        let child = Command::new(program)
            .arg("__warden")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match child {
            Ok(mut child) => Some(Self { pipe: child.stdin.take(), child }),
            Err(error) => {
                tracing::warn!(%error, "no warden; commands would outlive a killed worker");
                None
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.pipe = None;
        let _ = self.child.wait();
    }
}

/// A group that the warden knows.
pub struct Watched<'a> {
    warden: &'a Warden,
    group: i32,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.warden.tell('-', self.group);
    }
}

/// The warden itself: reads to the end of the pipe, then kills what is left.
pub fn watch_over(from: impl BufRead) {
    for group in left(from) {
        if let Some(group) = Pid::from_raw(group) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

fn left(from: impl BufRead) -> BTreeSet<i32> {
    let mut groups = BTreeSet::new();
    for line in from.lines().map_while(Result::ok) {
        // 0 and 1 would be ourselves and everybody.
        let group = line.get(1..).and_then(|number| number.parse().ok()).filter(|n| *n > 1);
        match (line.as_bytes().first(), group) {
            (Some(b'+'), Some(group)) => _ = groups.insert(group),
            (Some(b'-'), Some(group)) => _ = groups.remove(&group),
            _ => {}
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_end_is_left() {
        let groups = left("+10\n+11\n-10\nnonsense\n+1\n+0\n+-5\n+12".as_bytes());
        assert_eq!(groups, BTreeSet::from([11, 12]));
    }
}
