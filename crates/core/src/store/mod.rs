//! The seam to storage: seven small traits, grouped by a unit's life.
//!
//! Contract for implementers: every verb is atomic, and durable when it returns unless its
//! documentation says otherwise; all verbs that take many units answer in the same order; a verb
//! repeated after its answer was lost does no further harm (units are recognised by id, chunks by
//! cursor, finishes by fence). Decisions come from [`crate::machine`] and [`crate::batch`].
//! Stores read the time from their own [`crate::Clock`].
//!
//! Users rarely call these: the engine's `Client` and `Worker` do.

mod inspect;
mod intake;
mod leases;
mod operate;
mod schedules;
mod tenants;
mod upkeep;

pub use inspect::{
    Change, ChangeSet, Inspect, Page, QueueInfo, Topic, Totals, UnitFailure, UnitFilter, Violation,
};
pub use intake::{Added, BatchChunk, Bound, Intake, Opened, Refusal, Sent};
pub use leases::{
    Beat, BeatAnswer, Claim, Claimed, Finish, Finished, HeldUnit, Kept, Leases, ProgressNote,
    Queues,
};
pub use operate::{
    Capacity, LaneChange, Operate, Operated, QueueChange, UnitAction, UnitSelection,
};
pub use schedules::{
    DueSchedules, Fired, Firing, IfThere, Placed, ScheduleSwitch, Schedules, read_schedule_cursor,
    schedule_cursor,
};
pub use tenants::{Tenant, TenantChange, Tenants, in_charge_of_tenants};
pub use upkeep::{Promoted, Pruned, Reclaimed, Retention, Upkeep};

/// A whole store. Implemented by whatever implements the seven parts.
pub trait Store: Intake + Leases + Upkeep + Operate + Inspect + Tenants + Schedules {}

impl<T: Intake + Leases + Upkeep + Operate + Inspect + Tenants + Schedules + ?Sized> Store for T {}
