//! The traits of a store, grouped by a unit's life.
//!
//! Contract for implementers: every operation is atomic, and durable when it returns unless its
//! documentation says otherwise; operations on many units answer in the order of the units; a
//! repeat after a lost answer does no harm (units are recognised by id, chunks by cursor, finishes
//! by fence). Decisions come from [`crate::unit_state`] and [`crate::batch`]. Stores read the time
//! from their own [`crate::Clock`].
//!
//! Users rarely call these: the engine's `Client` and `Worker` do.

mod admin;
mod enqueue;
mod maintenance;
mod queries;
mod reply_queues;
mod schedules;
mod shorthands;
mod tenants;
mod worker_api;

pub use admin::{
    Admin, Capacity, LaneChange, QueueChange, SettingsChange, UnitAction, UnitActionResult, UnitSelection,
};
pub use enqueue::{
    AddChunkResult, BatchChunk, CapacityScope, Enqueue, OpenBatchResult, SendRejection, SendResult,
};
pub use maintenance::{Maintenance, PromoteResult, PruneResult, ReclaimResult, Retention};
pub use queries::{
    Change, ChangeSet, Page, Queries, QueueInfo, Topic, Totals, UnitFailure, UnitFilter, Violation,
};
pub use reply_queues::{OpenReplyQueue, ReplyQueues};
pub use schedules::{
    FireResult, Firing, IfExists, PutScheduleResult, ScheduleFilter, ScheduleList, ScheduleSwitch, Schedules,
    parse_schedule_cursor, schedule_cursor,
};
pub use tenants::{Tenant, TenantChange, Tenants, require_admin_scope};
pub use worker_api::{
    CheckpointRequest, ClaimRequest, ClaimResult, FinishRequest, FinishResult, Heartbeat, HeartbeatReply,
    LeasedUnit, ProgressNote, Queues, WorkerApi,
};

/// A complete store. Implemented by every type that implements the seven traits.
pub trait Store: Enqueue + WorkerApi + Maintenance + Admin + Queries + Tenants + Schedules {}

impl<T: Enqueue + WorkerApi + Maintenance + Admin + Queries + Tenants + Schedules + ?Sized> Store for T {}
