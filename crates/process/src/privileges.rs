//! What other processes may read of this one, and what its children may become.

use std::io;

/// Forbids other processes of the same user to read this process's memory and environment: it cannot
/// be traced, dumps no core, and its files in `/proc` belong to root (Linux). A program that it
/// starts is not affected.
pub fn forbid_inspection() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Forbids this thread, and the threads and processes that it starts from now on, to gain privileges
/// from a program: the bits setuid and setgid and file capabilities have no effect (Linux).
pub fn forbid_new_privileges() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}
