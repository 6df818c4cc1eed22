//! Runs effects in one transaction. If the connection is lost during the commit, its result is
//! unknown; the caller retries, so effects run at least once.

use longshore::Effect;
use longshore_postgres_url::PooledConnection;
use tokio_postgres::{Error, Transaction};

use super::server::{MAX_STALE_CONNECTIONS, PostgresServer};
use super::value::{self, TextParam};
use super::{error, statement};
use crate::rows::SourceError;
use crate::rows::placeholders::{check_row_count, is_write, with_statement};

/// Runs the effects in one transaction.
pub(super) async fn apply(server: &PostgresServer, effects: &[Effect]) -> Result<(), SourceError> {
    let mut stale = MAX_STALE_CONNECTIONS;
    loop {
        let mut connection = server.connection().await?;
        match attempt(&mut connection, effects).await {
            Err(error) if stale > 0 && error::was_closed(&error) => stale -= 1,
            done => return done.map_err(|error| error::of_run(&error))?,
        }
    }
}

/// The outer error means that the transaction did not begin: nothing has happened.
async fn attempt(
    connection: &mut PooledConnection,
    effects: &[Effect],
) -> Result<Result<(), SourceError>, Error> {
    // Read-write, whatever the server's default. Dropped without a commit, it is rolled back.
    let transaction = connection.build_transaction().read_only(false).start().await?;
    Ok(all(transaction, effects).await)
}

async fn all(transaction: Transaction<'_>, effects: &[Effect]) -> Result<(), SourceError> {
    for effect in effects {
        run(&transaction, effect).await.map_err(|error| with_statement(&effect.sql, error))?;
    }
    transaction.commit().await.map_err(|error| error::of_run(&error))
}

async fn run(transaction: &Transaction<'_>, effect: &Effect) -> Result<(), SourceError> {
    if !is_write(&effect.sql) {
        return Err(SourceError::Data("an effect may only insert, update or delete".to_owned()));
    }
    let statement = statement::of(&effect.sql)?;
    let values = statement.values(&effect.params)?;
    let values: Vec<TextParam<'_>> = values.into_iter().map(TextParam).collect();
    let done = transaction.execute_typed(&statement.sql, &value::untyped_params(&values)).await;
    let changed = done.map_err(|error| error::of_statement(&statement, &error))?;
    check_row_count(effect.expected_rows, changed)
}
