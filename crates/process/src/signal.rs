//! Signals to processes by their id. A signal to a process that has ended is not an error: a
//! process may end at any moment.

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};

/// Sends a signal to one process.
pub fn signal_process(id: u32, signal: Signal) {
    let _ = to_pid(id).map(|pid| kill_process(pid, signal));
}

/// Sends a signal to every process of the group that the process `id` leads.
pub fn signal_group(id: u32, signal: Signal) {
    let _ = to_pid(id).map(|pid| kill_process_group(pid, signal));
}

/// Whether the process exists and this process may signal it.
pub fn is_alive(id: u32) -> bool {
    to_pid(id).is_some_and(|pid| test_kill_process(pid).is_ok())
}

/// Kills a process, with its group if it leads one: processes in there may have dropped the mark
/// that the process was found by. Any other group may belong to another program. Returns whether
/// the process existed.
pub(crate) fn kill_with_own_group(pid: Pid) -> bool {
    let _ = kill_process_group(pid, Signal::KILL);
    kill_process(pid, Signal::KILL).is_ok()
}

/// The process id, if the system can have such a one.
pub fn to_pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}
