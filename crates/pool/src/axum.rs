//! Worker pools in an axum app: extractors, errors as responses, progress, health, graceful
//! shutdown.
//!
//! [`Pools`] is the router's state, or a part of it. A handler takes [`WorkerPools`] or a `Db`, and
//! makes calls. If it returns a [`CallError`](crate::CallError), the error becomes a response
//! without internal details. [`progress_sse`] streams the progress of a call. [`Pools::serve`]
//! shuts everything down in the right order.
//!
//! ```no_run
//! use std::time::Duration;
//! use axum::{Router, extract::Path, routing::get};
//! use longshore_pool::axum::{Pools, WorkerPools, terminated};
//! use longshore_pool::{CallError, Operations, PoolSettings, WorkerPool};
//!
//! async fn square(workers: WorkerPools, Path(n): Path<u64>) -> Result<String, CallError> {
//!     let square: u64 = workers.call("square", &n).await?;
//!     Ok(square.to_string())
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let operations = Operations::stateless()
//!     .add("square", |(), n: u64| n.checked_mul(n).ok_or("too large"));
//! let maths = WorkerPool::threads("maths", operations, PoolSettings::default()).await?;
//! let pools = Pools::new().add(maths);
//! let app = Router::new()
//!     .route("/square/{n}", get(square))
//!     .nest("/pools", pools.router())
//!     .with_state(pools.clone());
//!
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! let server = |stop| axum::serve(listener, app).with_graceful_shutdown(stop);
//! pools.serve(terminated(), Duration::from_secs(30), server).await?;
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "database")]
mod database;
mod errors;
mod pools;
mod progress;
mod routes;
mod shutdown;
mod sse;
mod workers;
#[cfg(feature = "ws")]
mod ws;

pub use self::errors::Problem;
pub use self::pools::{Member, Pools};
pub use self::progress::{Update, Updates};
#[cfg(feature = "metrics")]
pub use self::routes::metrics;
pub use self::shutdown::terminated;
pub use self::sse::{progress_sse, sse};
pub use self::workers::WorkerPools;
#[cfg(feature = "ws")]
pub use self::ws::progress_ws;
