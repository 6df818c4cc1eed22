//! Kills processes that outlive their script. Processes in the script's group are killed with it. A
//! process that left the group (`setsid`) becomes a child of the worker once its parent has ended,
//! because the worker is a subreaper. Its environment names its script's unit; it is killed if that
//! script has ended.
//!
//! One check serves all scripts that ended within [`REAP_DELAY`]. A process that cleared its
//! environment cannot be attributed to a script, and is left alone.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use longshore::UnitId;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, set_child_subreaper,
    waitpid,
};
use tokio::time::Instant;

/// Delay between a script's end and the check, so that one check serves many scripts.
const REAP_DELAY: Duration = Duration::from_millis(50);
/// Interval of checks while there are children that belong to no ended script. They end some day,
/// and only this process can wait for them.
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Child processes of the worker.
#[derive(Debug)]
pub(super) struct OrphanReaper {
    /// The kernel's list of children.
    children_file: File,
    /// Environment variable that marks processes of this worker's scripts.
    env_mark: Vec<u8>,
    /// Children that existed before the first script.
    preexisting: Vec<i32>,
    /// Running scripts by process id.
    scripts: HashMap<i32, UnitId>,
    /// Units of the other children; `None` if unknown.
    owners: HashMap<i32, Option<UnitId>>,
    due: Option<Instant>,
}

impl OrphanReaper {
    /// Makes this process the parent of orphaned descendants. Call this on the main thread, which
    /// must also start the scripts: the kernel lists children per thread.
    pub(super) fn become_subreaper(env_mark: &str) -> io::Result<Self> {
        let own = getpid();
        let children_file =
            File::open(format!("/proc/self/task/{}/children", own.as_raw_nonzero()))?;
        set_child_subreaper(Some(own))?;
        let (env_mark, preexisting) = (env_mark.as_bytes().to_vec(), read_pids(&children_file)?);
        let (scripts, owners) = (HashMap::new(), HashMap::new());
        Ok(Self { children_file, env_mark, preexisting, scripts, owners, due: None })
    }

    /// A script has started.
    pub(super) fn on_start(&mut self, pid: i32, unit: UnitId) {
        self.scripts.insert(pid, unit);
    }

    /// A script has ended and was waited for.
    pub(super) fn on_end(&mut self, now: Instant, pid: i32) {
        self.scripts.remove(&pid);
        self.schedule(now + REAP_DELAY);
    }

    fn schedule(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// When to call [`reap`](Self::reap) next.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Kills children of scripts that have ended, and waits for children that have exited.
    pub(super) fn reap(&mut self, now: Instant) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        self.due = None;
        let all = read_pids(&self.children_file).unwrap_or_default();
        for pid_number in all {
            if self.scripts.contains_key(&pid_number) || self.preexisting.contains(&pid_number) {
                continue;
            }
            let Some(pid) = Pid::from_raw(pid_number) else { continue };
            // The process id stays valid until the process is waited for.
            if let Ok(Some(_)) = waitpid(Some(pid), WaitOptions::NOHANG) {
                self.owners.remove(&pid_number);
                continue;
            }
            let env_mark = &self.env_mark;
            let unit =
                *self.owners.entry(pid_number).or_insert_with(|| unit_of(pid_number, env_mark));
            let is_running = |unit: UnitId| self.scripts.values().any(|running| *running == unit);
            if unit.is_some_and(|unit| !is_running(unit)) {
                // With its group, if it leads one: processes in there may have cleared the mark.
                let _ = kill_process_group(pid, Signal::KILL);
                let _ = kill_process(pid, Signal::KILL);
                // It must be waited for. Then its own children become children of this process.
                self.schedule(now + REAP_DELAY);
            } else {
                self.schedule(now + RECHECK_INTERVAL);
            }
        }
    }
}

fn read_pids(children_file: &File) -> io::Result<Vec<i32>> {
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
    Ok(text.split_whitespace().filter_map(|pid_number| pid_number.parse().ok()).collect())
}

/// The unit of the script that started a process, if the process has the mark.
fn unit_of(pid_number: i32, env_mark: &[u8]) -> Option<UnitId> {
    let environ = fs::read(format!("/proc/{pid_number}/environ")).ok()?;
    let mut variables = environ.split(|byte| *byte == 0);
    if !variables.clone().any(|variable| variable == env_mark) {
        return None;
    }
    let unit = variables.find_map(|variable| variable.strip_prefix(b"LONGSHORE_UNIT_ID="))?;
    std::str::from_utf8(unit).ok()?.parse().ok()
}
