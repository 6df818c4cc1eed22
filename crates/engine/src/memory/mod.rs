//! The store in memory: for tests, for work that need not outlive its process, and as the oracle
//! that the durable stores are compared with.
//!
//! Everything is under one lock and every decision comes from `longshore_core`, so the files here
//! only say which units are meant and in which order. They mirror the seam: intake, leases (with
//! claim), upkeep, operate, inspect (with verify), tenants,
//! schedules; and the ledger. `state` owns the books that they all write in. Permits share nothing with
//! units and have a type of their own.

mod claim;
mod commit;
mod feed;
mod inspect;
mod intake;
mod leases;
mod ledger;
mod operate;
mod permits;
mod record;
mod schedules;
mod state;
mod tenants;
mod upkeep;
mod verify;

use std::sync::{Arc, Mutex, PoisonError};

use longshore_core::{Clock, SystemClock, Timestamp};
use tokio::sync::watch;

pub use permits::MemoryPermits;
use state::State;

/// A whole store in this process' memory; gone with it.
///
/// ```
/// use longshore::{Inspect, Intake, Kind, MemoryStore, NewUnit, Scope, UnitState};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> longshore::Result<()> {
/// let store = MemoryStore::default();
/// let unit = NewUnit::new(Kind::new("greet").unwrap(), b"{}".as_slice());
/// let id = unit.id;
/// store.send(&Scope::All, vec![unit]).await?;
/// assert_eq!(store.unit(&Scope::All, id).await?.state, UnitState::Ready);
/// # Ok(())
/// # }
/// ```
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// The newest entry of the change feed.
    changed: watch::Sender<u64>,
    /// Raised whenever something may have become claimable. Never 0, which means "never looked".
    claimable: watch::Sender<u64>,
}

impl MemoryStore {
    /// An empty store that reads the time from `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
            changed: watch::Sender::new(0),
            claimable: watch::Sender::new(1),
        }
    }

    /// Looks at the books.
    fn read<T>(&self, look: impl FnOnce(&State, Timestamp) -> T) -> T {
        let now = self.clock.now();
        look(&self.state.lock().unwrap_or_else(PoisonError::into_inner), now)
    }

    /// Writes in the books and closes them: batches move on and everybody hears of it.
    fn write<T>(&self, change: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let answer = change(&mut state, now);
        let news = state.commit(now);
        drop(state);
        if let Some(seq) = news.seq {
            self.changed.send_modify(|newest| *newest = seq.max(*newest));
        }
        if news.claimable {
            self.claimable.send_modify(|count| *count += 1);
        }
        answer
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}
