//! `pool exec`: the shell's way to a permit.
//!
//! The command runs as if it had been started directly: same terminal, same process group, same exit code.
//! It is ended if its permit is lost, and a warden ends it if this process is killed: in both cases
//! somebody else may hold the permit.

use std::io::{self, ErrorKind, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use longshore::{AcquireError, BoundedPool, Permit, Permits};
use longshore_pool::warden::Warden;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind};

use crate::alarms::Alarms;
use crate::args::pool::Exec as Typed;
use crate::commands::interrupted;
use crate::error::{WithHint, hinted, usage};
use crate::exit::ExitCode;
use crate::permits;
use crate::settings::Settings;
use crate::span::brief;

/// There was no permit in time: `EX_TEMPFAIL`, try again later.
const NO_PERMIT: u8 = 75;
/// The permit was lost, and the command ended for it.
const LOST: u8 = 76;
/// What shells say of a command that may not be run, and of one that is not there.
const MAY_NOT: u8 = 126;
const NOT_THERE: u8 = 127;
/// How long a command may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(5);

/// Runs the command.
pub async fn run(
    typed: Typed,
    permits: Arc<dyn Permits>,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let known = permits.stats(&typed.name).await.ok().flatten().map(|stats| stats.max);
    let mut shape = settings.bounded.shape(&typed.name, typed.max.or(known))?;
    if let Some(wait) = typed.wait {
        shape.wait = wait.0;
    }
    if typed.weight == 0 {
        return Err(usage("a weight of 0 takes nothing")).hint("say 1 or more");
    }
    let alarm = Alarms::open(&settings.alerts)?;
    let pool = permits::pool(permits, typed.name.clone(), &shape, alarm);
    let ended = run_under(&pool, &typed, settings).await;
    pool.settle().await;
    ended
}

/// Waits for a permit and runs the command.
async fn run_under(
    pool: &BoundedPool,
    typed: &Typed,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let request = pool.request().weight(typed.weight).priority(typed.priority);
    let permit = tokio::select! {
        permit = request.acquire() => match permit {
            Ok(permit) => permit,
            Err(error) => return none(error, settings),
        },
        signal = interrupted() => {
            signal?;
            return Ok(ExitCode::Interrupted);
        }
    };
    let code = hold(typed, &permit, settings).await?;
    if let Err(error) = permit.release().await {
        tracing::warn!(%error, "the permit could not be given back: it ends with its lease");
    }
    Ok(code)
}

/// Why there is no permit.
fn none(error: AcquireError, settings: &Settings) -> anyhow::Result<ExitCode> {
    match error {
        AcquireError::TimedOut { pool, limit } => {
            let words = format!("no permit of pool `{pool}` within {}", brief(limit));
            settings.output.note(format!("error: {words}"));
            settings
                .output
                .note(format!("hint: `longshore pool status {pool}` shows who holds them"));
            Ok(ExitCode::Program(NO_PERMIT))
        }
        error @ AcquireError::TooHeavy { .. } => {
            Err(hinted(error.into(), "`longshore pool resize` enlarges it"))
        }
        error => Err(error.into()),
    }
}

/// Runs the command to its end.
async fn hold(typed: &Typed, permit: &Permit, settings: &Settings) -> anyhow::Result<ExitCode> {
    let warden = Warden::shared();
    warden.sweep();
    let (program, args) = typed.command.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(args).envs([warden.mark()]);
    command.env("LONGSHORE_POOL", typed.name.as_str());
    if let Some(fence) = permit.fence() {
        command.env("LONGSHORE_FENCE", fence.to_string());
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(not_started(&program.to_string_lossy(), &error, settings)),
    };
    let mut signals = Signals::new()?;
    loop {
        tokio::select! {
            status = child.wait() => return Ok(ExitCode::Program(code(status?))),
            signal = signals.next() => send(&child, signal),
            () = permit.lost(), if !typed.keep_going => {
                settings.output.note(format!("error: the permit of pool `{}` was lost", typed.name));
                end(&mut child).await;
                return Ok(ExitCode::Program(LOST));
            }
        }
    }
}

fn not_started(program: &str, error: &io::Error, settings: &Settings) -> ExitCode {
    let (words, code) = match error.kind() {
        ErrorKind::NotFound => (format!("there is no `{program}`"), NOT_THERE),
        _ => (format!("`{program}` cannot be started: {error}"), MAY_NOT),
    };
    settings.output.note(format!("error: {words}"));
    ExitCode::Program(code)
}

/// As a shell has it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

fn send(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(pid) = pid {
        // Gone a moment ago is as good.
        let _ = kill_process(pid, signal);
    }
}

async fn end(child: &mut Child) {
    send(child, Signal::TERM);
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// Signals that are passed on.
struct Signals {
    terminate: unix::Signal,
    hang_up: unix::Signal,
    interrupt: unix::Signal,
    /// A terminal interrupts everybody in the foreground: the command has heard it already.
    terminal: bool,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            hang_up: unix::signal(SignalKind::hangup())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            terminal: io::stdin().is_terminal(),
        })
    }

    async fn next(&mut self) -> Signal {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return Signal::TERM,
                _ = self.hang_up.recv() => return Signal::HUP,
                _ = self.interrupt.recv() => {
                    if !self.terminal {
                        return Signal::INT;
                    }
                }
            }
        }
    }
}
