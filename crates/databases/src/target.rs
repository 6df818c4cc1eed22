//! Kind and address of a database.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Connection, ConnectionConfig, DbError, Deadline, Reason};

/// Kind and address of a database.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "database", content = "at", rename_all = "snake_case")]
pub enum DatabaseTarget {
    /// A file.
    Sqlite(PathBuf),
    /// A URL: `postgres://USER:PASSWORD@HOST:PORT/DATABASE?OPTIONS`.
    Postgres(String),
    /// A URL: `mysql://USER:PASSWORD@HOST:PORT/DATABASE?OPTIONS`.
    Mysql(String),
    /// A connection string.
    Odbc(String),
}

impl DatabaseTarget {
    /// Checks the address before anything is connected.
    pub fn check(&self) -> Result<(), DbError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(path) => crate::sqlite::check(path),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => crate::postgres::check(url),
            #[cfg(feature = "mysql")]
            Self::Mysql(url) => crate::mysql::check(url),
            #[cfg(feature = "odbc")]
            Self::Odbc(_) => Ok(()),
            #[allow(unreachable_patterns, reason = "all drivers may be there")]
            other => Err(other.missing()),
        }
    }

    /// Connects, within the deadline.
    #[allow(unused_variables, reason = "each driver takes what it can use")]
    pub fn connect(
        &self,
        config: &ConnectionConfig,
        deadline: &Deadline,
    ) -> Result<Box<dyn Connection>, DbError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(path) => crate::sqlite::connect(path, config),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => crate::postgres::connect(url, config, deadline),
            #[cfg(feature = "mysql")]
            Self::Mysql(url) => crate::mysql::connect(url, config, deadline),
            #[cfg(feature = "odbc")]
            Self::Odbc(string) => crate::odbc::connect(string, config, deadline),
            #[allow(unreachable_patterns, reason = "all drivers may be there")]
            other => Err(other.missing()),
        }
    }

    /// The most connections that the address allows, if it says so.
    pub fn max_connections(&self) -> Option<usize> {
        match self {
            #[cfg(feature = "mysql")]
            Self::Mysql(url) => crate::mysql::max_connections(url),
            _ => None,
        }
    }

    /// Whether a connection can both read and write safely. Otherwise reads need connections of their own.
    pub fn protects_reads(&self) -> bool {
        matches!(self, Self::Postgres(_) | Self::Mysql(_))
    }

    fn missing(&self) -> DbError {
        let message = format!("this program was built without the feature `{self:?}`");
        DbError::new(Reason::Refused, message)
    }
}

/// Where the database is, without secrets.
impl fmt::Display for DatabaseTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => path.display().fmt(f),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => f.write_str(&crate::postgres::display_name(url)),
            #[cfg(feature = "mysql")]
            Self::Mysql(url) => f.write_str(&crate::mysql::display_name(url)),
            #[cfg(feature = "odbc")]
            Self::Odbc(string) => f.write_str(&crate::odbc::display_name(string)),
            #[allow(unreachable_patterns, reason = "all drivers may be there")]
            other => write!(f, "{other:?}"),
        }
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
