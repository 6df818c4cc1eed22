//! What the system reports about processes, in `/proc` on Linux.

use std::ffi::OsString;
use std::io;

use rustix::process::Pid;

/// The file that this process was started from, even if it has been replaced since.
pub fn this_program() -> io::Result<OsString> {
    match cfg!(target_os = "linux") {
        true => Ok("/proc/self/exe".into()),
        false => std::env::current_exe().map(OsString::from),
    }
}

/// Resident memory of a process in bytes, if the system reports it.
pub fn resident_memory(id: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The environment that a process was started with: `NAME=value`, separated by zero bytes. Empty if
/// it cannot be read, as that of another user's process.
pub(crate) fn environ(pid: Pid) -> Vec<u8> {
    try_environ(pid).unwrap_or_default()
}

/// The environment of a process. An error of kind `PermissionDenied` if the process belongs to another user.
pub(crate) fn try_environ(pid: Pid) -> io::Result<Vec<u8>> {
    std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()))
}

/// The arguments that a process was started with, separated by zero bytes. Empty if it has ended.
pub(crate) fn arguments(pid: Pid) -> Vec<u8> {
    std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default()
}

/// The parts of [`environ`] and [`arguments`].
pub(crate) fn variables(environ: &[u8]) -> impl Iterator<Item = &[u8]> {
    environ.split(|byte| *byte == 0)
}
