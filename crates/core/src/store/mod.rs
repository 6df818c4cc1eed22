//! The traits of a store, grouped by a unit's life.
//!
//! Contract for implementers: every operation is atomic, and durable when it returns unless its
//! documentation says otherwise; operations on many units answer in the order of the units; a
//! repeat after a lost answer does no harm (units are recognised by id, chunks by cursor, finishes
//! by fence). Decisions come from [`crate::machine`] and [`crate::batch`]. Stores read the time
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
    Capacity, LaneChange, Operate, Operated, QueueChange, SettingsChange, UnitAction, UnitSelection,
};
pub use enqueue::{Added, BatchChunk, Bound, Intake, Opened, Refusal, Sent};
pub use maintenance::{Promoted, Pruned, Reclaimed, Retention, Upkeep};
pub use queries::{
    Change, ChangeSet, Inspect, Page, QueueInfo, Topic, Totals, UnitFailure, UnitFilter, Violation,
};
pub use reply_queues::Replies;
pub use schedules::{
    Fired, Firing, IfThere, Placed, ScheduleFilter, ScheduleList, ScheduleSwitch, Schedules,
    read_schedule_cursor, schedule_cursor,
};
pub use tenants::{Tenant, TenantChange, Tenants, in_charge_of_tenants};
pub use worker_api::{
    Beat, BeatAnswer, Claim, Claimed, Finish, Finished, HeldUnit, Kept, Leases, ProgressNote,
    Queues,
};

/// A complete store. Implemented by every type that implements the seven traits.
pub trait Store: Intake + Leases + Upkeep + Operate + Inspect + Tenants + Schedules {}

impl<T: Intake + Leases + Upkeep + Operate + Inspect + Tenants + Schedules + ?Sized> Store for T {}
