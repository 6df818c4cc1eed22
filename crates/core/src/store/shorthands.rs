//! Shorthands for callers of a store. A store does not implement them.

use super::{LaneChange, QueueChange, ScheduleFilter, SettingsChange, Store};
use crate::batch::{Batch, BatchAction};
use crate::name::{BatchId, QueueName, ScheduleName, Scope, TenantId};
use crate::schedule::Schedule;
use crate::{Error, Result};

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
