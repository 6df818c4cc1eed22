//! Lists, shows and changes units and arrays. The core is notified at once of what is cancelled or
//! paused.

use longshore::store::{UnitAction, UnitFilter, UnitSelection};
use longshore::{Batch, BatchId, Error, Kind, Scope, TenantId, Unit, UnitId};

use super::target::Target;
use super::{ClientApi, Event};
use crate::request::{
    ArrayQuery, PastFailure, ScriptView, UnitDetails, UnitOperation, UnitOperationReport, UnitQuery,
    UnitSummary,
};
use crate::scheduler::ResourceRequest;
use crate::script::{ArrayItem, BatchDefinition, KIND, Script};

/// Pages of the store that are searched for one page of batches with a status.
const MAX_PAGES: usize = 20;

pub(super) fn scope(tenant: Option<TenantId>) -> Scope {
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

/// What a unit with this script needs of its worker.
pub(super) fn requested(unit: &Unit, script: Option<&Script>) -> ResourceRequest {
    ResourceRequest { time: script.and_then(|script| script.time), ..ResourceRequest::of_unit(unit) }
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
        let definition = self.definition_of(&scope, &unit).await;
        let script = script_in(&unit, item.as_ref(), definition.as_ref());
        let task = task_name(&unit, item.as_ref(), definition.as_ref());
        let request = requested(&unit, script.as_ref()).into();
        Ok(UnitDetails {
            view: unit_view(&unit),
            tenant: unit.tenant,
            batch: unit.batch,
            task,
            index: item.map(|item| item.0),
            priority: unit.priority,
            created_at: unit.created_at,
            since: unit.since,
            cancel_requested: unit.cancel_requested,
            request,
            script,
            past: past.collect(),
        })
    }

    /// The script of a unit.
    pub(super) async fn script_of(&self, scope: &Scope, unit: &Unit) -> Option<Script> {
        let item: Option<ArrayItem> = unit.payload.parse().ok();
        script_in(unit, item.as_ref(), self.definition_of(scope, unit).await.as_ref())
    }

    async fn definition_of(&self, scope: &Scope, unit: &Unit) -> Option<BatchDefinition> {
        self.client.store().definition(scope, unit.batch.as_ref()?).await.ok()??.parse().ok()
    }

    pub(super) async fn list(
        &self,
        tenant: Option<TenantId>,
        units: UnitQuery,
    ) -> Result<(Vec<UnitSummary>, Option<String>), String> {
        let UnitQuery { state, batch, after, limit } = units;
        let store = self.client.store();
        let scope = scope(tenant);
        let batch = match batch {
            None => None,
            Some(name) => match self.target(&scope, &name).await? {
                Target::Batch(batch) => Some(batch.id),
                Target::Unit(unit, _) => {
                    let unit = Some(*unit).filter(|unit| state.is_none_or(|state| unit.state == state));
                    return Ok((unit.into_iter().map(|unit| summarise(unit, None)).collect(), None));
                }
            },
        };
        let filter = UnitFilter { state, batch, queue: None, kind: Kind::new(KIND).ok() };
        let page = store.units(&scope, &filter, after.as_deref(), limit).await.map_err(error_text)?;
        let mut units = Vec::with_capacity(page.items.len());
        let mut last: Option<(BatchId, Option<BatchDefinition>)> = None;
        for unit in page.items {
            // Lists have no payloads, but the payload names the script.
            let unit = store.unit(&scope, unit.id).await.unwrap_or(unit);
            if let Some(batch) = unit.batch.clone()
                && last.as_ref().is_none_or(|(last, _)| *last != batch)
            {
                last = Some((batch, self.definition_of(&scope, &unit).await));
            }
            let definition = last.as_ref().and_then(|(_, definition)| definition.as_ref());
            units.push(summarise(unit, definition));
        }
        Ok((units, page.next))
    }

    pub(super) async fn operate(
        &self,
        scope: &Scope,
        units: Vec<UnitId>,
        action_requested: UnitOperation,
    ) -> Result<UnitOperationReport, String> {
        let action = match action_requested {
            UnitOperation::Cancel => UnitAction::Cancel,
            UnitOperation::Retry => UnitAction::Retry,
        };
        let selection = UnitSelection::Ids(units);
        let done = self.client.store().apply_unit_action(scope, selection, action).await;
        let done = done.map_err(error_text)?;
        // The core asks the store at once which running units to stop.
        self.notify_core((done.requested > 0).then_some(Event::HeartbeatNow)).await;
        Ok(done.into())
    }

    /// A page of batches: arrays, jobs and single scripts.
    pub(super) async fn arrays(
        &self,
        tenant: Option<TenantId>,
        arrays: ArrayQuery,
    ) -> Result<(Vec<Batch>, Option<String>), String> {
        let ArrayQuery { status, mut after, limit } = arrays;
        let (store, scope) = (self.client.store(), scope(tenant));
        let mut shown = Vec::new();
        // The record of a single script does not have its status.
        for _ in 0..MAX_PAGES {
            let page = store.batches(&scope, None, after.as_deref(), limit - shown.len() as u32).await;
            let page = page.map_err(error_text)?;
            after = page.next;
            for batch in page.items {
                let batch = self.shown(&scope, batch).await?;
                shown.extend(Some(batch).filter(|batch| status.is_none_or(|status| batch.status == status)));
            }
            if after.is_none() || shown.len() >= limit as usize {
                break;
            }
        }
        Ok((shown, after))
    }

    pub(super) async fn notify_core(&self, event: Option<Event>) {
        if let Some(event) = event {
            let _ = self.core.send(event).await;
        }
    }
}

fn script_in(unit: &Unit, item: Option<&ArrayItem>, definition: Option<&BatchDefinition>) -> Option<Script> {
    match item {
        Some(item) => definition?.script(item).cloned(),
        None => unit.payload.parse().ok(),
    }
}

/// The task of a unit of a job.
fn task_name(unit: &Unit, item: Option<&ArrayItem>, definition: Option<&BatchDefinition>) -> Option<String> {
    match (item, definition?) {
        (_, BatchDefinition::Array(_)) => None,
        (None, _) => unit.payload.parse::<Script>().ok()?.name,
        (item, definition) => definition.task(item).map(|task| task.id.clone()),
    }
}

fn summarise(unit: Unit, definition: Option<&BatchDefinition>) -> UnitSummary {
    let item: Option<ArrayItem> = unit.payload.parse().ok();
    let script: Option<Script> = unit.payload.parse().ok();
    UnitSummary {
        unit: unit.id,
        state: unit.state,
        task: task_name(&unit, item.as_ref(), definition.filter(|_| unit.batch.is_some())),
        batch: unit.batch,
        index: item.map(|item| item.0),
        name: script.map(|script| script.name.unwrap_or_else(|| script.path.display().to_string())),
        attempt: unit.attempt,
        lost: unit.lost,
        created_at: unit.created_at,
        since: unit.since,
        failure: unit.failure,
    }
}
