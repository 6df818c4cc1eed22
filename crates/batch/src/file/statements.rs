//! SQL in the batch file: single queries, and lists of statements.

use toml::de::DeValue;

use crate::definition::Statement;
use crate::sql;

use super::Written;
use super::error::FileError;
use super::places::{Place, Places};
use super::section::Field;

/// One query under `key`: the text without a semicolon at its end.
pub(super) fn query(
    written: &Written,
    key: &str,
    places: &mut Places,
) -> Result<String, FileError> {
    let parts = parts(written);
    match parts.as_slice() {
        [(sql, place)] => {
            places.put(key, place.clone());
            Ok(sql.clone())
        }
        [] => Err(written.place.error(format!("`{key}` has no statement in it"))),
        [_, (_, second), ..] => {
            Err(second.error(format!("`{key}` must be one statement; a second begins here")))
        }
    }
}

/// The statements of a key: a text, a table with `sql` and `rows`, or a list of both.
pub(super) fn list(field: &Field<'_>, places: &mut Places) -> Result<Vec<Statement>, FileError> {
    let items = field.items().unwrap_or_else(|| vec![field.clone()]);
    let mut all = Vec::new();
    for item in items {
        for (statement, place) in statements(&item)? {
            places.put(format!("{}[{}]", field.name, all.len()), place);
            all.push(statement);
        }
    }
    Ok(all)
}

fn statements(item: &Field<'_>) -> Result<Vec<(Statement, Place)>, FileError> {
    let (written, rows) = match item.value() {
        DeValue::Table(_) => {
            let section = item.section(&["sql", "rows"])?;
            (Written::here(&section.need("sql")?)?, section.field("rows"))
        }
        DeValue::String(_) => (Written::here(item)?, None),
        _ => return Err(item.wrong("SQL in quotes or { sql = \"…\", rows = 1 }")),
    };
    let parts = parts(&written);
    if parts.is_empty() {
        return Err(written.place.error(format!("`{}` has no statement in it", item.name)));
    }
    if let (Some(rows), true) = (&rows, parts.len() > 1) {
        return Err(rows.error("`rows` is for one statement, and here are several"));
    }
    let rows = rows.map(|rows| rows.whole()).transpose()?;
    Ok(parts.into_iter().map(|(sql, place)| (Statement { sql, rows }, place)).collect())
}

/// The statements of a text, each with its place.
fn parts(written: &Written) -> Vec<(String, Place)> {
    let parts = sql::split(&written.text).into_iter();
    let place = |at| written.place.down(sql::lines_before(&written.text, at));
    parts.map(|part| (part.sql.to_owned(), place(part.at))).collect()
}
