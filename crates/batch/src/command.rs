//! Persistent worker processes in any language that make prompts (PRE) and decide (POST).
//!
//! [`Commands`] starts each command once per process of ours and shares it among all batches that
//! name it. [`CommandPrepare`] and [`CommandApply`] have the requests and responses; `error` maps a
//! failed call to the row's outcome.

mod apply;
mod error;
mod prepare;
mod response;
mod run;

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore_pool::{
    BASIC_VARIABLES, CallError, CallOptions, ErrorKind, PoolSettings, Program, WhenQueueFull, WorkerPool,
};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::definition::CommandSpec;
use crate::throttled_log;

pub use self::apply::CommandApply;
use self::error::{CallFailure, describe_error};
pub use self::prepare::CommandPrepare;
pub use self::run::CommandStep;

/// The name of PRE's operation.
pub const PREPARE: &str = "prepare";
/// The name of POST's operation.
pub const APPLY: &str = "apply";
/// The name of a step's operation.
pub const RUN: &str = "run";

/// Commands kept. The pool stops the processes of an idle command after a while.
const MAX_COMMANDS: usize = 64;
/// Delay before a command that failed to start is started again: every row needs it.
const RESTART_DELAY: Duration = Duration::from_secs(5);
/// How often a call is repeated after its process died. The cause may lie outside the row; a row
/// that kills the process each time still ends.
const MAX_CRASH_RETRIES: u32 = 2;

/// The commands of batches, each started once and shared.
#[derive(Default)]
pub struct Commands {
    extra_variables: Vec<OsString>,
    /// Most recently used first.
    cells: Mutex<Vec<(CommandSpec, Arc<CommandCell>)>>,
}

type CommandCell = tokio::sync::Mutex<State>;

#[derive(Default)]
enum State {
    #[default]
    New,
    Open(Arc<CommandPool>),
    Failed {
        until: Instant,
        error: CommandError,
    },
}

/// Why a command cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// None of its processes became ready.
    #[error("`{command}` cannot be started in {dir}: {why}")]
    NotStarted {
        /// The command.
        command: String,
        /// The working directory.
        dir: String,
        /// The error, and the end of the process's stderr.
        why: String,
    },
    /// The command lacks the operation.
    #[error("`{command}` has no operation `{operation}`; it has {known}")]
    NoOperation {
        /// The command.
        command: String,
        /// The missing operation.
        operation: &'static str,
        /// The operations that it has.
        known: String,
    },
}

impl Commands {
    /// Commands that inherit these variables in addition to [`BASIC_VARIABLES`].
    pub fn with_env<N: Into<OsString>>(names: impl IntoIterator<Item = N>) -> Self {
        let extra_variables = names.into_iter().map(Into::into).collect();
        Self { extra_variables, ..Self::default() }
    }

    /// Returns the command, starting it if necessary. Fails if it lacks `operation`.
    pub async fn open(
        &self,
        command: &CommandSpec,
        operation: &'static str,
    ) -> Result<Arc<CommandPool>, CommandError> {
        let cell = self.cell(command);
        let mut state = cell.lock().await;
        let pool = match &*state {
            State::Open(pool) => Arc::clone(pool),
            State::Failed { until, error } if *until > Instant::now() => return Err(error.clone()),
            State::Failed { .. } | State::New => match self.start(command).await {
                Ok(pool) => {
                    let pool = Arc::new(pool);
                    *state = State::Open(Arc::clone(&pool));
                    pool
                }
                Err(error) => {
                    let until = Instant::now() + RESTART_DELAY;
                    *state = State::Failed { until, error: error.clone() };
                    return Err(error);
                }
            },
        };
        drop(state);
        pool.require_operation(operation)?;
        Ok(pool)
    }

    /// Shuts all commands down; kills processes that do not end within `limit`.
    pub async fn close(&self, limit: Duration) {
        let cells = std::mem::take(&mut *self.cells());
        let closing = cells.into_iter().map(|(_, cell)| async move {
            if let State::Open(pool) = &*cell.lock().await {
                pool.pool.close(limit).await;
            }
        });
        futures_util::future::join_all(closing).await;
    }

