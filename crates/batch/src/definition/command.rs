//! PRE and POST by commands that stay: what is started, where, and how many of them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A command that speaks the worker protocol (docs/worker-protocol.md).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Command {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The folder it runs in: that of the batch file.
    pub dir: String,
    /// Processes that stay even if there is nothing to do.
    pub min: u32,
    /// Processes at most.
    pub max: u32,
    /// Longest call.
    pub timeout: Duration,
    /// How long a process may take until it is ready.
    pub start_timeout: Duration,
}

impl Command {
    /// A command with what holds where nothing is said.
    pub fn new(argv: Vec<String>, dir: impl Into<String>) -> Self {
        let (timeout, start_timeout) = (Duration::from_secs(30), Duration::from_secs(30));
        Self { argv, dir: dir.into(), min: 0, max: 4, timeout, start_timeout }
    }

    /// As people would write it.
    pub fn shown(&self) -> String {
        self.argv.join(" ")
    }
}

/// PRE by a command: its operation `prepare` makes the prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandPre {
    /// Who makes it.
    pub command: Command,
    /// Reads the row for it: `:key` is bound. Without it the command gets the key alone.
    pub sql: Option<String>,
    /// Further reads, each a list of rows.
    pub lists: BTreeMap<String, String>,
}

/// POST by a command: its operation `apply` decides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandPost {
    /// Who decides.
    pub command: Command,
    /// Reads the row for it: `:key` is bound. Without it the command gets the key alone.
    pub row_sql: Option<String>,
}
