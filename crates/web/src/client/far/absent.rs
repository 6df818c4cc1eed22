//! What is not done over a server: working, upkeep, and what the API does not offer.
//!
//! Workers hold leases on the store itself; a server between them would be one more thing that can fail
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

use super::{FarStore, only};

const WORK: &str = "work needs the store itself, not a server";
const UPKEEP: &str = "upkeep is the server's own business";
const TENANTS: &str = "tenants are not changed over a server";
const SCHEDULES: &str = "over a server schedules are only listed";

/// It is not offered.
pub(super) fn absent<T>(why: &str) -> Result<T> {
    Err(Error::Unsupported(why.to_owned()))
}

#[async_trait]
impl Leases for FarStore {
    async fn open_session(&self, _: NewSession) -> Result<()> {
        absent(WORK)
    }
    async fn beat(&self, _: SessionId, _: Beat) -> Result<BeatAnswer> {
        absent(WORK)
    }
    async fn close_session(&self, _: SessionId) -> Result<()> {
        absent(WORK)
    }
    async fn adopt(&self, _: SessionId, _: SessionId) -> Result<Vec<HeldUnit>> {
        absent(WORK)
    }
    async fn claim(&self, _: Claim) -> Result<Claimed> {
        absent(WORK)
    }
    async fn start(&self, _: SessionId, _: &[Lease]) -> Result<Vec<Option<Timestamp>>> {
        absent(WORK)
    }
    async fn release(&self, _: SessionId, _: &[Lease]) -> Result<()> {
        absent(WORK)
    }
    async fn checkpoint(&self, _: SessionId, _: Lease, _: Kept) -> Result<bool> {
        absent(WORK)
    }
    async fn progress(&self, _: SessionId, _: Vec<ProgressNote>) -> Result<()> {
        absent(WORK)
    }
    async fn finish(&self, _: SessionId, _: Vec<Finish>) -> Result<Vec<Finished>> {
        absent(WORK)
    }
    async fn held(&self, _: SessionId) -> Result<Vec<Lease>> {
        absent(WORK)
    }
}

#[async_trait]
impl Upkeep for FarStore {
    async fn reclaim(&self, _: &[Dead]) -> Result<Reclaimed> {
        absent(UPKEEP)
    }
    async fn promote(&self, _: u32) -> Result<Promoted> {
        absent(UPKEEP)
    }
    async fn next_due(&self) -> Result<Option<Duration>> {
        absent(UPKEEP)
    }
    async fn prune(&self, _: Retention, _: u32) -> Result<Pruned> {
        absent(UPKEEP)
    }
    async fn lead(&self, _: &str, _: SessionId, _: Duration) -> Result<bool> {
        absent(UPKEEP)
    }
}

#[async_trait]
impl Tenants for FarStore {
    async fn put_tenant(&self, _: &Scope, _: &TenantId, _: TenantChange) -> Result<Tenant> {
        absent(TENANTS)
    }
    async fn remove_tenant(&self, _: &Scope, _: &TenantId) -> Result<()> {
        absent(TENANTS)
    }
    async fn tenants(&self, scope: &Scope) -> Result<Vec<Tenant>> {
        let all = self.api.tenants().await.map_err(|error| error.into_store("tenant", ""))?;
        Ok(all.into_iter().filter(|tenant| scope.covers(&tenant.id)).collect())
    }
}

#[async_trait]
impl Schedules for FarStore {
    async fn put_schedule(&self, _: &Scope, _: NewSchedule, _: IfThere) -> Result<Placed> {
        absent(SCHEDULES)
    }
    async fn remove_schedule(&self, _: &Scope, _: &TenantId, _: &ScheduleName) -> Result<()> {
        absent(SCHEDULES)
    }
    async fn switch_schedule(
        &self,
        _: &Scope,
        _: &TenantId,
        _: &ScheduleName,
        _: ScheduleSwitch,
    ) -> Result<Schedule> {
        absent(SCHEDULES)
    }
    async fn fire_schedule(&self, _: &Scope, _: Firing) -> Result<Fired> {
        absent(SCHEDULES)
    }
    async fn schedule(&self, _: &Scope, _: &TenantId, _: &ScheduleName) -> Result<Schedule> {
        absent(SCHEDULES)
    }
    async fn schedules(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Schedule>> {
        let tenant = only(scope);
        let listed = self.api.schedules(tenant, after, limit).await;
        let name = tenant.map(ToString::to_string).unwrap_or_default();
        listed.map_err(|error| error.into_store("tenant", name))
    }
    async fn due_schedules(&self, _: Option<&str>, _: u32) -> Result<DueSchedules> {
        absent(SCHEDULES)
    }
}
