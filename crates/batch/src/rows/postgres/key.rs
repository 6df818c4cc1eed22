//! Compares keys so that a page ends exactly where the next begins.
//!
//! Text is compared byte by byte, whatever its collation: keys that a collation treats as equal
//! would have no order, and a page could end between them. The price is the index, unless it has
//! the collation "C". Other types are compared as they are.

use super::columns::Column;
use super::statement::quoted;
use super::value::ColumnKind;

/// Names of our own parameters, unlikely to clash with the user's.
pub(super) const FROM: &str = "longshore_from";
pub(super) const LIMIT: &str = "longshore_limit";

/// The SQL before and after the candidates' SQL that selects a page of keys, with priorities if
/// there is such a column.
pub(super) fn around(columns: &[&Column], bounded: bool) -> (String, String) {
    let cast = columns.iter().map(|column| format!("{}::{}", named(column), column.kind.cast()));
    let head = format!("SELECT {} FROM (", cast.collect::<Vec<_>>().join(", "));
    let (key, from) = columns.first().map(|key| compared(key)).unwrap_or_default();
    let bound = if bounded { format!("WHERE {key} >= {from} ") } else { String::new() };
    (head, format!("\n) AS c {bound}ORDER BY {key} LIMIT :{LIMIT}"))
}

/// The SQL around the candidates' SQL that finds a row with a NULL key. NULLs sort last, so no page
/// would begin there.
pub(super) fn around_nulls(key: &Column) -> (&'static str, String) {
    ("SELECT 1 FROM (", format!("\n) AS c WHERE {} IS NULL LIMIT 1", named(key)))
}

fn named(column: &Column) -> String {
    format!("c.{}", quoted(&column.name))
}

/// The two operands of the key comparison.
fn compared(key: &Column) -> (String, String) {
    match key.kind {
        ColumnKind::Text => (format!("({}::text COLLATE \"C\")", named(key)), format!(":{FROM}::text")),
        _ => (named(key), format!(":{FROM}")),
    }
}
