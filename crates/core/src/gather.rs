//! Calls that take others along.
//!
//! Where a call costs much and what it carries costs little, those who come while one is on its way wait
//! for its end, and then go together. Nobody waits for company: who comes alone goes at once, by itself.
//!
//! Tasks make the calls, for as long as there are any. No caller makes them for the others: one that
//! is not polled for a while, or waits for the others itself, would hold them all up.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use tokio::task::{JoinSet, yield_now};

/// So many go together at most.
const MOST: usize = 128;

/// Jobs that gather, each with an answer of its own.
pub struct Gather<J, A> {
    desk: Mutex<Desk<J, A>>,
    /// The tasks that make calls, or did. Not on the desk: a runtime that ends drops a task where it is
    /// spawned, and a task that is dropped comes to the desk.
    callers: Mutex<JoinSet<()>>,
    /// Whether one that comes when nobody is there may make its call itself.
    alone: bool,
}

struct Desk<J, A> {
    waiting: VecDeque<Waiting<J, A>>,
    /// For each task that may make calls, whether one does, and whom it answers next.
    lanes: Vec<Option<Vec<oneshot::Sender<A>>>>,
    /// One that came alone makes its call itself.
    lone: bool,
}

impl<J, A> Desk<J, A> {
    fn is_busy(&self) -> bool {
        self.lanes.iter().any(Option::is_some)
    }

    /// Whether somebody left a call that is on its way. What the same one wants next must happen later, also
    /// if that call has to be repeated.
    fn is_left(&self) -> bool {
        self.lanes.iter().flatten().flatten().any(oneshot::Sender::is_closed)
    }
}

struct Waiting<J, A> {
    job: J,
    answer: oneshot::Sender<A>,
}

/// A call that has begun.
enum Begun<F: Future> {
    Over(F::Output),
    Away(Pin<Box<F>>),
}

impl<F: Future> Begun<F> {
    fn begin(call: F, cx: &mut Context<'_>) -> Self {
        let mut call = Box::pin(call);
        match call.as_mut().poll(cx) {
            Poll::Ready(output) => Self::Over(output),
            Poll::Pending => Self::Away(call),
        }
    }

    async fn end(self) -> F::Output {
        match self {
            Self::Over(output) => output,
            Self::Away(call) => call.await,
        }
    }
}

impl<J, A> std::fmt::Debug for Gather<J, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gather").finish_non_exhaustive()
    }
}

impl<J, A> Gather<J, A> {
    /// One call after the other: what comes later happens later, also if whoever came before is gone.
    pub fn one_by_one() -> Self {
        Self::new(1, false)
    }

    /// Several calls at once: while one is answered, another is on its way. They begin in the order in which
    /// their jobs came, and none while somebody has left one that is on its way. If whoever is called keeps
    /// this order, what comes later happens later; if not, this still holds for what one asks for after the
    /// other, also without waiting for answers.
    pub fn in_order(lanes: usize) -> Self {
        Self::new(lanes, true)
    }

    fn new(lanes: usize, alone: bool) -> Self {
        let lanes = std::iter::repeat_with(|| None).take(lanes).collect();
        let desk = Desk { waiting: VecDeque::new(), lanes, lone: false };
        Self { desk: Mutex::new(desk), callers: Mutex::default(), alone }
    }

    fn open(&self) -> MutexGuard<'_, Desk<J, A>> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J: Send + 'static, A: Send + 'static> Gather<J, A> {
    /// Has a job done: by `call`, which answers each of the jobs it is given, in their order; or by that of
    /// another, which must do the same. A job that is dropped before it is on its way is not done. None if
    /// the call came to no end, because it panicked or the runtime ends.
    pub async fn run<F>(
        self: &Arc<Self>,
        job: J,
        call: impl Fn(Vec<J>) -> F + Send + Sync + 'static,
    ) -> Option<A>
    where
        F: Future<Output = Vec<A>> + Send + 'static,
    {
        let mut job = Some(job);
        if let Some((begun, _lone)) =
            poll_fn(|cx| Poll::Ready(self.go_alone(&mut job, &call, cx))).await
        {
            return begun.end().await.pop();
        }
        let (answer, told) = oneshot::channel();
        self.wait(Waiting { job: job?, answer }, call);
        told.await.ok()
    }

