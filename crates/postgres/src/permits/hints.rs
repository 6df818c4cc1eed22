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
use crate::lone::Lent;
use crate::param::typed;
use crate::poll::Poll;

/// What a notice of a turn begins with.
const TURN: &str = "turn ";

/// Those of this process that wait, and what others are to hear.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    waiting: Mutex<HashMap<PermitId, Arc<Waiter>>>,
    untold: Mutex<Vec<Uuid>>,
    filled: Notify,
}

/// One that waits.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    pub(crate) hint: Notify,
    /// How long it waits where no notices come.
    pub(crate) poll: Poll,
    /// Held while an ask is on its way: one that was given up must not arrive after its leaving.
    asking: Arc<AsyncMutex<()>>,
}

impl Waiter {
    /// Waits until no ask of this one is on its way, and keeps it so.
    pub(crate) async fn alone(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.asking).lock_owned().await
    }
}

impl Hints {
    fn waiting(&self) -> MutexGuard<'_, HashMap<PermitId, Arc<Waiter>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One is about to ask: what it is told from now on is not lost.
    pub(crate) fn enter(&self, id: PermitId) -> Arc<Waiter> {
        Arc::clone(self.waiting().entry(id).or_default())
    }

    /// One does not wait any more.
    pub(crate) fn leave(&self, id: PermitId) {
        self.waiting().remove(&id);
    }

    /// Lets the last asks of these arrive; then they do not wait any more.
    pub(super) async fn close(&self, ids: &[PermitId]) {
        let waiting: Vec<Arc<Waiter>> = {
            let mut waiting = self.waiting();
            ids.iter().filter_map(|id| waiting.remove(id)).collect()
        };
        for waiter in waiting {
            waiter.hint.notify_one();
            waiter.alone().await;
        }
    }

    /// One that waits.
    pub(crate) fn of(&self, id: PermitId) -> Option<Arc<Waiter>> {
        self.waiting().get(&id).cloned()
    }

    /// A verb told these.
    pub(super) fn tell(&self, told: Vec<Uuid>) {
        if told.is_empty() {
            return;
        }
        let waiting = self.waiting();
        let others = told.into_iter().filter(|id| match waiting.get(&permit_id(*id)) {
            Some(waiter) => {
                waiter.hint.notify_one();
                false
            }
            None => true,
        });
        self.untold.lock().unwrap_or_else(PoisonError::into_inner).extend(others);
        self.filled.notify_one();
    }

    /// A notice came; whether it was one of a turn.
    pub(crate) fn hear(&self, notice: &str) -> bool {
        let Some(id) = notice.strip_prefix(TURN) else { return false };
        let id = id.parse().ok();
        if let Some(waiter) = id.and_then(|id| self.of(id)) {
            waiter.hint.notify_one();
        }
        true
    }

    /// Nobody knows what was told meanwhile: everybody is to ask again.
    pub(crate) fn suspect(&self) {
        for waiter in self.waiting().values() {
            waiter.hint.notify_one();
        }
    }

    /// Passes on what others are to hear, for ever. What cannot be passed on is lost: they look by
    /// themselves, a little later.
    pub(crate) async fn pass_on(&self, pool: &Pool, channel: &str) {
        loop {
            self.filled.notified().await;
            let ids =
                std::mem::take(&mut *self.untold.lock().unwrap_or_else(PoisonError::into_inner));
            if ids.is_empty() {
                continue;
            }
            let notices = ids.iter().map(|id| format!("{TURN}{id}")).collect();
            if let Err(error) = notify(pool, channel, notices).await {
                tracing::debug!(%error, "others could not be told of their turn");
            }
        }
    }
}

async fn notify(pool: &Pool, channel: &str, notices: Vec<String>) -> Result<()> {
    let lent = Lent::by(pool).await?;
    let sql = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, n)
        FROM unnest($2) n";
    lent.client()?.query_typed(sql, &typed(&[&channel, &notices])).await.or_translate()?;
    lent.give_back();
    Ok(())
}
