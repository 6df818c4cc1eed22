//! Guards operations inside a caller's transaction: if one is not completed, the transaction cannot
//! commit.
//!
//! If an operation fails, a savepoint undoes it. But a future can be dropped at any await point,
//! and then no code runs that could undo anything. So each operation first inserts a row that
//! violates a deferred constraint, and deletes it with its last statement.

use std::sync::atomic::{AtomicI64, Ordering};

use longshore_core::Result;

use crate::store::{PostCommitWork, TransactionResult};
use crate::tx::Tx;

/// Distinguishes the operations of one transaction. Other transactions never see these rows.
static NEXT_ID: AtomicI64 = AtomicI64::new(1);

/// An operation in progress.
#[must_use]
pub(crate) struct CommitGuard(i64);

impl CommitGuard {
    /// Inserts the row that blocks the commit.
    pub(crate) async fn arm(tx: &mut Tx<'_>) -> Result<Self> {
        let guard = Self(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        // The caller may have set constraints to be checked immediately.
        tx.batch(&format!(
            "SAVEPOINT longshore;
             SET CONSTRAINTS longshore_operation_was_dropped DEFERRED;
             INSERT INTO longshore_commit_guard VALUES ({})",
            guard.0
        ))
        .await?;
        Ok(guard)
    }

    /// Deletes the row and keeps the operation's changes if `result` is `Ok`; else rolls back to
    /// the savepoint.
    pub(crate) async fn disarm<T>(self, tx: &mut Tx<'_>, result: Result<T>) -> Result<TransactionResult<T>> {
        match &result {
            Ok(_) => {
                let disarm = format!("DELETE FROM longshore_commit_guard WHERE num = {}", self.0);
                tx.batch(&format!("{disarm}; RELEASE longshore")).await?;
            }
            Err(_) => tx.batch("ROLLBACK TO longshore; RELEASE longshore").await?,
        }
        let post_commit = PostCommitWork(std::mem::take(&mut tx.after));
        result.map(|value| TransactionResult { value, post_commit })
    }
}
