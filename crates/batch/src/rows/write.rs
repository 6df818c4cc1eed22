//! Runs effects in one transaction. If the connection is lost during the commit, its result is
//! unknown; the caller retries, so effects run at least once.

use longshore::Effect;
use longshore_databases::{Connection, Deadline, ResultLimits, RowsWanted};

use super::error::{self, CallError};
use super::placeholders::{check_row_count, is_write};
use super::read::positional;
use super::{SourceError, value_convert};

/// Runs the effects in one transaction.
pub(super) fn apply(
    db: &mut dyn Connection,
    effects: &[Effect],
    deadline: &Deadline,
) -> Result<(), CallError> {
    db.begin_write(deadline).map_err(error::of_begin)?;
    let run = |effect: &Effect| run(db, effect, deadline).map_err(|error| error.with_statement(&effect.sql));
    let done = effects.iter().try_for_each(run);
    let done = done.and_then(|()| db.commit(deadline).map_err(error::of_commit));
    done.map_err(|error| {
        // If the rollback fails too, the connection is dropped and the database rolls back.
        let is_broken = error.is_broken || db.rollback().is_err();
        CallError { is_broken, ..error }
    })
}

fn run(db: &mut dyn Connection, effect: &Effect, deadline: &Deadline) -> Result<(), CallError> {
    if !is_write(&effect.sql) {
        return Err(SourceError::Data("an effect may only insert, update or delete".to_owned()).into());
    }
    let statement = positional(db, &effect.sql)?;
    let bound = value_convert::bind(&statement, statement.values(&effect.params)?);
    let done = db.run(&bound, RowsWanted::Count, ResultLimits::NONE, deadline);
    let done = done.map_err(|error| error::of_write(db, &statement, error))?;
    match done.affected {
        Some(changed) => Ok(check_row_count(effect.expected_rows, changed)?),
        None if effect.expected_rows.is_none() => Ok(()),
        None => Err(SourceError::Data("the driver does not say how many rows changed".to_owned()).into()),
    }
}
