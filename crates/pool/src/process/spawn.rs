//! A worker's process: spawned, watched, killed with its whole group, and always reaped.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use command_fds::{CommandFdExt, FdMapping};
use longshore_process::{ExitWatcher, OrphanReaper, ProcessGroup};
use rustix::process::Pid;

use super::ProcessConfig;
use crate::program::Channel;

/// Size of a pipe, where the system allows it: large payloads need fewer writes.
const PIPE_SIZE: usize = 256 * 1024;
/// The descriptor number of a worker's socket, if it has one.
const DESCRIPTOR: i32 = 3;

/// A process and its group. When dropped, it kills both, and reaps the process.
pub(super) struct Process {
    child: Child,
    kill_handle: Arc<KillHandle>,
    exit: ExitWatcher,
}

/// Kills a process, as long as its id cannot have been reused.
#[derive(Default)]
pub(super) struct KillHandle(Mutex<Option<ProcessGroup>>);

impl KillHandle {
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
pub(super) struct ParentPipes {
    pub(super) write: OwnedFd,
    pub(super) read: OwnedFd,
    pub(super) stderr: OwnedFd,
}

impl Process {
    /// Spawns a process. Takes about a millisecond, so do not call it on a thread of the runtime.
    pub(super) fn start(
        config: &ProcessConfig,
        pool: &str,
        worker: u64,
        reaper: &Arc<OrphanReaper>,
    ) -> io::Result<(Self, ParentPipes)> {
        let mut command = config.program.to_command(pool)?;
        command.env("LONGSHORE_WORKER", crate::protocol::VERSION.to_string());
        command.env("LONGSHORE_WORKER_POOL", pool).env("LONGSHORE_WORKER_ID", worker.to_string());
        let (mut child, group, pipes) = match config.program.channel {
            Channel::Stdio => spawn_on_stdio(&mut command, reaper)?,
            Channel::Descriptor => spawn_on_descriptor(&mut command, reaper)?,
        };
        if let Err(error) = apply_limits(config, group.leader()).and_then(|()| set_nonblocking(&pipes)) {
            drop(group);
            let _ = child.wait();
            return Err(error);
        }
        let exit = ExitWatcher::new(group.leader());
        let kill_handle = Arc::new(KillHandle(Mutex::new(Some(group))));
        Ok((Self { child, kill_handle, exit }, pipes))
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn kill_handle(&self) -> Arc<KillHandle> {
        Arc::clone(&self.kill_handle)
    }

    /// Waits until the process has exited. It is not reaped, so its id is not reused.
    pub(super) async fn ended(&self) {
        self.exit.wait().await;
    }

    /// Kills the rest of its group, and reaps it. Does not block once the process has exited.
    pub(super) fn reap(&mut self) -> Option<ExitStatus> {
        self.kill_handle.release();
        self.child.wait().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.reap();
    }
}

fn spawn_on_stdio(
    command: &mut Command,
    reaper: &Arc<OrphanReaper>,
) -> io::Result<(Child, ProcessGroup, ParentPipes)> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (mut child, group) = reaper.spawn(command)?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(write), Some(read), Some(stderr)) = pipes else {
        return Err(io::Error::other("a process without pipes"));
    };
    enlarge_pipe(&write);
    enlarge_pipe(&read);
    let pipes = ParentPipes { write: write.into(), read: read.into(), stderr: stderr.into() };
    Ok((child, group, pipes))
}

/// Spawns a process with a socket. What it prints goes to standard error.
fn spawn_on_descriptor(
    command: &mut Command,
    reaper: &Arc<OrphanReaper>,
) -> io::Result<(Child, ProcessGroup, ParentPipes)> {
    let (ours, theirs) = UnixStream::pair()?;
    // Before the spawn: if this failed afterwards, the process would not be reaped.
    let write = ours.try_clone()?.into();
    let (stderr, output) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    command.env("LONGSHORE_WORKER_FD", DESCRIPTOR.to_string());
    let mapping = FdMapping { parent_fd: theirs.into(), child_fd: DESCRIPTOR };
    command.fd_mappings(vec![mapping]).map_err(io::Error::other)?;
    let (child, group) = reaper.spawn(command)?;
    // The parent's copies of the child's ends must be closed, or the parent would never see their
    // end.
    *command = Command::new("");
    Ok((child, group, ParentPipes { write, read: ours.into(), stderr: stderr.into() }))
}

#[cfg(target_os = "linux")]
fn enlarge_pipe(pipe: impl AsFd) {
    // If it is not allowed, the pipe keeps its size.
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_SIZE);
}

#[cfg(not(target_os = "linux"))]
fn enlarge_pipe(_: impl AsFd) {}

fn set_nonblocking(pipes: &ParentPipes) -> io::Result<()> {
    for end in [&pipes.write, &pipes.read, &pipes.stderr] {
        rustix::io::ioctl_fionbio(end, true)?;
    }
    Ok(())
}

/// Applies priority and limits before the first message: the process waits for it.
fn apply_limits(config: &ProcessConfig, pid: Pid) -> io::Result<()> {
    if let Some(nice) = config.program.nice {
        rustix::process::setpriority_process(Some(pid), nice)?;
    }
    config.limits.set(pid)
}
