//! SQL in the batch file: single queries, and lists of statements.

use toml::de::DeValue;

use crate::definition::SqlStatement;
use crate::sql;

use super::SourceText;
use super::error::FileError;
use super::section::Field;
use super::source_map::{SourceLocation, SourceMap};

/// One query under `key`, without the semicolon at its end.
pub(super) fn query(
    written: &SourceText,
    key: &str,
    source_map: &mut SourceMap,
) -> Result<String, FileError> {
    let split_statements = split_statements(written);
    match split_statements.as_slice() {
        [(sql, location)] => {
            source_map.put(key, location.clone());
            Ok(sql.clone())
        }
        [] => Err(written.location.error(format!("`{key}` has no statement in it"))),
        [_, (_, second), ..] => {
            Err(second.error(format!("`{key}` must be one statement; a second begins here")))
        }
    }
}

/// The statements of a key: a text, a table with `sql` and `rows`, or a list of both.
pub(super) fn list(field: &Field<'_>, source_map: &mut SourceMap) -> Result<Vec<SqlStatement>, FileError> {
    let items = field.items().unwrap_or_else(|| vec![field.clone()]);
    let mut found = Vec::new();
    for item in items {
        for (statement, location) in statements(&item)? {
            source_map.put(format!("{}[{}]", field.name, found.len()), location);
            found.push(statement);
        }
    }
    Ok(found)
}

fn statements(item: &Field<'_>) -> Result<Vec<(SqlStatement, SourceLocation)>, FileError> {
    let (written, rows) = match item.value() {
        DeValue::Table(_) => {
            let section = item.section(&["sql", "rows"])?;
            (SourceText::inline(&section.require("sql")?)?, section.field("rows"))
        }
        DeValue::String(_) => (SourceText::inline(item)?, None),
        _ => return Err(item.type_error("SQL in quotes or { sql = \"…\", rows = 1 }")),
    };
    let split_statements = split_statements(&written);
    if split_statements.is_empty() {
        return Err(written.location.error(format!("`{}` has no statement in it", item.name)));
    }
    if let (Some(rows), true) = (&rows, split_statements.len() > 1) {
        return Err(rows.error("`rows` is for one statement, and here are several"));
    }
    let rows = rows.map(|rows| rows.whole()).transpose()?;
    Ok(split_statements.into_iter().map(|(sql, location)| (SqlStatement { sql, rows }, location)).collect())
}

/// The statements of a text with their locations.
fn split_statements(written: &SourceText) -> Vec<(String, SourceLocation)> {
    let split_statements = sql::split(&written.text).into_iter();
    let location = |at| written.location.lines_below(sql::lines_before(&written.text, at));
    split_statements.map(|part| (part.sql.to_owned(), location(part.at))).collect()
}
