//! What the store does by itself: the rest of a verb whose caller has given up, and another look a
//! little later.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Hands errands to the task that runs them, which ends with the store.
#[derive(Debug)]
pub(crate) struct BackgroundTasks(mpsc::UnboundedSender<BoxFuture<'static, ()>>);

impl BackgroundTasks {
    /// And the task.
    pub(crate) fn new() -> (Self, impl Future<Output = ()>) {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let run_all = async move {
            let mut running: JoinSet<()> = JoinSet::new();
            loop {
                tokio::select! {
                    task = receiver.recv() => match task {
                        Some(task) => { running.spawn(task); }
                        None => break,
                    },
                    Some(_) = running.join_next() => {}
                }
            }
        };
        (Self(sender), run_all)
    }

    /// Runs an errand, whoever waits for it or does not.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // Without the task the store is being closed, and nothing is begun any more.
        let _ = self.0.send(task.boxed());
    }

    /// An errand that whoever waits for it runs; should that one give up, the task goes on with it.
    pub(crate) fn run_to_completion<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        RunToCompletion { task: Some(task.boxed()), fallback: Self(self.0.clone()) }
    }
}

/// An errand that comes to its end, whoever waits for it or does not.
struct RunToCompletion<T: Send + 'static> {
    task: Option<BoxFuture<'static, T>>,
    fallback: BackgroundTasks,
}

impl<T: Send + 'static> Future for RunToCompletion<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // One that panics is not handed on.
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

/// The first wait of a claim that came upon what others held: mostly a moment is enough.
const MIN_DELAY: Duration = Duration::from_millis(2);
/// The longest: a transaction that stays open.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// When to look again, the later the more often it was in vain.
#[derive(Debug, Clone, Default)]
pub(crate) struct RetryDelay(Arc<Mutex<DelayState>>);

#[derive(Debug)]
struct DelayState {
    next: Duration,
    /// Somebody will look already.
    scheduled: bool,
}

impl Default for DelayState {
    fn default() -> Self {
        Self { next: MIN_DELAY, scheduled: false }
    }
}

impl RetryDelay {
    fn with<T>(&self, change: impl FnOnce(&mut DelayState) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// In how long to look, unless that is settled already.
    pub(crate) fn begin_wait(&self) -> Option<Duration> {
        self.with(|state| {
            let wait = state.next;
            if std::mem::replace(&mut state.scheduled, true) {
                return None;
            }
            state.next = (wait * 2).min(MAX_DELAY);
            Some(wait)
        })
    }

    /// The wait is over.
    pub(crate) fn end_wait(&self) {
        self.with(|state| state.scheduled = false);
    }

    /// It was not in vain.
    pub(crate) fn reset(&self) {
        self.with(|state| state.next = MIN_DELAY);
    }
}

/// Streams that are to be looked at, all at once.
#[derive(Debug, Default)]
pub(crate) struct RecheckSet(Mutex<BTreeSet<i64>>);

impl RecheckSet {
    fn with<T>(&self, change: impl FnOnce(&mut BTreeSet<i64>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds streams; whether somebody must be sent to look.
    pub(crate) fn add(&self, streams: Vec<i64>) -> bool {
        self.with(|all| {
            let first = all.is_empty();
            all.extend(streams);
            first && !all.is_empty()
        })
    }

    /// Takes them all.
    pub(crate) fn take(&self) -> Vec<i64> {
        self.with(std::mem::take).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_errand_is_run_by_who_waits_for_it_and_goes_on_without() {
        let (tasks, running) = BackgroundTasks::new();
        assert_eq!(tasks.run_to_completion(async { 7 }).await, 7, "nobody runs the task yet");
        let (tell, told) = tokio::sync::oneshot::channel();
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let task = tasks.run_to_completion(async move {
            let _ = gone.await;
            let _ = tell.send(());
        });
        assert!(task.now_or_never().is_none(), "and given up");
        go.send(()).unwrap();
        tokio::select! {
            () = running => unreachable!(),
            told = told => told.unwrap(),
        }
    }

    #[test]
    fn one_look_at_a_time_and_each_later_than_the_one_before() {
        let delay = RetryDelay::default();
        assert_eq!(delay.begin_wait(), Some(MIN_DELAY));
        assert_eq!(delay.begin_wait(), None, "somebody will look already");
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
