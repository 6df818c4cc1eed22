//! Where a worker's messages come from and go to; standard output is moved out of their way.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stdin, dup2_stdout, stderr, stdin, stdout};

/// Where messages come from and go to.
pub(super) struct Channel {
    pub(super) read: OwnedFd,
    pub(super) write: OwnedFd,
}

impl Channel {
    /// Takes the descriptor that the pool gave, or standard input and output: from now on nothing is
    /// to be read from the one, and what is printed to the other goes where complaints go.
    pub(super) fn take() -> io::Result<Self> {
        if let Some(number) = std::env::var("LONGSHORE_WORKER_FD").ok().and_then(|n| n.parse().ok())
        {
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

/// A descriptor by its number, without having to trust the number: the system duplicates it.
#[cfg(target_os = "linux")]
fn own_descriptor(number: i32) -> io::Result<OwnedFd> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(own, number, PidfdGetfdFlags::empty())?)
}

#[cfg(not(target_os = "linux"))]
fn own_descriptor(_: i32) -> io::Result<OwnedFd> {
    Err(io::Error::other(
        "a descriptor of its own is for Linux only; use standard input and output",
    ))
}
