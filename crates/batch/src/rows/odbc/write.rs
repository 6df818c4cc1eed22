//! Effects in one transaction of their own, or not at all. If the connection is lost during the
//! commit nobody knows which: the caller tries again, so effects are at least once.

use longshore::Effect;
use odbc_api::Cursor;

use super::connection::Live;
use super::error;
use super::read::{bound, positional};
use crate::rows::SourceError;
use crate::rows::positional::{about, changes, expect};

/// Runs all effects in one transaction, or none. The connection does not commit by itself.
pub(super) fn apply(live: &Live, effects: &[Effect]) -> Result<(), SourceError> {
    let connection = live.connection()?;
    let done = effects
        .iter()
        .try_for_each(|effect| run(live, effect).map_err(|error| about(&effect.sql, error)));
    match done {
        Ok(()) => connection.commit().map_err(error::of_run),
        Err(error) => match connection.rollback() {
            Ok(()) => Err(error),
            // A connection that cannot roll back is not used again, and the database does it.
            Err(worse) => Err(SourceError::Away(format!("{error}; {}", error::of_run(worse)))),
        },
    }
}

fn run(live: &Live, effect: &Effect) -> Result<(), SourceError> {
    if !changes(&effect.sql) {
        return Err(SourceError::Data("an effect may only insert, update or delete".to_owned()));
    }
    let statement = positional(live, &effect.sql)?;
    let values = bound(statement.values(&effect.params)?, live.dialect);
    let refused = |error| error::of_statement(&statement, error);
    let mut prepared = live.connection()?.prepare(&statement.sql).map_err(refused)?;
    let returned = match prepared.execute(values.as_slice()).map_err(error::of_run)? {
        Some(cursor) => Some(rows_of(cursor)?),
        None => None,
    };
    // With RETURNING, as many rows as it returned; else what the database counted.
    let changed = match returned {
        Some(rows) => Some(rows),
        None => prepared.row_count().map_err(error::of_run)?.map(|rows| rows as u64),
    };
    match changed {
        Some(changed) => expect(effect.expected_rows, changed),
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
