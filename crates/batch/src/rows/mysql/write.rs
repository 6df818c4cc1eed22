//! Effects in one transaction of their own, or not at all. If the connection is lost during the
//! commit nobody knows which: the caller tries again, so effects are at least once.

use longshore::Effect;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params, Transaction, TxOpts};

use super::read::{positional, prepare};
use super::{error, value};
use crate::rows::SourceError;
use crate::rows::positional::{about, changes, expect};

/// Runs all effects in one transaction, or none.
pub(super) async fn apply(conn: &mut Conn, effects: &[Effect]) -> Result<(), SourceError> {
    let mut transaction = begin(conn).await?;
    for effect in effects {
        if let Err(error) = run(&mut transaction, effect).await {
            // What matters is why the effect failed. A connection that cannot even roll back is
            // not used again, and the server does it.
            let _ = transaction.rollback().await;
            return Err(about(&effect.sql, error));
        }
    }
    transaction.commit().await.map_err(error::of_run)
}

/// Begins a transaction that may write, as the session by itself may not.
pub(super) async fn begin(conn: &mut Conn) -> Result<Transaction<'_>, SourceError> {
    let mut options = TxOpts::new();
    options.with_readonly(false);
    conn.start_transaction(options).await.map_err(error::of_run)
}

async fn run(transaction: &mut Transaction<'_>, effect: &Effect) -> Result<(), SourceError> {
    if !changes(&effect.sql) {
        return Err(SourceError::Data("an effect may only insert, update or delete".to_owned()));
    }
    let statement = positional(&effect.sql)?;
    let values = statement.values(&effect.params)?.into_iter().map(value::bound).collect();
    let prepared = prepare(transaction, &statement).await?;
    let done = transaction.exec_iter(&prepared, Params::Positional(values)).await;
    let mut done = done.map_err(error::of_run)?;
    let returns = !done.columns_ref().is_empty();
    let returned: Vec<mysql_async::Row> = done.collect().await.map_err(error::of_run)?;
    // With RETURNING, as many rows as it returned; else what the server counted.
    let changed = if returns { returned.len() as u64 } else { done.affected_rows() };
    expect(effect.expected_rows, changed)
}
