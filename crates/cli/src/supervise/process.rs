//! One supervised process, from its start until the last process it left behind has ended.
//!
//! It leads a process group of its own, which the orphan reaper terminates if the supervisor is
//! killed: otherwise it would run for ever, beside the processes of the next supervisor.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use longshore_pool::warden::{Exit, Group, Warden};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::log_prefix::{LineFormat, ProcessLabel};
use crate::env;

/// How long output is read after the process ended, while processes it left behind hold the pipe.
const OUTPUT_LINGER: Duration = Duration::from_millis(200);
/// Capacity of the signal queue: TERM, TERM again, KILL.
const SIGNAL_QUEUE: usize = 8;

/// The command to start.
#[derive(Debug, Clone)]
pub struct ProcessCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its working directory.
    pub dir: PathBuf,
    /// Variables set in its environment, beside the inherited ones.
    pub env: Vec<(String, String)>,
}

/// A running process.
#[derive(Debug)]
pub struct ProcessHandle {
    /// Its PID.
    pub pid: u32,
    signals: mpsc::Sender<Signal>,
}

/// How a process ended.
#[derive(Debug)]
pub struct SupervisedEnd {
    /// Its exit status, if known.
    pub status: Option<ExitStatus>,
    /// The last line it printed.
    pub last: String,
}

impl ProcessHandle {
    /// Sends a signal: KILL to its whole group, others to the process alone, which handles its
    /// children itself.
    pub fn send(&self, signal: Signal) {
        // If the queue is full or closed, the process was signalled before or is gone.
        let _ = self.signals.try_send(signal);
    }
}

/// Starts a process. The future runs until its end; dropping it kills the process.
pub fn start(
    plan: &ProcessCommand,
    name: String,
    line_format: LineFormat,
    warden: &Arc<Warden>,
) -> io::Result<(ProcessHandle, impl Future<Output = SupervisedEnd> + use<>)> {
    let mut command = Command::new(&plan.program);
    command.args(&plan.arguments).current_dir(&plan.dir).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.envs(plan.env.iter().map(|(name, value)| (name, value))).envs([warden.mark()]);
    for own in [env::NOTIFY_SOCKET, env::WATCHDOG_USEC, env::WATCHDOG_PID] {
        command.env_remove(own);
    }
    let child = command.spawn()?;
    let group = Group::of(child.id()).ok_or_else(|| io::Error::other("it has no PID"))?;
    let (signals, received) = mpsc::channel(SIGNAL_QUEUE);
    let label = ProcessLabel { worker: name, pid: group.id().unsigned_abs() };
    let handle = ProcessHandle { pid: label.pid, signals };
    let warden = Arc::clone(warden);
    let life = async move {
        let watched = warden.watch(group.id());
        let end = run_process(child, group, received, &label, line_format).await;
        drop(watched);
        end
    };
    Ok((handle, life))
}

async fn run_process(
    mut child: Child,
    group: Group,
    mut signals: mpsc::Receiver<Signal>,
    label: &ProcessLabel,
    line_format: LineFormat,
) -> SupervisedEnd {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let listen = async {
        tokio::join!(
            line_format.forward(label, "stdout", stdout),
            line_format.forward(label, "stderr", stderr)
        )
    };
    let mut listen = std::pin::pin!(listen);
    let mut output_done = None;
    if let Some(pid) = Pid::from_raw(group.id()) {
        let exit = Exit::of_process(pid);
        let mut ended = std::pin::pin!(exit.ended());
        loop {
            tokio::select! {
                () = &mut ended => break,
                all = &mut listen, if output_done.is_none() => output_done = Some(all),
                Some(signal) = signals.recv() => match signal {
                    Signal::KILL => group.kill(),
                    // The process may have ended a moment ago.
                    signal => _ = kill_process(pid, signal),
                },
            }
        }
    }
    // Before it is reaped: afterwards its PID may be reused.
    group.release();
    let status = child.wait().await.ok();
    let output_done = match output_done {
        Some(output_done) => output_done,
        None => tokio::time::timeout(OUTPUT_LINGER, listen).await.unwrap_or_default(),
    };
    let (out, err) = output_done;
    SupervisedEnd { status, last: if err.is_empty() { out } else { err } }
}

/// The bytes of resident memory of a process, if they can be read.
pub fn memory(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * u64::try_from(rustix::param::page_size()).ok()?)
}
