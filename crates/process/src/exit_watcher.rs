//! Waits for the end of a process without reaping it, so that its process id is not reused.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Interval of polling where the system has no pidfd.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Watches for the exit of one process.
#[derive(Debug)]
pub struct ExitWatcher {
    pid: Pid,
    descriptor: Option<AsyncFd<OwnedFd>>,
}

impl ExitWatcher {
    /// Watches for the exit of a process. Must be called on a runtime.
    pub fn new(pid: Pid) -> Self {
        Self { pid, descriptor: open_pidfd(pid) }
    }

    /// Returns once the process has exited, at once if it has already. A child still has to be
    /// reaped.
    pub async fn wait(&self) {
        match &self.descriptor {
            Some(descriptor) => _ = descriptor.readable().await,
            None => self.poll_for_end().await,
        }
    }

    async fn poll_for_end(&self) {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        while let Ok(None) = waitid(WaitId::Pid(self.pid), options) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Registers a descriptor with the runtime.
#[expect(
    deprecated,
    reason = "its successor is unsafe, for types that may change their descriptor; ours does not"
)]
pub fn register_fd(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, interest)
}

/// A pidfd, which becomes readable when the process exits.
#[cfg(target_os = "linux")]
fn open_pidfd(pid: Pid) -> Option<AsyncFd<OwnedFd>> {
    use rustix::process::{PidfdFlags, pidfd_open};
    let descriptor = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    register_fd(descriptor, Interest::READABLE).ok()
}

#[cfg(not(target_os = "linux"))]
fn open_pidfd(_: Pid) -> Option<AsyncFd<OwnedFd>> {
    None
}
