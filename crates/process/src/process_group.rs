//! A process group that is killed when its guard is dropped, so that no exit path leaves a process
//! behind.

use std::io;
use std::os::unix::process::CommandExt;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::orphan_reaper::WatchGuard;
use crate::signal::to_pid;

/// The process group of one command. Killed when this is dropped.
#[derive(Debug)]
pub struct ProcessGroup {
    leader: Pid,
    ended: bool,
    /// Dropped after the group was killed.
    pub(crate) watch_guard: Option<WatchGuard>,
}

impl ProcessGroup {
    /// Starts a command as the leader of a new process group.
    pub fn spawn<C: GroupCommand>(command: &mut C) -> io::Result<(C::Child, Self)> {
        command.as_std().process_group(0);
        let (child, id) = command.spawn_leader()?;
        let leader = id.and_then(to_pid).ok_or_else(|| io::Error::other("it has no process id"))?;
        Ok((child, Self { leader, ended: false, watch_guard: None }))
    }

    /// The process that leads the group.
    pub fn leader(&self) -> Pid {
        self.leader
    }

    /// The process id of the leader, which is the id of the group.
    pub fn id(&self) -> u32 {
        self.leader.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends SIGTERM to every process of the group.
    pub fn terminate(&self) {
        let _ = kill_process_group(self.leader, Signal::TERM);
    }

    /// Sends SIGKILL to every process of the group. Harmless if there is none.
    pub fn kill(&self) {
        let _ = kill_process_group(self.leader, Signal::KILL);
    }

    /// Kills the group, and never signals its id again: once the leader is reaped, the system may
    /// reuse the id.
    pub fn release(self) {
        self.kill();
        self.detach();
    }

    /// Lets the rest of the group live, and never signals its id again.
    pub fn detach(mut self) {
        self.ended = true;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.ended {
            self.kill();
        }
    }
}

/// A command that [`ProcessGroup::spawn`] can start: one of the standard library, or of tokio.
pub trait GroupCommand {
    /// The started process.
    type Child;

    /// The command of the standard library.
    fn as_std(&mut self) -> &mut std::process::Command;

    /// Starts the command. Returns the process and its id.
    fn spawn_leader(&mut self) -> io::Result<(Self::Child, Option<u32>)>;
}

impl GroupCommand for std::process::Command {
    type Child = std::process::Child;

    fn as_std(&mut self) -> &mut std::process::Command {
        self
    }

    fn spawn_leader(&mut self) -> io::Result<(Self::Child, Option<u32>)> {
        let child = self.spawn()?;
        let id = child.id();
        Ok((child, Some(id)))
    }
}

impl GroupCommand for tokio::process::Command {
    type Child = tokio::process::Child;

    fn as_std(&mut self) -> &mut std::process::Command {
        self.as_std_mut()
    }

    fn spawn_leader(&mut self) -> io::Result<(Self::Child, Option<u32>)> {
        let child = self.spawn()?;
        let id = child.id();
        Ok((child, id))
    }
}
