//! Kills processes that outlive a killed program. Otherwise they would run for ever, and another
//! process may repeat their work meanwhile.
//!
//! A program that was killed cannot clean up, so it has an orphan reaper: a child process that reads
//! from a pipe which process groups are alive. When the pipe ends, it kills the groups that are
//! left. It is started before the first group. A process group that was not announced, because the
//! program was killed first or because a process left its group (`setsid`), is found by a mark in
//! the environment, which every process of this program inherits (Linux: `/proc`). A process that
//! both clears its environment and leaves its group is not found.
//!
//! The reaper is this same program, if its `main` begins with [`run_if_reaper`]; else a short script
//! for `/bin/sh`.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, BufRead, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::identity::own_mark_prefix;
use crate::proc_fs::{arguments, environ, this_program, try_environ, variables};
use crate::process_group::{GroupCommand, ProcessGroup};
use crate::signal::{kill_with_own_group, signal_group};

/// The environment variable that marks the processes of a program.
const MARK_VARIABLE: &str = "LONGSHORE_REAPER";
/// The argument that turns this program into a reaper.
const REAPER_ARGUMENT: &str = "__longshore_reaper";
/// The last line sent to the reaper if all groups ended: there is nothing to kill.
const CLEAN_EXIT: &str = ".";
/// Interval between two scans of `/proc`: a process between fork and exec does not carry the mark
/// yet.
const SCAN_INTERVAL: Duration = Duration::from_millis(100);

/// Set by [`run_if_reaper`].
static RUNS_ITSELF: AtomicBool = AtomicBool::new(false);

/// Does what [`run_reaper`] does, for a program that cannot be its own reaper.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
left=' '
while read -r line; do
  group=${line#?}
  case $line in
    +*) left="$left$group " ;;
    -*) case $left in *" $group "*) left="${left%% $group *} ${left#* $group }" ;; esac ;;
    .) exit 0 ;;
  esac
done
for group in $left; do kill -s KILL -- "-$group" 2>/dev/null; done
looks=0
while [ "$looks" -lt 2 ]; do
  looks=$((looks + 1))
  for found in $(grep -lsF "LONGSHORE_REAPER=$1" /proc/[0-9]*/environ); do
    found=${found#/proc/}
    kill -s KILL "${found%/environ}" 2>/dev/null && looks=0
  done
  sleep 0.1 || sleep 1
done
"#;

/// The program's end of the pipe.
#[derive(Debug)]
pub struct OrphanReaper {
    mark: String,
    process: Mutex<Option<Process>>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    pipe: Option<ChildStdin>,
    groups: BTreeSet<u32>,
    /// Whether the reaper scans for the mark even after a clean exit.
    sweeps: bool,
}

impl OrphanReaper {
    /// The reaper of this program. Started when first needed, and ended when the last reference is
    /// dropped.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<OrphanReaper>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let reaper = Arc::new(Self { mark: new_mark(), process: Mutex::new(None) });
            *shared = Arc::downgrade(&reaper);
            reaper
        })
    }

    /// Starts a command as the leader of a new process group, with the mark in its environment. The
    /// group is killed if this process dies before the returned guard is dropped.
    pub fn spawn<C: GroupCommand>(self: &Arc<Self>, command: &mut C) -> io::Result<(C::Child, ProcessGroup)> {
        command.as_std().envs([self.mark()]);
        let (child, mut group) = ProcessGroup::spawn(command)?;
        let id = group.id();
        self.notify(|groups| groups.insert(id), '+', id);
        group.watch_guard = Some(WatchGuard { reaper: Arc::clone(self), group: id });
        Ok((child, group))
    }

    /// Starts the reaper if it does not run. Returns the variable that a command needs in its
    /// environment. A command started with it cannot outlive this process.
    pub fn mark(&self) -> (&'static str, String) {
        drop(self.started());
        (MARK_VARIABLE, self.mark.clone())
    }

    /// Kills all processes that still carry the mark when this program ends, even after a clean
    /// exit.
    pub fn sweep(&self) {
        if let Some(process) = self.started().as_mut() {
            process.sweeps = true;
        }
    }

    fn started(&self) -> MutexGuard<'_, Option<Process>> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if process.is_none() {
            *process = Process::start(&self.mark, BTreeSet::new());
        }
        process
    }

    fn notify(&self, keep: impl FnOnce(&mut BTreeSet<u32>) -> bool, sign: char, group: u32) {
        let mut current = self.started();
        let Some(process) = current.as_mut() else { return };
        keep(&mut process.groups);
        let written = process.pipe.as_mut().map(|pipe| writeln!(pipe, "{sign}{group}"));
        if let Some(Err(error)) = written {
            tracing::warn!(%error, "the orphan reaper has ended; starting another");
            let (groups, sweeps) = (std::mem::take(&mut process.groups), process.sweeps);
            *current = Process::start(&self.mark, groups);
            current.iter_mut().for_each(|process| process.sweeps = sweeps);
        }
    }
}

/// A unique mark: hashers are seeded from the system's source of randomness.
fn new_mark() -> String {
    let random = || std::hash::RandomState::new().build_hasher().finish();
    format!("{}{:016x}{:016x}", own_mark_prefix(), random(), random())
}

impl Process {
    fn start(mark: &str, groups: BTreeSet<u32>) -> Option<Self> {
        match Self::spawn(mark, groups) {
            Ok(process) => Some(process),
            Err(error) => {
                tracing::warn!(%error, "cannot start the orphan reaper; worker processes would outlive this program if it is killed");
                None
            }
        }
    }

