//! Where databases differ: how a page of rows is asked for, how keys are compared so that a page
//! ends exactly where the next begins, and how a change is looked at without being run.

use odbc_api::{Connection, Error};

use super::value::Kind;

/// A family of databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
    Mysql,
    SqlServer,
    /// Db2, and whoever else keeps to the standard.
    Standard,
}

impl Dialect {
    /// By what a driver says it is connected to.
    pub(super) fn of(name: &str) -> Self {
        let name = name.to_lowercase();
        let has = |part: &str| name.contains(part);
        match () {
            () if has("sqlite") => Self::Sqlite,
            () if has("postgres") => Self::Postgres,
            () if has("mysql") || has("mariadb") => Self::Mysql,
            () if has("sql server") => Self::SqlServer,
            () => Self::Standard,
        }
    }

    /// Makes a connection one that only reads, where that can be said.
    pub(super) fn forbid_writing(self, connection: &Connection<'_>) -> Result<(), Error> {
        let sql = match self {
            Self::Sqlite => "PRAGMA query_only = 1",
            Self::Postgres => "SET default_transaction_read_only = on",
            Self::Mysql => "SET SESSION TRANSACTION READ ONLY",
            Self::SqlServer | Self::Standard => return Ok(()),
        };
        connection.execute(sql, (), None).map(drop)
    }

    /// At most so many rows, behind ORDER BY.
    pub(super) fn limit(self, rows: u32) -> String {
        match self {
            Self::Sqlite | Self::Postgres | Self::Mysql => format!("LIMIT {rows}"),
            Self::SqlServer => format!("OFFSET 0 ROWS FETCH NEXT {rows} ROWS ONLY"),
            Self::Standard => format!("FETCH FIRST {rows} ROWS ONLY"),
        }
    }

    /// What a key is compared by, and what it is compared with: `name` and `from` as they must be
    /// written. Text goes byte by byte: two keys that are equal in some language's eyes would have
    /// no order among themselves. What we hold as text and the database as something else is cast
    /// back, or it would be compared as text.
    pub(super) fn compared(self, kind: Kind, name: &str, from: &str) -> (String, String) {
        let cast = |to: &str| (name.to_owned(), format!("CAST({from} AS {to})"));
        match (kind, self) {
            (Kind::Text, _) | (Kind::Guid, Self::Postgres) => self.compared_as_text(name, from),
            // SQLite has none of these types: it compares what is there.
            (_, Self::Sqlite)
            | (Kind::Whole | Kind::Real | Kind::Truth | Kind::Bytes | Kind::Guid, _) => {
                (name.to_owned(), from.to_owned())
            }
            (Kind::Decimal { .. }, Self::Postgres) => cast("numeric"),
            (Kind::Decimal { precision, scale }, _) => {
                cast(&format!("DECIMAL({precision}, {scale})"))
            }
            (Kind::Date, _) => cast("DATE"),
            (Kind::Time, Self::Mysql) => cast("TIME(6)"),
            (Kind::Time, _) => cast("TIME"),
            (Kind::Timestamp, Self::Mysql) => cast("DATETIME(6)"),
            (Kind::Timestamp, Self::SqlServer) => cast("DATETIME2"),
            (Kind::Timestamp, _) => cast("TIMESTAMP"),
        }
    }

    fn compared_as_text(self, name: &str, from: &str) -> (String, String) {
        match self {
            // A column may hold numbers as well; we hold them as text.
            Self::Sqlite => (format!("CAST({name} AS TEXT) COLLATE BINARY"), from.to_owned()),
            Self::Postgres => {
                (format!("CAST({name} AS text) COLLATE \"C\""), format!("CAST({from} AS text)"))
            }
            Self::Mysql => {
                let own = format!("CAST(CONVERT({name} USING utf8mb4) AS BINARY)");
                (own, format!("CAST({from} AS BINARY)"))
            }
            Self::SqlServer => (format!("{name} COLLATE Latin1_General_100_BIN2"), from.to_owned()),
            // Db2 compares by code point unless it is told otherwise.
            Self::Standard => (name.to_owned(), from.to_owned()),
        }
    }

    /// What shows a change's mistakes without running it, where the driver looks at nothing before
    /// that.
    pub(super) fn rehearsal(self) -> Option<&'static str> {
        match self {
            Self::Sqlite | Self::Postgres => Some("EXPLAIN "),
            Self::Mysql | Self::SqlServer | Self::Standard => None,
        }
    }

    /// Whether a truth value may be bound as 0 or 1. PostgreSQL takes text for any type, but a
    /// number only for numbers.
    pub(super) fn counts_truth(self) -> bool {
        self != Self::Postgres
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_known_by_its_name() {
        for (name, dialect, limit) in [
            ("SQLite", Dialect::Sqlite, "LIMIT 5"),
            ("PostgreSQL", Dialect::Postgres, "LIMIT 5"),
            ("MariaDB", Dialect::Mysql, "LIMIT 5"),
            ("Microsoft SQL Server", Dialect::SqlServer, "OFFSET 0 ROWS FETCH NEXT 5 ROWS ONLY"),
            ("DB2/400 SQL", Dialect::Standard, "FETCH FIRST 5 ROWS ONLY"),
            ("Oracle", Dialect::Standard, "FETCH FIRST 5 ROWS ONLY"),
        ] {
            assert_eq!((Dialect::of(name), &*dialect.limit(5)), (dialect, limit), "{name}");
        }
    }

    #[test]
    fn what_is_text_to_us_is_cast_back_before_it_is_compared() {
        let decimal = Kind::Decimal { precision: 31, scale: 5 };
        let from = |dialect: Dialect, kind| dialect.compared(kind, "c.k", "?").1;
        assert_eq!(from(Dialect::Standard, decimal), "CAST(? AS DECIMAL(31, 5))");
        assert_eq!(from(Dialect::Standard, Kind::Timestamp), "CAST(? AS TIMESTAMP)");
        assert_eq!(from(Dialect::SqlServer, Kind::Timestamp), "CAST(? AS DATETIME2)");
        assert_eq!(from(Dialect::Standard, Kind::Whole), "?");
        assert_eq!(from(Dialect::Sqlite, decimal), "?");
    }
}
