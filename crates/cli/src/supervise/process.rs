//! One supervised process, from its start to the end of the last that it left behind.
//!
//! It leads a process group of its own, which the warden ends should the supervisor be killed: nobody
//! would ever end it otherwise, and the next supervisor starts others.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use longshore_pool::warden::{Exit, Group, Warden};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::voice::{Speaker, Voice};
use crate::env;

/// How long is listened after the process ended, while others that it left behind hold the pipe.
const LINGER: Duration = Duration::from_millis(200);
/// Orders that may wait to be carried out: asked, asked again, killed.
const ORDERS: usize = 8;

/// What is started.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Where it runs.
    pub dir: PathBuf,
    /// What is set in its environment, beside what it inherits.
    pub env: Vec<(String, String)>,
}

/// A process that runs.
#[derive(Debug)]
pub struct Handle {
    /// Its number.
    pub pid: u32,
    orders: mpsc::Sender<Signal>,
}

/// How a process ended.
#[derive(Debug)]
pub struct End {
    /// What the system says.
    pub status: Option<ExitStatus>,
    /// The last line it printed.
    pub last: String,
}

impl Handle {
    /// Sends a signal: KILL to its whole group, others to it alone, which knows what to do about its
    /// children.
    pub fn send(&self, signal: Signal) {
        // Full or closed: it has been told, or is gone.
        let _ = self.orders.try_send(signal);
    }
}

/// Starts a process. The future is its life: dropped early, it ends the process.
pub fn start(
    plan: &Plan,
    name: String,
    voice: Voice,
    warden: &Arc<Warden>,
) -> io::Result<(Handle, impl Future<Output = End> + use<>)> {
    let mut command = Command::new(&plan.program);
    command.args(&plan.arguments).current_dir(&plan.dir).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.envs(plan.env.iter().map(|(name, value)| (name, value))).envs([warden.mark()]);
    for own in [env::NOTIFY_SOCKET, env::WATCHDOG_USEC, env::WATCHDOG_PID] {
        command.env_remove(own);
    }
    let child = command.spawn()?;
    let group = Group::of(child.id()).ok_or_else(|| io::Error::other("it has no number"))?;
    let (orders, received) = mpsc::channel(ORDERS);
    let who = Speaker { worker: name, pid: group.id().unsigned_abs() };
    let handle = Handle { pid: who.pid, orders };
    let warden = Arc::clone(warden);
    let life = async move {
        let watched = warden.watch(group.id());
        let end = live(child, group, received, &who, voice).await;
        drop(watched);
        end
    };
    Ok((handle, life))
}

async fn live(
    mut child: Child,
    group: Group,
    mut orders: mpsc::Receiver<Signal>,
    who: &Speaker,
    voice: Voice,
) -> End {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let listen = async {
        tokio::join!(voice.pass_on(who, "stdout", stdout), voice.pass_on(who, "stderr", stderr))
    };
    let mut listen = std::pin::pin!(listen);
    let mut heard = None;
    if let Some(pid) = Pid::from_raw(group.id()) {
        let exit = Exit::of_process(pid);
        let mut ended = std::pin::pin!(exit.ended());
        loop {
            tokio::select! {
                () = &mut ended => break,
                all = &mut listen, if heard.is_none() => heard = Some(all),
                Some(signal) = orders.recv() => match signal {
                    Signal::KILL => group.kill(),
                    // Gone a moment ago is as good.
                    signal => _ = kill_process(pid, signal),
                },
            }
        }
    }
    // Before it is waited for: afterwards its number may be another's.
    group.release();
    let status = child.wait().await.ok();
    let heard = match heard {
        Some(heard) => heard,
        None => tokio::time::timeout(LINGER, listen).await.unwrap_or_default(),
    };
    let (out, err) = heard;
    End { status, last: if err.is_empty() { out } else { err } }
}

/// The bytes of memory that a process has in use; nothing if nobody can say.
pub fn memory(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * u64::try_from(rustix::param::page_size()).ok()?)
}
