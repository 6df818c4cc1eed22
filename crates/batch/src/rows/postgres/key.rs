//! How keys are compared, so that a page ends exactly where the next begins.
//!
//! Text is compared byte by byte whatever its collation says: two keys that are equal in some
//! language's eyes would have no order among themselves, and a page could end between them. That
//! costs the index, unless it has the collation "C". Everything else is compared as what it is.

use super::shape::Column;
use super::statement::quoted;
use super::value::Kind;

/// Our own parameters have names that no person would choose.
pub(super) const FROM: &str = "longshore_from";
pub(super) const LIMIT: &str = "longshore_limit";

/// What goes around the candidates' SQL to make a page of it: the key, and the priority if there is
/// one.
pub(super) fn around(columns: &[&Column], bounded: bool) -> (String, String) {
    let cast = columns.iter().map(|column| format!("{}::{}", named(column), column.kind.cast()));
    let head = format!("SELECT {} FROM (", cast.collect::<Vec<_>>().join(", "));
    let (key, from) = columns.first().map(|key| compared(key)).unwrap_or_default();
    let bound = if bounded { format!("WHERE {key} >= {from} ") } else { String::new() };
    (head, format!("\n) AS c {bound}ORDER BY {key} LIMIT :{LIMIT}"))
}

/// What goes around it to find a row whose key is NULL: those come after all others, where no page
/// begins.
pub(super) fn around_nulls(key: &Column) -> (&'static str, String) {
    ("SELECT 1 FROM (", format!("\n) AS c WHERE {} IS NULL LIMIT 1", named(key)))
}

fn named(column: &Column) -> String {
    format!("c.{}", quoted(&column.name))
}

/// Both sides of the comparison.
fn compared(key: &Column) -> (String, String) {
    match key.kind {
        Kind::Text => (format!("({}::text COLLATE \"C\")", named(key)), format!(":{FROM}::text")),
        _ => (named(key), format!(":{FROM}")),
    }
}
