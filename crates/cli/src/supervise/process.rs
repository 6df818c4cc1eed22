//! One supervised process, from its start until the last process it left behind has ended.
//!
//! It leads a process group of its own, which the orphan reaper terminates if the supervisor is
//! killed: otherwise it would run for ever, beside the processes of the next supervisor.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use longshore_process::{ExitWatcher, OrphanReaper, OutputReader, ProcessGroup, Signal, signal_process};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::log_prefix::{LineFormat, ProcessLabel};
use crate::env;

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
    /// Variables of this process that it does not inherit.
    pub removed_env: &'static [&'static str],
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
    reaper: &Arc<OrphanReaper>,
) -> io::Result<(ProcessHandle, impl Future<Output = SupervisedEnd> + use<>)> {
    let mut command = Command::new(&plan.program);
    command.args(&plan.arguments).current_dir(&plan.dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in plan.removed_env.iter().chain(&[env::NOTIFY_SOCKET, env::WATCHDOG_USEC, env::WATCHDOG_PID]) {
        command.env_remove(name);
    }
    command.envs(plan.env.iter().map(|(name, value)| (name, value)));
    let (child, group) = reaper.spawn(&mut command)?;
    let (signals, received) = mpsc::channel(SIGNAL_QUEUE);
    let label = ProcessLabel { worker: name, pid: group.id() };
    let handle = ProcessHandle { pid: label.pid, signals };
    Ok((handle, run_process(child, group, received, label, line_format)))
}

async fn run_process(
    mut child: Child,
    group: ProcessGroup,
    mut signals: mpsc::Receiver<Signal>,
    label: ProcessLabel,
    line_format: LineFormat,
) -> SupervisedEnd {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut reader = OutputReader::new(async {
        tokio::join!(
            line_format.forward(&label, "stdout", stdout),
            line_format.forward(&label, "stderr", stderr)
        )
    });
    let exit = ExitWatcher::new(group.leader());
    let ended = async {
        let mut ended = std::pin::pin!(exit.wait());
        loop {
            tokio::select! {
                () = &mut ended => break,
                Some(signal) = signals.recv() => match signal {
                    Signal::KILL => group.kill(),
                    signal => signal_process(group.id(), signal),
                },
            }
        }
    };
    reader.read_during(ended).await;
    // Before it is reaped: afterwards its PID may be reused.
    group.release();
    let status = child.wait().await.ok();
    let (out, err) = reader.finish().await.unwrap_or_default();
    SupervisedEnd { status, last: if err.is_empty() { out } else { err } }
}
