//! Kills processes that outlive the task that started them, while this program runs.
//!
//! Processes in a task's group are killed with it. A process that left the group (`setsid`) becomes
//! a child of this process once its parent has ended, because this process is a subreaper. Its
//! environment names its task; it is killed if that task has ended. A process that cleared its
//! environment cannot be attributed to a task, and is left alone.
//!
//! One check serves all tasks that ended within [`REAP_DELAY`].

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::str::FromStr;
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};
use tokio::time::Instant;

use crate::proc_fs::{environ, variables};
use crate::signal::kill_with_own_group;

/// Delay between a task's end and the check, so that one check serves many tasks.
const REAP_DELAY: Duration = Duration::from_millis(50);
/// Interval of checks while there are children that belong to no ended task. They end some day, and
/// only this process can wait for them.
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The child processes of this process, by the id `T` of the task that started them.
#[derive(Debug)]
pub struct Subreaper<T> {
    /// The kernel's list of children.
    children_file: File,
    /// The variable that marks processes of this program, as `NAME=value`.
    mark: String,
    /// The variable that contains the task's id, as `NAME=`.
    task_variable: String,
    /// Children that existed before the first task.
    preexisting: Vec<Pid>,
    /// Running tasks by the process id of their leader.
    running: HashMap<Pid, T>,
    /// Tasks of the other children; `None` if unknown.
    owners: HashMap<Pid, Option<T>>,
    due: Option<Instant>,
}

impl<T: Copy + PartialEq + FromStr> Subreaper<T> {
    /// Makes this process the parent of orphaned descendants. A task's processes have the variable
    /// `mark` in their environment, and the task's id in `task_variable`.
    ///
    /// Call this on the main thread, which must also start the tasks: the kernel lists children per
    /// thread.
    pub fn new((name, value): (&str, &str), task_variable: &str) -> io::Result<Self> {
        let own = getpid();
        let children_file = File::open(format!("/proc/self/task/{}/children", own.as_raw_nonzero()))?;
        set_child_subreaper(Some(own))?;
        Ok(Self {
            preexisting: read_pids(&children_file)?,
            children_file,
            mark: format!("{name}={value}"),
            task_variable: format!("{task_variable}="),
            running: HashMap::new(),
            owners: HashMap::new(),
            due: None,
        })
    }

    /// A task has started.
    pub fn on_start(&mut self, leader: Pid, task: T) {
        self.running.insert(leader, task);
    }

    /// A task has ended, and its leader was waited for.
    pub fn on_end(&mut self, now: Instant, leader: Pid) {
        self.running.remove(&leader);
        self.schedule(now + REAP_DELAY);
    }

    fn schedule(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// When to call [`reap`](Self::reap) next.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Kills children of tasks that have ended, and waits for children that have exited.
    pub fn reap(&mut self, now: Instant) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        self.due = None;
        for pid in read_pids(&self.children_file).unwrap_or_default() {
            if self.running.contains_key(&pid) || self.preexisting.contains(&pid) {
                continue;
            }
            // The process id stays valid until the process is waited for.
            if let Ok(Some(_)) = waitpid(Some(pid), WaitOptions::NOHANG) {
                self.owners.remove(&pid);
                continue;
            }
            let known = self.owners.get(&pid).copied();
            let task = known.unwrap_or_else(|| self.task_of(pid));
            self.owners.insert(pid, task);
            if task.is_some_and(|task| !self.running.values().any(|running| *running == task)) {
                kill_with_own_group(pid);
                // It must be waited for. Then its own children become children of this process.
                self.schedule(now + REAP_DELAY);
            } else {
                self.schedule(now + RECHECK_INTERVAL);
            }
        }
    }

    /// The task that started a process, if the process has the mark.
    fn task_of(&self, pid: Pid) -> Option<T> {
        let environ = environ(pid);
        variables(&environ).find(|variable| *variable == self.mark.as_bytes())?;
        let name = self.task_variable.as_bytes();
        let task = variables(&environ).find_map(|variable| variable.strip_prefix(name))?;
        std::str::from_utf8(task).ok()?.parse().ok()
    }
}

fn read_pids(children_file: &File) -> io::Result<Vec<Pid>> {
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = children_file.read_at(&mut piece, text.len() as u64)?;
        if count == 0 {
            break;
        }
        text.extend_from_slice(&piece[..count]);
    }
    let text = String::from_utf8_lossy(&text);
    Ok(text.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect())
}
