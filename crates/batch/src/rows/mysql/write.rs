//! Runs effects in one transaction. If the connection is lost during the commit, its result is
//! unknown; the caller retries, so effects run at least once.

use longshore::Effect;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params, Transaction, TxOpts};

use super::read::{positional, prepare};
use super::{error, value};
use crate::rows::SourceError;
use crate::rows::placeholders::{check_row_count, is_write, with_statement};

/// Runs the effects in one transaction.
pub(super) async fn apply(conn: &mut Conn, effects: &[Effect]) -> Result<(), SourceError> {
    let mut transaction = begin(conn).await?;
    for effect in effects {
        if let Err(error) = run(&mut transaction, effect).await {
            // Report the effect's error. If the rollback fails too, the connection is dropped and
            // the server rolls back.
            let _ = transaction.rollback().await;
            return Err(with_statement(&effect.sql, error));
        }
    }
    transaction.commit().await.map_err(error::of_run)
}

/// Begins a transaction that may write; the session's default is read-only.
pub(super) async fn begin(conn: &mut Conn) -> Result<Transaction<'_>, SourceError> {
    let mut options = TxOpts::new();
    options.with_readonly(false);
    conn.start_transaction(options).await.map_err(error::of_run)
}

async fn run(transaction: &mut Transaction<'_>, effect: &Effect) -> Result<(), SourceError> {
    if !is_write(&effect.sql) {
        return Err(SourceError::Data("an effect may only insert, update or delete".to_owned()));
    }
    let statement = positional(&effect.sql)?;
    let values = statement.values(&effect.params)?.into_iter().map(value::bound).collect();
    let prepared = prepare(transaction, &statement).await?;
    let done = transaction.exec_iter(&prepared, Params::Positional(values)).await;
    let mut done = done.map_err(error::of_run)?;
    let returns = !done.columns_ref().is_empty();
    let returned: Vec<mysql_async::Row> = done.collect().await.map_err(error::of_run)?;
    // With RETURNING, the number of returned rows; else the server's count.
    let changed = if returns { returned.len() as u64 } else { done.affected_rows() };
    check_row_count(effect.expected_rows, changed)
}
