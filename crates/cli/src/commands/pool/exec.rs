//! `pool exec`: runs a command under a permit.
//!
//! The command runs as if it had been started directly: same terminal, same process group, same
//! exit code. It is terminated if its permit is lost, and the orphan reaper terminates it if this
//! process is killed: in both cases another holder may have the permit.

use std::io::{self, ErrorKind, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use longshore::{AcquireError, BoundedPool, Permit, Permits, duration};
use longshore_process::{Exit, OrphanReaper, Signal, signal_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind};

use crate::alert_sinks::AlertSinks;
use crate::args::pool::PoolExecArgs as Typed;
use crate::commands::shutdown_signal;
use crate::error::{WithHint, hinted, usage};
use crate::exit::ExitCode;
use crate::semaphore_backend;
use crate::settings::Settings;

/// No permit in time: `EX_TEMPFAIL`, try again later.
const NO_PERMIT: u8 = 75;
/// The permit was lost, and the command was terminated.
const PERMIT_LOST: u8 = 76;
/// The shells' exit codes for a command that is not executable, and for one that does not exist.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// Time between SIGTERM and SIGKILL.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// Runs the command.
pub async fn run(typed: Typed, permits: Arc<dyn Permits>, settings: &Settings) -> anyhow::Result<ExitCode> {
    let known = permits.stats(&typed.name).await.ok().flatten().map(|stats| stats.max);
    let mut shape = settings.bounded.shape(&typed.name, typed.max.or(known))?;
    if let Some(wait) = typed.wait {
        shape.wait = wait.0;
    }
    if typed.weight == 0 {
        return Err(usage("the weight is 0")).hint("use 1 or more");
    }
    let alarm = AlertSinks::open(&settings.alerts)?;
    let pool = semaphore_backend::pool(permits, typed.name.clone(), &shape, alarm);
    let ended = run_with_permit(&pool, &typed, settings).await;
    pool.flush().await;
    ended
}

/// Waits for a permit and runs the command.
async fn run_with_permit(pool: &BoundedPool, typed: &Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    let request = pool.request().weight(typed.weight).priority(typed.priority);
    let permit = tokio::select! {
        permit = request.acquire() => match permit {
            Ok(permit) => permit,
            Err(error) => return no_permit(error, settings),
        },
        signal = shutdown_signal() => {
            signal?;
            return Ok(ExitCode::Interrupted);
        }
    };
    let code = run_command(typed, &permit, settings).await?;
    if let Err(error) = permit.release().await {
        tracing::warn!(%error, "cannot release the permit: it expires with its lease");
    }
    Ok(code)
}

/// The exit code or error for a failed acquire.
fn no_permit(error: AcquireError, settings: &Settings) -> anyhow::Result<ExitCode> {
    match error {
        AcquireError::TimedOut { pool, limit } => {
            let words = format!("no permit of pool `{pool}` within {}", duration::format(limit));
            settings.output.note(format!("error: {words}"));
            settings.output.note(format!("hint: `longshore pool status {pool}` shows the holders"));
            Ok(ExitCode::Program(NO_PERMIT))
        }
        error @ AcquireError::TooHeavy { .. } => {
            Err(hinted(error.into(), "`longshore pool resize` enlarges it"))
        }
        error => Err(error.into()),
    }
}

/// Runs the command to its end.
async fn run_command(typed: &Typed, permit: &Permit, settings: &Settings) -> anyhow::Result<ExitCode> {
    let reaper = OrphanReaper::shared();
    reaper.sweep();
    let (program, args) = typed.command.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(args).envs([reaper.mark()]);
    command.env("LONGSHORE_POOL", typed.name.as_str());
    if let Some(fence) = permit.fence() {
        command.env("LONGSHORE_FENCE", fence.to_string());
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(not_started(&program.to_string_lossy(), &error, settings)),
    };
    let mut signals = ForwardedSignals::new()?;
    loop {
        tokio::select! {
            status = child.wait() => return Ok(ExitCode::Program(exit_code(status?.into()))),
            signal = signals.next() => send(&child, signal),
            () = permit.lost(), if !typed.keep_going => {
                settings.output.note(format!("error: the permit of pool `{}` was lost", typed.name));
                terminate(&mut child).await;
                return Ok(ExitCode::Program(PERMIT_LOST));
            }
        }
    }
}

fn not_started(program: &str, error: &io::Error, settings: &Settings) -> ExitCode {
    let (words, code) = match error.kind() {
        ErrorKind::NotFound => (format!("`{program}` does not exist"), NOT_FOUND),
        _ => (format!("cannot start `{program}`: {error}"), NOT_EXECUTABLE),
    };
    settings.output.note(format!("error: {words}"));
    ExitCode::Program(code)
}

/// The exit code as a shell reports it.
fn exit_code(exit: Exit) -> u8 {
    u8::try_from(exit.shell_code()).unwrap_or(u8::MAX)
}

fn send(child: &Child, signal: Signal) {
    if let Some(id) = child.id() {
        signal_process(id, signal);
    }
}

async fn terminate(child: &mut Child) {
    send(child, Signal::TERM);
    if tokio::time::timeout(KILL_GRACE, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// Signals that are forwarded to the command.
struct ForwardedSignals {
    terminate: unix::Signal,
    hang_up: unix::Signal,
    interrupt: unix::Signal,
    /// A terminal sends SIGINT to the whole foreground group: the command has received it already.
    terminal: bool,
}

impl ForwardedSignals {
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
