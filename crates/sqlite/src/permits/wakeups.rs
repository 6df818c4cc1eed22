//! Wakes the waiters of this process.
//!
//! A commit of this process returns the waiters that it notified. Commits of other processes are
//! detected by `wal_watcher`; then one query of the wait queue finds the waiters that were
//! notified.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_core::{PermitId, Result};
use rusqlite::Connection;
use tokio::sync::Notify;

use crate::error::Translate;

/// The waiters of this process.
#[derive(Default)]
pub(crate) struct PermitWakeups(Mutex<HashMap<PermitId, Arc<Notify>>>);

impl PermitWakeups {
    fn lock(&self) -> MutexGuard<'_, HashMap<PermitId, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a waiter before it asks, so that no wake-up is lost.
    pub(crate) fn register(&self, id: PermitId) {
        self.lock().entry(id).or_default();
    }

    /// Removes waiters.
    pub(crate) fn remove(&self, ids: &[PermitId]) {
        let mut waiting = self.lock();
        for id in ids {
            waiting.remove(id);
        }
    }

    /// What wakes a waiter.
    pub(crate) fn get(&self, id: PermitId) -> Option<Arc<Notify>> {
        self.lock().get(&id).cloned()
    }

    /// Wakes the waiters that a commit of this process notified.
    pub(crate) fn wake<'a>(&self, ids: impl IntoIterator<Item = &'a PermitId>) {
        let mut ids = ids.into_iter().peekable();
        if ids.peek().is_none() {
            return;
        }
        let waiting = self.lock();
        for wakeup in ids.filter_map(|id| waiting.get(id)) {
            wakeup.notify_one();
        }
    }

    /// After commits of other processes: wakes waiters that were notified, or are not in the queue
    /// any more.
    pub(crate) fn wake_after_external_commit(&self, db: &Connection) -> Result<()> {
        if self.lock().is_empty() {
            return Ok(());
        }
        let mut waiting = db
            .prepare_cached("SELECT id FROM longshore_permit WHERE rank IS NOT NULL AND notified = 0")
            .or_translate()?;
        let waiting: HashSet<PermitId> = waiting
            .query_map([], |row| row.get(0).map(PermitId::from_bytes))
            .and_then(Iterator::collect)
            .or_translate()?;
        for (id, wakeup) in self.lock().iter() {
            if !waiting.contains(id) {
                wakeup.notify_one();
            }
        }
        Ok(())
    }
}
