//! Who of this process waits for a turn, and word to those of others.
//!
//! Verbs say whom they told. Those that wait here hear of it at once; of the others all processes get a
//! notice, after the commit and coalesced: a notice inside the commits would make them wait for each other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_core::{PermitId, Result};
use longshore_postgres_address::Pool;
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard};
use uuid::Uuid;

use super::permit_id;
use crate::error::Translate;
use crate::poll_backoff::PollBackoff;
use crate::single_statement::ConnGuard;
use crate::typed_params::typed;

/// What a notice of a turn begins with.
const PERMIT_PREFIX: &str = "turn ";

/// Those of this process that wait, and what others are to hear.
#[derive(Debug, Default)]
pub(crate) struct PermitWakeups {
    waiting: Mutex<HashMap<PermitId, Arc<LocalWaiter>>>,
    unsent: Mutex<Vec<Uuid>>,
    has_unsent: Notify,
}

/// One that waits.
#[derive(Debug, Default)]
pub(crate) struct LocalWaiter {
    pub(crate) wakeup: Notify,
    /// How long it waits where no notices come.
    pub(crate) poll_backoff: PollBackoff,
    /// Held while an ask is on its way: one that was given up must not arrive after its leaving.
    request_lock: Arc<AsyncMutex<()>>,
}

impl LocalWaiter {
    /// Waits until no ask of this one is on its way, and keeps it so.
    pub(crate) async fn lock_request(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.request_lock).lock_owned().await
    }
}

impl PermitWakeups {
    fn waiting(&self) -> MutexGuard<'_, HashMap<PermitId, Arc<LocalWaiter>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One is about to ask: what it is told from now on is not lost.
    pub(crate) fn register(&self, id: PermitId) -> Arc<LocalWaiter> {
        Arc::clone(self.waiting().entry(id).or_default())
    }

    /// One does not wait any more.
    pub(crate) fn unregister(&self, id: PermitId) {
        self.waiting().remove(&id);
    }

    /// Lets the last asks of these arrive; then they do not wait any more.
    pub(super) async fn close(&self, ids: &[PermitId]) {
        let waiting: Vec<Arc<LocalWaiter>> = {
            let mut waiting = self.waiting();
            ids.iter().filter_map(|id| waiting.remove(id)).collect()
        };
        for waiter in waiting {
            waiter.wakeup.notify_one();
            waiter.lock_request().await;
        }
    }

    /// One that waits.
    pub(crate) fn get(&self, id: PermitId) -> Option<Arc<LocalWaiter>> {
        self.waiting().get(&id).cloned()
    }

    /// A verb told these.
    pub(super) fn wake(&self, woken: Vec<Uuid>) {
        if woken.is_empty() {
            return;
        }
        let waiting = self.waiting();
        let others = woken.into_iter().filter(|id| match waiting.get(&permit_id(*id)) {
            Some(waiter) => {
                waiter.wakeup.notify_one();
                false
            }
            None => true,
        });
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner).extend(others);
        self.has_unsent.notify_one();
    }

    /// A notice came; whether it was one of a turn.
    pub(crate) fn on_notification(&self, notice: &str) -> bool {
        let Some(id) = notice.strip_prefix(PERMIT_PREFIX) else { return false };
        let id = id.parse().ok();
        if let Some(waiter) = id.and_then(|id| self.get(id)) {
            waiter.wakeup.notify_one();
        }
        true
    }

    /// Nobody knows what was told meanwhile: everybody is to ask again.
    pub(crate) fn wake_all(&self) {
        for waiter in self.waiting().values() {
            waiter.wakeup.notify_one();
        }
    }

    /// Passes on what others are to hear, for ever. What cannot be passed on is lost: they look by
    /// themselves, a little later.
    pub(crate) async fn run_sender(&self, pool: &Pool, channel: &str) {
        loop {
            self.has_unsent.notified().await;
            let ids =
                std::mem::take(&mut *self.unsent.lock().unwrap_or_else(PoisonError::into_inner));
            if ids.is_empty() {
                continue;
            }
            let notices = ids.iter().map(|id| format!("{PERMIT_PREFIX}{id}")).collect();
            if let Err(error) = notify(pool, channel, notices).await {
                tracing::debug!(%error, "others could not be told of their turn");
            }
        }
    }
}

async fn notify(pool: &Pool, channel: &str, notices: Vec<String>) -> Result<()> {
    let guard = ConnGuard::acquire(pool).await?;
    let sql = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, n)
        FROM unnest($2) n";
    guard.client()?.query_typed(sql, &typed(&[&channel, &notices])).await.or_translate()?;
    guard.release();
    Ok(())
}
