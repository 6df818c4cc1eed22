//! Wakes requests that wait for a permit, in this process and in others.
//!
//! Server functions return the requests that can now be granted. Those of this process are woken
//! directly. For the others a task sends notifications after the commit, coalesced: `NOTIFY` inside
//! the commits would serialise them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_core::{PermitId, Result};
use longshore_postgres_url::Pool;
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard};
use uuid::Uuid;

use super::permit_id;
use crate::notifier::with_timeout;
use crate::poll_backoff::PollBackoff;
use crate::single_statement::ConnGuard;

/// Prefix of the payload of a permit notification.
const PERMIT_PREFIX: &str = "turn ";

/// Waiting requests of this process, and notifications to send.
#[derive(Debug, Default)]
pub(crate) struct PermitWakeups {
    waiting: Mutex<HashMap<PermitId, Arc<LocalWaiter>>>,
    unsent: Mutex<Vec<Uuid>>,
    has_unsent: Notify,
}

/// A waiting request.
#[derive(Debug, Default)]
pub(crate) struct LocalWaiter {
    pub(crate) wakeup: Notify,
    /// Poll interval where no notifications arrive.
    pub(crate) poll_backoff: PollBackoff,
    /// Held while a request is in flight: an abandoned request must not arrive after its removal.
    request_lock: Arc<AsyncMutex<()>>,
}

impl LocalWaiter {
    /// Waits until no request with this id is in flight, and keeps further ones from starting.
    pub(crate) async fn lock_request(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.request_lock).lock_owned().await
    }
}

impl PermitWakeups {
    fn waiting(&self) -> MutexGuard<'_, HashMap<PermitId, Arc<LocalWaiter>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a request before it is sent, so that no wake-up is lost.
    pub(crate) fn register(&self, id: PermitId) -> Arc<LocalWaiter> {
        Arc::clone(self.waiting().entry(id).or_default())
    }

    /// Removes a request that no longer waits.
    pub(crate) fn unregister(&self, id: PermitId) {
        self.waiting().remove(&id);
    }

    /// Removes requests, and waits until those in flight have arrived.
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

    /// A waiting request.
    pub(crate) fn get(&self, id: PermitId) -> Option<Arc<LocalWaiter>> {
        self.waiting().get(&id).cloned()
    }

    /// Wakes the requests that a server function returned.
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

    /// Handles a notification. Returns whether it was about a permit.
    pub(crate) fn on_notification(&self, payload: &str) -> bool {
        let Some(id) = payload.strip_prefix(PERMIT_PREFIX) else { return false };
        let id = id.parse().ok();
        if let Some(waiter) = id.and_then(|id| self.get(id)) {
            waiter.wakeup.notify_one();
        }
        true
    }

    /// Wakes all requests, because notifications may have been missed.
    pub(crate) fn wake_all(&self) {
        for waiter in self.waiting().values() {
            waiter.wakeup.notify_one();
        }
    }

    /// Sends notifications to other processes until the store closes. If sending fails they are
    /// lost; the waiting requests poll a little later.
    pub(crate) async fn run_sender(&self, pool: &Pool, channel: &str) {
        loop {
            self.has_unsent.notified().await;
            let ids = std::mem::take(&mut *self.unsent.lock().unwrap_or_else(PoisonError::into_inner));
            if ids.is_empty() {
                continue;
            }
            let payloads = ids.iter().map(|id| format!("{PERMIT_PREFIX}{id}")).collect();
            if let Err(error) = with_timeout(notify(pool, channel, payloads)).await {
                tracing::debug!(%error, "cannot notify waiting permit requests");
            }
        }
    }
}

async fn notify(pool: &Pool, channel: &str, payloads: Vec<String>) -> Result<()> {
    let guard = ConnGuard::acquire(pool).await?;
    let sql = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, n)
        FROM unnest($2) n";
    guard.query_and_release(sql, &[&channel, &payloads]).await.map(drop)
}
