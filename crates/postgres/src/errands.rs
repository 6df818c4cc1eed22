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
pub(crate) struct Errands(mpsc::UnboundedSender<BoxFuture<'static, ()>>);

impl Errands {
    /// And the task.
    pub(crate) fn new() -> (Self, impl Future<Output = ()>) {
        let (give, mut take) = mpsc::unbounded_channel();
        let running = async move {
            let mut running: JoinSet<()> = JoinSet::new();
            loop {
                tokio::select! {
                    errand = take.recv() => match errand {
                        Some(errand) => { running.spawn(errand); }
                        None => break,
                    },
                    Some(_) = running.join_next() => {}
                }
            }
        };
        (Self(give), running)
    }

    /// Runs an errand, whoever waits for it or does not.
    pub(crate) fn run(&self, errand: impl Future<Output = ()> + Send + 'static) {
        // Without the task the store is being closed, and nothing is begun any more.
        let _ = self.0.send(errand.boxed());
    }

    /// An errand that whoever waits for it runs; should that one give up, the task goes on with it.
    pub(crate) fn see_to<T: Send + 'static>(
        &self,
        errand: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        SeenTo { errand: Some(errand.boxed()), or_else: Self(self.0.clone()) }
    }
}

/// An errand that comes to its end, whoever waits for it or does not.
struct SeenTo<T: Send + 'static> {
    errand: Option<BoxFuture<'static, T>>,
    or_else: Errands,
}

impl<T: Send + 'static> Future for SeenTo<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // One that panics is not handed on.
        let Some(mut errand) = self.errand.take() else { return Poll::Pending };
        let polled = errand.poll_unpin(cx);
        if polled.is_pending() {
            self.errand = Some(errand);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for SeenTo<T> {
    fn drop(&mut self) {
        if let Some(errand) = self.errand.take() {
            self.or_else.run(errand.map(drop));
        }
    }
}

/// The first wait of a claim that came upon what others held: mostly a moment is enough.
const FIRST: Duration = Duration::from_millis(2);
/// The longest: a transaction that stays open.
const LAST: Duration = Duration::from_secs(1);

/// When to look again, the later the more often it was in vain.
#[derive(Debug, Clone, Default)]
pub(crate) struct Again(Arc<Mutex<Waiting>>);

#[derive(Debug)]
struct Waiting {
    next: Duration,
    /// Somebody will look already.
    due: bool,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { next: FIRST, due: false }
    }
}

impl Again {
    fn with<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// In how long to look, unless that is settled already.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.with(|waiting| {
            let wait = waiting.next;
            if std::mem::replace(&mut waiting.due, true) {
                return None;
            }
            waiting.next = (wait * 2).min(LAST);
            Some(wait)
        })
    }

    /// The wait is over.
    pub(crate) fn over(&self) {
        self.with(|waiting| waiting.due = false);
    }

    /// It was not in vain.
    pub(crate) fn reset(&self) {
        self.with(|waiting| waiting.next = FIRST);
    }
}

/// Streams that are to be looked at, all at once.
#[derive(Debug, Default)]
pub(crate) struct Doubts(Mutex<BTreeSet<i64>>);

impl Doubts {
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
        let (errands, running) = Errands::new();
        assert_eq!(errands.see_to(async { 7 }).await, 7, "nobody runs the task yet");
        let (tell, told) = tokio::sync::oneshot::channel();
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let errand = errands.see_to(async move {
            let _ = gone.await;
            let _ = tell.send(());
        });
        assert!(errand.now_or_never().is_none(), "and given up");
        go.send(()).unwrap();
        tokio::select! {
            () = running => unreachable!(),
            told = told => told.unwrap(),
        }
    }

    #[test]
    fn one_look_at_a_time_and_each_later_than_the_one_before() {
        let again = Again::default();
        assert_eq!(again.next(), Some(FIRST));
        assert_eq!(again.next(), None, "somebody will look already");
        for _ in 0..20 {
            again.over();
            assert!(again.next() <= Some(LAST));
        }
        again.over();
        assert_eq!(again.next(), Some(LAST));
        again.reset();
        again.over();
        assert_eq!(again.next(), Some(FIRST));
    }
}
