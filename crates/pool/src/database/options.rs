//! Options of a database: its pool, and its connections.

use std::time::Duration;

use longshore_databases::ConnectionConfig;

use crate::program::Program;
use crate::settings::PoolSettings;

/// Options of a database. The defaults are [`PoolSettings::database`] for the pool, threads, and
/// generous limits.
///
/// ```
/// use std::time::Duration;
/// use longshore_pool::database::DbOptions;
///
/// let options = DbOptions::default()
///     .workers(2, 8)
///     .statement_timeout(Duration::from_secs(5))
///     .init("PRAGMA journal_mode = wal");
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct DbOptions {
    pub(super) name: String,
    pub(super) settings: PoolSettings,
    pub(super) isolation: DbIsolation,
    pub(super) connection: ConnectionConfig,
}

/// Where the connections run.
#[derive(Debug, Clone, Default)]
pub enum DbIsolation {
    /// On threads of this process.
    #[default]
    Threads,
    /// In child processes, which may crash without harm. The program must support it: see
    /// [`super::of_worker`]. Default: [`Program::this`].
    Processes(Option<Program>),
}

impl Default for DbOptions {
    fn default() -> Self {
        Self {
            name: "database".to_owned(),
            settings: PoolSettings::database(),
            isolation: DbIsolation::default(),
            connection: ConnectionConfig::default(),
        }
    }
}

impl DbOptions {
    /// The pool's name in errors, logs and metrics. Default: `database`.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The pool's settings.
    pub fn settings(self, settings: PoolSettings) -> Self {
        Self { settings, ..self }
    }

    /// Minimum and maximum number of connections.
    pub fn workers(mut self, min: usize, max: usize) -> Self {
        (self.settings.min, self.settings.max) = (min, max);
        self
    }

    /// Where the connections run. Use processes for drivers that may crash.
    pub fn isolation(self, isolation: DbIsolation) -> Self {
        Self { isolation, ..self }
    }

    fn with(mut self, change: impl FnOnce(&mut ConnectionConfig)) -> Self {
        change(&mut self.connection);
        self
    }

    /// Prepared statements that each connection keeps. Default: 128. Use 0 behind a transaction
    /// pooler (PostgreSQL), where prepared statements do not survive a transaction.
    pub fn statement_cache(self, statements: usize) -> Self {
        self.with(|config| config.statements = statements)
    }

    /// Maximum number of rows that a statement returns. Default: 100,000. Beyond it the statement
    /// fails.
    pub fn row_limit(self, rows: usize) -> Self {
        self.with(|config| config.row_limit = rows)
    }

    /// Maximum number of bytes that a statement returns. Default: 32 MiB.
    pub fn byte_limit(self, bytes: usize) -> Self {
        self.with(|config| config.byte_limit = bytes)
    }

    /// How long a statement waits for a lock (SQLite, PostgreSQL, MySQL). Default: 5 s.
    pub fn busy_timeout(self, limit: Duration) -> Self {
        self.with(|config| config.busy = Some(limit))
    }

    /// How long one statement may take. Default: as long as its call.
    pub fn statement_timeout(self, limit: Duration) -> Self {
        self.with(|config| config.statement_timeout = Some(limit))
    }

    /// Adds a statement that is run on every new connection: a `PRAGMA`, a `SET`. They run in
    /// order.
    pub fn init(self, sql: impl Into<String>) -> Self {
        self.with(|config| config.init.push(sql.into()))
    }

    /// Allows reads only. The database enforces it where it can (SQLite, PostgreSQL, MySQL; with
    /// ODBC, only if the driver connects to one of those).
    pub fn read_only(self) -> Self {
        self.with(|config| config.read_only = true)
    }

    /// SQLite: creates a missing file. Without this, that is an error.
    pub fn create_if_missing(self) -> Self {
        self.with(|config| config.create = true)
    }

    /// Workers start without a connection, and connect when they need one: so a program can start
    /// before its database.
    pub fn lazy(self) -> Self {
        self.with(|config| config.lazy = true)
    }

    /// A connection that was idle this long is pinged before it is used. Default: 5 s.
    pub fn check_after(self, idle: Duration) -> Self {
        self.with(|config| config.check_after = idle)
    }

    /// How long a worker tries to connect, with growing pauses, before the call fails. Default: 10
    /// s, and never longer than the call's deadline.
    pub fn reconnect_within(self, limit: Duration) -> Self {
        self.with(|config| config.reconnect = limit)
    }
}
