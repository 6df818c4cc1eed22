//! Differences between databases: how a page of rows is limited, how keys are compared so that a
//! page ends exactly where the next begins.

use longshore_databases::{ColumnKind, Dialect};

/// The SQL of a family of databases for reading in pages. Databases that are not listed use the
/// standard's.
pub(super) trait PagedDialect {
    /// The clause after ORDER BY that limits the rows.
    fn limit(self, rows: u32) -> String;

    /// The two operands of the key comparison, made from the column `name` and the parameter
    /// `from`. Text is compared byte by byte: keys that a collation treats as equal would have no
    /// order. Types that we hold as text are cast back, or they would be compared as text.
    fn compared(self, kind: ColumnKind, name: &str, from: &str) -> (String, String);
}

impl PagedDialect for Dialect {
    fn limit(self, rows: u32) -> String {
        match self {
            Self::Sqlite | Self::Postgres | Self::Mysql => format!("LIMIT {rows}"),
            Self::SqlServer => format!("OFFSET 0 ROWS FETCH NEXT {rows} ROWS ONLY"),
            Self::Oracle | Self::Db2 | Self::Standard => format!("FETCH FIRST {rows} ROWS ONLY"),
        }
    }

    fn compared(self, kind: ColumnKind, name: &str, from: &str) -> (String, String) {
        let cast = |to: &str| (name.to_owned(), format!("CAST({from} AS {to})"));
        match (kind, self) {
            (ColumnKind::Text, _) | (ColumnKind::Guid, Self::Postgres) => compared_as_text(self, name, from),
            // Without types, but with collations.
            (ColumnKind::Inferred, Self::Sqlite) => (format!("{name} COLLATE BINARY"), from.to_owned()),
            // SQLite does not have these types: it compares the stored values.
            (_, Self::Sqlite)
            | (
                ColumnKind::Inferred
                | ColumnKind::Whole
                | ColumnKind::Real
                | ColumnKind::Truth
                | ColumnKind::Bytes
                | ColumnKind::Guid,
                _,
            ) => (name.to_owned(), from.to_owned()),
            (ColumnKind::Decimal { .. }, Self::Postgres) => cast("numeric"),
            (ColumnKind::Decimal { precision, scale }, _) => cast(&format!("DECIMAL({precision}, {scale})")),
            (ColumnKind::Date, _) => cast("DATE"),
            (ColumnKind::Time, Self::Mysql) => cast("TIME(6)"),
            (ColumnKind::Time, _) => cast("TIME"),
            (ColumnKind::Timestamp, Self::Mysql) => cast("DATETIME(6)"),
            (ColumnKind::Timestamp, Self::SqlServer) => cast("DATETIME2"),
            (ColumnKind::Timestamp, _) => cast("TIMESTAMP"),
        }
    }
}

fn compared_as_text(dialect: Dialect, name: &str, from: &str) -> (String, String) {
    match dialect {
        // A column may also hold numbers; we hold them as text.
        Dialect::Sqlite => (format!("CAST({name} AS TEXT) COLLATE BINARY"), from.to_owned()),
        Dialect::Postgres => (format!("CAST({name} AS text) COLLATE \"C\""), format!("CAST({from} AS text)")),
        Dialect::Mysql => {
            let own = format!("CAST(CONVERT({name} USING utf8mb4) AS BINARY)");
            (own, format!("CAST({from} AS BINARY)"))
        }
        Dialect::SqlServer => (format!("{name} COLLATE Latin1_General_100_BIN2"), from.to_owned()),
        // Db2 compares by code point by default.
        Dialect::Oracle | Dialect::Db2 | Dialect::Standard => (name.to_owned(), from.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_as_its_database_wants_it() {
        for (dialect, limit) in [
            (Dialect::Sqlite, "LIMIT 5"),
            (Dialect::Postgres, "LIMIT 5"),
            (Dialect::Mysql, "LIMIT 5"),
            (Dialect::SqlServer, "OFFSET 0 ROWS FETCH NEXT 5 ROWS ONLY"),
            (Dialect::Db2, "FETCH FIRST 5 ROWS ONLY"),
            (Dialect::Oracle, "FETCH FIRST 5 ROWS ONLY"),
        ] {
            assert_eq!(dialect.limit(5), limit, "{dialect:?}");
        }
    }

    #[test]
    fn what_is_text_to_us_is_cast_back_before_it_is_compared() {
        let decimal = ColumnKind::Decimal { precision: 31, scale: 5 };
        let from = |dialect: Dialect, kind| dialect.compared(kind, "c.k", "?").1;
        assert_eq!(from(Dialect::Standard, decimal), "CAST(? AS DECIMAL(31, 5))");
        assert_eq!(from(Dialect::Standard, ColumnKind::Timestamp), "CAST(? AS TIMESTAMP)");
        assert_eq!(from(Dialect::SqlServer, ColumnKind::Timestamp), "CAST(? AS DATETIME2)");
        assert_eq!(from(Dialect::Standard, ColumnKind::Whole), "?");
        assert_eq!(from(Dialect::Sqlite, decimal), "?");
    }
}
