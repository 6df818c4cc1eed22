//! Runs effects in one transaction. If the connection is lost during the commit, its result is
//! unknown; the caller retries, so effects run at least once.

use std::time::Duration;

use longshore::Effect;
use tokio::time::timeout;
use tokio_postgres::Transaction;

use super::server::{ANSWER_TIMEOUT, MAX_STALE_CONNECTIONS, PostgresServer};
use super::value::{self, TextParam};
use super::{error, statement};
use crate::rows::SourceError;
use crate::rows::placeholders::{check_row_count, is_write, with_statement};

/// How long a transaction may take once it has begun, with its waits for locks.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the effects in one transaction.
pub(super) async fn apply(server: &PostgresServer, effects: &[Effect]) -> Result<(), SourceError> {
    let mut stale = MAX_STALE_CONNECTIONS;
    loop {
        let mut connection = server.connection().await?;
        // Read-write, whatever the server's default. Dropped without a commit, it is rolled back.
        let begin = connection.build_transaction().read_only(false);
        let transaction = match timeout(ANSWER_TIMEOUT, begin.start()).await {
            Err(_) => return Err(server.no_answer()),
            Ok(Err(error)) if stale > 0 && error::was_closed(&error) => {
                stale -= 1;
                continue;
            }
            Ok(begun) => begun.map_err(|error| error::of_begin(&error))?,
        };
        let done = timeout(TRANSACTION_TIMEOUT, all(transaction, effects)).await;
        let done = done.map_err(|_| error::too_slow(TRANSACTION_TIMEOUT))?;
        connection.release();
        return done;
    }
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
    let changed = done.map_err(|error| error::of_write(&statement, &error))?;
    check_row_count(effect.expected_rows, changed)
}
