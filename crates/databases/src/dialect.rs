//! Differences between families of databases.

#[cfg(feature = "odbc")]
use std::time::Duration;

/// A family of databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
    /// Microsoft SQL Server.
    SqlServer,
    /// Oracle.
    Oracle,
    /// Db2 in all its forms.
    Db2,
    /// Any other database that follows the standard.
    Standard,
}

impl Dialect {
    /// The dialect for the name that a driver reports.
    #[cfg(any(feature = "odbc", test))]
    pub(crate) fn of(name: &str) -> Self {
        let name = name.to_lowercase();
        let has = |part: &str| name.contains(part);
        match () {
            () if has("sqlite") => Self::Sqlite,
            () if has("postgres") => Self::Postgres,
            () if has("mysql") || has("mariadb") => Self::Mysql,
            () if has("sql server") => Self::SqlServer,
            () if has("oracle") => Self::Oracle,
            () if has("db2") => Self::Db2,
            () => Self::Standard,
        }
    }

    /// The statement that makes a session read-only, where the database has one.
    #[cfg(feature = "odbc")]
    pub(crate) fn read_only_statement(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => Some("PRAGMA query_only = 1"),
            Self::Postgres => Some("SET default_transaction_read_only = on"),
            Self::Mysql => Some("SET SESSION TRANSACTION READ ONLY"),
            Self::SqlServer | Self::Oracle | Self::Db2 | Self::Standard => None,
        }
    }

    /// The statement that sets the lock timeout, where the database has one.
    #[cfg(feature = "odbc")]
    pub(crate) fn lock_timeout_statement(self, limit: Duration) -> Option<String> {
        let (millis, seconds) = (limit.as_millis().clamp(1, 1 << 30), limit.as_secs().max(1));
        match self {
            Self::Sqlite => Some(format!("PRAGMA busy_timeout = {millis}")),
            Self::Postgres => Some(format!("SET lock_timeout TO {millis}")),
            Self::Mysql => Some(format!("SET SESSION innodb_lock_wait_timeout = {seconds}")),
            Self::SqlServer => Some(format!("SET LOCK_TIMEOUT {millis}")),
            Self::Oracle | Self::Db2 | Self::Standard => None,
        }
    }

    /// The statement that checks whether the server responds.
    #[cfg(feature = "odbc")]
    pub(crate) fn ping_statement(self) -> &'static str {
        match self {
            Self::Oracle => "SELECT 1 FROM dual",
            Self::Db2 => "SELECT 1 FROM sysibm.sysdummy1",
            _ => "SELECT 1",
        }
    }

    /// The statement that returns the id of the last inserted row.
    #[cfg(feature = "odbc")]
    pub(crate) fn last_id_statement(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => Some("SELECT last_insert_rowid()"),
            Self::Mysql => Some("SELECT LAST_INSERT_ID()"),
            Self::SqlServer => Some("SELECT CAST(@@IDENTITY AS bigint)"),
            Self::Db2 => Some("SELECT IDENTITY_VAL_LOCAL() FROM sysibm.sysdummy1"),
            Self::Postgres | Self::Oracle | Self::Standard => None,
        }
    }

    /// The prefix that makes the database plan a write instead of running it, where preparing checks too little.
    #[cfg(any(feature = "odbc", feature = "postgres"))]
    pub(crate) fn explain_prefix(self) -> Option<&'static str> {
        matches!(self, Self::Sqlite | Self::Postgres).then_some("EXPLAIN ")
    }

    /// Whether a boolean may be bound as 0 or 1. PostgreSQL accepts text for any type, but a number
    /// only for numbers.
    #[cfg(feature = "odbc")]
    pub(crate) fn binds_bool_as_number(self) -> bool {
        self != Self::Postgres
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_known_by_its_name() {
        for (name, dialect) in [
            ("SQLite", Dialect::Sqlite),
            ("PostgreSQL", Dialect::Postgres),
            ("MariaDB", Dialect::Mysql),
            ("Microsoft SQL Server", Dialect::SqlServer),
            ("DB2/400 SQL", Dialect::Db2),
            ("Oracle", Dialect::Oracle),
            ("Firebird", Dialect::Standard),
        ] {
            assert_eq!(Dialect::of(name), dialect, "{name}");
        }
    }
}