    fn cells(&self) -> std::sync::MutexGuard<'_, Vec<(CommandSpec, Arc<CommandCell>)>> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cell(&self, command: &CommandSpec) -> Arc<CommandCell> {
        let mut cells = self.cells();
        match cells.iter().position(|(known, _)| known == command) {
            Some(at) => cells[..=at].rotate_right(1),
            None => {
                cells.truncate(MAX_COMMANDS - 1);
                cells.insert(0, (command.clone(), Arc::default()));
            }
        }
        Arc::clone(&cells[0].1)
    }

    async fn start(&self, command: &CommandSpec) -> Result<CommandPool, CommandError> {
        let (min, max) = (command.min as usize, command.max.max(1) as usize);
        let settings = PoolSettings {
            // Start at least one to see whether it works; the pool stops surplus idle processes.
            min: min.clamp(1, max),
            max,
            when_full: WhenQueueFull::Wait,
            timeout: command.timeout,
            start_timeout: command.start_timeout,
            ..PoolSettings::default()
        };
        let not_started = |error: CallError| CommandError::NotStarted {
            command: command.command_line(),
            dir: command.dir.clone(),
            why: describe_error(error.kind),
        };
        let opened = WorkerPool::processes(command.command_line(), self.program(command), settings).await;
        let pool = opened.map_err(not_started)?;
        pool.resize(min.min(max), max).map_err(not_started)?;
        Ok(CommandPool { pool, command: command.clone(), call_slots: Semaphore::new(max) })
    }

    fn program(&self, command: &CommandSpec) -> Program {
        let mut argv = command.argv.iter();
        let inherited = BASIC_VARIABLES.iter().map(OsString::from);
        Program::command(argv.next().map(String::as_str).unwrap_or_default())
            .args(argv)
            .directory(&command.dir)
            .inherit_only(inherited.chain(self.extra_variables.iter().cloned()))
    }
}

impl std::fmt::Debug for Commands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commands").field("known", &self.cells().len()).finish_non_exhaustive()
    }
}

/// The processes of one command.
pub struct CommandPool {
    pool: WorkerPool,
    command: CommandSpec,
    /// Bounds calls to the number of processes, so that a call's timeout does not run while it
    /// waits for one.
    call_slots: Semaphore,
}

impl CommandPool {
    fn require_operation(&self, operation: &'static str) -> Result<(), CommandError> {
        let known = self.pool.list_operations();
        if known.iter().any(|known| known.name == operation) {
            return Ok(());
        }
        let known: Vec<String> = known.into_iter().map(|known| format!("`{}`", known.name)).collect();
        let (command, known) = (self.command.command_line(), known.join(", "));
        Err(CommandError::NoOperation { command, operation, known })
    }

    /// The timeout of the next call. If no process is free, the pool starts one and counts that
    /// time towards the call's, so it is added.
    fn call_timeout(&self) -> Duration {
        let CommandSpec { timeout, start_timeout, .. } = self.command;
        let now = self.pool.stats();
        let free = now.workers.saturating_sub(now.busy + now.starting + now.abandoned);
        if free > 0 { timeout } else { timeout + start_timeout }
    }

    /// Calls an operation. By the contract with commands it may be called again for the same row,
    /// so the call is repeated if its process dies.
    async fn call(&self, operation: &str, arguments: &Value) -> Result<Value, CallFailure> {
        // The semaphore is never closed.
        let _slot = self.call_slots.acquire().await.ok();
        let mut crashes = 0;
        loop {
            let options = CallOptions::default().timeout(self.call_timeout()).cancel_on_drop();
            let error = match self.pool.call_with(operation, arguments, options).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            crashes += 1;
            if crashes > MAX_CRASH_RETRIES || !matches!(error.kind, ErrorKind::WorkerDied { .. }) {
                return Err(self.call_failure(error.kind));
            }
            let command = self.command.command_line();
            throttled_log::warn("a process of a command died; the call is repeated", command, error);
        }
    }
}

impl std::fmt::Debug for CommandPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommandPool").field("command", &self.command).finish_non_exhaustive()
    }
}
