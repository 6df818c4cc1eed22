//! Compares keys so that a page ends exactly where the next begins.
//!
//! Text is compared byte by byte, whatever its collation: keys that a collation treats as equal
//! would have no order, and a page could end between them. The price is the index: pages of text
//! keys are sorted. Types that we hold as text are cast back, because MySQL would compare both
//! sides as floating-point numbers.

use longshore_pool::database::mysql::value::{BytesKind, bytes_kind};
use mysql_async::Column;
use mysql_async::consts::{ColumnFlags, ColumnType};

use crate::definition::Candidates;

/// Names of our own parameters, unlikely to clash with the user's.
pub(super) const FROM: &str = "longshore_from";
pub(super) const LIMIT: &str = "longshore_limit";

/// The SQL before and after the candidates' SQL that selects a page; `key` is the key's column.
pub(super) fn around(candidates: &Candidates, key: &Column, bounded: bool) -> (String, String) {
    let columns = [Some(&candidates.key), candidates.priority.as_ref()];
    let columns: Vec<String> = columns.into_iter().flatten().map(|name| named(name)).collect();
    let (key, from) = compared(&named(&candidates.key), key);
    let bound = if bounded { format!("WHERE {key} >= {from} ") } else { String::new() };
    let head = format!("SELECT {} FROM (", columns.join(", "));
    (head, format!("\n) AS c {bound}ORDER BY {key} LIMIT :{LIMIT}"))
}

fn named(column: &str) -> String {
    format!("c.`{}`", column.replace('`', "``"))
}

/// The two operands of the key comparison.
fn compared(name: &str, key: &Column) -> (String, String) {
    let from = format!(":{FROM}");
    let cast = |to: &str| (name.to_owned(), format!("CAST({from} AS {to})"));
    match key.column_type() {
        ColumnType::MYSQL_TYPE_DECIMAL | ColumnType::MYSQL_TYPE_NEWDECIMAL => {
            cast(&format!("DECIMAL(65, {})", key.decimals()))
        }
        ColumnType::MYSQL_TYPE_LONGLONG if key.flags().contains(ColumnFlags::UNSIGNED_FLAG) => {
            cast("UNSIGNED")
        }
        ColumnType::MYSQL_TYPE_DATE => cast("DATE"),
        ColumnType::MYSQL_TYPE_TIME => cast("TIME(6)"),
        ColumnType::MYSQL_TYPE_DATETIME | ColumnType::MYSQL_TYPE_TIMESTAMP => cast("DATETIME(6)"),
        other if is_text(other) && bytes_kind(key) == BytesKind::Text => {
            // Converted to our character set: the column may have another.
            let own = format!("CAST(CONVERT({name} USING utf8mb4) AS BINARY)");
            (own, format!("CAST({from} AS BINARY)"))
        }
        _ => (name.to_owned(), from),
    }
}

fn is_text(kind: ColumnType) -> bool {
    matches!(
        kind,
        ColumnType::MYSQL_TYPE_VARCHAR
            | ColumnType::MYSQL_TYPE_VAR_STRING
            | ColumnType::MYSQL_TYPE_STRING
            | ColumnType::MYSQL_TYPE_ENUM
            | ColumnType::MYSQL_TYPE_SET
            | ColumnType::MYSQL_TYPE_TINY_BLOB
            | ColumnType::MYSQL_TYPE_BLOB
            | ColumnType::MYSQL_TYPE_MEDIUM_BLOB
            | ColumnType::MYSQL_TYPE_LONG_BLOB
            | ColumnType::MYSQL_TYPE_JSON
    )
}
