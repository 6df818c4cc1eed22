//! Shorthands for callers of a store. A store does not implement them.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{LaneChange, QueueChange, ScheduleFilter, SettingsChange, Store};
use crate::batch::{Batch, BatchAction};
use crate::name::{BatchId, Kind, QueueName, ScheduleName, Scope, TenantId};
use crate::schedule::Schedule;
use crate::unit::Unit;
use crate::{Error, Failure, Outcome, Result, Rights};

/// When a unit is run again if its tenant's record could not be read.
const UNAVAILABLE_SNOOZE: Duration = Duration::from_secs(1);

impl dyn Store + '_ {
    /// Marks that all units of a batch are sent: [`BatchAction::Seal`].
    pub async fn seal_batch(&self, scope: &Scope, id: &BatchId) -> Result<Batch> {
        self.apply_batch_action(scope, id, BatchAction::Seal).await
    }

    /// Changes a queue: [`SettingsChange::Queue`].
    pub async fn change_queue(&self, scope: &Scope, queue: &QueueName, change: QueueChange) -> Result<()> {
        self.change_settings(scope, queue, SettingsChange::Queue(change)).await
    }

    /// Changes one tenant's lane of a queue: [`SettingsChange::Lane`].
    pub async fn change_lane(
        &self,
        scope: &Scope,
        queue: &QueueName,
        tenant: &TenantId,
        change: LaneChange,
    ) -> Result<()> {
        self.change_settings(scope, queue, SettingsChange::Lane(tenant.clone(), change)).await
    }

    /// The kinds that are opened to a tenant: [`super::Tenant::allowed_kinds`].
    pub async fn allowed_kinds(&self, tenant: &TenantId) -> Result<BTreeSet<Kind>> {
        let found = self.tenants(&Scope::Tenant(tenant.clone())).await?.pop();
        Ok(found.map(|tenant| tenant.allowed_kinds).unwrap_or_default())
    }

    /// The outcome of a unit that a tenant sent with a kind that is not open to it, or not any more;
    /// `None` if the unit may run. Workers ask before they run a unit.
    pub async fn refuse_closed_kind(&self, unit: &Unit) -> Option<Outcome> {
        if unit.rights == Rights::Operator || !unit.kind.needs_operator() {
            return None;
        }
        match self.allowed_kinds(&unit.tenant).await {
            Ok(opened) if opened.contains(&unit.kind) => None,
            Ok(_) => {
                let message = format!("kind `{}` is closed to tenant `{}`", unit.kind, unit.tenant);
                Some(Outcome::Fail(Failure::new("kind-closed", message)))
            }
            Err(_) => Some(Outcome::Snooze(UNAVAILABLE_SNOOZE)),
        }
    }

    /// One schedule.
    pub async fn schedule(&self, scope: &Scope, tenant: &TenantId, name: &ScheduleName) -> Result<Schedule> {
        let (own, filter) = (Scope::Tenant(tenant.clone()), ScheduleFilter::Named(name.clone()));
        let found = match scope.covers(tenant) {
            true => self.schedules(&own, &filter, None, 1).await?.page.items.pop(),
            false => None,
        };
        found.ok_or_else(|| Error::not_found("schedule", name))
    }
}
