//! A process group that is killed when its guard is dropped, so that no exit path leaves a process
//! behind.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// How long a command may clean up after SIGTERM before SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// Interval of checking whether a group is gone.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The process group of one command. Killed when this is dropped.
#[derive(Debug)]
pub struct Group {
    id: Pid,
    released: bool,
}

impl Group {
    /// The group led by process `id`; `None` if that process has already been reaped.
    pub fn of(id: Option<u32>) -> Option<Self> {
        let id = i32::try_from(id?).ok()?;
        Pid::from_raw(id).map(|id| Self { id, released: false })
    }

    /// Its process group id.
    pub fn id(&self) -> i32 {
        self.id.as_raw_nonzero().get()
    }

    /// Sends SIGTERM to every process of the group.
    pub fn ask(&self) {
        let _ = kill_process_group(self.id, Signal::TERM);
    }

    /// Sends SIGTERM to every process of the group, and SIGKILL after a grace period.
    pub async fn end(&self) {
        self.ask();
        self.wait_gone(TERM_GRACE).await;
        self.kill();
    }

    /// Waits until no process of the group is left, at most `limit`. A leader that has exited but
    /// was not reaped still counts.
    pub async fn wait_gone(&self, limit: Duration) {
        let gone = async {
            while test_kill_process_group(self.id).is_ok() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let _ = tokio::time::timeout(limit, gone).await;
    }

    /// Sends SIGKILL to every process of the group. Harmless if there is none.
    pub fn kill(&self) {
        let _ = kill_process_group(self.id, Signal::KILL);
    }

    /// Kills the group, and never signals its id again: once the leader is reaped, the system may
    /// reuse the id.
    pub fn release(mut self) {
        self.kill();
        self.released = true;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.released {
            self.kill();
        }
    }
}
