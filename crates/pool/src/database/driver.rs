//! The seam to databases: what one connection must be able to do. Everything blocks.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::{DbError, Reason};
use super::gather::{Bounds, Want};
use super::options::Habits;
use super::row::Table;
use super::statement::Statement;
use super::value::Value;
use super::watch::Watch;

/// One connection. An error that says that it is broken means that it is not used again.
pub(super) trait Connection {
    /// Whether it is known to be lost, without asking the other side.
    fn is_closed(&self) -> bool {
        false
    }

    /// Asks the other side whether it is there.
    fn ping(&mut self, watch: &Watch) -> Result<(), DbError>;

    /// Runs one statement, and returns what it came to. Stops it when the watch says so; then the
    /// connection is in order again, or lost.
    fn run(
        &mut self,
        statement: &Statement,
        want: Want,
        bounds: Bounds,
        watch: &Watch,
    ) -> Result<Reply, DbError>;

    /// Why a statement may not stand in a transaction, though it may elsewhere.
    fn refuses_in_transaction(&self, _: &str) -> Option<&'static str> {
        None
    }

    /// Begins a transaction.
    fn begin(&mut self, watch: &Watch) -> Result<(), DbError>;

    /// Ends it. After an error it is not known to be ended either way; it is rolled back then.
    fn commit(&mut self, watch: &Watch) -> Result<(), DbError>;

    /// Takes it back. After an error the connection is not used again, and the database does it.
    fn rollback(&mut self) -> Result<(), DbError>;

    /// Whether it is in a transaction, where that is known without asking: outside of one of ours, a
    /// statement has left it behind.
    fn in_transaction(&self) -> bool {
        false
    }
}

/// What a statement came to.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// Whether it returns rows at all.
    pub(super) returns: bool,
    pub(super) table: Table,
    /// Rows that it changed, or returned.
    pub(super) affected: u64,
    pub(super) last_id: Option<Value>,
}

/// Which database, and where.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "database", content = "at", rename_all = "snake_case")]
pub(super) enum Target {
    /// A file.
    Sqlite(PathBuf),
    /// A URL.
    Postgres(String),
    /// A URL.
    Mysql(String),
    /// A connection string.
    Odbc(String),
}

impl Target {
    /// What is wrong with it, before anything is connected.
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

    /// Connects, within the time that the watch gives.
    #[allow(unused_variables, reason = "each driver takes what it can use")]
    pub(super) fn connect(
        &self,
        habits: &Habits,
        watch: &Watch,
    ) -> Result<Box<dyn Connection>, DbError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(path) => super::sqlite::connect(path, habits),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => super::postgres::connect(url, habits, watch),
            #[cfg(feature = "mysql")]
            Self::Mysql(url) => super::mysql::connect(url, habits, watch),
            #[cfg(feature = "odbc")]
            Self::Odbc(string) => super::odbc::connect(string, habits, watch),
            #[allow(unreachable_patterns, reason = "all drivers may be there")]
            other => Err(other.missing()),
        }
    }

    fn missing(&self) -> DbError {
        let words = format!("this program was built without the feature `{self:?}`");
        DbError::new(Reason::Refused, words)
    }
}

/// Not where it is: that may hold a password.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite(_) => "sqlite",
            Self::Postgres(_) => "postgres",
            Self::Mysql(_) => "mysql",
            Self::Odbc(_) => "odbc",
        })
    }
}
