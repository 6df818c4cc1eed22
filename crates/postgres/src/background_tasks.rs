//! The store's background tasks: operations after their caller dropped the future, and delayed
//! rechecks.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use longshore_core::DoublingDelay;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Sends tasks to the runner, which ends with the store.
#[derive(Debug, Clone)]
pub(crate) struct BackgroundTasks(mpsc::UnboundedSender<BoxFuture<'static, ()>>);

impl BackgroundTasks {
    /// Creates the sender and the runner. The runner drops a task that takes longer than `limit`, which closes the
    /// task's connection: on a link that loses everything the task would keep it for ever.
    pub(crate) fn new(limit: Duration) -> (Self, impl Future<Output = ()>) {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let run_all = async move {
            let mut running: JoinSet<()> = JoinSet::new();
            loop {
                tokio::select! {
                    task = receiver.recv() => match task {
                        Some(task) => { running.spawn(timeout(limit, task).map(drop)); }
                        None => break,
                    },
                    Some(_) = running.join_next() => {}
                }
            }
        };
        (Self(sender), run_all)
    }

    /// Runs a task in the background.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // If the runner is gone, the store is closing and starts no more tasks.
        let _ = self.0.send(task.boxed());
    }

    /// A future that the caller polls. If the caller drops it, the runner completes it.
    pub(crate) fn run_to_completion<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        RunToCompletion { task: Some(task.boxed()), fallback: self.clone() }
    }
}

/// A future that completes even if it is dropped.
struct RunToCompletion<T: Send + 'static> {
    task: Option<BoxFuture<'static, T>>,
    fallback: BackgroundTasks,
}

impl<T: Send + 'static> Future for RunToCompletion<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // A task that panicked is not handed to the runner.
        let Some(mut task) = self.task.take() else { return Poll::Pending };
        let polled = task.poll_unpin(cx);
        if polled.is_pending() {
            self.task = Some(task);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            self.fallback.spawn(task.map(drop));
        }
    }
}

/// The first delay after a claim that skipped locked rows: most locks are released within
/// milliseconds.
const MIN_DELAY: Duration = Duration::from_millis(2);
/// The longest delay: the locks belong to a transaction that stays open.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// A delay that doubles until a claim finds units. At most one wait runs at a time.
#[derive(Debug, Clone, Default)]
pub(crate) struct RetryDelay(Arc<Mutex<DelayState>>);

#[derive(Debug)]
struct DelayState {
    delay: DoublingDelay,
    /// A wait is running.
    scheduled: bool,
}

impl Default for DelayState {
    fn default() -> Self {
        Self { delay: DoublingDelay::new(MIN_DELAY, MAX_DELAY), scheduled: false }
    }
}

impl RetryDelay {
    fn with<T>(&self, change: impl FnOnce(&mut DelayState) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins a wait and returns its length; `None` if one is running.
    pub(crate) fn begin_wait(&self) -> Option<Duration> {
        self.with(|state| {
            let is_running = std::mem::replace(&mut state.scheduled, true);
            (!is_running).then(|| state.delay.advance())
        })
    }

    /// Ends the wait.
    pub(crate) fn end_wait(&self) {
        self.with(|state| state.scheduled = false);
    }

    /// Starts again from the shortest delay, after a claim that found units.
    pub(crate) fn reset(&self) {
        self.with(|state| state.delay.reset());
    }
}

/// Streams to be checked together.
#[derive(Debug, Default)]
pub(crate) struct RecheckSet(Mutex<BTreeSet<i64>>);

impl RecheckSet {
    fn with<T>(&self, change: impl FnOnce(&mut BTreeSet<i64>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds streams. Returns whether the caller must start a check, since none is pending.
    pub(crate) fn add(&self, streams: Vec<i64>) -> bool {
        self.with(|all| {
            let first = all.is_empty();
            all.extend(streams);
            first && !all.is_empty()
        })
    }

    /// Takes all streams.
    pub(crate) fn take(&self) -> Vec<i64> {
        self.with(std::mem::take).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_is_run_by_its_caller_and_goes_on_when_that_is_dropped() {
        let (tasks, running) = BackgroundTasks::new(Duration::from_secs(60));
        assert_eq!(tasks.run_to_completion(async { 7 }).await, 7, "without the runner");
        let (done, on_done) = tokio::sync::oneshot::channel();
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let task = tasks.run_to_completion(async move {
            let _ = gone.await;
            let _ = done.send(());
        });
        assert!(task.now_or_never().is_none(), "and dropped");
        go.send(()).unwrap();
        tokio::select! {
            () = running => unreachable!(),
            result = on_done => result.unwrap(),
        }
    }

    #[tokio::test]
    async fn a_dropped_task_that_never_ends_is_dropped_at_the_limit() {
        let (tasks, running) = BackgroundTasks::new(Duration::from_millis(5));
        let (held, on_drop) = tokio::sync::oneshot::channel::<()>();
        let task = tasks.run_to_completion(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        assert!(task.now_or_never().is_none(), "and dropped");
        tokio::select! {
            () = running => unreachable!(),
            dropped = on_drop => assert!(dropped.is_err()),
        }
    }

    #[test]
    fn one_look_at_a_time_and_each_later_than_the_one_before() {
        let delay = RetryDelay::default();
        assert_eq!(delay.begin_wait(), Some(MIN_DELAY));
        assert_eq!(delay.begin_wait(), None, "a wait is running");
        for _ in 0..20 {
            delay.end_wait();
            assert!(delay.begin_wait() <= Some(MAX_DELAY));
        }
        delay.end_wait();
        assert_eq!(delay.begin_wait(), Some(MAX_DELAY));
        delay.reset();
        delay.end_wait();
        assert_eq!(delay.begin_wait(), Some(MIN_DELAY));
    }
}
