//! Longshore's vocabulary, state machines, policies and seams.
//!
//! This crate decides and names; it does no I/O, reads no clock and spawns nothing. What a unit or
//! a batch does next is a pure function ([`machine::next`], [`batch::advance`]), so every store
//! reaches the same decision and tests can reach every state from data.
//!
//! The seam to storage is [`Store`], seven small traits grouped by a unit's life:
//! [`Intake`] (send), [`Leases`] (claim to finish), [`Upkeep`] (reclaim, promote, prune),
//! [`Operate`] (cancel, retry, pause), [`Inspect`] (read, changes, verify), [`Tenants`] (shares, caps
//! and bounds of whole customers) and [`Schedules`] (put, fire). [`Ledger`] stands beside it: profiles,
//! keys, calls and their cost, limits and budgets; and so does [`Permits`]: how many may use what is
//! scarce at once.

pub mod adaptive;
pub mod batch;
pub mod columns;
pub mod counts;
pub mod error;
pub mod fair;
pub mod gather;
pub mod ledger;
pub mod machine;
pub mod name;
pub mod outcome;
pub mod permits;
pub mod rank;
pub mod retry;
pub mod schedule;
pub mod session;
pub mod stall;
pub mod store;
pub mod time;
pub mod unit;

pub use batch::{Batch, BatchStatus, Callback, FailureThreshold, NewBatch};
pub use counts::Counts;
pub use error::{Error, Result};
pub use gather::Gather;
pub use ledger::Ledger;
pub use name::{
    BatchId, CallId, KeyName, Kind, PermitId, PoolName, ProfileName, QueueName, ScheduleName,
    Scope, SessionId, TenantId, TokenId, UnitId,
};
pub use outcome::{Effect, Failure, Outcome, SqlValue};
pub use permits::Permits;
pub use rank::Priority;
pub use retry::{OnLost, Policy, RetryPolicy};
pub use schedule::{NewSchedule, Schedule};
pub use store::{Inspect, Intake, Leases, Operate, Schedules, Store, Tenants, Upkeep};
pub use time::{Clock, SystemClock, Timestamp};
pub use unit::{Dedup, NewUnit, Payload, Unit, UnitState};
