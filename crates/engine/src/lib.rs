//! Longshore for Rust programs: durable queues, exact batches and workers.
//!
//! [`Client`] sends units and waits for them; [`Worker`] claims units and runs their handlers.
//! Both work on any [`Store`]; [`MemoryStore`] needs nothing else. Everything of
//! `longshore-core` (the vocabulary, the policies, the seams) is re-exported here, and
//! `longshore-accounts` as [`accounts`].
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

mod await_result;
mod backoff;
mod batch_writer;
mod bounded_pool;
mod client;
mod completer;
mod context;
mod control;
mod cpu;
mod cron;
mod executor;
mod fetcher;
mod handler;
mod heartbeat;
mod heartbeat_thread;
mod lifecycle;
pub mod memory;
mod permit_gate;
mod prefetch;
mod randomness;
mod service_alerts;
pub mod services;
pub mod signals;
mod slot_yield;
mod stats;
pub mod trace;
mod unit_table;
mod worker;
mod worker_inner;

pub use await_result::WaitError;
pub use backoff::Backoff;
pub use batch_writer::BatchWriter;
pub use bounded_pool::{
    AcquireBuilder, AcquireError, AdaptiveMax, AlertSink, BoundedPool, BoundedPoolBuilder, BoundedPoolStats,
    CallOutcome, LocalPermits, LogAlertSink, OnOutage, Permit, PoolAlert, PoolAlertKind, PoolRegistry,
    ServiceAlert,
};
pub use client::{Client, SendError, WhenFull};
pub use context::{CancelReason, CheckpointError, Context};
pub use control::WorkerControl;
pub use cpu::cpu_time;
pub use cron::{CronError, CronSchedule, time_zones};
pub use handler::{
    Commit, ErasedHandler, Handler, HandlerReply, HandlerResult, IntoHandlerResult, RunOutcome, Verdict,
};
pub use heartbeat_thread::HeartbeatPlacement;
pub use longshore_accounts::{self as accounts, Ledger};
pub use longshore_core::*;
pub use memory::{MemoryPermits, MemoryStore};
#[doc(hidden)]
pub use randomness::seed_randomness;
pub use services::Services;
pub use slot_yield::SlotWait;
pub use stats::{WorkerReport, WorkerStats};
pub use worker::{BuildError, Prefetch, Worker, WorkerBuilder, WorkerError, max_unrecorded_units};
