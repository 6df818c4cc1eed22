//! The end of a process, awaited without waiting for it in the system's sense: its number stays its own.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::Duration;

use rustix::process::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How often is looked where the system cannot tell.
const LOOK: Duration = Duration::from_millis(20);

/// Watches for the end of one child process.
#[derive(Debug)]
pub struct Exit {
    pid: Pid,
    descriptor: Option<AsyncFd<OwnedFd>>,
}

impl Exit {
    /// Watches for the end of `child`. To be called on a runtime.
    pub fn of(child: &Child) -> Self {
        Self::of_process(Pid::from_child(child))
    }

    /// The same for any process. One that has ended already ends at once.
    pub fn of_process(pid: Pid) -> Self {
        Self { pid, descriptor: watched(pid) }
    }

    /// Returns once it has ended. It still has to be waited for.
    pub async fn ended(&self) {
        match &self.descriptor {
            Some(descriptor) => _ = descriptor.readable().await,
            None => self.poll_for_end().await,
        }
    }

    async fn poll_for_end(&self) {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        while let Ok(None) = waitid(WaitId::Pid(self.pid), look) {
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Has the runtime watch a descriptor.
#[expect(
    deprecated,
    reason = "its successor is unsafe, for types that may change their descriptor; ours does not"
)]
pub(crate) fn registered(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, interest)
}

/// Becomes readable when the process ends.
#[cfg(target_os = "linux")]
fn watched(pid: Pid) -> Option<AsyncFd<OwnedFd>> {
    use rustix::process::{PidfdFlags, pidfd_open};
    let descriptor = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    registered(descriptor, Interest::READABLE).ok()
}

#[cfg(not(target_os = "linux"))]
fn watched(_: Pid) -> Option<AsyncFd<OwnedFd>> {
    None
}
