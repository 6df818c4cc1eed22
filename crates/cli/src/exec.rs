//! The built-in kind `exec`: a unit is a command, its result what the command said.
//!
//! This module is the handler: it turns what [`run`] saw into an outcome. Reading the payload is
//! [`payload`]'s part, keeping output within bounds [`capture`]'s, and a [`Warden`] makes sure that
//! commands do not outlive a worker that was killed.

use std::path::PathBuf;
use std::sync::Arc;

use longshore::{CancelReason, Context, Handler, HandlerResult, Reply, Verdict, trace};
use longshore_pool::warden::Warden;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::env;
use payload::Exec;
use run::{End, Run};

mod capture;
pub mod payload;
pub mod run;

/// The kind's name.
pub const KIND: &str = "exec";

/// Runs commands.
pub struct ExecHandler {
    dir: PathBuf,
    warden: Arc<Warden>,
}

impl ExecHandler {
    /// Commands run in `dir` unless they name another directory.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, warden: Warden::shared() }
    }
}

/// What is kept of a command that ended with exit code 0.
#[derive(Debug, Serialize)]
pub struct ExecResult {
    /// What it returned; null if a signal ended it.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What it printed, at most 1 MiB.
    pub stdout: String,
    /// What it complained of, at most 1 MiB.
    pub stderr: String,
    /// Whether the middle of either was left out.
    pub truncated: bool,
    /// How long it ran.
    pub seconds: f64,
}

impl Handler for ExecHandler {
    // The payload is read here and not by the engine, so that its errors can say more.
    type Input = Box<RawValue>;
    type Output = ExecResult;

    async fn run(&self, context: Context, input: Box<RawValue>) -> HandlerResult<ExecResult> {
        let exec: Exec = serde_json::from_str(input.get())
            .map_err(|error| Verdict::fail("bad-input", format!("not an exec payload: {error}")))?;
        exec.check().map_err(|problem| Verdict::fail("bad-input", problem))?;
        let run = Run { exec: &exec, dir: &self.dir, env: about(&context), warden: &self.warden };
        let cancelled = context.cancelled();
        let end = run.perform(cancelled.cancelled()).await;
        judge(end, &exec, context.cancel_reason())
    }
}

/// What the command learns about its unit.
fn about(context: &Context) -> Vec<(&'static str, String)> {
    let unit = context.unit();
    let mut about = vec![
        (env::exec::UNIT_ID, unit.id.to_string()),
        (env::exec::ATTEMPT, unit.attempt.to_string()),
    ];
    about.extend(unit.batch.as_ref().map(|batch| (env::exec::BATCH, batch.to_string())));
    about.extend(trace::here().or_else(|| unit.trace.clone()).map(|at| (env::TRACEPARENT, at)));
    about.extend(unit.key.clone().map(|key| (env::exec::KEY, key)));
    about
}

fn judge(end: End, exec: &Exec, reason: Option<CancelReason>) -> HandlerResult<ExecResult> {
    match end {
        End::Exited(result) => match (result.exit_code, result.signal) {
            (Some(0), _) => Ok(Reply::new(result)),
            (Some(code), _) => {
                Err(Verdict::retry("exit-code", with_tail(format!("exit code {code}"), &result)))
            }
            (None, signal) => {
                let signal = signal.map_or("a signal".into(), |signal| format!("signal {signal}"));
                Err(Verdict::retry("signal", with_tail(format!("killed by {signal}"), &result)))
            }
        },
        End::TimedOut(result) => {
            let limit = exec.timeout.map_or(String::new(), |limit| crate::span::brief(limit.0));
            Err(Verdict::retry(
                "timeout",
                with_tail(format!("still running after {limit}"), &result),
            ))
        }
        End::Cancelled(result) if reason == Some(CancelReason::TimedOut) => {
            Err(Verdict::retry("timeout", with_tail("its time was over".into(), &result)))
        }
        // Whether it was cancelled or only interrupted is for the engine to say: it knows why.
        End::Cancelled(_) => Err(Verdict::Cancel),
        End::NotStarted(verdict) => Err(verdict),
    }
}

/// The last words on stderr are what a person needs first.
fn with_tail(what: String, result: &ExecResult) -> String {
    const TAIL: usize = 2000;
    let stderr = result.stderr.trim_end();
    let from = stderr.ceil_char_boundary(stderr.len().saturating_sub(TAIL));
    match &stderr[from..] {
        "" => what,
        tail => format!("{what}: {tail}"),
    }
}
