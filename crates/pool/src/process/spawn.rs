//! A worker's process: spawned, watched, killed with its whole group, and always reaped.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use command_fds::{CommandFdExt, FdMapping};
use rustix::process::Pid;

use super::Habits;
use crate::pidfd::Exit;
use crate::program::Channel;
use crate::warden::{Group, Warden, Watched};

/// Size of a pipe, where the system allows it: large payloads need fewer writes.
const PIPE: usize = 256 * 1024;
/// The descriptor number of a worker's socket, if it has one.
const DESCRIPTOR: i32 = 3;

/// A process and its group. When dropped, it kills both, and reaps the process.
pub(super) struct Process {
    child: Child,
    leash: Arc<Leash>,
    exit: Option<Exit>,
    _watched: Option<Watched>,
}

/// Kills a process, as long as its id cannot have been reused.
#[derive(Default)]
pub(super) struct Leash(Mutex<Option<Group>>);

impl Leash {
    /// Kills the process and its group at once.
    pub(super) fn kill(&self) {
        if let Some(group) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            group.kill();
        }
    }

    fn release(&self) {
        if let Some(group) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            group.release();
        }
    }
}

/// The parent's ends of a process's pipes.
pub(super) struct Ends {
    pub(super) write: OwnedFd,
    pub(super) read: OwnedFd,
    pub(super) stderr: OwnedFd,
}

impl Process {
    /// Spawns a process. Takes about a millisecond, so do not call it on a thread of the runtime.
    pub(super) fn start(
        habits: &Habits,
        pool: &str,
        worker: u64,
        warden: &Arc<Warden>,
    ) -> io::Result<(Self, Ends)> {
        let mut command = habits.program.to_command(pool)?;
        command.process_group(0).envs([warden.mark()]);
        command.env("LONGSHORE_WORKER", crate::protocol::VERSION.to_string());
        command.env("LONGSHORE_WORKER_POOL", pool).env("LONGSHORE_WORKER_ID", worker.to_string());
        let (mut child, ends) = match habits.program.channel {
            Channel::Stdio => on_stdio(&mut command)?,
            Channel::Descriptor => on_descriptor(&mut command)?,
        };
        let group = Group::of(Some(child.id()));
        let watched = group.as_ref().map(|group| warden.watch(group.id()));
        let pid = Pid::from_child(&child);
        if let Err(error) = prepare(habits, pid).and_then(|()| unblock(&ends)) {
            drop(group);
            let _ = child.wait();
            return Err(error);
        }
        let leash = Arc::new(Leash(Mutex::new(group)));
        Ok((Self { child, leash, exit: None, _watched: watched }, ends))
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn leash(&self) -> Arc<Leash> {
        Arc::clone(&self.leash)
    }

    /// Registers the process's exit with the runtime.
    pub(super) fn watch(&mut self) {
        self.exit = Some(Exit::of(&self.child));
    }

    /// Waits until the process has exited. It is not reaped, so its id is not reused.
    pub(super) async fn ended(&self) {
        match &self.exit {
            Some(exit) => exit.ended().await,
            None => std::future::pending().await,
        }
    }

    /// Kills the rest of its group, and reaps it. Does not block once the process has exited.
    pub(super) fn reap(&mut self) -> Option<ExitStatus> {
        self.leash.release();
        self.child.wait().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.reap();
    }
}

fn on_stdio(command: &mut Command) -> io::Result<(Child, Ends)> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let ends = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(write), Some(read), Some(stderr)) = ends else {
        return Err(io::Error::other("a process without pipes"));
    };
    enlarge(&write);
    enlarge(&read);
    Ok((child, Ends { write: write.into(), read: read.into(), stderr: stderr.into() }))
}

/// Spawns a process with a socket. What it prints goes to standard error.
fn on_descriptor(command: &mut Command) -> io::Result<(Child, Ends)> {
    let (ours, theirs) = UnixStream::pair()?;
    // Before the spawn: if this failed afterwards, the process would not be reaped.
    let write = ours.try_clone()?.into();
    let (stderr, printed) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(printed.try_clone()?).stderr(printed);
    command.env("LONGSHORE_WORKER_FD", DESCRIPTOR.to_string());
    let mapping = FdMapping { parent_fd: theirs.into(), child_fd: DESCRIPTOR };
    command.fd_mappings(vec![mapping]).map_err(io::Error::other)?;
    let child = command.spawn()?;
    // The parent's copies of the child's ends must be closed, or the parent would never see their
    // end.
    *command = Command::new("");
    Ok((child, Ends { write, read: ours.into(), stderr: stderr.into() }))
}

#[cfg(target_os = "linux")]
fn enlarge(pipe: impl AsFd) {
    // If it is not allowed, the pipe keeps its size.
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE);
}

#[cfg(not(target_os = "linux"))]
fn enlarge(_: impl AsFd) {}

fn unblock(ends: &Ends) -> io::Result<()> {
    for end in [&ends.write, &ends.read, &ends.stderr] {
        rustix::io::ioctl_fionbio(end, true)?;
    }
    Ok(())
}

/// Applies priority and limits before the first message: the process waits for it.
fn prepare(habits: &Habits, pid: Pid) -> io::Result<()> {
    if let Some(nice) = habits.program.nice {
        rustix::process::setpriority_process(Some(pid), nice)?;
    }
    habits.limits.set(pid)
}
