//! Runs effects in one transaction. If the connection is lost during the commit, its result is
//! unknown; the caller retries, so effects run at least once.

use longshore::Effect;
use odbc_api::Cursor;

use super::connection::OdbcConnection;
use super::error;
use super::read::{bind, positional};
use crate::rows::SourceError;
use crate::rows::placeholders::{check_row_count, is_write, with_statement};

/// Runs the effects in one transaction; autocommit is off.
pub(super) fn apply(db: &OdbcConnection, effects: &[Effect]) -> Result<(), SourceError> {
    let handle = db.handle()?;
    let done = effects
        .iter()
        .try_for_each(|effect| run(db, effect).map_err(|error| with_statement(&effect.sql, error)));
    match done {
        Ok(()) => handle.commit().map_err(error::of_run),
        Err(error) => match handle.rollback() {
            Ok(()) => Err(error),
            // If the rollback fails, the connection is dropped and the database rolls back.
            Err(worse) => Err(SourceError::Unavailable(format!("{error}; {}", error::of_run(worse)))),
        },
    }
}

fn run(db: &OdbcConnection, effect: &Effect) -> Result<(), SourceError> {
    if !is_write(&effect.sql) {
        return Err(SourceError::Data("an effect may only insert, update or delete".to_owned()));
    }
    let statement = positional(db, &effect.sql)?;
    let values = bind(statement.values(&effect.params)?, db.dialect);
    let statement_error = |error| error::of_statement(&statement, error);
    let mut prepared = db.handle()?.prepare(&statement.sql).map_err(statement_error)?;
    let returned = match prepared.execute(values.as_slice()).map_err(error::of_run)? {
        Some(cursor) => Some(rows_of(cursor)?),
        None => None,
    };
    // With RETURNING, the number of returned rows; else the database's count.
    let changed = match returned {
        Some(rows) => Some(rows),
        None => prepared.row_count().map_err(error::of_run)?.map(|rows| rows as u64),
    };
    match changed {
        Some(changed) => check_row_count(effect.expected_rows, changed),
        None if effect.expected_rows.is_none() => Ok(()),
        None => Err(SourceError::Data("the driver does not say how many rows changed".to_owned())),
    }
}

fn rows_of(mut cursor: impl Cursor) -> Result<u64, SourceError> {
    let mut rows = 0;
    while cursor.next_row().map_err(error::of_run)?.is_some() {
        rows += 1;
    }
    Ok(rows)
}
