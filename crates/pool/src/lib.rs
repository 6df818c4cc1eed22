//! Worker pools: run blocking and foreign code outside the async path.
//!
//! An async program must not block its threads: not for a database driver, not to hash a password,
//! not to call a Python library. A [`WorkerPool`] accepts such work as calls of named operations,
//! and runs them on its own workers: threads, persistent child processes, or one process per call.
//! All three have the same calls, errors, limits and statistics. Everything is bounded: workers,
//! queued calls, the time of each call, the size of arguments and results.
//!
//! ```
//! use longshore_pool::{Operations, PoolSettings, WorkerPool};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), longshore_pool::CallError> {
//! let operations = Operations::stateless()
//!     .add("square", |(), n: u64| n.checked_mul(n).ok_or("too large"));
//! let pool = WorkerPool::threads("maths", operations, PoolSettings::default()).await?;
//! let nine: u64 = pool.call("square", &3).await?;
//! assert_eq!(nine, 9);
//! # Ok(())
//! # }
//! ```
#![expect(clippy::result_large_err, reason = "errors are rare, and must stay easy to match on")]

#[cfg(feature = "axum")]
pub mod axum;
mod backend;
mod call;
mod call_options;
mod call_state;
pub mod child;
#[cfg(feature = "database")]
pub mod database;
mod detached_calls;
#[cfg(feature = "engine")]
pub mod engine;
mod error;
mod health;
mod job;
mod metrics;
mod one_shot;
mod operation;
mod operation_registry;
mod payload;
mod pool;
mod process;
mod program;
mod protocol;
mod retry_advice;
mod scheduler;
mod settings;
mod shared;
#[cfg(all(test, feature = "_shuttle"))]
mod shuttle_tests;
mod stats;
mod suspects;
mod sync;
mod threads;

#[cfg(feature = "database")]
pub use longshore_databases::params;

pub use call::PoolCall;
pub use call_options::CallOptions;
pub use error::{BoxError, CallError, CancelEffect, ErrorKind, OperationError, WorkerRef};
pub use health::Health;
pub use one_shot::ResourceLimits;
pub use operation::{Operation, OperationSet, Operations, Operator};
pub use payload::{CallPayload, Form};
pub use pool::{PoolBuilder, WorkerPool};
pub use program::{BASIC_VARIABLES, Channel, Program};
pub use retry_advice::RetryAdvice;
pub use scheduler::EndCause;
pub use settings::{OnTimeout, PoolSettings, WhenQueueFull};
pub use stats::{OperationStats, Percentiles, WorkerPoolStats};
