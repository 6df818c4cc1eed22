//! The driver interface: what one connection must implement. All methods block.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::deadline::Deadline;
use super::error::{DbError, Reason};
use super::options::ConnectionConfig;
use super::row::ResultTable;
use super::row_collector::{ResultLimits, RowsWanted};
use super::statement::Statement;
use super::value::Value;

/// One connection. After an error with `broken` set it is not used again.
pub(super) trait Connection {
    /// Whether the connection is known to be lost, without a round trip.
    fn is_closed(&self) -> bool {
        false
    }

    /// Checks that the server responds.
    fn ping(&mut self, deadline: &Deadline) -> Result<(), DbError>;

    /// Runs one statement, and returns its outcome. Stops it when the deadline passes or the call
    /// is cancelled; then the connection is usable again, or lost.
    fn run(
        &mut self,
        statement: &Statement,
        want: RowsWanted,
        limits: ResultLimits,
        deadline: &Deadline,
    ) -> Result<StatementResult, DbError>;

    /// Why a statement is not allowed in a transaction, if it is not.
    fn refuses_in_transaction(&self, _: &str) -> Option<&'static str> {
        None
    }

    /// Begins a transaction.
    fn begin(&mut self, deadline: &Deadline) -> Result<(), DbError>;

    /// Commits. After an error the state of the transaction is unknown; it is then rolled back.
    fn commit(&mut self, deadline: &Deadline) -> Result<(), DbError>;

    /// Rolls back. After an error the connection is not used again, and the database rolls back by
    /// itself.
    fn rollback(&mut self) -> Result<(), DbError>;

    /// Whether a transaction is open, where that is known without a round trip. Outside of our own
    /// transactions, a statement has left it open.
    fn in_transaction(&self) -> bool {
        false
    }
}

/// The outcome of a statement.
#[derive(Debug, Default)]
pub(super) struct StatementResult {
    /// Whether the statement returns rows at all.
    pub(super) returns: bool,
    pub(super) table: ResultTable,
    /// Rows that it changed, or returned.
    pub(super) affected: u64,
    pub(super) last_id: Option<Value>,
}

/// Kind and address of a database.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "database", content = "at", rename_all = "snake_case")]
pub(super) enum DatabaseTarget {
    /// A file.
    Sqlite(PathBuf),
    /// A URL.
    Postgres(String),
    /// A URL.
    Mysql(String),
    /// A connection string.
    Odbc(String),
}

impl DatabaseTarget {
    /// Checks the address before anything is connected.
    pub(super) fn check(&self) -> Result<(), DbError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(path) => super::sqlite::check(path),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => super::postgres::check(url),
            #[cfg(feature = "mysql")]
            Self::Mysql(url) => super::mysql::check(url),
            #[cfg(feature = "odbc")]
            Self::Odbc(_) => Ok(()),
            #[allow(unreachable_patterns, reason = "all drivers may be there")]
            other => Err(other.missing()),
        }
    }

    /// Connects, within the deadline.
    #[allow(unused_variables, reason = "each driver takes what it can use")]
    pub(super) fn connect(
        &self,
        config: &ConnectionConfig,
        deadline: &Deadline,
    ) -> Result<Box<dyn Connection>, DbError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(path) => super::sqlite::connect(path, config),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => super::postgres::connect(url, config, deadline),
            #[cfg(feature = "mysql")]
            Self::Mysql(url) => super::mysql::connect(url, config, deadline),
            #[cfg(feature = "odbc")]
            Self::Odbc(string) => super::odbc::connect(string, config, deadline),
            #[allow(unreachable_patterns, reason = "all drivers may be there")]
            other => Err(other.missing()),
        }
    }

    fn missing(&self) -> DbError {
        let message = format!("this program was built without the feature `{self:?}`");
        DbError::new(Reason::Refused, message)
    }
}

/// Shows the kind only: the address may contain a password.
impl fmt::Debug for DatabaseTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite(_) => "sqlite",
            Self::Postgres(_) => "postgres",
            Self::Mysql(_) => "mysql",
            Self::Odbc(_) => "odbc",
        })
    }
}
