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
const SOON: Duration = Duration::from_millis(50);
/// How often is looked while somebody else's children are here: they end some day, and nobody else can
/// wait for them.
const LATER: Duration = Duration::from_secs(2);

/// The children of this process.
#[derive(Debug)]
pub(super) struct Orphans {
    /// The numbers of all children.
    list: File,
    /// What scripts inherit, by which their processes are known.
    mark: Vec<u8>,
    /// Those that were here before, and so have nothing to do with scripts.
    others: Vec<i32>,
    /// The scripts that run, by their processes.
    scripts: HashMap<i32, UnitId>,
    /// Whose the others are, as far as they say.
    known: HashMap<i32, Option<UnitId>>,
    due: Option<Instant>,
}

impl Orphans {
    /// Has everybody who outlives a script become our child. To be called on the thread that starts
    /// scripts, which must be the first: the system knows children by thread.
    pub(super) fn adopt(mark: &str) -> io::Result<Self> {
        let own = getpid();
        let list = File::open(format!("/proc/self/task/{}/children", own.as_raw_nonzero()))?;
        set_child_subreaper(Some(own))?;
        let (mark, others) = (mark.as_bytes().to_vec(), numbers(&list)?);
        let (scripts, known) = (HashMap::new(), HashMap::new());
        Ok(Self { list, mark, others, scripts, known, due: None })
    }

    /// A script has begun.
    pub(super) fn on_begin(&mut self, pid: i32, unit: UnitId) {
        self.scripts.insert(pid, unit);
    }

    /// It has ended, and was waited for.
    pub(super) fn on_end(&mut self, now: Instant, pid: i32) {
        self.scripts.remove(&pid);
        self.due_at(now + SOON);
    }

    fn due_at(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// When to look.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Kills those whose scripts have ended, and waits for those that have ended themselves.
    pub(super) fn look(&mut self, now: Instant) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        self.due = None;
        let all = numbers(&self.list).unwrap_or_default();
        for number in all {
            if self.scripts.contains_key(&number) || self.others.contains(&number) {
                continue;
            }
            let Some(pid) = Pid::from_raw(number) else { continue };
            // As long as we have not waited for it, its number is its own.
            if let Ok(Some(_)) = waitpid(Some(pid), WaitOptions::NOHANG) {
                self.known.remove(&number);
                continue;
            }
            let mark = &self.mark;
            let unit = *self.known.entry(number).or_insert_with(|| unit_of(number, mark));
            let lives = |unit: UnitId| self.scripts.values().any(|running| *running == unit);
            if unit.is_some_and(|unit| !lives(unit)) {
                // With its group, if it leads one: what is in there may have dropped the mark.
                let _ = kill_process_group(pid, Signal::KILL);
                let _ = kill_process(pid, Signal::KILL);
                // It has to be waited for, and its own children are ours then.
                self.due_at(now + SOON);
            } else {
                self.due_at(now + LATER);
            }
        }
    }
}

fn numbers(list: &File) -> io::Result<Vec<i32>> {
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = list.read_at(&mut piece, text.len() as u64)?;
        if count == 0 {
            break;
        }
        text.extend_from_slice(&piece[..count]);
    }
    let text = String::from_utf8_lossy(&text);
    Ok(text.split_whitespace().filter_map(|number| number.parse().ok()).collect())
}

/// The unit whose script has started a process, if it carries our mark.
fn unit_of(number: i32, mark: &[u8]) -> Option<UnitId> {
    let environ = fs::read(format!("/proc/{number}/environ")).ok()?;
    let mut variables = environ.split(|byte| *byte == 0);
    if !variables.clone().any(|variable| variable == mark) {
        return None;
    }
    let unit = variables.find_map(|variable| variable.strip_prefix(b"LONGSHORE_UNIT_ID="))?;
    std::str::from_utf8(unit).ok()?.parse().ok()
}
