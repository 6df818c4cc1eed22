//! Runs effects in one transaction on a file that is not the store's. The rules are those of the
//! store, where effects commit with their unit's finish.

use longshore::Effect;
use longshore::outcome::Params;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::{bind, error, statement_kind};
use crate::rows::SourceError;

/// Runs the effects in one transaction.
pub(super) fn apply(db: &mut Connection, effects: &[Effect]) -> Result<(), SourceError> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate);
    let transaction = transaction.map_err(error::of_write)?;
    for effect in effects {
        let done = run(&transaction, effect).map_err(|error| with_statement(effect, error));
        if transaction.is_autocommit() {
            // `OR ROLLBACK`, or a trigger with RAISE(ROLLBACK): the effects before are undone too,
            // and the next would run outside of any transaction.
            let message = done.err().map_or(String::new(), |error| format!(": {error}"));
            return Err(SourceError::Data(format!("an effect rolled the others back{message}")));
        }
        done?;
    }
    transaction.commit().map_err(error::of_write)
}

fn run(transaction: &Transaction<'_>, effect: &Effect) -> Result<(), SourceError> {
    if !statement_kind::is_write(&effect.sql) {
        return Err(SourceError::Data("an effect may only insert, update or delete".to_owned()));
    }
    let sql = &effect.sql;
    let mut statement = transaction.prepare_cached(sql).map_err(|error| error::of_statement(sql, error))?;
    let wanted = statement.parameter_count();
    match &effect.params {
        Params::Ordered(values) if values.len() != wanted => {
            let message = format!("{} values for {wanted} parameters", values.len());
            return Err(SourceError::Data(message));
        }
        Params::Ordered(values) => bind::bind(&mut statement, |at, _| values.get(at - 1))?,
        Params::Named(values) => {
            bind::bind(&mut statement, |_, name| bind::named(values, name))?;
        }
    }
    let mut rows = statement.raw_query();
    let mut returned = 0;
    while rows.next().map_err(error::of_write)?.is_some() {
        returned += 1;
    }
    drop(rows);
    // With RETURNING, the number of returned rows; else SQLite's count.
    let changed = if statement.column_count() > 0 { returned } else { transaction.changes() };
    match effect.expected_rows {
        Some(expected) if expected != changed => {
            Err(SourceError::Data(format!("changed {changed} rows instead of {expected}")))
        }
        _ => Ok(()),
    }
}

/// Adds the effect's SQL to its error: a row may have several effects.
fn with_statement(effect: &Effect, error: SourceError) -> SourceError {
    match error {
        SourceError::Data(message) => SourceError::Data(format!("{message}: {}", effect.sql)),
        SourceError::Statement { message, offset } => {
            SourceError::Statement { message: format!("{message}: {}", effect.sql), offset }
        }
        error => error,
    }
}