    /// Begins the call of one that came when nobody was there.
    fn go_alone<F>(
        &self,
        job: &mut Option<J>,
        call: &impl Fn(Vec<J>) -> F,
        cx: &mut Context<'_>,
    ) -> Option<(Begun<F>, Lone<'_, J, A>)>
    where
        F: Future<Output = Vec<A>>,
    {
        let mut desk = self.open();
        if !self.alone || desk.lone || desk.is_busy() {
            return None;
        }
        let begun = Begun::begin(call(vec![job.take()?]), cx);
        desk.lone = true;
        drop(desk);
        Some((begun, Lone(self)))
    }

    fn wait<F>(
        self: &Arc<Self>,
        one: Waiting<J, A>,
        call: impl Fn(Vec<J>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Vec<A>> + Send + 'static,
    {
        let free = {
            let mut desk = self.open();
            desk.waiting.push_back(one);
            let free = desk.lanes.iter().position(Option::is_none);
            if let Some(lane) = free {
                desk.lanes[lane] = Some(Vec::new());
            }
            free
        };
        if let Some(lane) = free {
            let turn = Turn { gather: Arc::clone(self), lane, over: false };
            let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
            while callers.try_join_next().is_some() {}
            callers.spawn(turn.take(call));
        }
    }
}

/// Says that one is on its way alone, until it is not. Nobody waits for it: it may not be polled.
struct Lone<'a, J, A>(&'a Gather<J, A>);

impl<J, A> Drop for Lone<'_, J, A> {
    fn drop(&mut self) {
        self.0.open().lone = false;
    }
}

/// The right to make calls.
struct Turn<J, A> {
    gather: Arc<Gather<J, A>>,
    lane: usize,
    over: bool,
}

impl<J, A> Turn<J, A> {
    /// Calls for whoever waits, until nobody does.
    async fn take<F>(mut self, call: impl Fn(Vec<J>) -> F)
    where
        F: Future<Output = Vec<A>>,
    {
        while let Some(begun) = poll_fn(|cx| Poll::Ready(self.next(&call, cx))).await {
            let told = begun.end().await;
            let answers = self.answers();
            let company = answers.len() > 1;
            for (answer, told) in answers.into_iter().zip(told) {
                // Whoever asked may be gone.
                let _ = answer.send(told);
            }
            if company {
                // Those who were answered together are about to come again.
                yield_now().await;
            }
        }
    }

