//! Commands must not outlive a worker that was killed: their units run again elsewhere, and two
//! runs of one unit at once is what leases are there to prevent.
//!
//! A killed worker can do nothing, so it has a warden: a child process that reads from a pipe
//! which process groups are alive, and kills them when the pipe ends without them having ended.
//! It is started before the first command. What it was not told of, because the kill came first or
//! because a process left its group (`setsid`), it finds by a mark in the environment that every
//! command of this worker inherits (Linux: `/proc`). Who clears the environment and leaves the
//! group too is beyond it.

use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use std::time::Duration;

use longshore::SessionId;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::env;

/// Between two looks at `/proc`: a process that has been forked but not yet become its command does
/// not carry the mark yet.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The worker's end of the pipe.
#[derive(Debug)]
pub struct Warden {
    mark: String,
    process: Mutex<Option<Process>>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Warden {
    /// A warden that is not started yet.
    pub fn new() -> Self {
        Self { mark: SessionId::new().to_string(), process: Mutex::new(None) }
    }

    /// Starts the warden if it does not run. Returns what a command must have in its environment:
    /// one that is started afterwards cannot outlive this process.
    pub fn mark(&self) -> (&'static str, String) {
        drop(self.started());
        (env::exec::MARK, self.mark.clone())
    }

    fn started(&self) -> MutexGuard<'_, Option<Process>> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if process.is_none() {
            *process = Process::start(&self.mark);
        }
        process
    }

    /// Has the group killed if this process dies before the returned guard is dropped.
    pub fn watch(&self, group: i32) -> Watched<'_> {
        self.tell('+', group);
        Watched { warden: self, group }
    }

    fn tell(&self, sign: char, group: i32) {
        let mut process = self.started();
        let pipe = process.as_mut().and_then(|process| process.pipe.as_mut());
        if let Some(Err(error)) = pipe.map(|pipe| writeln!(pipe, "{sign}{group}")) {
            tracing::warn!(%error, "the warden is gone; commands would outlive a killed worker");
        }
    }
}

impl Process {
    fn start(mark: &str) -> Option<Self> {
        use std::os::unix::process::CommandExt;
        let program = std::env::current_exe().ok()?;
        // Its own group: what is typed at the worker's terminal must not end it first.
        let child = Command::new(program)
            .args(["__warden", mark])
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
pub fn watch_over(from: impl BufRead, mark: &str) {
    for group in left(from) {
        if let Some(group) = Pid::from_raw(group) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
    let mut looks_without = 0;
    while looks_without < 2 {
        looks_without = if kill_marked(mark) { 0 } else { looks_without + 1 };
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Kills every process that carries the mark; whether there was one.
fn kill_marked(mark: &str) -> bool {
    let entry = format!("{}={mark}", env::exec::MARK);
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let mut found = false;
    for process in processes.flatten() {
        let pid = process.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else { continue };
        // Another user's processes cannot be read, and are none of ours.
        let environ = std::fs::read(process.path().join("environ")).unwrap_or_default();
        if environ.split(|byte| *byte == 0).any(|variable| variable == entry.as_bytes()) {
            found |= kill_process(pid, Signal::KILL).is_ok();
        }
    }
    found
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
