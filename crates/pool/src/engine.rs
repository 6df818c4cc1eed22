//! Pools as handlers of the engine: a unit is a call, and the call's result is the unit's.
//!
//! ```
//! use std::sync::Arc;
//! use longshore::{Client, Kind, MemoryStore, NewUnit, Worker};
//! use longshore_pool::engine::HandlePool;
//! use longshore_pool::{Operations, PoolSettings, WorkerPool};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let operations = Operations::stateless().add("double", |(), n: u64| Ok::<_, String>(2 * n));
//! let pool = WorkerPool::threads("maths", operations, PoolSettings::default()).await?;
//!
//! let store = Arc::new(MemoryStore::default());
//! let id = Client::new(store.clone())
//!     .send(NewUnit::new(Kind::new("double")?, serde_json::json!(21)))
//!     .await?;
//! let worker = Worker::builder(store.clone()).handle_pool(&pool)?.until_idle(true).build()?;
//! worker.run().await?;
//!
//! let unit = Client::new(store).wait(id, None).await?;
//! assert_eq!(unit.result.unwrap().parse::<u64>()?, 42);
//! # Ok(())
//! # }
//! ```

mod outcome;
mod progress;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use longshore::{Context, ErasedHandler, Kind, Outcome, Policy, RunOutcome, WorkerBuilder};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

pub use self::outcome::outcome;
use crate::call_options::CallOptions;
use crate::payload::{CallPayload, Form};
use crate::pool::WorkerPool;

/// Operations that every worker has, for health checks. They handle no units.
pub const BUILT_IN: [&str; 2] = ["noop", "echo"];

/// A call's deadline is this much before its unit's. So the pool ends the call, and can report what
/// happened to the work.
const DEADLINE_MARGIN: Duration = Duration::from_millis(20);

/// Progress values that are buffered for the unit. If more come, only the latest matters.
const PROGRESS_BUFFER: usize = 8;

/// After the pool has rejected a unit, the engine's slot pauses this long. Otherwise a worker would
/// run through its whole queue and snooze each unit while no pool worker can be started.
const UNAVAILABLE_PAUSE: Duration = Duration::from_secs(1);

/// Why a pool's operations cannot become handlers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// No worker has reported its operations yet, or there are none.
    #[error("pool `{pool}` has no operations; has any of its workers been started?")]
    NoOperations {
        /// The pool.
        pool: String,
    },
    /// The name of an operation is not a valid kind.
    #[error("operation `{operation}` of pool `{pool}` cannot be a kind of unit: {reason}")]
    BadName {
        /// The pool.
        pool: String,
        /// The operation.
        operation: String,
        /// What is wrong with the name.
        reason: String,
    },
}

/// Registers pools as handlers of an engine worker.
pub trait HandlePool: Sized {
    /// Each operation of the pool, except `noop` and `echo`, handles the kind of its name.
    fn handle_pool(self, pool: &WorkerPool) -> Result<Self, HandleError> {
        self.handle_pool_with(pool, &Policy::default())
    }

    /// Registers the pool's operations as [`HandlePool::handle_pool`] does, with a policy for units
    /// that have none.
    fn handle_pool_with(self, pool: &WorkerPool, policy: &Policy) -> Result<Self, HandleError>;

    /// Registers one operation as the handler of `kind`.
    #[must_use]
    fn handle_operation(self, kind: Kind, policy: Policy, pool: &WorkerPool, operation: &str) -> Self;
}

impl HandlePool for WorkerBuilder {
    fn handle_pool_with(self, pool: &WorkerPool, policy: &Policy) -> Result<Self, HandleError> {
        let all = pool.list_operations().into_iter().map(|operation| operation.name);
        let names: Vec<String> = all.filter(|name| !BUILT_IN.contains(&name.as_str())).collect();
        if names.is_empty() {
            return Err(HandleError::NoOperations { pool: pool.name().to_owned() });
        }
        names.into_iter().try_fold(self, |builder, operation| {
            let kind = Kind::new(&operation).map_err(|error| HandleError::BadName {
                pool: pool.name().to_owned(),
                operation: operation.clone(),
                reason: error.to_string(),
            })?;
            Ok(builder.handle_operation(kind, policy.clone(), pool, &operation))
        })
    }

    fn handle_operation(self, kind: Kind, policy: Policy, pool: &WorkerPool, operation: &str) -> Self {
        let timeout = policy.timeout;
        let handler = PoolHandler { pool: pool.clone(), operation: operation.to_owned(), timeout };
        self.handle_erased(kind, policy, Arc::new(handler))
    }
}

/// Runs units of a kind as calls of an operation.
struct PoolHandler {
    pool: WorkerPool,
    operation: String,
    /// The timeout of the kind's policy.
    timeout: Option<Duration>,
}

impl ErasedHandler for PoolHandler {
    fn call(&self, context: Context) -> Pin<Box<dyn Future<Output = RunOutcome> + Send + '_>> {
        Box::pin(async move { self.perform(&context).await.into() })
    }
}

impl PoolHandler {
    async fn perform(&self, context: &Context) -> Outcome {
        let (sender, mut values) = mpsc::channel(PROGRESS_BUFFER);
        let options = self.options(context).progress(sender);
        let call = self.pool.call_raw(&self.operation, arguments(context), options);
        tokio::pin!(call);
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut call => break answer,
                Some(value) = values.recv() => progress::report(context, &value),
            }
        };
        match answer {
            Ok(result) => Outcome::Done(unit_result(result)),
            Err(error) => {
                if outcome::is_pool_unavailable(&error.kind) {
                    // A cancellation ends the pause early.
                    let _ = tokio::time::timeout(UNAVAILABLE_PAUSE, context.cancelled().cancelled()).await;
                }
                outcome(&error)
            }
        }
    }

    /// If the unit or its kind has a timeout, it replaces the operation's. A unit's deadline alone
    /// only shortens the operation's timeout.
    fn options(&self, context: &Context) -> CallOptions {
        let own = context.unit().policy.as_ref().map(|policy| policy.timeout);
        let has_timeout = own.unwrap_or(self.timeout).is_some();
        let options = CallOptions::default().cancelled_by(context.cancelled()).cancel_on_drop();
        match context.time_left() {
            None => options,
            Some(left) if has_timeout => options.timeout(with_margin(left)),
            Some(left) => options.at_most(with_margin(left)),
        }
    }
}

fn with_margin(left: Duration) -> Duration {
    left.saturating_sub(DEADLINE_MARGIN.min(left / 10))
}

/// The unit's payload: JSON if it parses, else bytes.
fn arguments(context: &Context) -> CallPayload {
    let bytes = context.unit().payload.as_bytes();
    match serde_json::from_slice::<&RawValue>(bytes) {
        Ok(_) => CallPayload::from_json_text(bytes),
        Err(_) => CallPayload::bytes(bytes),
    }
}

/// A result of `null` is not stored.
fn unit_result(result: CallPayload) -> Option<longshore::Payload> {
    let nothing = result.form() == Form::Json && matches!(result.as_bytes(), b"null" | b"");
    (!nothing).then(|| result.into_bytes().into())
}
