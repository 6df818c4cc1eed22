//! Calls that take others along.
//!
//! Where a call costs much and what it carries costs little, those who come while one is on its way wait
//! for its end, and then go together. Nobody waits for company: who comes alone goes at once, by itself.
//!
//! A task makes the calls, for as long as there are any. No caller makes them for the others: one that
//! is not polled for a while, or waits for the others itself, would hold them all up.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::task::{JoinSet, yield_now};

/// So many go together at most.
const MOST: usize = 128;

/// Jobs that gather, each with an answer of its own. One call at a time is on its way, so what comes later
/// happens later.
pub struct Gather<J, A>(Mutex<Desk<J, A>>);

struct Desk<J, A> {
    waiting: VecDeque<Waiting<J, A>>,
    /// Somebody makes calls.
    away: bool,
    /// Whoever does, or did.
    callers: JoinSet<()>,
}

struct Waiting<J, A> {
    job: J,
    answer: oneshot::Sender<A>,
}

impl<J, A> Default for Gather<J, A> {
    fn default() -> Self {
        let (waiting, callers) = (VecDeque::new(), JoinSet::new());
        Self(Mutex::new(Desk { waiting, away: false, callers }))
    }
}

impl<J, A> std::fmt::Debug for Gather<J, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gather").finish_non_exhaustive()
    }
}

impl<J, A> Gather<J, A> {
    fn open(&self) -> MutexGuard<'_, Desk<J, A>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J: Send + 'static, A: Send + 'static> Gather<J, A> {
    /// Has a job done: by `call`, which answers each of the jobs it is given, in their order; or by that of
    /// another, which must do the same. A job that is dropped before it is on its way is not done. None if
    /// the call came to no end, because it panicked or the runtime ends.
    pub async fn run<F>(
        self: &Arc<Self>,
        job: J,
        call: impl Fn(Vec<J>) -> F + Send + 'static,
    ) -> Option<A>
    where
        F: Future<Output = Vec<A>> + Send + 'static,
    {
        let (answer, told) = oneshot::channel();
        {
            let mut desk = self.open();
            desk.waiting.push_back(Waiting { job, answer });
            if !std::mem::replace(&mut desk.away, true) {
                while desk.callers.try_join_next().is_some() {}
                let turn = Turn { gather: Arc::clone(self), over: false };
                desk.callers.spawn(turn.take(call));
            }
        }
        told.await.ok()
    }
}

/// The right to make calls.
struct Turn<J, A> {
    gather: Arc<Gather<J, A>>,
    over: bool,
}

impl<J, A> Turn<J, A> {
    /// Calls for whoever waits, until nobody does.
    async fn take<F>(mut self, call: impl Fn(Vec<J>) -> F)
    where
        F: Future<Output = Vec<A>>,
    {
        while let Some((jobs, answers)) = self.next() {
            let company = jobs.len() > 1;
            for (answer, told) in answers.into_iter().zip(call(jobs).await) {
                // Whoever asked may be gone.
                let _ = answer.send(told);
            }
            if company {
                // Those who were answered together are about to come again.
                yield_now().await;
            }
        }
    }

    fn next(&mut self) -> Option<(Vec<J>, Vec<oneshot::Sender<A>>)> {
        let mut desk = self.gather.open();
        let count = desk.waiting.len().min(MOST);
        let wanted = desk.waiting.drain(..count).filter(|one| !one.answer.is_closed());
        let (jobs, answers): (Vec<J>, Vec<_>) = wanted.map(|one| (one.job, one.answer)).unzip();
        if jobs.is_empty() && desk.waiting.is_empty() {
            (desk.away, self.over) = (false, true);
            return None;
        }
        Some((jobs, answers))
    }
}

impl<J, A> Drop for Turn<J, A> {
    fn drop(&mut self) {
        if !self.over {
            // Nobody is left to call for those who wait: they hear of it, and others may come.
            let mut desk = self.gather.open();
            desk.away = false;
            desk.waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Notify;

    use super::*;

    type Sums = Arc<Gather<u32, (u32, usize)>>;

    /// Asks with a call that answers each job with itself and how many went together, once it may.
    fn run(
        gather: &Sums,
        may: &Arc<Notify>,
        job: u32,
    ) -> impl Future<Output = Option<(u32, usize)>> {
        let (gather, may) = (Arc::clone(gather), Arc::clone(may));
        async move {
            let call = move |jobs: Vec<u32>| {
                let may = Arc::clone(&may);
                async move {
                    may.notified().await;
                    assert!(!jobs.contains(&666));
                    let together = jobs.len();
                    jobs.into_iter().map(|job| (job, together)).collect()
                }
            };
            gather.run(job, call).await
        }
    }

    #[tokio::test]
    async fn those_who_come_meanwhile_go_together() {
        let (gather, may) = (Sums::default(), Arc::new(Notify::new()));
        let first = run(&gather, &may, 1);
        let others = async {
            yield_now().await;
            let free = async {
                may.notify_one();
                yield_now().await;
                may.notify_one();
            };
            tokio::join!(run(&gather, &may, 2), run(&gather, &may, 3), free)
        };
        let (a, (b, c, ())) = tokio::join!(first, others);
        assert_eq!((a, b, c), (Some((1, 1)), Some((2, 2)), Some((3, 2))));
        may.notify_one();
        assert_eq!(run(&gather, &may, 4).await, Some((4, 1)));
    }

    #[tokio::test]
    async fn one_that_is_not_polled_or_is_dropped_holds_nobody_up() {
        let (gather, may) = (Sums::default(), Arc::new(Notify::new()));
        let (mut first, mut second) =
            (Box::pin(run(&gather, &may, 1)), Box::pin(run(&gather, &may, 2)));
        tokio::select! {
            biased;
            _ = &mut first => unreachable!("nobody has answered it"),
            _ = &mut second => unreachable!("nobody has answered it"),
            () = yield_now() => {}
        }
        drop(second);
        let third = async {
            may.notify_one();
            yield_now().await;
            may.notify_one();
            run(&gather, &may, 3).await
        };
        // The first is not polled meanwhile, and the second is not carried.
        assert!(matches!(third.await, Some((3, _))));
        assert!(matches!(first.await, Some((1, _))));
    }

    #[tokio::test]
    async fn who_waits_for_a_call_that_fails_hears_of_it() {
        let (gather, may) = (Sums::default(), Arc::new(Notify::new()));
        may.notify_one();
        assert_eq!(run(&gather, &may, 666).await, None);
        may.notify_one();
        assert_eq!(run(&gather, &may, 1).await, Some((1, 1)));
    }
}
