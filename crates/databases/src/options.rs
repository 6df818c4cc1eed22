//! The configuration of a connection.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::row_collector::ResultLimits;

/// The configuration of a connection. Serialised for worker processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionConfig {
    /// Prepared statements that a connection keeps; 0 for none.
    pub statements: usize,
    /// Maximum number of rows that a statement returns.
    pub row_limit: usize,
    /// Maximum number of bytes that a statement returns.
    pub byte_limit: usize,
    /// How long a statement waits for a lock; `None` for the database's own limit.
    pub busy: Option<Duration>,
    /// How long one statement may take.
    pub statement_timeout: Option<Duration>,
    /// Statements that are run on every new connection.
    pub init: Vec<String>,
    /// Whether the session only reads, except in transactions begun by [`crate::Connection::begin_write`].
    pub read_only: bool,
    /// PostgreSQL: whether the session has no settings, because a pooler may assign another one to every transaction.
    #[serde(default)]
    pub stateless: bool,
    /// SQLite: whether a missing file is created.
    pub create: bool,
    /// Whether a worker starts without a connection.
    pub lazy: bool,
    /// A connection that was idle this long is pinged before it is used.
    pub check_after: Duration,
    /// How long a worker tries to connect before the call fails.
    pub reconnect: Duration,
}

impl ConnectionConfig {
    /// The limits of a result.
    pub fn limits(&self) -> ResultLimits {
        ResultLimits { rows: self.row_limit, bytes: self.byte_limit }
    }
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            statements: 128,
            row_limit: 100_000,
            byte_limit: 32 << 20,
            busy: Some(Duration::from_secs(5)),
            statement_timeout: None,
            init: Vec::new(),
            read_only: false,
            stateless: false,
            create: false,
            lazy: false,
            check_after: Duration::from_secs(5),
            reconnect: Duration::from_secs(10),
        }
    }
}
