//! Operations that are not available over HTTP: working, maintenance, and what the API does not offer.
//!
//! Workers hold leases on the store itself: a server in between would be one more component that can fail
//! while a unit runs.

use std::time::Duration;

use async_trait::async_trait;
use longshore::schedule::NewSchedule;
use longshore::session::{Lease, NewSession};
use longshore::stall::Dead;
use longshore::store::{
    Beat, BeatAnswer, Claim, Claimed, DueSchedules, Finish, Finished, Fired, Firing, HeldUnit,
    IfThere, Kept, Leases, Page, Placed, ProgressNote, Promoted, Pruned, Reclaimed, Retention,
    ScheduleSwitch, Schedules, Tenant, TenantChange, Tenants, Upkeep,
};
use longshore::{Error, Result, Schedule, ScheduleName, Scope, SessionId, TenantId, Timestamp};

use super::{FarStore, tenant_of};

const NO_WORKERS: &str = "workers need direct access to the store";
const NO_MAINTENANCE: &str = "maintenance is done by the server";
const NO_TENANT_CHANGES: &str = "tenants cannot be changed over HTTP";
const NO_SCHEDULE_CHANGES: &str = "schedules can only be listed over HTTP";

/// The error of an operation that is not available.
pub(super) fn unsupported<T>(why: &str) -> Result<T> {
    Err(Error::Unsupported(why.to_owned()))
}

#[async_trait]
impl Leases for FarStore {
    async fn open_session(&self, _: NewSession) -> Result<()> {
        unsupported(NO_WORKERS)
    }
    async fn beat(&self, _: SessionId, _: Beat) -> Result<BeatAnswer> {
        unsupported(NO_WORKERS)
    }
    async fn close_session(&self, _: SessionId) -> Result<()> {
        unsupported(NO_WORKERS)
    }
    async fn adopt(&self, _: SessionId, _: SessionId) -> Result<Vec<HeldUnit>> {
        unsupported(NO_WORKERS)
    }
    async fn claim(&self, _: Claim) -> Result<Claimed> {
        unsupported(NO_WORKERS)
    }
    async fn start(&self, _: SessionId, _: &[Lease]) -> Result<Vec<Option<Timestamp>>> {
        unsupported(NO_WORKERS)
    }
    async fn release(&self, _: SessionId, _: &[Lease]) -> Result<()> {
        unsupported(NO_WORKERS)
    }
    async fn checkpoint(&self, _: SessionId, _: Lease, _: Kept) -> Result<bool> {
        unsupported(NO_WORKERS)
    }
    async fn progress(&self, _: SessionId, _: Vec<ProgressNote>) -> Result<()> {
        unsupported(NO_WORKERS)
    }
    async fn finish(&self, _: SessionId, _: Vec<Finish>) -> Result<Vec<Finished>> {
        unsupported(NO_WORKERS)
    }
    async fn held(&self, _: SessionId) -> Result<Vec<Lease>> {
        unsupported(NO_WORKERS)
    }
}

#[async_trait]
impl Upkeep for FarStore {
    async fn reclaim(&self, _: &[Dead]) -> Result<Reclaimed> {
        unsupported(NO_MAINTENANCE)
    }
    async fn promote(&self, _: u32) -> Result<Promoted> {
        unsupported(NO_MAINTENANCE)
    }
    async fn next_due(&self) -> Result<Option<Duration>> {
        unsupported(NO_MAINTENANCE)
    }
    async fn prune(&self, _: Retention, _: u32) -> Result<Pruned> {
        unsupported(NO_MAINTENANCE)
    }
    async fn lead(&self, _: &str, _: SessionId, _: Duration) -> Result<bool> {
        unsupported(NO_MAINTENANCE)
    }
}

#[async_trait]
impl Tenants for FarStore {
    async fn put_tenant(&self, _: &Scope, _: &TenantId, _: TenantChange) -> Result<Tenant> {
        unsupported(NO_TENANT_CHANGES)
    }
    async fn remove_tenant(&self, _: &Scope, _: &TenantId) -> Result<()> {
        unsupported(NO_TENANT_CHANGES)
    }
    async fn tenants(&self, scope: &Scope) -> Result<Vec<Tenant>> {
        let all = self.api.tenants().await.map_err(|error| error.into_store_error("tenant", ""))?;
        Ok(all.into_iter().filter(|tenant| scope.covers(&tenant.id)).collect())
    }
}

#[async_trait]
impl Schedules for FarStore {
    async fn put_schedule(&self, _: &Scope, _: NewSchedule, _: IfThere) -> Result<Placed> {
        unsupported(NO_SCHEDULE_CHANGES)
    }
    async fn remove_schedule(&self, _: &Scope, _: &TenantId, _: &ScheduleName) -> Result<()> {
        unsupported(NO_SCHEDULE_CHANGES)
    }
    async fn switch_schedule(
        &self,
        _: &Scope,
        _: &TenantId,
        _: &ScheduleName,
        _: ScheduleSwitch,
    ) -> Result<Schedule> {
        unsupported(NO_SCHEDULE_CHANGES)
    }
    async fn fire_schedule(&self, _: &Scope, _: Firing) -> Result<Fired> {
        unsupported(NO_SCHEDULE_CHANGES)
    }
    async fn schedule(&self, _: &Scope, _: &TenantId, _: &ScheduleName) -> Result<Schedule> {
        unsupported(NO_SCHEDULE_CHANGES)
    }
    async fn schedules(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Schedule>> {
        let tenant = tenant_of(scope);
        let listed = self.api.schedules(tenant, after, limit).await;
        let name = tenant.map(ToString::to_string).unwrap_or_default();
        listed.map_err(|error| error.into_store_error("tenant", name))
    }
    async fn due_schedules(&self, _: Option<&str>, _: u32) -> Result<DueSchedules> {
        unsupported(NO_SCHEDULE_CHANGES)
    }
}
