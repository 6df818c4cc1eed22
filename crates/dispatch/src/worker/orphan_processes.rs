//! Processes that outlive their script. Those in its group are killed with it; one that has left the
//! group (`setsid`) becomes our child once its parent has ended, since we are a "subreaper". It carries
//! its script's unit in its environment, and is killed if that script has ended.
//!
//! Looking costs a read for all scripts that ended within a moment, not one for each. Who has cleared
//! its environment is not known to be anybody's, and is left alone.

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

/// How long after a script's end is looked, so that one look serves many.
const REAP_DELAY: Duration = Duration::from_millis(50);
/// How often is looked while somebody else's children are here: they end some day, and nobody else can
/// wait for them.
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The children of this process.
#[derive(Debug)]
pub(super) struct OrphanReaper {
    /// The numbers of all children.
    children_file: File,
    /// What scripts inherit, by which their processes are known.
    env_mark: Vec<u8>,
    /// Those that were here before, and so have nothing to do with scripts.
    preexisting: Vec<i32>,
    /// The scripts that run, by their processes.
    scripts: HashMap<i32, UnitId>,
    /// Whose the others are, as far as they say.
    owners: HashMap<i32, Option<UnitId>>,
    due: Option<Instant>,
}

impl OrphanReaper {
    /// Has everybody who outlives a script become our child. To be called on the thread that starts
    /// scripts, which must be the first: the system knows children by thread.
    pub(super) fn become_subreaper(env_mark: &str) -> io::Result<Self> {
        let own = getpid();
        let children_file =
            File::open(format!("/proc/self/task/{}/children", own.as_raw_nonzero()))?;
        set_child_subreaper(Some(own))?;
        let (env_mark, preexisting) = (env_mark.as_bytes().to_vec(), read_pids(&children_file)?);
        let (scripts, owners) = (HashMap::new(), HashMap::new());
        Ok(Self { children_file, env_mark, preexisting, scripts, owners, due: None })
    }

    /// A script has begun.
    pub(super) fn on_start(&mut self, pid: i32, unit: UnitId) {
        self.scripts.insert(pid, unit);
    }

    /// It has ended, and was waited for.
    pub(super) fn on_end(&mut self, now: Instant, pid: i32) {
        self.scripts.remove(&pid);
        self.schedule(now + REAP_DELAY);
    }

    fn schedule(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// When to look.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Kills those whose scripts have ended, and waits for those that have ended themselves.
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
            // As long as we have not waited for it, its number is its own.
            if let Ok(Some(_)) = waitpid(Some(pid), WaitOptions::NOHANG) {
                self.owners.remove(&pid_number);
                continue;
            }
            let env_mark = &self.env_mark;
            let unit =
                *self.owners.entry(pid_number).or_insert_with(|| unit_of(pid_number, env_mark));
            let is_running = |unit: UnitId| self.scripts.values().any(|running| *running == unit);
            if unit.is_some_and(|unit| !is_running(unit)) {
                // With its group, if it leads one: what is in there may have dropped the mark.
                let _ = kill_process_group(pid, Signal::KILL);
                let _ = kill_process(pid, Signal::KILL);
                // It has to be waited for, and its own children are ours then.
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

/// The unit whose script has started a process, if it carries our mark.
fn unit_of(pid_number: i32, env_mark: &[u8]) -> Option<UnitId> {
    let environ = fs::read(format!("/proc/{pid_number}/environ")).ok()?;
    let mut variables = environ.split(|byte| *byte == 0);
    if !variables.clone().any(|variable| variable == env_mark) {
        return None;
    }
    let unit = variables.find_map(|variable| variable.strip_prefix(b"LONGSHORE_UNIT_ID="))?;
    std::str::from_utf8(unit).ok()?.parse().ok()
}
