//! A verb inside a caller's transaction is done whole, or the transaction cannot commit.
//!
//! An error takes back what was done of it (a savepoint). But a future can be dropped anywhere, and
//! then nothing runs that could take anything back. So each verb begins by breaking a rule that the
//! server checks at the commit, and puts it right with its last statement.

use std::sync::atomic::{AtomicI64, Ordering};

use longshore_core::Result;

use crate::store::{CommitNotice, TransactionResult};
use crate::tx::Tx;

/// Tells the verbs of one transaction from each other; nobody else sees their promises.
static NEXT_ID: AtomicI64 = AtomicI64::new(1);

/// A verb that has begun.
#[must_use]
pub(crate) struct CommitGuard(i64);

impl CommitGuard {
    /// Begins.
    pub(crate) async fn arm(tx: &mut Tx<'_>) -> Result<Self> {
        let guard = Self(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        // The caller may have its constraints checked at once.
        tx.batch(&format!(
            "SAVEPOINT longshore;
             SET CONSTRAINTS longshore_verb_was_dropped_midway DEFERRED;
             INSERT INTO longshore_promise VALUES ({})",
            guard.0
        ))
        .await?;
        Ok(guard)
    }

    /// Ends: all of it stays, or nothing.
    pub(crate) async fn disarm<T>(
        self,
        tx: &mut Tx<'_>,
        result: Result<T>,
    ) -> Result<TransactionResult<T>> {
        match &result {
            Ok(_) => {
                let disarm = format!("DELETE FROM longshore_promise WHERE num = {}", self.0);
                tx.batch(&format!("{disarm}; RELEASE longshore")).await?;
            }
            Err(_) => tx.batch("ROLLBACK TO longshore; RELEASE longshore").await?,
        }
        let notice = CommitNotice(std::mem::take(&mut tx.after));
        result.map(|value| TransactionResult { value, notice })
    }
}
