//! A verb on its way through the writer: it runs in a transaction, in another one if that could
//! not be committed, and is answered once.

use std::panic::AssertUnwindSafe;

use longshore_core::batch::Sums;
use longshore_core::{Clock, Error, PermitId, Result};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::known::Known;
use crate::tx::Tx;

/// A verb, whatever it answers with.
pub(crate) trait Verb: Send {
    /// Runs it in the transaction that `db` has open.
    fn run(&mut self, db: &Connection, clock: &dyn Clock, known: &mut Known) -> Ran;

    /// Notes why it cannot run.
    fn refuse(&mut self, error: Error);

    /// Tells the caller what it said, if that is committed.
    fn answer(self: Box<Self>, committed: Result<()>);
}

/// What a run leaves to the writer.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// Whether anything of it is to stay.
    pub(super) commit: bool,
    /// Whether something may be claimable now.
    pub(super) woke: bool,
    /// Its last entry in the change feed; 0 for none.
    pub(super) last_change: u64,
    /// Those that wait for a permit and are to ask again.
    pub(super) told: Vec<PermitId>,
    /// What it adds to the sums of batches, by stream.
    pub(super) sums: Vec<(i64, Sums)>,
}

/// A verb and its caller.
pub(super) struct Call<V, T> {
    verb: V,
    /// What the last run said.
    said: Result<T>,
    caller: oneshot::Sender<Result<T>>,
}

impl<V, T> Call<V, T> {
    /// A verb that has not run, and where its answer will come.
    pub(super) fn new(verb: V) -> (Self, oneshot::Receiver<Result<T>>) {
        let (caller, answered) = oneshot::channel();
        (Self { verb, said: Err(super::closed()), caller }, answered)
    }
}

impl<V, T> Verb for Call<V, T>
where
    V: Fn(&mut Tx<'_>) -> Result<T> + Send,
    T: Send,
{
    fn run(&mut self, db: &Connection, clock: &dyn Clock, known: &mut Known) -> Ran {
        let mut tx = Tx::new(db, clock.now(), known);
        // A bug in one verb must not end the thread that serves them all.
        let said = std::panic::catch_unwind(AssertUnwindSafe(|| (self.verb)(&mut tx)));
        self.said = said.unwrap_or_else(|_| Err(panicked()));
        if self.said.is_ok()
            && !tx.abandon
            && let Err(error) = tx.flush()
        {
            self.said = Err(error);
        }
        if self.said.is_err() || tx.abandon {
            return Ran::default();
        }
        let Tx { woke, last_change, sums, told, .. } = tx;
        Ran { commit: true, woke, last_change, told, sums }
    }

    fn refuse(&mut self, error: Error) {
        self.said = Err(error);
    }

    fn answer(self: Box<Self>, committed: Result<()>) {
        let Self { said, caller, .. } = *self;
        // The caller may have gone away; what was committed stays.
        let _ = caller.send(said.and_then(|value| committed.map(|()| value)));
    }
}

fn panicked() -> Error {
    Error::Broken { message: "a verb panicked".into(), source: None }
}
