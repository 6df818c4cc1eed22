//! Longshore's vocabulary, state machines, policies and store traits.
//!
//! This crate does no I/O, reads no clock and spawns nothing but the tasks of [`coalescer`]. What a
//! unit or a batch does next is a pure function ([`unit_state::transition`], [`batch::advance`]), so every
//! store reaches the same decision and tests can reach every state from data.
//!
//! A store implements [`Store`], seven small traits grouped by a unit's life: [`Enqueue`] (send),
//! [`WorkerApi`] (claim to finish), [`Maintenance`] (reclaim, promote, prune), [`Admin`] (cancel, retry,
//! pause), [`Queries`] (read, changes, verify), [`Tenants`] (weights, caps and capacities per
//! tenant) and [`Schedules`] (put, fire). Two further traits are independent of it:
//! [`store::ReplyQueues`] (reply queues) and [`Permits`] (bounded pools). Profiles, keys, calls and
//! their cost, budgets, API tokens and the audit log are in `longshore-accounts`.

#[macro_use]
mod schema;

pub mod access;
pub mod admission;
pub mod batch;
pub mod batch_write;
pub mod byte_size;
pub mod call;
pub mod claim;
pub mod coalescer;
pub mod concurrency_limit;
pub mod counts;
pub mod duration;
pub mod effect_budget;
pub mod error;
pub mod exponential_backoff;
pub mod failure_detector;
pub mod migration;
pub mod name;
pub mod outcome;
pub mod page;
pub mod permits;
pub mod priority;
pub mod resource_amount;
pub mod retry;
pub mod schedule;
pub mod sql_encoding;
pub mod sql_row;
pub mod store;
pub mod stride_scheduler;
pub mod suggest;
pub mod text;
pub mod time;
pub mod unit;
pub mod unit_state;
pub mod worker_session;

pub use access::Rights;
pub use batch::{Batch, BatchStatus, Callback, FailureThreshold, NewBatch};
pub use byte_size::ByteSize;
pub use coalescer::Coalescer;
pub use counts::Counts;
pub use duration::HumanDuration;
pub use error::{Error, Result};
pub use exponential_backoff::{DoublingDelay, exponential_delay, half_jitter};
pub use name::{
    BatchId, CallId, KeyName, Kind, PermitId, PoolName, ProfileName, QueueName, ScheduleName, Scope,
    SessionId, TenantId, TokenId, UnitId,
};
pub use outcome::{Effect, Failure, Outcome, SqlValue};
pub use permits::Permits;
pub use priority::Priority;
pub use resource_amount::ResourceAmount;
pub use retry::{OnLost, Policy, RetryPolicy};
pub use schedule::{NewSchedule, Schedule};
pub use store::{Admin, Enqueue, Maintenance, Queries, Schedules, Store, Tenants, WorkerApi};
pub use suggest::{did_you_mean, suggestion};
pub use time::{Clock, SystemClock, Timestamp};
pub use unit::{Dedup, NewUnit, Payload, Unit, UnitState};
