//! How a database is used: the pool around it, and the habits of each connection.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::gather::Bounds;
use crate::program::Program;
use crate::settings::Settings;

/// How a database is used. The defaults are [`Settings::database`] for the pool, threads, and limits
/// that nobody meets by accident.
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
    pub(super) settings: Settings,
    pub(super) isolation: DbIsolation,
    pub(super) habits: Habits,
}

/// Where the connections are.
#[derive(Debug, Clone, Default)]
pub enum DbIsolation {
    /// On threads of this process.
    #[default]
    Threads,
    /// In processes of their own, which may crash. The program must answer for them: see
    /// [`super::of_worker`]. [`Program::this`] unless told.
    Processes(Option<Program>),
}

/// What a connection keeps to. Crosses to worker processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Habits {
    /// Prepared statements that a connection keeps; 0 for none.
    pub(super) statements: usize,
    pub(super) row_limit: usize,
    pub(super) byte_limit: usize,
    /// How long a lock of somebody else's is waited for.
    pub(super) busy: Duration,
    pub(super) statement_timeout: Option<Duration>,
    /// Run on every new connection.
    pub(super) init: Vec<String>,
    pub(super) read_only: bool,
    /// SQLite: whether a file that is not there is made.
    pub(super) create: bool,
    /// Whether a worker starts without a connection.
    pub(super) lazy: bool,
    /// A connection that was idle for so long is asked whether it lives before it is used.
    pub(super) check_after: Duration,
    /// How long connecting is tried, again and again, before a call fails for it.
    pub(super) reconnect: Duration,
}

impl Habits {
    pub(super) fn bounds(&self) -> Bounds {
        Bounds { rows: self.row_limit, bytes: self.byte_limit }
    }
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            statements: 128,
            row_limit: 100_000,
            byte_limit: 32 << 20,
            busy: Duration::from_secs(5),
            statement_timeout: None,
            init: Vec::new(),
            read_only: false,
            create: false,
            lazy: false,
            check_after: Duration::from_secs(5),
            reconnect: Duration::from_secs(10),
        }
    }
}

impl Default for DbOptions {
    fn default() -> Self {
        Self {
            name: "database".to_owned(),
            settings: Settings::database(),
            isolation: DbIsolation::default(),
            habits: Habits::default(),
        }
    }
}

impl DbOptions {
    /// The pool's name, in errors, logs and metrics; `database` unless told.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The pool's settings.
    pub fn settings(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// Connections that are always there, and connections at most.
    pub fn workers(mut self, min: usize, max: usize) -> Self {
        (self.settings.min, self.settings.max) = (min, max);
        self
    }

    /// Where the connections are. Processes, where a driver may crash.
    pub fn isolation(self, isolation: DbIsolation) -> Self {
        Self { isolation, ..self }
    }

    fn with(mut self, change: impl FnOnce(&mut Habits)) -> Self {
        change(&mut self.habits);
        self
    }

    /// Prepared statements that each connection keeps; 128 unless told. 0 for none: behind a pooler
    /// that hands out another session for every transaction (PostgreSQL), nothing may be kept.
    pub fn statement_cache(self, statements: usize) -> Self {
        self.with(|habits| habits.statements = statements)
    }

    /// Rows that a statement may return; 100,000 unless told. One more is an error.
    pub fn row_limit(self, rows: usize) -> Self {
        self.with(|habits| habits.row_limit = rows)
    }

    /// Bytes that a statement may return; 32 MiB unless told.
    pub fn byte_limit(self, bytes: usize) -> Self {
        self.with(|habits| habits.byte_limit = bytes)
    }

    /// How long a lock of somebody else's is waited for (SQLite, PostgreSQL, MySQL); 5 s unless told.
    pub fn busy_timeout(self, limit: Duration) -> Self {
        self.with(|habits| habits.busy = limit)
    }

    /// How long one statement may take. Without it, as long as its call.
    pub fn statement_timeout(self, limit: Duration) -> Self {
        self.with(|habits| habits.statement_timeout = Some(limit))
    }

    /// A statement that is run on every new connection: a `PRAGMA`, a `SET`. Add several in order.
    pub fn init(self, sql: impl Into<String>) -> Self {
        self.with(|habits| habits.init.push(sql.into()))
    }

    /// Only reads. The database refuses the rest, where it can be told to (SQLite, PostgreSQL, MySQL;
    /// by ODBC, only where the driver leads to one of those).
    pub fn read_only(self) -> Self {
        self.with(|habits| habits.read_only = true)
    }

    /// SQLite: makes the file if it is not there. Without this, that is an error.
    pub fn create_if_missing(self) -> Self {
        self.with(|habits| habits.create = true)
    }

    /// Workers start without a connection, and make one when they need it: so a program can start
    /// before its database.
    pub fn lazy(self) -> Self {
        self.with(|habits| habits.lazy = true)
    }

    /// A connection that was idle for so long is asked whether it lives before it is used; 5 s unless
    /// told.
    pub fn check_after(self, idle: Duration) -> Self {
        self.with(|habits| habits.check_after = idle)
    }

    /// How long connecting is tried, with growing pauses, before a call fails for it; 10 s unless
    /// told, and never longer than the call may take.
    pub fn reconnect_within(self, limit: Duration) -> Self {
        self.with(|habits| habits.reconnect = limit)
    }
}