    /// Begins a call for those who wait, before another may take those who come later.
    fn next<F>(&mut self, call: &impl Fn(Vec<J>) -> F, cx: &mut Context<'_>) -> Option<Begun<F>>
    where
        F: Future<Output = Vec<A>>,
    {
        let mut desk = self.gather.open();
        let (mut jobs, mut answers) = (Vec::new(), Vec::new());
        // Where a call was left, whoever makes it takes those who wait when it is over.
        let most = if desk.is_left() { 0 } else { MOST };
        while jobs.len() < most
            && let Some(one) = desk.waiting.pop_front()
        {
            if !one.answer.is_closed() {
                jobs.push(one.job);
                answers.push(one.answer);
            }
        }
        self.over = jobs.is_empty();
        desk.lanes[self.lane] = (!self.over).then_some(answers);
        (!self.over).then(|| Begun::begin(call(jobs), cx))
    }

    /// Those whose call is over.
    fn answers(&self) -> Vec<oneshot::Sender<A>> {
        let mut desk = self.gather.open();
        desk.lanes[self.lane].as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl<J, A> Drop for Turn<J, A> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut desk = self.gather.open();
        let mine = desk.lanes[self.lane].take();
        // If nobody is left to call for those who wait, they hear of it, and others may come.
        let waiting =
            if desk.is_busy() { VecDeque::new() } else { std::mem::take(&mut desk.waiting) };
        // Who hears of it may come to the desk at once.
        drop(desk);
        drop((mine, waiting));
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
    ) -> impl Future<Output = Option<(u32, usize)>> + use<> {
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

    /// Lets the others get as far as they can.
    async fn settle() {
        for _ in 0..4 {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn those_who_come_meanwhile_go_together() {
        let (gather, may) = (Sums::new(Gather::one_by_one()), Arc::new(Notify::new()));
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
        let (gather, may) = (Sums::new(Gather::one_by_one()), Arc::new(Notify::new()));
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
        let (gather, may) = (Sums::new(Gather::one_by_one()), Arc::new(Notify::new()));
        may.notify_one();
        assert_eq!(run(&gather, &may, 666).await, None);
        may.notify_one();
        assert_eq!(run(&gather, &may, 1).await, Some((1, 1)));
    }

    #[tokio::test]
    async fn who_waits_beside_a_call_that_fails_is_served_by_another() {
        let gather = Sums::new(Gather::in_order(2));
        let (may, fails) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        // One goes alone, one takes a lane, one the other lane; one waits.
        let mut told = JoinSet::new();
        for (job, may) in [(1, &may), (2, &may), (666, &fails), (3, &may)] {
            let run = run(&gather, may, job);
            told.spawn(async move { (job, run.await) });
            settle().await;
        }
        fails.notify_one();
        assert_eq!(told.join_next().await.unwrap().unwrap(), (666, None));
        for job in 1..=3 {
            may.notify_one();
            assert_eq!(told.join_next().await.unwrap().unwrap(), (job, Some((job, 1))));
        }
    }

    #[tokio::test]
    async fn what_comes_after_a_call_that_was_left_waits_for_its_end() {
        let (gather, may) = (Arc::new(Gather::in_order(2)), Arc::new(Notify::new()));
        let begun = Arc::new(Mutex::new(Vec::<u32>::new()));
        let run = |job: u32| {
            let (gather, may, begun) = (gather.clone(), may.clone(), begun.clone());
            let call = move |jobs: Vec<u32>| {
                begun.lock().unwrap().extend(&jobs);
                let may = may.clone();
                async move {
                    may.notified().await;
                    jobs
                }
            };
            Box::pin(async move { gather.run(job, call).await })
        };
        // One goes alone, so that the next takes a lane, where it goes on without whoever asked.
        let (mut alone, mut leaves, mut later) = (run(1), run(2), run(3));
        tokio::select! {
            biased;
            _ = &mut alone => unreachable!("nobody has answered it"),
            _ = &mut leaves => unreachable!("nobody has answered it"),
            () = settle() => {}
        }
        drop(leaves);
        tokio::select! {
            biased;
            _ = &mut later => unreachable!("nobody has answered it"),
            () = settle() => {}
        }
        assert_eq!(*begun.lock().unwrap(), [1, 2]);
        may.notify_one();
        assert_eq!(alone.await, Some(1));
        may.notify_one();
        settle().await;
        assert_eq!(*begun.lock().unwrap(), [1, 2, 3]);
        may.notify_one();
        assert_eq!(later.await, Some(3));
    }

    #[tokio::test]
    async fn nobody_waits_for_one_that_went_alone() {
        let (gather, may) = (Sums::new(Gather::in_order(1)), Arc::new(Notify::new()));
        let mut first = Box::pin(run(&gather, &may, 1));
        tokio::select! {
            biased;
            _ = &mut first => unreachable!("nobody has answered it"),
            () = yield_now() => {}
        }
        // It was on its way before: it is answered before, but nobody polls it.
        let second = async {
            may.notify_one();
            yield_now().await;
            may.notify_one();
            run(&gather, &may, 2).await
        };
        assert_eq!(second.await, Some((2, 1)));
        assert_eq!(first.await, Some((1, 1)));
        may.notify_one();
        assert_eq!(run(&gather, &may, 3).await, Some((3, 1)));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn calls_begin_in_the_order_in_which_their_jobs_came() {
        let gather = Arc::new(Gather::in_order(3));
        let begun = Arc::new(Mutex::new(Vec::<u32>::new()));
        let mut tasks = JoinSet::new();
        for job in 0..20_000_u32 {
            let begun = Arc::clone(&begun);
            let call = move |jobs: Vec<u32>| {
                let begun = Arc::clone(&begun);
                async move {
                    begun.lock().unwrap().extend(&jobs);
                    yield_now().await;
                    jobs
                }
            };
            let gather = Arc::clone(&gather);
            let mut answer = Box::pin(async move { gather.run(job, call).await });
            // It comes now; its answer is waited for elsewhere.
            match poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await {
                Poll::Ready(told) => assert_eq!(told, Some(job)),
                Poll::Pending => {
                    tasks.spawn(async move { assert_eq!(answer.await, Some(job)) });
                }
            }
        }
        tasks.join_all().await;
        let begun = begun.lock().unwrap();
        assert!(begun.iter().copied().eq(0..20_000), "out of order");
    }

    #[test]
    fn a_runtime_that_ends_holds_nobody() {
        /// Asks when it is dropped, as what a runtime drops may do.
        struct Last(Arc<Gather<u32, u32>>);
        impl Drop for Last {
            fn drop(&mut self) {
                let gather = Arc::clone(&self.0);
                let mut asking =
                    Box::pin(async move { gather.run(1, |jobs| async move { jobs }).await });
                let waker = std::task::Waker::noop();
                assert!(asking.as_mut().poll(&mut Context::from_waker(waker)).is_ready());
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let last = Last(Arc::new(Gather::one_by_one()));
        runtime.spawn(async move {
            let _last = last;
            std::future::pending::<()>().await;
        });
        runtime.block_on(yield_now());
        drop(runtime);
    }
}
