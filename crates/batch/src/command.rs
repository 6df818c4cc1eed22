//! Commands that stay: worker processes in any language that make prompts (PRE) and decide (POST).
//!
//! [`Commands`] starts each command once per process of ours and keeps it for all batches that name
//! it. What a command is told and what it may answer is in [`prepare`](CommandPrepare) and
//! [`apply`](CommandApply); what a call that went wrong means for its row, in `trouble`.

mod apply;
mod prepare;
mod said;
mod trouble;

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore_pool::{CallError, CallOptions, ErrorKind, Program, Settings, WhenFull, WorkerPool};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::definition::Command;

pub use self::apply::CommandApply;
pub use self::prepare::CommandPrepare;
use self::trouble::{Trouble, Warnings, last_words};

/// The operation of PRE.
pub const PREPARE: &str = "prepare";
/// The operation of POST.
pub const APPLY: &str = "apply";

/// What a command inherits unless told more: what programs need to run at all, and where languages
/// look for libraries. Everything else stays behind: a worker's environment may hold secrets.
pub const INHERITED: [&str; 10] = [
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "PYTHONPATH",
    "NODE_PATH",
    "PERL5LIB",
];

/// How many commands are kept. One that nobody uses has no processes after a while.
const MOST: usize = 64;
/// A command that could not be started is not tried again for so long: every row asks.
const REST: Duration = Duration::from_secs(5);
/// How often a call is made again in place whose process died: anybody may have killed it, and a row
/// that kills it each time still comes to its end.
const DEATHS: u32 = 2;

/// The commands of batches: each is started once, and shared.
#[derive(Default)]
pub struct Commands {
    also_inherited: Vec<OsString>,
    warnings: Warnings,
    /// The most recently used first.
    cells: Mutex<Vec<(Command, Arc<Cell>)>>,
}

type Cell = tokio::sync::Mutex<State>;

#[derive(Default)]
enum State {
    #[default]
    Unopened,
    Open(Arc<CommandPool>),
    Failed {
        until: Instant,
        error: CommandError,
    },
}

/// Why a command cannot be worked with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// No process of it became ready.
    #[error("`{command}` cannot be started in {dir}: {why}")]
    NotStarted {
        /// The command.
        command: String,
        /// Where.
        dir: String,
        /// What happened, and the end of what it said.
        why: String,
    },
    /// It is a worker, but not one for this.
    #[error("`{command}` has no operation `{operation}`; it has {known}")]
    NoOperation {
        /// The command.
        command: String,
        /// What it lacks.
        operation: &'static str,
        /// What it has.
        known: String,
    },
}

impl Commands {
    /// Commands that inherit these variables beside [`INHERITED`].
    pub fn inheriting<N: Into<OsString>>(names: impl IntoIterator<Item = N>) -> Self {
        let also_inherited = names.into_iter().map(Into::into).collect();
        Self { also_inherited, ..Self::default() }
    }

    /// A command that has `operation`, started if it is not.
    pub async fn open(
        &self,
        command: &Command,
        operation: &'static str,
    ) -> Result<Arc<CommandPool>, CommandError> {
        let cell = self.cell(command);
        let mut state = cell.lock().await;
        let pool = match &*state {
            State::Open(pool) => Arc::clone(pool),
            State::Failed { until, error } if *until > Instant::now() => return Err(error.clone()),
            State::Failed { .. } | State::Unopened => match self.start(command).await {
                Ok(pool) => {
                    let pool = Arc::new(pool);
                    *state = State::Open(Arc::clone(&pool));
                    pool
                }
                Err(error) => {
                    let until = Instant::now() + REST;
                    *state = State::Failed { until, error: error.clone() };
                    return Err(error);
                }
            },
        };
        drop(state);
        pool.must_have(operation)?;
        Ok(pool)
    }

    /// Says now and then that rows wait.
    pub(crate) fn warn(&self, error: &CommandError) {
        self.warnings.warn(&error.to_string());
    }

