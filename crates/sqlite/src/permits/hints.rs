//! Who of this process waits for a turn, and how it hears of it.
//!
//! A commit of this process names whom it told. Those of others are noticed as everything that others do
//! (`watch`); then one look at the line says who was told.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_core::{PermitId, Result};
use rusqlite::Connection;
use tokio::sync::Notify;

use crate::error::Translate;

/// Those of this process that wait.
#[derive(Default)]
pub(crate) struct Hints(Mutex<HashMap<PermitId, Arc<Notify>>>);

impl Hints {
    fn open(&self) -> MutexGuard<'_, HashMap<PermitId, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One is about to ask: what it is told from now on is not lost.
    pub(crate) fn enter(&self, id: PermitId) {
        self.open().entry(id).or_default();
    }

    /// One does not wait any more.
    pub(crate) fn leave(&self, ids: &[PermitId]) {
        let mut waiting = self.open();
        for id in ids {
            waiting.remove(id);
        }
    }

    /// What tells one that waits.
    pub(crate) fn of(&self, id: PermitId) -> Option<Arc<Notify>> {
        self.open().get(&id).cloned()
    }

    /// A commit of ours told these.
    pub(crate) fn tell<'a>(&self, ids: impl IntoIterator<Item = &'a PermitId>) {
        let mut ids = ids.into_iter().peekable();
        if ids.peek().is_none() {
            return;
        }
        let waiting = self.open();
        for hint in ids.filter_map(|id| waiting.get(id)) {
            hint.notify_one();
        }
    }

    /// Others have committed: tells those of ours that were told, or are not in line any more.
    pub(crate) fn look(&self, db: &Connection) -> Result<()> {
        if self.open().is_empty() {
            return Ok(());
        }
        let mut patient = db
            .prepare_cached("SELECT id FROM longshore_permit WHERE rank IS NOT NULL AND told = 0")
            .or_translate()?;
        let patient: HashSet<PermitId> = patient
            .query_map([], |row| row.get(0).map(PermitId::from_bytes))
            .and_then(Iterator::collect)
            .or_translate()?;
        for (id, hint) in self.open().iter() {
            if !patient.contains(id) {
                hint.notify_one();
            }
        }
        Ok(())
    }
}