    fn spawn(mark: &str, groups: BTreeSet<u32>) -> io::Result<Self> {
        use std::os::unix::process::CommandExt;
        let mut command = if RUNS_ITSELF.load(Ordering::Relaxed) {
            let mut command = Command::new(this_program()?);
            command.args([REAPER_ARGUMENT, mark]);
            command
        } else {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", SCRIPT, "longshore-reaper", mark]);
            command
        };
        // It has its own process group, so that Ctrl-C at the program's terminal does not kill it
        // first. It inherits no secret that a command could read from `/proc`, and no mark: else the
        // reaper of our parent would kill ours before it has done its work.
        let path = std::env::var_os("PATH").map(|path| ("PATH", path));
        command.process_group(0).env_clear().envs(path).current_dir("/");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut pipe = child.stdin.take();
        for group in &groups {
            pipe.as_mut().map_or(Ok(()), |pipe| writeln!(pipe, "+{group}"))?;
        }
        Ok(Self { child, pipe, groups, sweeps: false })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.pipe.take().filter(|_| self.groups.is_empty() && !self.sweeps) {
            let _ = writeln!(pipe, "{CLEAN_EXIT}");
        }
        let _ = self.child.wait();
    }
}

/// A group that the reaper watches.
#[derive(Debug)]
pub(crate) struct WatchGuard {
    reaper: Arc<OrphanReaper>,
    group: u32,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let group = self.group;
        self.reaper.notify(|groups| groups.remove(&group), '-', group);
    }
}

/// If an [`OrphanReaper`] of this same program started this process, does the reaper's work and
/// returns true. Then `main` should return.
///
/// Call it first in `main`, before arguments are parsed or threads started. A program that does so
/// is its own reaper.
pub fn run_if_reaper() -> bool {
    RUNS_ITSELF.store(true, Ordering::Relaxed);
    let mut arguments = std::env::args_os().skip(1).map_while(|word| word.into_string().ok());
    let (argument, mark) = (arguments.next(), arguments.next());
    let Some(mark) = mark.filter(|_| argument.as_deref() == Some(REAPER_ARGUMENT)) else {
        return false;
    };
    let _signals = catch_signals();
    run_reaper(io::stdin().lock(), &mark);
    true
}

/// Survives the signals of a terminal, and of a service manager that ends all processes of a service at once. The reaper
/// ends when its pipe does.
fn catch_signals() -> io::Result<Runtime> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let guard = runtime.enter();
    for kind in [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()] {
        // A handler replaces the default action for the life of the process.
        drop(signal(kind)?);
    }
    drop(guard);
    Ok(runtime)
}

/// The reaper itself: reads to the end of the pipe, then kills what is left.
fn run_reaper(from: impl BufRead, mark: &str) {
    let Some(groups) = unfinished_groups(from) else { return };
    groups.into_iter().for_each(|group| signal_group(group, Signal::KILL));
    let mut empty_scans = 0;
    while empty_scans < 2 {
        empty_scans = if kill_marked(mark) { 0 } else { empty_scans + 1 };
        std::thread::sleep(SCAN_INTERVAL);
    }
}

/// Kills every process that carries the mark. Returns whether there was one.
fn kill_marked(mark: &str) -> bool {
    let mark = format!("{MARK_VARIABLE}={mark}");
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let mut found = false;
    for process in processes.flatten() {
        let id = process.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = id.and_then(Pid::from_raw) else { continue };
        if variables(&environ(pid)).any(|variable| variable == mark.as_bytes()) {
            found |= kill_with_own_group(pid);
        }
    }
    found
}

/// Whether a process carries a mark with this prefix in its environment, or is a reaper with such a
/// mark; `None` if the processes cannot be listed, or if one that `may_be_marked` cannot be read.
pub(crate) fn is_marked(prefix: &str, may_be_marked: impl Fn(Pid) -> bool) -> Option<bool> {
    let variable = format!("{MARK_VARIABLE}={prefix}");
    let mut in_doubt = false;
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        let id = process.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = id.and_then(Pid::from_raw) else { continue };
        let environ = try_environ(pid);
        in_doubt |= environ.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
            && may_be_marked(pid);
        if variables(&environ.unwrap_or_default()).any(|set| set.starts_with(variable.as_bytes()))
            || variables(&arguments(pid)).any(|word| word.starts_with(prefix.as_bytes()))
        {
            return Some(true);
        }
    }
    (!in_doubt).then_some(false)
}

/// The groups that did not end; `None` after a clean exit.
fn unfinished_groups(from: impl BufRead) -> Option<BTreeSet<u32>> {
    let mut groups = BTreeSet::new();
    for line in from.lines().map_while(Result::ok) {
        if line == CLEAN_EXIT {
            return None;
        }
        // 0 and 1 would address our own group and all processes.
        let group = line.get(1..).and_then(|number| number.parse().ok()).filter(|n| *n > 1);
        match (line.as_bytes().first(), group) {
            (Some(b'+'), Some(group)) => _ = groups.insert(group),
            (Some(b'-'), Some(group)) => _ = groups.remove(&group),
            _ => {}
        }
    }
    Some(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_end_is_left() {
        let groups = unfinished_groups("+10\n+11\n-10\nnonsense\n+1\n+0\n+-5\n+12".as_bytes());
        assert_eq!(groups, Some(BTreeSet::from([11, 12])));
    }

    #[test]
    fn nothing_is_looked_for_when_all_is_well() {
        assert_eq!(unfinished_groups("+10\n-10\n.\n".as_bytes()), None);
    }

    #[test]
    fn no_two_marks_are_alike() {
        assert_ne!(new_mark(), new_mark());
    }
}