    /// Ends all commands in good order; those that do not end within `limit` are killed.
    pub async fn close(&self, limit: Duration) {
        let cells = std::mem::take(&mut *self.cells());
        let closing = cells.into_iter().map(|(_, cell)| async move {
            if let State::Open(pool) = &*cell.lock().await {
                pool.pool.close(limit).await;
            }
        });
        futures_util::future::join_all(closing).await;
    }

    fn cells(&self) -> std::sync::MutexGuard<'_, Vec<(Command, Arc<Cell>)>> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cell(&self, command: &Command) -> Arc<Cell> {
        let mut cells = self.cells();
        match cells.iter().position(|(known, _)| known == command) {
            Some(at) => cells[..=at].rotate_right(1),
            None => {
                cells.truncate(MOST - 1);
                cells.insert(0, (command.clone(), Arc::default()));
            }
        }
        Arc::clone(&cells[0].1)
    }

    async fn start(&self, command: &Command) -> Result<CommandPool, CommandError> {
        let (min, max) = (command.min as usize, command.max.max(1) as usize);
        let settings = Settings {
            // One shows whether it works at all; those that are too many leave when they are idle.
            min: min.clamp(1, max),
            max,
            when_full: WhenFull::Wait,
            timeout: command.timeout,
            start_timeout: command.start_timeout,
            ..Settings::default()
        };
        let not_started = |error: CallError| CommandError::NotStarted {
            command: command.shown(),
            dir: command.dir.clone(),
            why: last_words(error.kind),
        };
        let opened = WorkerPool::processes(command.shown(), self.program(command), settings).await;
        let pool = opened.map_err(not_started)?;
        pool.resize(min.min(max), max).map_err(not_started)?;
        let (room, warnings) = (Semaphore::new(max), Warnings::default());
        Ok(CommandPool { pool, command: command.clone(), room, warnings })
    }

    fn program(&self, command: &Command) -> Program {
        let mut words = command.argv.iter();
        let inherited = INHERITED.iter().map(OsString::from);
        Program::command(words.next().map(String::as_str).unwrap_or_default())
            .args(words)
            .directory(&command.dir)
            .inherit_only(inherited.chain(self.also_inherited.iter().cloned()))
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
    command: Command,
    /// A call that waits for a process has its time still before it.
    room: Semaphore,
    warnings: Warnings,
}

impl CommandPool {
    fn must_have(&self, operation: &'static str) -> Result<(), CommandError> {
        let known = self.pool.list_operations();
        if known.iter().any(|known| known.name == operation) {
            return Ok(());
        }
        let known: Vec<String> =
            known.into_iter().map(|known| format!("`{}`", known.name)).collect();
        let (command, known) = (self.command.shown(), known.join(", "));
        Err(CommandError::NoOperation { command, operation, known })
    }

    /// How long the next call may take: where no process is free, one is being started for it, and a
    /// pool counts the waiting.
    fn limit(&self) -> Duration {
        let Command { timeout, start_timeout, .. } = self.command;
        let now = self.pool.stats();
        let free = now.workers.saturating_sub(now.busy + now.starting + now.abandoned);
        if free > 0 { timeout } else { timeout + start_timeout }
    }

    /// Calls an operation. It may be called again for the same row, by the contract with commands: so
    /// a call whose process died is made again.
    async fn call(&self, operation: &str, arguments: &Value) -> Result<Value, Trouble> {
        // Nobody closes it.
        let _place = self.room.acquire().await.ok();
        let mut deaths = 0;
        loop {
            let options = CallOptions::default().timeout(self.limit()).cancel_on_drop();
            let error = match self.pool.call_with(operation, arguments, options).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            deaths += 1;
            if deaths > DEATHS || !matches!(error.kind, ErrorKind::WorkerDied { .. }) {
                return Err(self.trouble(error.kind));
            }
            tracing::warn!(%error, "a command died and is asked again");
        }
    }
}

impl std::fmt::Debug for CommandPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommandPool").field("command", &self.command).finish_non_exhaustive()
    }
}
