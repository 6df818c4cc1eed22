//! The built-in kind `exec`: a unit is a command, its result the command's output.
//!
//! This module is the handler: it maps the end of a [`run`] to an outcome. [`payload`] parses, and an
//! `OrphanReaper` terminates commands that outlive a killed worker.

use longshore::{CancelReason, Context, Handler, HandlerReply, HandlerResult, Verdict, trace};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::env;
use payload::ExecPayload;
use run::{CommandEnd, CommandRun, CommandSettings};

mod os_user;
pub mod payload;
pub mod run;

pub use os_user::OsUser;

/// The kind's name.
pub const KIND: &str = "exec";

/// Runs commands.
pub struct ExecHandler {
    settings: CommandSettings,
}

impl ExecHandler {
    /// Runs commands with these settings.
    pub fn new(settings: CommandSettings) -> Self {
        Self { settings }
    }
}

/// What is known of a command that ended; with exit code 0 it is the unit's result.
#[derive(Debug, Serialize)]
pub struct ExecResult {
    /// Its exit code; null if a signal ended it.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Its standard output, at most 1 MiB.
    pub stdout: String,
    /// Its standard error, at most 1 MiB.
    pub stderr: String,
    /// Whether the middle of either was left out.
    pub truncated: bool,
    /// How long it ran.
    pub seconds: f64,
}

impl Handler for ExecHandler {
    // Parsed here and not by the engine, for better error messages.
    type Input = Box<RawValue>;
    type Output = ExecResult;

    async fn run(&self, context: Context, input: Box<RawValue>) -> HandlerResult<ExecResult> {
        let exec: ExecPayload = serde_json::from_str(input.get())
            .map_err(|error| Verdict::fail("bad-input", format!("not an exec payload: {error}")))?;
        exec.check().map_err(|problem| Verdict::fail("bad-input", problem))?;
        let run = CommandRun { exec: &exec, settings: &self.settings, env: unit_env(&context) };
        let cancelled = context.cancelled();
        let ended = run.perform(cancelled.cancelled()).await?;
        to_outcome(ended, &exec, context.cancel_reason())
    }
}

/// Variables that describe the unit to the command.
fn unit_env(context: &Context) -> Vec<(&'static str, String)> {
    let unit = context.unit();
    let mut unit_env =
        vec![(env::exec::UNIT_ID, unit.id.to_string()), (env::exec::ATTEMPT, unit.attempt.to_string())];
    unit_env.extend(unit.batch.as_ref().map(|batch| (env::exec::BATCH, batch.to_string())));
    unit_env
        .extend(trace::current_traceparent().or_else(|| unit.trace.clone()).map(|at| (env::TRACEPARENT, at)));
    unit_env.extend(unit.key.clone().map(|key| (env::exec::KEY, key)));
    unit_env
}

fn to_outcome(
    (end, result): (CommandEnd, ExecResult),
    exec: &ExecPayload,
    reason: Option<CancelReason>,
) -> HandlerResult<ExecResult> {
    match end {
        CommandEnd::Exited => match (result.exit_code, result.signal) {
            (Some(0), _) => Ok(HandlerReply::new(result)),
            (Some(code), _) => {
                Err(Verdict::retry("exit-code", with_tail(format!("exit code {code}"), &result)))
            }
            (None, signal) => {
                let signal = signal.map_or("a signal".into(), |signal| format!("signal {signal}"));
                Err(Verdict::retry("signal", with_tail(format!("killed by {signal}"), &result)))
            }
        },
        CommandEnd::TimedOut => {
            let limit = exec.timeout.map_or(String::new(), |limit| longshore::duration::format(limit.0));
            Err(Verdict::retry("timeout", with_tail(format!("still running after {limit}"), &result)))
        }
        CommandEnd::Cancelled if reason == Some(CancelReason::TimedOut) => {
            Err(Verdict::retry("timeout", with_tail("its time limit was reached".into(), &result)))
        }
        // The engine decides whether it was cancelled or only interrupted: it knows the reason.
        CommandEnd::Cancelled => Err(Verdict::Cancel),
    }
}

/// Appends the end of stderr, which a user needs first.
fn with_tail(what: String, result: &ExecResult) -> String {
    const TAIL: usize = 2000;
    let stderr = result.stderr.trim_end();
    let from = stderr.ceil_char_boundary(stderr.len().saturating_sub(TAIL));
    match &stderr[from..] {
        "" => what,
        tail => format!("{what}: {tail}"),
    }
}
