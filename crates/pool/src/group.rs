//! A process group that dies with its guard: no way out of a run leaves a process behind.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// How long a command may clean up after TERM before KILL.
const GRACE: Duration = Duration::from_secs(2);
/// How often we look whether a group has gone.
const LOOK: Duration = Duration::from_millis(20);

/// The process group of one command. Killed when this is dropped.
#[derive(Debug)]
pub struct Group {
    id: Pid,
    released: bool,
}

impl Group {
    /// The group led by process `id`; `None` if that process has already been waited for.
    pub fn of(id: Option<u32>) -> Option<Self> {
        let id = i32::try_from(id?).ok()?;
        Pid::from_raw(id).map(|id| Self { id, released: false })
    }

    /// Its number.
    pub fn id(&self) -> i32 {
        self.id.as_raw_nonzero().get()
    }

    /// Asks every process of the group to end.
    pub fn ask(&self) {
        let _ = kill_process_group(self.id, Signal::TERM);
    }

    /// Asks every process of the group to end, and ends those that have not after a grace.
    pub async fn end(&self) {
        self.ask();
        self.gone_within(GRACE).await;
        self.kill();
    }

    /// Waits until no process of the group is left, at most `limit`. A leader that has ended but
    /// was not waited for still counts.
    pub async fn gone_within(&self, limit: Duration) {
        let gone = async {
            while test_kill_process_group(self.id).is_ok() {
                tokio::time::sleep(LOOK).await;
            }
        };
        let _ = tokio::time::timeout(limit, gone).await;
    }

    /// Ends every process of the group at once. Harmless if there is none.
    pub fn kill(&self) {
        let _ = kill_process_group(self.id, Signal::KILL);
    }

    /// Ends every process of the group, and never touches its number again: once its leader is
    /// waited for, the number may become another's.
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
