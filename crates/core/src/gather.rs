//! Calls that take others along.
//!
//! Where a call costs much and what it carries costs little, those who come while one is on its way wait
//! for its end, and then go together. Nobody waits for company: who comes alone goes at once, by itself.
//! There is no timer and no task: one of those who wait makes the call for all.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::oneshot;

/// So many go together at most.
const MOST: usize = 128;

/// Jobs that gather, each with an answer of its own. One call at a time is on its way, so what comes later
/// happens later.
pub struct Gather<J, A>(Mutex<Desk<J, A>>);

struct Desk<J, A> {
    /// Somebody makes a call, or is about to.
    away: bool,
    /// The last call took others along.
    company: bool,
    waiting: VecDeque<Waiting<J, A>>,
}

struct Waiting<J, A> {
    job: J,
    answer: oneshot::Sender<Told<J, A>>,
}

/// What one who waits hears.
enum Told<J, A> {
    Answer(A),
    /// It makes the next call.
    Go(J, Turn<J, A>),
}

impl<J, A> Default for Gather<J, A> {
    fn default() -> Self {
        Self(Mutex::new(Desk { away: false, company: false, waiting: VecDeque::new() }))
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

impl<J: Clone, A> Gather<J, A> {
    /// Has a job done: by `call`, which answers each of the jobs it is given, in their order; or by that of
    /// another. A job that is dropped before it is on its way is not done. A call that is dropped may have
    /// been heard, and is made again for those that it took along: jobs must bear a repeat.
    pub async fn run<F>(self: &Arc<Self>, job: J, call: impl FnOnce(Vec<J>) -> F) -> A
    where
        F: Future<Output = Vec<A>>,
    {
        let (job, turn) = match self.enter(job) {
            Entered::First(job) => (job, Turn::of(self)),
            Entered::Waits(told) => match told.await {
                Ok(Told::Answer(answer)) => return answer,
                Ok(Told::Go(job, turn)) => (job, turn),
                Err(_) => unreachable!("who waits is answered, or makes the call"),
            },
        };
        turn.take(job, call).await
    }

    fn enter(&self, job: J) -> Entered<J, A> {
        let mut desk = self.open();
        if !std::mem::replace(&mut desk.away, true) {
            return Entered::First(job);
        }
        let (answer, told) = oneshot::channel();
        desk.waiting.push_back(Waiting { job, answer });
        Entered::Waits(told)
    }
}

enum Entered<J, A> {
    First(J),
    Waits(oneshot::Receiver<Told<J, A>>),
}

/// The right to make a call. Dropped, it goes to the next one, and those it took along come first.
struct Turn<J, A> {
    gather: Option<Arc<Gather<J, A>>>,
    others: Vec<Waiting<J, A>>,
}

impl<J, A> Turn<J, A> {
    fn of(gather: &Arc<Gather<J, A>>) -> Self {
        Self { gather: Some(Arc::clone(gather)), others: Vec::new() }
    }

    /// Calls for the first job and whoever waits, and answers.
    async fn take<F>(mut self, first: J, call: impl FnOnce(Vec<J>) -> F) -> A
    where
        J: Clone,
        F: Future<Output = Vec<A>>,
    {
        if self.company() {
            // Those who were answered together are about to come again.
            step_back().await;
        }
        self.gather_others();
        let mut jobs = vec![first];
        jobs.extend(self.others.iter().map(|other| other.job.clone()));
        let mut answers = call(jobs).await.into_iter();
        let own = answers.next();
        for (other, answer) in self.others.drain(..).zip(answers) {
            // Whoever asked may be gone.
            let _ = other.answer.send(Told::Answer(answer));
        }
        own.unwrap_or_else(|| unreachable!("each job is answered"))
    }

    fn company(&self) -> bool {
        self.gather.as_ref().is_some_and(|gather| gather.open().company)
    }

    fn gather_others(&mut self) {
        let Some(gather) = &self.gather else { return };
        let mut desk = gather.open();
        let count = desk.waiting.len().min(MOST - 1);
        self.others.extend(desk.waiting.drain(..count).filter(|other| !other.answer.is_closed()));
        desk.company = !self.others.is_empty();
    }
}

impl<J, A> Drop for Turn<J, A> {
    fn drop(&mut self) {
        let Some(gather) = self.gather.take() else { return };
        let mut desk = gather.open();
        for other in self.others.drain(..).rev() {
            desk.waiting.push_front(other);
        }
        while let Some(Waiting { job, answer }) = desk.waiting.pop_front() {
            let Err(unheard) = answer.send(Told::Go(job, Turn::of(&gather))) else { return };
            // Its caller is gone, and must not pass on what it never had.
            if let Told::Go(_, mut turn) = unheard {
                turn.gather = None;
            }
        }
        desk.away = false;
    }
}

/// Lets others run that can.
async fn step_back() {
    let mut back = false;
    let step = poll_fn(|context| {
        if std::mem::replace(&mut back, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    });
    step.await;
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::sync::Notify;

    use super::*;

    type Sums = Arc<Gather<u32, (u32, usize)>>;

    /// Answers each job with itself and how many went together, once it may.
    async fn call(jobs: Vec<u32>, may: &Notify) -> Vec<(u32, usize)> {
        may.notified().await;
        let together = jobs.len();
        jobs.into_iter().map(|job| (job, together)).collect()
    }

    #[tokio::test]
    async fn those_who_come_meanwhile_go_together() {
        let (gather, may) = (Sums::default(), Notify::new());
        let run = |job| gather.run(job, |jobs| call(jobs, &may));
        let free = async {
            may.notify_one();
            tokio::task::yield_now().await;
            may.notify_one();
        };
        let (a, b, c, ()) = tokio::join!(run(1), run(2), run(3), free);
        assert_eq!((a, b, c), ((1, 1), (2, 2), (3, 2)));
        may.notify_one();
        assert_eq!(run(4).await, (4, 1));
    }

    #[tokio::test]
    async fn a_call_that_is_dropped_is_made_again_for_the_others() {
        let (gather, may) = (Sums::default(), Notify::new());
        let run = |job| gather.run(job, |jobs| call(jobs, &may));
        let mut first = Box::pin(run(1));
        assert!(futures_poll(&mut first).await.is_none());
        let mut second = Box::pin(run(2));
        let (mut third, mut fourth) = (pin!(run(3)), Box::pin(run(4)));
        assert!(futures_poll(&mut second).await.is_none());
        assert!(futures_poll(&mut third).await.is_none());
        assert!(futures_poll(&mut fourth).await.is_none());
        drop(first);
        // The second calls for all now, and is dropped as well; the fourth does not want it any more.
        assert!(futures_poll(&mut second).await.is_none());
        drop((second, fourth));
        may.notify_one();
        assert_eq!(third.await, (3, 1));
    }

    /// Polls once.
    async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        poll_fn(|context| match std::pin::Pin::new(&mut *future).poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }
}
