//! Effects on a file that is not the store's: in one transaction of their own, or not at all. The
//! same rules as in the store, where effects commit with their unit's end.

use longshore::Effect;
use longshore::outcome::Params;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::{bind, error, verb};
use crate::rows::SourceError;

/// Runs all effects in one transaction, or none.
pub(super) fn apply(db: &mut Connection, effects: &[Effect]) -> Result<(), SourceError> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate);
    let transaction = transaction.map_err(error::of_run)?;
    for effect in effects {
        let done = run(&transaction, effect).map_err(|error| about(effect, error));
        if transaction.is_autocommit() {
            // `OR ROLLBACK`, or a trigger that says so: what ran before is gone, too, and what
            // would run now would be outside of any transaction.
            let words = done.err().map_or(String::new(), |error| format!(": {error}"));
            return Err(SourceError::Data(format!("an effect rolled the others back{words}")));
        }
        done?;
    }
    transaction.commit().map_err(error::of_run)
}

fn run(transaction: &Transaction<'_>, effect: &Effect) -> Result<(), SourceError> {
    if !verb::changes(&effect.sql) {
        return Err(SourceError::Data("an effect may only insert, update or delete".to_owned()));
    }
    let sql = &effect.sql;
    let mut statement =
        transaction.prepare_cached(sql).map_err(|error| error::of_statement(sql, error))?;
    let wanted = statement.parameter_count();
    match &effect.params {
        Params::Ordered(values) if values.len() != wanted => {
            let words = format!("{} values for {wanted} parameters", values.len());
            return Err(SourceError::Data(words));
        }
        Params::Ordered(values) => bind::bind(&mut statement, |at, _| values.get(at - 1))?,
        Params::Named(values) => {
            bind::bind(&mut statement, |_, name| bind::named(values, name))?;
        }
    }
    let mut rows = statement.raw_query();
    let mut returned = 0;
    while rows.next().map_err(error::of_run)?.is_some() {
        returned += 1;
    }
    drop(rows);
    // With RETURNING, as many rows as it returned; else what SQLite counted.
    let changed = if statement.column_count() > 0 { returned } else { transaction.changes() };
    match effect.expected_rows {
        Some(expected) if expected != changed => {
            Err(SourceError::Data(format!("changed {changed} rows instead of {expected}")))
        }
        _ => Ok(()),
    }
}

/// Says which effect an error is about: people have several.
fn about(effect: &Effect, error: SourceError) -> SourceError {
    match error {
        SourceError::Data(words) => SourceError::Data(format!("{words}: {}", effect.sql)),
        SourceError::Statement { message, offset } => {
            SourceError::Statement { message: format!("{message}: {}", effect.sql), offset }
        }
        SourceError::Away(_) => error,
    }
}
