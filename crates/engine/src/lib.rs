//! Longshore for Rust programs: durable queues, exact batches and workers.
//!
//! [`Client`] sends units and waits for them; [`Worker`] claims units and runs their handlers.
//! Both work on any [`Store`]; [`MemoryStore`] needs nothing else. Everything of
//! `longshore-core` (the vocabulary, the policies, the seams) is re-exported here.
//!
//! ```
//! use std::sync::Arc;
//! use longshore::{Client, Context, Kind, MemoryStore, NewUnit, Policy, UnitState, Worker};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Arc::new(MemoryStore::default());
//! let client = Client::new(store.clone());
//! let id = client.send(NewUnit::new(Kind::new("double")?, serde_json::json!(21))).await?;
//!
//! let worker = Worker::builder(store)
//!     .slots(4)
//!     .handle_fn(Kind::new("double")?, Policy::default(), |_: Context, n: u64| async move {
//!         Ok::<u64, String>(n * 2)
//!     })
//!     .until_idle(true)
//!     .build()?;
//! let report = worker.run().await?;
//! assert_eq!(report.done, 1);
//!
//! let unit = client.wait(id, None).await?;
//! assert_eq!(unit.state, UnitState::Done);
//! assert_eq!(unit.result.unwrap().parse::<u64>()?, 42);
//! # Ok(())
//! # }
//! ```

mod backoff;
mod batch_writer;
mod bounded_pool;
mod client;
mod context;
mod control;
mod cpu;
mod executor;
mod handler;
mod heartbeat;
mod held;
mod intake;
mod life;
pub mod memory;
mod pace;
mod permission;
mod pulse;
pub mod services;
mod settler;
pub mod signals;
mod station;
mod stats;
mod timetable;
pub mod trace;
mod wait;
mod waiting;
mod worker;

pub use backoff::Backoff;
pub use batch_writer::BatchWriter;
pub use bounded_pool::{
    AcquireError, AdaptiveMax, Alarm, BoundedPool, BoundedPoolBuilder, BoundedPoolStats, Local,
    LogAlarm, OnOutage, Permit, PoolAlert, PoolAlertKind, PoolBook, Request, Went,
};
pub use client::{Client, SendError, WhenFull};
pub use context::{CancelReason, CheckpointError, Context};
pub use control::WorkerControl;
pub use cpu::cpu_time;
pub use handler::{
    Answer, Commit, ErasedHandler, Handler, HandlerResult, IntoHandlerResult, Reply, Verdict,
};
pub use longshore_core::*;
pub use memory::{MemoryPermits, MemoryStore};
pub use pulse::Heartbeat;
pub use services::Services;
pub use stats::{WorkerReport, WorkerStats};
pub use timetable::{Timetable, TimetableError, zones};
pub use wait::WaitError;
pub use waiting::Waiting;
pub use worker::{BuildError, ClaimAhead, Worker, WorkerBuilder, WorkerError, most_at_risk};
