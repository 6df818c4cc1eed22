//! The worker's end of the channel to the pool. Standard output is redirected away from it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stdin, dup2_stdout, stderr, stdin, stdout};

/// The descriptors that messages are read from and written to.
pub(super) struct Channel {
    pub(super) read: OwnedFd,
    pub(super) write: OwnedFd,
}

impl Channel {
    /// Takes the descriptor that the pool passed, or else standard input and output. From then on
    /// standard input is empty, and what is printed to standard output goes to standard error.
    pub(super) fn take() -> io::Result<Self> {
        if let Some(number) = std::env::var("LONGSHORE_WORKER_FD").ok().and_then(|n| n.parse().ok()) {
            let own = own_descriptor(number)?;
            return Ok(Self { read: own.try_clone()?, write: own });
        }
        let read = fcntl_dupfd_cloexec(stdin(), 3)?;
        let write = fcntl_dupfd_cloexec(stdout(), 3)?;
        dup2_stdin(File::open("/dev/null")?)?;
        dup2_stdout(stderr())?;
        Ok(Self { read, write })
    }
}

/// Duplicates a descriptor given by its number. The kernel does it, so that a wrong number is an
/// error and not undefined behaviour.
#[cfg(target_os = "linux")]
fn own_descriptor(number: i32) -> io::Result<OwnedFd> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(own, number, PidfdGetfdFlags::empty())?)
}

#[cfg(not(target_os = "linux"))]
fn own_descriptor(_: i32) -> io::Result<OwnedFd> {
    Err(io::Error::other("a descriptor of its own is for Linux only; use standard input and output"))
}
