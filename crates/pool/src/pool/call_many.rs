//! Many calls of one operation: lazy, in order, with bounded concurrency.

use futures_util::stream::{self, Stream, StreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::WorkerPool;
use crate::call_options::CallOptions;
use crate::error::CallError;
use crate::settings::WhenQueueFull;

impl WorkerPool {
    /// Calls an operation for each of `arguments`, at most `width` at a time, and yields the
    /// results in the order of the arguments. The next arguments are taken from the iterator only
    /// when their call can start. If the queue is full, the call waits.
    ///
    /// ```
    /// use futures_util::TryStreamExt;
    /// use longshore_pool::{Operations, PoolSettings, WorkerPool};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), longshore_pool::CallError> {
    /// let operations = Operations::stateless().add("half", |(), n: u64| Ok::<_, String>(n / 2));
    /// let pool = WorkerPool::threads("maths", operations, PoolSettings::default()).await?;
    /// let halves = pool.call_many::<_, u64, _>("half", [2_u64, 4, 6], 2);
    /// assert_eq!(halves.try_collect::<Vec<_>>().await?, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn call_many<A, R, I>(
        &self,
        operation: &str,
        arguments: I,
        width: usize,
    ) -> impl Stream<Item = Result<R, CallError>> + use<A, R, I>
    where
        A: Serialize,
        R: DeserializeOwned,
        I: IntoIterator<Item = A>,
    {
        self.call_many_from(operation, stream::iter(arguments), width, CallOptions::default())
    }

    /// Calls an operation for each item of a stream, as [`WorkerPool::call_many`] does, with
    /// options for each call.
    pub fn call_many_from<A, R, S>(
        &self,
        operation: &str,
        arguments: S,
        width: usize,
        options: CallOptions,
    ) -> impl Stream<Item = Result<R, CallError>> + use<A, R, S>
    where
        A: Serialize,
        R: DeserializeOwned,
        S: Stream<Item = A>,
    {
        let (pool, operation) = (self.clone(), operation.to_owned());
        let options = CallOptions { when_full: Some(WhenQueueFull::Wait), ..options };
        let call = move |arguments: A| {
            let (pool, operation, options) = (pool.clone(), operation.clone(), options.clone());
            async move { pool.call_with(&operation, &arguments, options).await }
        };
        arguments.map(call).buffered(width.max(1))
    }
}
