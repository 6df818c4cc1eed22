//! Lists, shows and changes units and arrays. The core is notified at once of what is cancelled or
//! paused.

use longshore::batch::BatchAction;
use longshore::store::{UnitAction, UnitFilter, UnitSelection};
use longshore::{Batch, BatchId, BatchStatus, Error, Kind, Scope, TenantId, Unit, UnitId};

use super::{ClientApi, Event};
use crate::request::{
    ArrayAction, ArrayQuery, PastFailure, ScriptView, UnitDetails, UnitOperation, UnitOperationReport,
    UnitQuery, UnitSummary,
};
use crate::script::{ArrayItem, KIND, Script};

fn scope(tenant: Option<TenantId>) -> Scope {
    tenant.map_or(Scope::All, Scope::Tenant)
}

pub(super) fn error_text(error: Error) -> String {
    error.to_string()
}

/// A unit's state and result. A failed run has its report in the checkpoint.
pub(super) fn unit_view(unit: &Unit) -> ScriptView {
    let report = unit.result.as_ref().or(unit.checkpoint.as_ref());
    ScriptView {
        unit: unit.id,
        state: unit.state,
        attempt: unit.attempt,
        lost: unit.lost,
        failure: unit.failure.clone(),
        report: report.and_then(|report| report.parse().ok()),
    }
}

impl ClientApi {
    pub(super) async fn show(&self, tenant: Option<TenantId>, id: UnitId) -> Result<UnitDetails, String> {
        let (store, scope) = (self.client.store(), scope(tenant));
        let unit = store.unit(&scope, id).await.map_err(error_text)?;
        let past = store.failures(&scope, id).await.map_err(error_text)?;
        let past = past.into_iter().map(|past| PastFailure {
            attempt: past.attempt,
            at: past.at,
            failure: past.failure,
        });
        let item: Option<ArrayItem> = unit.payload.parse().ok();
        let script = match (&unit.batch, &item) {
            (Some(batch), Some(_)) => self.definition(&scope, batch).await,
            _ => unit.payload.parse().ok(),
        };
        Ok(UnitDetails {
            view: unit_view(&unit),
            tenant: unit.tenant,
            batch: unit.batch,
            index: item.map(|item| item.0),
            priority: unit.priority,
            created_at: unit.created_at,
            since: unit.since,
            cancel_requested: unit.cancel_requested,
            script,
            past: past.collect(),
        })
    }

    async fn definition(&self, scope: &Scope, batch: &BatchId) -> Option<Script> {
        self.client.store().definition(scope, batch).await.ok()??.parse().ok()
    }

    pub(super) async fn list(
        &self,
        tenant: Option<TenantId>,
        units: UnitQuery,
    ) -> Result<(Vec<UnitSummary>, Option<String>), String> {
        let UnitQuery { state, batch, after, limit } = units;
        let filter = UnitFilter { state, batch, queue: None, kind: Kind::new(KIND).ok() };
        let store = self.client.store();
        let scope = scope(tenant);
        let page = store.units(&scope, &filter, after.as_deref(), limit).await.map_err(error_text)?;
        let mut units = Vec::with_capacity(page.items.len());
        for unit in page.items {
            // Lists have no payloads, but the payload names the script.
            let with_payload = store.unit(&scope, unit.id).await;
            units.push(summarise(with_payload.unwrap_or(unit)));
        }
        Ok((units, page.next))
    }

    pub(super) async fn operate(
        &self,
        tenant: Option<TenantId>,
        units: Vec<UnitId>,
        action_requested: UnitOperation,
    ) -> Result<UnitOperationReport, String> {
        let action = match action_requested {
            UnitOperation::Cancel => UnitAction::Cancel,
            UnitOperation::Retry => UnitAction::Retry,
        };
        let selection = UnitSelection::Ids(units);
        let done = self.client.store().apply_unit_action(&scope(tenant), selection, action).await;
        let done = done.map_err(error_text)?;
        // The core asks the store at once which running units to stop.
        self.notify_core((done.requested > 0).then_some(Event::HeartbeatNow)).await;
        let longshore::store::UnitActionResult { changed, requested, skipped } = done;
        Ok(UnitOperationReport { changed, requested, skipped })
    }

    pub(super) async fn arrays(
        &self,
        tenant: Option<TenantId>,
        arrays: ArrayQuery,
    ) -> Result<(Vec<Batch>, Option<String>), String> {
        let ArrayQuery { status, after, limit } = arrays;
        let status: Option<BatchStatus> = status;
        let store = self.client.store();
        let page = store.batches(&scope(tenant), status, after.as_deref(), limit).await;
        page.map(|page| (page.items, page.next)).map_err(error_text)
    }

    pub(super) async fn array(
        &self,
        tenant: Option<TenantId>,
        id: &BatchId,
        action: Option<ArrayAction>,
    ) -> Result<Batch, String> {
        let (store, scope) = (self.client.store(), scope(tenant));
        let Some(action) = action else {
            return store.batch(&scope, id).await.map_err(error_text);
        };
        let event = match action {
            ArrayAction::Cancel => Some(Event::HeartbeatNow),
            ArrayAction::Pause { .. } => Some(Event::ArrayPaused(id.clone())),
            ArrayAction::Resume | ArrayAction::Retry => None,
        };
        let action = match action {
            ArrayAction::Pause { reason } => BatchAction::Pause { reason },
            ArrayAction::Resume => BatchAction::Resume,
            ArrayAction::Cancel => BatchAction::Cancel,
            ArrayAction::Retry => BatchAction::RetryFailed,
        };
        let batch = store.apply_batch_action(&scope, id, action).await.map_err(error_text)?;
        self.notify_core(event).await;
        Ok(batch)
    }

    async fn notify_core(&self, event: Option<Event>) {
        if let Some(event) = event {
            let _ = self.core.send(event).await;
        }
    }
}

fn summarise(unit: Unit) -> UnitSummary {
    let index = unit.payload.parse().ok().map(|item: ArrayItem| item.0);
    let script: Option<Script> = unit.payload.parse().ok();
    UnitSummary {
        unit: unit.id,
        state: unit.state,
        batch: unit.batch,
        index,
        name: script.map(|script| script.name.unwrap_or_else(|| script.path.display().to_string())),
        attempt: unit.attempt,
        lost: unit.lost,
        created_at: unit.created_at,
        since: unit.since,
        failure: unit.failure,
    }
}
