//! Worker pools: blocking and foreign code out of the async path.
//!
//! An async program must not block its threads: not for a database driver, not to hash a password,
//! not to call a Python library. A [`WorkerPool`] takes such work as calls of named operations and
//! runs them on workers of its own: threads, child processes that stay, or one process per call.
//! The same calls, errors, limits and statistics for all three. Nothing in it is unbounded: workers,
//! waiting calls, the time of each call, the size of what crosses.
//!
//! ```
//! use longshore_pool::{Operations, Settings, WorkerPool};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), longshore_pool::CallError> {
//! let operations = Operations::stateless()
//!     .add("square", |(), n: u64| n.checked_mul(n).ok_or("too large"));
//! let pool = WorkerPool::threads("maths", operations, Settings::default()).await?;
//! let nine: u64 = pool.call("square", &3).await?;
//! assert_eq!(nine, 9);
//! # Ok(())
//! # }
//! ```
#![expect(clippy::result_large_err, reason = "errors are rare, and must stay easy to match on")]

mod advice;
#[cfg(feature = "axum")]
pub mod axum;
mod call;
pub mod child;
mod crew;
#[cfg(feature = "database")]
pub mod database;
#[cfg(feature = "engine")]
pub mod engine;
mod error;
mod exit;
mod forgotten;
mod group;
mod health;
mod job;
mod known;
mod meters;
mod one_shot;
mod operation;
mod options;
mod payload;
mod pool;
mod process;
mod program;
mod protocol;
mod reins;
#[cfg(all(test, feature = "_shuttle"))]
mod schedules;
mod settings;
mod shared;
mod stats;
mod sync;
mod table;
mod threads;
pub mod warden;

pub use advice::Advice;
pub use call::Call;
pub use error::{BoxError, CallError, ErrorKind, Fate, OperationError, WorkerRef};
pub use health::Health;
pub use one_shot::Limits;
pub use operation::{Operation, OperationSet, Operations, Operator};
pub use options::CallOptions;
pub use payload::{Form, Payload};
pub use pool::{PoolBuilder, WorkerPool};
pub use program::{Channel, Program};
pub use settings::{OnTimeout, Settings, WhenFull};
pub use stats::{OperationStats, Percentiles, Stats};
pub use table::Cause;
