//! The in-memory store: for tests, for work that need not outlive its process, and as the oracle
//! for the durable stores.
//!
//! Everything is under one lock and `longshore_core` makes every decision; the modules here only
//! select units and their order. They mirror the store traits: enqueue, `worker_api` (with claim),
//! maintenance, admin, queries (with verify), tenants, schedules, ledger. `state` holds the shared
//! data. Permits share nothing with units and have their own type.

mod admin;
mod change_feed;
mod claim;
mod enqueue;
mod ledger;
mod maintenance;
mod permits;
mod post_write;
mod queries;
mod record;
mod schedules;
mod state;
mod tenants;
mod verify;
mod worker_api;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use longshore_core::{Clock, SystemClock, Timestamp};
use tokio::sync::{Notify, watch};

pub use permits::MemoryPermits;
use state::State;

/// A store in the memory of this process.
///
/// ```
/// use longshore::{Queries, Enqueue, Kind, MemoryStore, NewUnit, Scope, UnitState};
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
    /// The sequence number of the newest entry of the change feed.
    changed: watch::Sender<u64>,
    /// Raised when a unit may have become claimable. Never 0, which callers use for "not read yet".
    claimable: AtomicU64,
    /// Wakes waiting workers in their order, so that a simulation can be repeated.
    claimable_raised: Notify,
}

impl MemoryStore {
    /// An empty store that reads the time from `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
            changed: watch::Sender::new(0),
            claimable: AtomicU64::new(1),
            claimable_raised: Notify::new(),
        }
    }

    /// Reads the state.
    fn read<T>(&self, query: impl FnOnce(&State, Timestamp) -> T) -> T {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        query(&state, self.clock.now())
    }

    /// Changes the state, then advances batches and notifies waiting readers and workers.
    fn write<T>(&self, change: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let answer = change(&mut state, now);
        let notice = state.commit(now);
        drop(state);
        if let Some(seq) = notice.seq {
            self.changed.send_modify(|newest| *newest = seq.max(*newest));
        }
        if notice.claimable {
            self.claimable.fetch_add(1, Ordering::Release);
            self.claimable_raised.notify_waiters();
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
