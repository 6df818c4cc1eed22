//! PRE and POST by persistent commands: which programs, where they run, and how many.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A command that speaks the worker protocol (docs/worker-protocol.md).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CommandSpec {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Its working directory: the folder of the batch file.
    pub dir: String,
    /// Minimum number of processes, kept when idle.
    pub min: u32,
    /// Maximum number of processes.
    pub max: u32,
    /// Timeout of a call.
    pub timeout: Duration,
    /// Timeout until a process is ready.
    pub start_timeout: Duration,
}

impl CommandSpec {
    /// A command with the default limits.
    pub fn new(argv: Vec<String>, dir: impl Into<String>) -> Self {
        let (timeout, start_timeout) = (Duration::from_secs(30), Duration::from_secs(30));
        Self { argv, dir: dir.into(), min: 0, max: 4, timeout, start_timeout }
    }

    /// The program and its arguments in one line, for messages.
    pub fn command_line(&self) -> String {
        self.argv.join(" ")
    }
}

/// PRE by a command: its operation `prepare` makes the prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandPre {
    /// The command.
    pub command: CommandSpec,
    /// Reads the row for it: `:key` is bound. Without it the command gets the key alone.
    pub sql: Option<String>,
    /// Further reads, each a list of rows.
    pub lists: BTreeMap<String, String>,
}

/// POST by a command: its operation `apply` decides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandPost {
    /// The command.
    pub command: CommandSpec,
    /// Reads the row for it: `:key` is bound. Without it the command gets the key alone.
    pub row_sql: Option<String>,
}
