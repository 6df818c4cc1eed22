//! An operation on its way through the writer: it runs in a transaction, possibly again in another
//! if that could not be committed, and is replied to once.

use std::panic::AssertUnwindSafe;

use longshore_core::batch::Sums;
use longshore_core::{Clock, Error, PermitId, Result};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::claim_cache::ClaimCache;
use crate::tx::Tx;

/// An operation with any result type.
pub(crate) trait WriteOp: Send {
    /// Runs it in the open transaction of `db`.
    fn run(&mut self, db: &Connection, clock: &dyn Clock, claim_cache: &mut ClaimCache) -> OpReport;

    /// Stores why it cannot run.
    fn fail(&mut self, error: Error);

    /// Sends the caller its result, or the error of the commit.
    fn reply(self: Box<Self>, committed: Result<()>);
}

/// What the writer must do after a run.
#[derive(Debug, Default)]
pub(crate) struct OpReport {
    /// Whether to commit it.
    pub(super) commit: bool,
    /// Whether units may be claimable now.
    pub(super) wake_workers: bool,
    /// Its last entry in the change feed; 0 for none.
    pub(super) last_change: u64,
    /// Waiters for permits that should ask again.
    pub(super) woken_permits: Vec<PermitId>,
    /// Amounts to add to the sums of batches, by stream.
    pub(super) sums: Vec<(i64, Sums)>,
    /// Whether dependants are left to the outbox.
    pub(super) outbox: bool,
}

/// An operation and its caller.
pub(super) struct PendingOp<F, T> {
    op: F,
    /// The result of the last run.
    result: Result<T>,
    caller: oneshot::Sender<Result<T>>,
}

impl<F, T> PendingOp<F, T> {
    /// An operation that has not run, and the channel of its reply.
    pub(super) fn new(op: F) -> (Self, oneshot::Receiver<Result<T>>) {
        let (caller, reply) = oneshot::channel();
        (Self { op, result: Err(super::closed()), caller }, reply)
    }
}

impl<F, T> WriteOp for PendingOp<F, T>
where
    F: Fn(&mut Tx<'_>) -> Result<T> + Send,
    T: Send,
{
    fn run(&mut self, db: &Connection, clock: &dyn Clock, claim_cache: &mut ClaimCache) -> OpReport {
        let mut tx = Tx::new(db, clock.now(), claim_cache);
        // A bug in one operation must not end the thread that serves all of them.
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| (self.op)(&mut tx)));
        self.result = result.unwrap_or_else(|_| Err(panicked()));
        if self.result.is_ok()
            && !tx.roll_back
            && let Err(error) = tx.flush()
        {
            self.result = Err(error);
        }
        if self.result.is_err() || tx.roll_back {
            return OpReport::default();
        }
        let Tx { wake_workers, last_change, sums, woken_permits, outbox, .. } = tx;
        OpReport { commit: true, wake_workers, last_change, woken_permits, sums, outbox }
    }

    fn fail(&mut self, error: Error) {
        self.result = Err(error);
    }

    fn reply(self: Box<Self>, committed: Result<()>) {
        let Self { result, caller, .. } = *self;
        // The caller may be gone; what was committed stays.
        let _ = caller.send(result.and_then(|value| committed.map(|()| value)));
    }
}

fn panicked() -> Error {
    Error::Broken { message: "an operation panicked".into(), source: None }
}
