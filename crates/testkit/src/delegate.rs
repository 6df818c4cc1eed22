//! Lists all methods of the store traits once, so that a wrapper needs only one method.
//!
//! `delegate!(Wrapper)` implements the traits for a type with a field `inner: Arc<dyn Store>` and a
//! method `wrap_call(method, call)`, through which every call goes. A method that is missing here does
//! not compile, so no wrapper can omit one.

/// Implements the store traits for a wrapper by its `wrap_call`.
macro_rules! delegate {
    ($wrapper:ident) => {
        $crate::delegate::delegate!(@trait $wrapper, Intake {
            send(scope: &Scope, units: Vec<NewUnit>) -> Vec<Sent>;
            open_batch(scope: &Scope, batch: NewBatch) -> Opened;
            add_to_batch(scope: &Scope, id: &BatchId, chunk: BatchChunk) -> Added;
        } {});
        $crate::delegate::delegate!(@trait $wrapper, Leases {
            open_session(session: NewSession) -> ();
            beat(session: SessionId, beat: Beat) -> BeatAnswer;
            close_session(session: SessionId) -> ();
            adopt(from: SessionId, to: SessionId) -> Vec<HeldUnit>;
            claim(claim: Claim) -> Claimed;
            start(session: SessionId, leases: &[Lease]) -> Vec<Option<Timestamp>>;
            release(session: SessionId, leases: &[Lease]) -> ();
            checkpoint(session: SessionId, lease: Lease, kept: Kept) -> bool;
            finish(session: SessionId, finishes: Vec<Finish>) -> Vec<Finished>;
            held(session: SessionId) -> Vec<Lease>;
        } {});
        $crate::delegate::delegate!(@trait $wrapper, Upkeep {
            reclaim(dead: &[Dead]) -> Reclaimed;
            promote(limit: u32) -> Promoted;
            prune(retention: Retention, limit: u32) -> Pruned;
            lead(role: &str, session: SessionId, ttl: Duration) -> bool;
        } {});
        $crate::delegate::delegate!(@trait $wrapper, Operate {
            operate_units(scope: &Scope, units: UnitSelection, action: UnitAction) -> Operated;
            operate_batch(scope: &Scope, batch: &BatchId, action: BatchAction) -> Batch;
            change_settings(scope: &Scope, queue: &QueueName, change: SettingsChange) -> ();
            order(session: SessionId, order: Order) -> ();
        } {});
        $crate::delegate::delegate!(@trait $wrapper, Tenants {
            put_tenant(scope: &Scope, id: &TenantId, change: TenantChange) -> Tenant;
            remove_tenant(scope: &Scope, id: &TenantId) -> ();
            tenants(scope: &Scope) -> Vec<Tenant>;
        } {});
        $crate::delegate::delegate!(@trait $wrapper, Schedules {
            put_schedule(scope: &Scope, new: NewSchedule, if_there: IfThere) -> Placed;
            switch_schedule(
                scope: &Scope, tenant: &TenantId, name: &ScheduleName, switch: ScheduleSwitch
            ) -> Schedule;
            fire_schedule(scope: &Scope, firing: Firing) -> Fired;
            schedules(
                scope: &Scope, filter: &ScheduleFilter, after: Option<&str>, limit: u32
            ) -> ScheduleList;
        } {});
        $crate::delegate::delegate!(@trait $wrapper, Inspect {
            unit(scope: &Scope, id: UnitId) -> Unit;
            units(scope: &Scope, filter: &UnitFilter, after: Option<&str>, limit: u32) -> Page<Unit>;
            failures(scope: &Scope, id: UnitId) -> Vec<UnitFailure>;
            queues(scope: &Scope) -> Vec<QueueInfo>;
            batch(scope: &Scope, id: &BatchId) -> Batch;
            definition(scope: &Scope, id: &BatchId) -> Option<Payload>;
            batches(
                scope: &Scope, status: Option<BatchStatus>, after: Option<&str>, limit: u32
            ) -> Page<Batch>;
            sessions() -> Vec<Session>;
            totals(scope: &Scope, queues: &Queues) -> Totals;
            changes(scope: &Scope, since: u64, wait: Duration) -> ChangeSet;
            verify() -> Vec<Violation>;
        } {
            // The only method that returns no `Result`.
            async fn wake(&self, seen: u64, wait: Duration) -> u64 {
                self.inner.wake(seen, wait).await
            }
        });
    };
    (@trait $wrapper:ident, $trait:ident {
        $($method:ident($($arg:ident: $type:ty),*) -> $output:ty;)*
    } { $($extra:tt)* }) => {
        #[async_trait::async_trait]
        impl $trait for $wrapper {
            $(async fn $method(&self, $($arg: $type),*) -> Result<$output> {
                self.wrap_call(stringify!($method), || self.inner.$method($(Clone::clone(&$arg)),*)).await
            })*
            $($extra)*
        }
    };
}
pub(crate) use delegate;

/// The types in the signatures of the store traits.
pub(crate) mod store_types {
    pub(crate) use std::time::Duration;

    pub(crate) use longshore_core::ScheduleName;
    pub(crate) use longshore_core::batch::BatchAction;
    pub(crate) use longshore_core::schedule::{NewSchedule, Schedule};
    pub(crate) use longshore_core::worker_session::{Lease, NewSession, WorkerCommand, Session};
    pub(crate) use longshore_core::failure_detector::StalledSession;
    pub(crate) use longshore_core::store::CheckpointRequest;
    pub(crate) use longshore_core::store::{
        AddChunkResult, BatchChunk, Heartbeat, HeartbeatReply, ChangeSet, ClaimRequest, ClaimResult, FinishRequest, FinishResult, LeasedUnit,
        OpenBatchResult, UnitActionResult, Page, PromoteResult, PruneResult, QueueInfo, Queues, ReclaimResult, Retention, SendResult,
        SettingsChange, Tenant, TenantChange, Totals, UnitAction, UnitFailure, UnitFilter,
        UnitSelection, Violation,
    };
    pub(crate) use longshore_core::store::{
        FireResult, Firing, IfExists, PutScheduleResult, ScheduleFilter, ScheduleList, ScheduleSwitch, Schedules,
    };
    pub(crate) use longshore_core::{
        Batch, BatchId, BatchStatus, Queries, Enqueue, WorkerApi, NewBatch, NewUnit, Admin, Payload,
        QueueName, Result, Scope, SessionId, TenantId, Tenants, Timestamp, Unit, UnitId, Maintenance,
    };
}
