//! Watches batches and runs the alert action of their definitions.
//!
//! [`crate::alerts`] decides which alerts are due. This module reads the batches, keeps the history
//! of raised alerts, and runs what `[alerts]` names.

use std::collections::HashMap;
use std::sync::Arc;

use longshore::{Batch, BatchId, BatchStatus, Scope, Store, Timestamp};
use serde_json::json;

use crate::alerts::{Alert, AlertHistory, evaluate};
use crate::completion::{ActionRunner, run_action};
use crate::definition::Definition;
use crate::rows::Sources;

/// Batches of one status checked in one round: the newest.
const MAX_BATCHES: u32 = 1_000;

/// Checks the batches of a store for alerts.
pub struct AlertMonitor {
    store: Arc<dyn Store>,
    scope: Scope,
    sources: Arc<Sources>,
    act: Arc<dyn ActionRunner>,
    monitored: HashMap<BatchId, MonitoredBatch>,
}

struct MonitoredBatch {
    /// `None` if the batch has no rows of a database, or its definition cannot be read.
    definition: Option<Definition>,
    history: AlertHistory,
}

impl AlertMonitor {
    /// A monitor with an empty history.
    pub fn new(
        store: Arc<dyn Store>,
        scope: Scope,
        sources: Arc<Sources>,
        act: Arc<dyn ActionRunner>,
    ) -> Self {
        Self { store, scope, sources, act, monitored: HashMap::new() }
    }

    /// Checks one batch and returns its new alerts; none if the store does not answer.
    pub async fn check(&mut self, id: &BatchId, now: Timestamp) -> Vec<Alert> {
        match self.store.batch(&self.scope, id).await {
            Ok(batch) => self.evaluate_batch(&batch, now).await,
            Err(error) => {
                tracing::debug!(%error, batch = %id, "a batch could not be read");
                Vec::new()
            }
        }
    }

    /// Checks every batch that has not ended, and once more each batch that has ended since the
    /// last call.
    pub async fn check_all(&mut self, now: Timestamp) -> Vec<Alert> {
        let mut alerts = Vec::new();
        let mut not_listed: Vec<BatchId> = self.monitored.keys().cloned().collect();
        for status in [BatchStatus::Queued, BatchStatus::Running, BatchStatus::Paused] {
            let page = self.store.batches(&self.scope, Some(status), None, MAX_BATCHES).await;
            for batch in page.map(|page| page.items).unwrap_or_default() {
                not_listed.retain(|id| *id != batch.id);
                alerts.extend(self.evaluate_batch(&batch, now).await);
            }
        }
        for ended in not_listed {
            alerts.extend(self.check(&ended, now).await);
            self.monitored.remove(&ended);
        }
        alerts
    }

    async fn evaluate_batch(&mut self, batch: &Batch, now: Timestamp) -> Vec<Alert> {
        if !self.monitored.contains_key(&batch.id) {
            let payload = self.store.definition(&self.scope, &batch.id).await.ok().flatten();
            let definition = payload.and_then(|payload| payload.parse().ok());
            let monitored = MonitoredBatch { definition, history: AlertHistory::default() };
            self.monitored.insert(batch.id.clone(), monitored);
        }
        let Some(MonitoredBatch { definition: Some(definition), history }) =
            self.monitored.get_mut(&batch.id)
        else {
            return Vec::new();
        };
        let alerts = evaluate(batch, definition.alerts.no_progress, history, now);
        for alert in &alerts {
            tracing::warn!(batch = %alert.batch, code = %alert.code, "{}", alert.message);
            notify(alert, definition, &self.sources, &*self.act).await;
        }
        alerts
    }
}

async fn notify(alert: &Alert, definition: &Definition, sources: &Sources, act: &dyn ActionRunner) {
    let Some(action) = &definition.alerts.action else { return };
    let facts = json!({
        "code": alert.code, "batch": alert.batch, "type": definition.kind,
        "tenant": definition.tenant, "words": alert.message,
    });
    if let Err(error) = run_action(action, &facts, definition, sources, act).await {
        tracing::warn!(batch = %alert.batch, %error, "an alert action failed");
    }
}
