//! Effects in one transaction of their own, or not at all. If the connection is lost during the
//! commit nobody knows which: the caller tries again, so effects are at least once.

use longshore::Effect;
use longshore_postgres_address::PooledConnection;
use tokio_postgres::{Error, Transaction};

use super::server::{STALE, Server};
use super::value::{self, Bound};
use super::{error, statement};
use crate::rows::SourceError;
use crate::rows::positional::{about, changes, expect};

/// Runs all effects in one transaction, or none.
pub(super) async fn apply(server: &Server, effects: &[Effect]) -> Result<(), SourceError> {
    let mut stale = STALE;
    loop {
        let mut connection = server.connection().await?;
        match attempt(&mut connection, effects).await {
            Err(error) if stale > 0 && error::was_closed(&error) => stale -= 1,
            done => return done.map_err(|error| error::of_run(&error))?,
        }
    }
}

/// The outer error is one of beginning: nothing has happened then.
async fn attempt(
    connection: &mut PooledConnection,
    effects: &[Effect],
) -> Result<Result<(), SourceError>, Error> {
    // Whatever the server's default is. Dropped without a commit, it is rolled back.
    let transaction = connection.build_transaction().read_only(false).start().await?;
    Ok(all(transaction, effects).await)
}

async fn all(transaction: Transaction<'_>, effects: &[Effect]) -> Result<(), SourceError> {
    for effect in effects {
        run(&transaction, effect).await.map_err(|error| about(&effect.sql, error))?;
    }
    transaction.commit().await.map_err(|error| error::of_run(&error))
}

async fn run(transaction: &Transaction<'_>, effect: &Effect) -> Result<(), SourceError> {
    if !changes(&effect.sql) {
        return Err(SourceError::Data("an effect may only insert, update or delete".to_owned()));
    }
    let statement = statement::of(&effect.sql)?;
    let values = statement.values(&effect.params)?;
    let values: Vec<Bound<'_>> = values.into_iter().map(Bound).collect();
    let done = transaction.execute_typed(&statement.sql, &value::untyped(&values)).await;
    let changed = done.map_err(|error| error::of_statement(&statement, &error))?;
    expect(effect.expected_rows, changed)
}
