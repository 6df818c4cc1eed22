//! Operations that are not available over HTTP: working, maintenance, and what the API does not offer.
//!
//! Workers hold leases on the store itself: a server in between would be one more component that can fail
//! while a unit runs.

use std::time::Duration;

use longshore::failure_detector::{SessionBeats, StalledSession};
use longshore::schedule::NewSchedule;
use longshore::store::{
    CheckpointRequest, ClaimRequest, ClaimResult, FinishRequest, FinishResult, FireResult, Firing, Heartbeat,
    HeartbeatReply, IfExists, LeasedUnit, Maintenance, Page, PromoteResult, PruneResult, PutScheduleResult,
    ReclaimResult, Retention, ScheduleFilter, ScheduleList, ScheduleSwitch, Schedules, Tenant, TenantChange,
    Tenants, WorkerApi,
};
use longshore::worker_session::{Lease, NewSession};
use longshore::{Error, Result, Schedule, ScheduleName, Scope, SessionId, TenantId, Timestamp};

use super::{RemoteStore, tenant_of};

const NO_WORKERS: &str = "workers need direct access to the store";
const NO_MAINTENANCE: &str = "maintenance is done by the server";
const NO_TENANT_CHANGES: &str = "tenants cannot be changed over HTTP";
const NO_SCHEDULE_CHANGES: &str = "schedules can only be listed over HTTP";

/// The error of an operation that is not available.
pub(super) fn unsupported<T>(why: &str) -> Result<T> {
    Err(Error::Unsupported(why.to_owned()))
}

/// Implements a trait: the listed methods are not available, the others follow in braces.
macro_rules! unsupported {
    ($trait:ident, $why:ident {
        $($method:ident($($type:ty),*) -> $output:ty;)*
        $({ $($rest:tt)* })?
    }) => {
        #[async_trait::async_trait]
        impl $trait for RemoteStore {
            $(async fn $method(&self, $(_: $type),*) -> Result<$output> {
                unsupported($why)
            })*
            $($($rest)*)?
        }
    };
}

unsupported! { WorkerApi, NO_WORKERS {
    open_session(NewSession) -> ();
    heartbeat(SessionId, Heartbeat) -> HeartbeatReply;
    close_session(SessionId) -> ();
    adopt(SessionId, SessionId) -> Vec<LeasedUnit>;
    claim(ClaimRequest) -> ClaimResult;
    start(SessionId, &[Lease]) -> Vec<Option<Timestamp>>;
    release(SessionId, &[Lease]) -> ();
    checkpoint(SessionId, Lease, CheckpointRequest) -> bool;
    finish(SessionId, Vec<FinishRequest>) -> Vec<FinishResult>;
    leases_of(SessionId) -> Vec<Lease>;
}}

unsupported! { Maintenance, NO_MAINTENANCE {
    session_beats() -> Vec<SessionBeats>;
    reclaim(&[StalledSession]) -> ReclaimResult;
    promote(u32) -> PromoteResult;
    prune(Retention, u32) -> PruneResult;
    acquire_leadership(&str, SessionId, Duration) -> bool;
}}

unsupported! { Tenants, NO_TENANT_CHANGES {
    put_tenant(&Scope, &TenantId, TenantChange) -> Tenant;
    remove_tenant(&Scope, &TenantId) -> ();
    {
        async fn tenants(&self, scope: &Scope) -> Result<Vec<Tenant>> {
            let all = self.api.tenants().await;
            let all = all.map_err(|error| error.into_store_error("tenant", ""))?;
            Ok(all.into_iter().filter(|tenant| scope.covers(&tenant.id)).collect())
        }
    }
}}

unsupported! { Schedules, NO_SCHEDULE_CHANGES {
    put_schedule(&Scope, NewSchedule, IfExists) -> PutScheduleResult;
    switch_schedule(&Scope, &TenantId, &ScheduleName, ScheduleSwitch) -> Schedule;
    fire_schedule(&Scope, Firing) -> FireResult;
    {
        async fn schedules(
            &self,
            scope: &Scope,
            filter: &ScheduleFilter,
            after: Option<&str>,
            limit: u32,
        ) -> Result<ScheduleList> {
            if *filter != ScheduleFilter::All {
                return unsupported(NO_SCHEDULE_CHANGES);
            }
            let now = self.api.server_time().await.map_err(|error| error.into_store_error("server", ""))?;
            if limit == 0 {
                return Ok(ScheduleList { page: Page { items: Vec::new(), next: None }, now, next_due: None });
            }
            let tenant = tenant_of(scope);
            let listed = self.api.schedules(tenant, after, limit).await;
            let name = tenant.map(ToString::to_string).unwrap_or_default();
            let page = listed.map_err(|error| error.into_store_error("tenant", name))?;
            Ok(ScheduleList { page, now, next_due: None })
        }
    }
}}
