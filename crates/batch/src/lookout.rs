//! Watching batches, and telling whoever their definitions name when somebody should look.
//!
//! What is worth a word is decided by [`crate::alerts`]; this reads the batches, remembers what was
//! said, and does what `[alerts]` says.

use std::collections::HashMap;
use std::sync::Arc;

use longshore::{Batch, BatchId, BatchStatus, Scope, Store, Timestamp};
use serde_json::json;

use crate::alerts::{Alert, Seen, watch};
use crate::definition::Definition;
use crate::end::{Act, perform};
use crate::rows::Sources;

/// Batches that are looked at in one round: the newest.
const MANY: u32 = 1_000;

/// Watches the batches of a store.
pub struct Lookout {
    store: Arc<dyn Store>,
    scope: Scope,
    sources: Arc<Sources>,
    act: Arc<dyn Act>,
    watched: HashMap<BatchId, Watched>,
}

struct Watched {
    /// `None`: no batch of rows, or one that we cannot read.
    definition: Option<Definition>,
    seen: Seen,
}

impl Lookout {
    /// Has seen nothing yet.
    pub fn new(
        store: Arc<dyn Store>,
        scope: Scope,
        sources: Arc<Sources>,
        act: Arc<dyn Act>,
    ) -> Self {
        Self { store, scope, sources, act, watched: HashMap::new() }
    }

    /// Looks at one batch; returns what is new to say. A store that is away has nothing to say.
    pub async fn look(&mut self, id: &BatchId, now: Timestamp) -> Vec<Alert> {
        match self.store.batch(&self.scope, id).await {
            Ok(batch) => self.consider(&batch, now).await,
            Err(error) => {
                tracing::debug!(%error, batch = %id, "a batch could not be looked at");
                Vec::new()
            }
        }
    }

    /// Looks at every batch that is not at its end, and once more at those that were not the last
    /// time.
    pub async fn look_around(&mut self, now: Timestamp) -> Vec<Alert> {
        let mut alerts = Vec::new();
        let mut known: Vec<BatchId> = self.watched.keys().cloned().collect();
        for status in [BatchStatus::Queued, BatchStatus::Running, BatchStatus::Paused] {
            let page = self.store.batches(&self.scope, Some(status), None, MANY).await;
            for batch in page.map(|page| page.items).unwrap_or_default() {
                known.retain(|id| *id != batch.id);
                alerts.extend(self.consider(&batch, now).await);
            }
        }
        for ended in known {
            alerts.extend(self.look(&ended, now).await);
            self.watched.remove(&ended);
        }
        alerts
    }

    async fn consider(&mut self, batch: &Batch, now: Timestamp) -> Vec<Alert> {
        if !self.watched.contains_key(&batch.id) {
            let kept = self.store.definition(&self.scope, &batch.id).await.ok().flatten();
            let definition = kept.and_then(|kept| kept.parse().ok());
            let watched = Watched { definition, seen: Seen::default() };
            self.watched.insert(batch.id.clone(), watched);
        }
        let Some(Watched { definition: Some(definition), seen }) = self.watched.get_mut(&batch.id)
        else {
            return Vec::new();
        };
        let alerts = watch(batch, definition.alerts.no_progress, seen, now);
        for alert in &alerts {
            tracing::warn!(batch = %alert.batch, code = %alert.code, "{}", alert.words);
            tell(alert, definition, &self.sources, &*self.act).await;
        }
        alerts
    }
}

async fn tell(alert: &Alert, definition: &Definition, sources: &Sources, act: &dyn Act) {
    let Some(action) = &definition.alerts.action else { return };
    let facts = json!({
        "code": alert.code, "batch": alert.batch, "type": definition.kind,
        "tenant": definition.tenant, "words": alert.words,
    });
    if let Err(error) = perform(action, &facts, &definition.database, sources, act).await {
        tracing::warn!(batch = %alert.batch, %error, "an alert could not be passed on");
    }
}
