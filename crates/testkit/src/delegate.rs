//! Lists all methods of the store traits once, so that a wrapper needs only one method.
//!
//! `delegate!(Wrapper)` implements the traits for a type with a field `inner: Arc<dyn Store>` and a
//! method `wrap_call(method, call)`, through which every call goes. A method that is missing here does
//! not compile, so no wrapper can omit one. Tests name methods by strings: a wrapper checks them against
//! its `METHODS`, so that a test fails at once after a method was renamed.

/// Implements the store traits for a wrapper by its `wrap_call`.
macro_rules! delegate {
    ($wrapper:ident) => {
        $crate::delegate::delegate!($wrapper: Enqueue {
            send(scope: &Scope, units: Vec<NewUnit>) -> Vec<SendResult>;
            open_batch(scope: &Scope, batch: NewBatch) -> OpenBatchResult;
            add_to_batch(scope: &Scope, id: &BatchId, chunk: BatchChunk) -> AddChunkResult;
        } WorkerApi {
            open_session(session: NewSession) -> ();
            heartbeat(session: SessionId, beat: Heartbeat) -> HeartbeatReply;
            close_session(session: SessionId) -> ();
            adopt(from: SessionId, to: SessionId) -> Vec<LeasedUnit>;
            claim(claim: ClaimRequest) -> ClaimResult;
            start(session: SessionId, leases: &[Lease]) -> Vec<Option<Timestamp>>;
            release(session: SessionId, leases: &[Lease]) -> ();
            checkpoint(session: SessionId, lease: Lease, request: CheckpointRequest) -> bool;
            finish(session: SessionId, finishes: Vec<FinishRequest>) -> Vec<FinishResult>;
            leases_of(session: SessionId) -> Vec<Lease>;
        } Maintenance {
            session_beats() -> Vec<SessionBeats>;
            reclaim(stalled: &[StalledSession]) -> ReclaimResult;
            promote(limit: u32) -> PromoteResult;
            prune(retention: Retention, limit: u32) -> PruneResult;
            acquire_leadership(role: &str, session: SessionId, ttl: Duration) -> bool;
        } Admin {
            apply_unit_action(scope: &Scope, units: UnitSelection, action: UnitAction) -> UnitActionResult;
            apply_batch_action(scope: &Scope, batch: &BatchId, action: BatchAction) -> Batch;
            change_definition(scope: &Scope, batch: &BatchId, from: Payload, to: Payload) -> ();
            change_settings(scope: &Scope, queue: &QueueName, change: SettingsChange) -> ();
            command_worker(session: SessionId, command: WorkerCommand) -> ();
        } Tenants {
            put_tenant(scope: &Scope, id: &TenantId, change: TenantChange) -> Tenant;
            remove_tenant(scope: &Scope, id: &TenantId) -> ();
            tenants(scope: &Scope) -> Vec<Tenant>;
        } Schedules {
            put_schedule(scope: &Scope, new: NewSchedule, if_exists: IfExists) -> PutScheduleResult;
            switch_schedule(
                scope: &Scope, tenant: &TenantId, name: &ScheduleName, switch: ScheduleSwitch
            ) -> Schedule;
            fire_schedule(scope: &Scope, firing: Firing) -> FireResult;
            schedules(
                scope: &Scope, filter: &ScheduleFilter, after: Option<&str>, limit: u32
            ) -> ScheduleList;
        } Queries {
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
        } + {
            // The only method that returns no `Result`.
            async fn wait_for_ready(&self, seen: u64, wait: Duration) -> u64 {
                self.inner.wait_for_ready(seen, wait).await
            }
        });
    };
    ($wrapper:ident: $($trait:ident {
        $($method:ident($($arg:ident: $type:ty),*) -> $output:ty;)*
    } $(+ { $($extra:tt)* })?)*) => {
        impl $wrapper {
            /// The methods that `wrap_call` sees.
            pub const METHODS: &[&str] = &[$($(stringify!($method)),*),*];
        }
        $(#[async_trait::async_trait]
        impl $trait for $wrapper {
            $(async fn $method(&self, $($arg: $type),*) -> Result<$output> {
                self.wrap_call(stringify!($method), || self.inner.$method($(Clone::clone(&$arg)),*)).await
            })*
            $($($extra)*)?
        })*
    };
}
pub(crate) use delegate;

/// Panics unless one of `known` contains the method: a call of it would never be seen.
pub(crate) fn assert_known(method: &str, known: &[&[&str]]) {
    assert!(known.concat().contains(&method), "no wrapped method is called `{method}`; was it renamed?");
}

/// The types in the signatures of the store traits.
pub(crate) mod store_types {
    pub(crate) use std::time::Duration;

    pub(crate) use longshore_core::ScheduleName;
    pub(crate) use longshore_core::batch::BatchAction;
    pub(crate) use longshore_core::failure_detector::{SessionBeats, StalledSession};
    pub(crate) use longshore_core::schedule::{NewSchedule, Schedule};
    pub(crate) use longshore_core::store::CheckpointRequest;
    pub(crate) use longshore_core::store::{
        AddChunkResult, BatchChunk, ChangeSet, ClaimRequest, ClaimResult, FinishRequest, FinishResult,
        Heartbeat, HeartbeatReply, LeasedUnit, OpenBatchResult, Page, PromoteResult, PruneResult, QueueInfo,
        Queues, ReclaimResult, Retention, SendResult, SettingsChange, Tenant, TenantChange, Totals,
        UnitAction, UnitActionResult, UnitFailure, UnitFilter, UnitSelection, Violation,
    };
    pub(crate) use longshore_core::store::{
        FireResult, Firing, IfExists, PutScheduleResult, ScheduleFilter, ScheduleList, ScheduleSwitch,
        Schedules,
    };
    pub(crate) use longshore_core::worker_session::{Lease, NewSession, Session, WorkerCommand};
    pub(crate) use longshore_core::{
        Admin, Batch, BatchId, BatchStatus, Enqueue, Maintenance, NewBatch, NewUnit, Payload, Queries,
        QueueName, Result, Scope, SessionId, TenantId, Tenants, Timestamp, Unit, UnitId, WorkerApi,
    };
}
