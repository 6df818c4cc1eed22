//! SQL effects: the caller's statements, committed with a unit's finish or not at all.
//!
//! They come from outside. They may only change rows: a statement that would end the store's
//! transaction, or access anything outside the database, is rejected.

use longshore_core::outcome::Params;
use longshore_core::{Effect, Error, Failure, Result, SqlValue};
use rusqlite::{CachedStatement, ToSql};

use crate::error::Translate;
use crate::tx::Tx;

/// Runs a unit's effects in a savepoint; returns the failure if they were rolled back.
pub(crate) fn run(tx: &Tx<'_>, effects: &[Effect]) -> Result<Option<Failure>> {
    if effects.is_empty() {
        return Ok(None);
    }
    statement(tx, "SAVEPOINT effects")?;
    let failure = effects.iter().find_map(|effect| run_one(tx, effect).err());
    if tx.db.is_autocommit() {
        // `OR ROLLBACK`, or a trigger with RAISE(ROLLBACK): everything since BEGIN is gone,
        // including this operation. Its caller gets this error; the other operations of the group
        // are run again.
        return Err(Error::Invalid("an effect rolled back the store's transaction".to_owned()));
    }
    if failure.is_some() {
        statement(tx, "ROLLBACK TO effects")?;
    }
    statement(tx, "RELEASE effects")?;
    Ok(failure)
}

/// Runs a cached statement: each unit with effects needs two of these.
fn statement(tx: &Tx<'_>, sql: &str) -> Result<()> {
    tx.db.prepare_cached(sql).or_translate()?.execute([]).or_translate()?;
    Ok(())
}

fn run_one(tx: &Tx<'_>, effect: &Effect) -> Result<(), Failure> {
    let refused = |error: rusqlite::Error| Failure::new("effect", format!("{error}: {}", effect.sql));
    if !changes_rows_only(&effect.sql) {
        let words = format!("an effect may only insert, update or delete: {}", effect.sql);
        return Err(Failure::new("effect", words));
    }
    let mut statement = tx.db.prepare_cached(&effect.sql).map_err(refused)?;
    bind(&mut statement, effect)?;
    let mut rows = statement.raw_query();
    let mut returned = 0;
    while rows.next().map_err(refused)?.is_some() {
        returned += 1;
    }
    drop(rows);
    // With RETURNING, the number of returned rows; else SQLite's count.
    let changed = if statement.column_count() > 0 { returned } else { tx.db.changes() };
    match effect.expected_rows {
        Some(expected) if expected != changed => Err(Failure::new(
            "effect-rows",
            format!("changed {changed} rows instead of {expected}: {}", effect.sql),
        )),
        _ => Ok(()),
    }
}

/// Whether a statement starts as one that changes rows (after comments).
fn changes_rows_only(sql: &str) -> bool {
    let mut rest = sql.trim_start();
    loop {
        let after = match () {
            () if rest.starts_with("--") => rest.split_once('\n').map_or("", |(_, after)| after),
            () if rest.starts_with("/*") => rest.split_once("*/").map_or("", |(_, after)| after),
            () => break,
        };
        rest = after.trim_start();
    }
    let word: String = rest.chars().take_while(char::is_ascii_alphabetic).collect();
    ["INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"].contains(&word.to_ascii_uppercase().as_str())
}

/// Binds every parameter: SQLite would treat an unbound one as NULL.
fn bind(statement: &mut CachedStatement<'_>, effect: &Effect) -> Result<(), Failure> {
    let refused = |error: rusqlite::Error| Failure::new("effect", format!("{error}: {}", effect.sql));
    let count = statement.parameter_count();
    if let Params::Ordered(values) = &effect.params
        && values.len() != count
    {
        let words = format!("{} values for {count} parameters: {}", values.len(), effect.sql);
        return Err(Failure::new("effect", words));
    }
    for at in 1..=count {
        let name = statement.parameter_name(at).map(|name| name[1..].to_owned());
        let value = match &effect.params {
            Params::Ordered(values) => values.get(at - 1),
            Params::Named(values) => {
                let own = |(candidate, _): &&(String, SqlValue)| Some(candidate) == name.as_ref();
                values.iter().find(own).map(|(_, value)| value)
            }
        };
        let Some(value) = value else {
            let name = name.unwrap_or_else(|| format!("number {at}"));
            let words = format!("parameter `{name}` has no value: {}", effect.sql);
            return Err(Failure::new("effect", words));
        };
        statement.raw_bind_parameter(at, BoundValue(value)).map_err(refused)?;
    }
    Ok(())
}

struct BoundValue<'v>(&'v SqlValue);

impl ToSql for BoundValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        match self.0 {
            SqlValue::Null => Ok(rusqlite::types::ToSqlOutput::Owned(rusqlite::types::Value::Null)),
            SqlValue::Bool(value) => value.to_sql(),
            SqlValue::Int(value) => value.to_sql(),
            SqlValue::Real(value) => value.to_sql(),
            SqlValue::Text(value) => value.to_sql(),
            SqlValue::Blob(value) => value.to_sql(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_statements_that_change_rows_are_effects() {
        for good in ["UPDATE t SET a = 1", " -- why\n /* how */ insert into t", "With x AS (SELECT 1)"] {
            assert!(changes_rows_only(good), "{good}");
        }
        for bad in ["COMMIT", "END", "/* UPDATE */ ROLLBACK", "PRAGMA x", "", "--", "ATTACH 'x' AS y"] {
            assert!(!changes_rows_only(bad), "{bad}");
        }
    }
}
