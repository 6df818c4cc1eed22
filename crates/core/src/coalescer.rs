//! Coalesces concurrent requests into batched calls.
//!
//! While a call is in flight, new requests are buffered and sent together when it returns. A
//! request that finds no call in flight is sent immediately. This pays off where a call costs much
//! and each request in it little.
//!
//! Background tasks make the batched calls, as long as there are requests. No caller makes them for
//! others: a caller that is not polled for a while, or itself waits for others, would block them
//! all.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use tokio::task::{JoinSet, yield_now};

/// Most requests per call.
const MAX_BATCH: usize = 128;

/// Coalesces requests of type `J`, each with its own reply of type `A`.
pub struct Coalescer<J, A> {
    state: Mutex<CoalescerState<J, A>>,
    /// The tasks that make calls, including finished ones. Not part of the state: a runtime that
    /// shuts down drops a task while it is being spawned, and dropping a task locks the state.
    tasks: Mutex<JoinSet<()>>,
    /// Whether a request that finds no call in flight is sent by its caller.
    direct_when_idle: bool,
}

struct CoalescerState<J, A> {
    waiting: VecDeque<BufferedRequest<J, A>>,
    /// For each task that may make calls: the reply channels of its current call, if it is running.
    call_slots: Vec<Option<Vec<oneshot::Sender<A>>>>,
    /// A caller is sending a request by itself.
    direct_call: bool,
}

impl<J, A> CoalescerState<J, A> {
    fn is_busy(&self) -> bool {
        self.call_slots.iter().any(Option::is_some)
    }

    /// Whether the caller of a request in flight is gone. A later request of the same caller must
    /// take effect later, even if that call has to be repeated.
    fn has_abandoned_call(&self) -> bool {
        self.call_slots.iter().flatten().flatten().any(oneshot::Sender::is_closed)
    }
}

struct BufferedRequest<J, A> {
    job: J,
    caller: oneshot::Sender<A>,
}

/// A call that was polled once.
enum StartedCall<F: Future> {
    Finished(F::Output),
    InFlight(Pin<Box<F>>),
}

impl<F: Future> StartedCall<F> {
    fn start(call: F, cx: &mut Context<'_>) -> Self {
        let mut call = Box::pin(call);
        match call.as_mut().poll(cx) {
            Poll::Ready(output) => Self::Finished(output),
            Poll::Pending => Self::InFlight(call),
        }
    }

    async fn finish(self) -> F::Output {
        match self {
            Self::Finished(output) => output,
            Self::InFlight(call) => call.await,
        }
    }
}

impl<J, A> std::fmt::Debug for Coalescer<J, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gather").finish_non_exhaustive()
    }
}

impl<J, A> Coalescer<J, A> {
    /// Makes one call at a time: later requests take effect later, even if an earlier caller is
    /// gone.
    pub fn sequential() -> Self {
        Self::new(1, false)
    }

    /// Makes several calls at a time: while one is being answered, another is in flight. Calls
    /// start in the order of their requests, and none starts while a request in flight has lost its
    /// caller. If the server keeps this order, later requests take effect later; if not, this still
    /// holds for consecutive requests of one caller, even without awaiting replies.
    pub fn pipelined(call_slots: usize) -> Self {
        Self::new(call_slots, true)
    }

    fn new(call_slots: usize, direct_when_idle: bool) -> Self {
        let call_slots = std::iter::repeat_with(|| None).take(call_slots).collect();
        let state = CoalescerState { waiting: VecDeque::new(), call_slots, direct_call: false };
        Self { state: Mutex::new(state), tasks: Mutex::default(), direct_when_idle }
    }

    fn lock(&self) -> MutexGuard<'_, CoalescerState<J, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J: Send + 'static, A: Send + 'static> Coalescer<J, A> {
    /// Sends a request with `call`, which returns one reply per request, in order; or with the
    /// `call` of a concurrent request, which must do the same. A request that is dropped before it
    /// is sent is not sent. Returns `None` if the call did not finish, because it panicked or the
    /// runtime shuts down.
    pub async fn run<F>(
        self: &Arc<Self>,
        job: J,
        call: impl Fn(Vec<J>) -> F + Send + Sync + 'static,
    ) -> Option<A>
    where
        F: Future<Output = Vec<A>> + Send + 'static,
    {
        let mut job = Some(job);
        if let Some((started, _guard)) = poll_fn(|cx| Poll::Ready(self.try_direct(&mut job, &call, cx))).await
        {
            return started.finish().await.pop();
        }
        let (caller, reply) = oneshot::channel();
        self.enqueue(BufferedRequest { job: job?, caller }, call);
        reply.await.ok()
    }

    /// Starts a call for a single request if no other is in flight.
    fn try_direct<F>(
        &self,
        job: &mut Option<J>,
        call: &impl Fn(Vec<J>) -> F,
        cx: &mut Context<'_>,
    ) -> Option<(StartedCall<F>, DirectCallGuard<'_, J, A>)>
    where
        F: Future<Output = Vec<A>>,
    {
        let mut state = self.lock();
        if !self.direct_when_idle || state.direct_call || state.is_busy() {
            return None;
        }
        let started = StartedCall::start(call(vec![job.take()?]), cx);
        state.direct_call = true;
        drop(state);
        Some((started, DirectCallGuard(self)))
    }

    fn enqueue<F>(
        self: &Arc<Self>,
        pending: BufferedRequest<J, A>,
        call: impl Fn(Vec<J>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Vec<A>> + Send + 'static,
    {
        let free = {
            let mut state = self.lock();
            state.waiting.push_back(pending);
            let free = state.call_slots.iter().position(Option::is_none);
            if let Some(slot) = free {
                state.call_slots[slot] = Some(Vec::new());
            }
            free
        };
        if let Some(slot) = free {
            let send_loop = SendLoop { gather: Arc::clone(self), slot, done: false };
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            while tasks.try_join_next().is_some() {}
            tasks.spawn(send_loop.run(call));
        }
    }
}

/// Marks a direct call in flight until it is dropped. Batched calls do not wait for it: it may not
/// be polled.
struct DirectCallGuard<'a, J, A>(&'a Coalescer<J, A>);

impl<J, A> Drop for DirectCallGuard<'_, J, A> {
    fn drop(&mut self) {
        self.0.lock().direct_call = false;
    }
}

/// The task of one call slot.
struct SendLoop<J, A> {
    gather: Arc<Coalescer<J, A>>,
    slot: usize,
    done: bool,
}

impl<J, A> SendLoop<J, A> {
    /// Makes calls until no request is buffered.
    async fn run<F>(mut self, call: impl Fn(Vec<J>) -> F)
    where
        F: Future<Output = Vec<A>>,
    {
        if !self.gather.direct_when_idle {
            self.collect_requests().await;
        }
        while let Some(started) = poll_fn(|cx| Poll::Ready(self.start_next(&call, cx))).await {
            let results = started.finish().await;
            let callers = self.take_callers();
            let batched = callers.len() > 1;
            for (caller, result) in callers.into_iter().zip(results) {
                // The caller may be gone.
                let _ = caller.send(result);
            }
            if !self.gather.direct_when_idle {
                self.collect_requests().await;
            } else if batched {
                // Callers that were answered together are likely to send again.
                yield_now().await;
            }
        }
    }

    /// Yields as long as that brings further requests: tasks that were woken together send
    /// together. With one call at a time, a request that misses this call waits for all of it.
    async fn collect_requests(&self) {
        let mut buffered = usize::MAX;
        loop {
            let now = self.gather.lock().waiting.len();
            if now == buffered || now >= MAX_BATCH {
                return;
            }
            buffered = now;
            yield_now().await;
        }
    }

    /// Starts a call with the buffered requests, while the lock keeps other tasks from taking later
    /// ones.
    fn start_next<F>(&mut self, call: &impl Fn(Vec<J>) -> F, cx: &mut Context<'_>) -> Option<StartedCall<F>>
    where
        F: Future<Output = Vec<A>>,
    {
        let mut state = self.gather.lock();
        let (mut jobs, mut callers) = (Vec::new(), Vec::new());
        // If a caller has abandoned its call, the task of that call takes the buffered requests
        // when it returns.
        let limit = if state.has_abandoned_call() { 0 } else { MAX_BATCH };
        while jobs.len() < limit
            && let Some(pending) = state.waiting.pop_front()
        {
            if !pending.caller.is_closed() {
                jobs.push(pending.job);
                callers.push(pending.caller);
            }
        }
        self.done = jobs.is_empty();
        state.call_slots[self.slot] = (!self.done).then_some(callers);
        (!self.done).then(|| StartedCall::start(call(jobs), cx))
    }

    /// The reply channels of the call that has finished.
    fn take_callers(&self) -> Vec<oneshot::Sender<A>> {
        let mut state = self.gather.lock();
        state.call_slots[self.slot].as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl<J, A> Drop for SendLoop<J, A> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut state = self.gather.lock();
        let mine = state.call_slots[self.slot].take();
        // Without another task, nothing would send the buffered requests: fail them, so that their
        // callers do not hang.
        let waiting = if state.is_busy() { VecDeque::new() } else { std::mem::take(&mut state.waiting) };
        // Callers may lock the state as soon as their channel closes.
        drop(state);
        drop((mine, waiting));
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Notify;

    use super::*;

    type TestCoalescer = Arc<Coalescer<u32, (u32, usize)>>;

    /// Sends a request with a call that waits for `may`, and replies with the request and the size
    /// of its batch.
    fn run(
        gather: &TestCoalescer,
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

    /// Lets other tasks run as far as they can.
    async fn settle() {
        for _ in 0..4 {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn those_who_come_meanwhile_go_together() {
        let (gather, may) = (TestCoalescer::new(Coalescer::sequential()), Arc::new(Notify::new()));
        let first = run(&gather, &may, 1);
        let others = async {
            settle().await;
            let free = async {
                may.notify_one();
                settle().await;
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
        let (gather, may) = (TestCoalescer::new(Coalescer::sequential()), Arc::new(Notify::new()));
        let (mut first, mut second) = (Box::pin(run(&gather, &may, 1)), Box::pin(run(&gather, &may, 2)));
        tokio::select! {
            biased;
            _ = &mut first => unreachable!("it was not answered yet"),
            _ = &mut second => unreachable!("it was not answered yet"),
            () = yield_now() => {}
        }
        drop(second);
        let third = async {
            may.notify_one();
            yield_now().await;
            may.notify_one();
            run(&gather, &may, 3).await
        };
        // The first is not polled meanwhile, and the second is not sent.
        assert!(matches!(third.await, Some((3, _))));
        assert!(matches!(first.await, Some((1, _))));
    }

    #[tokio::test]
    async fn who_waits_for_a_call_that_fails_hears_of_it() {
        let (gather, may) = (TestCoalescer::new(Coalescer::sequential()), Arc::new(Notify::new()));
        may.notify_one();
        assert_eq!(run(&gather, &may, 666).await, None);
        may.notify_one();
        assert_eq!(run(&gather, &may, 1).await, Some((1, 1)));
    }

    #[tokio::test]
    async fn who_waits_beside_a_call_that_fails_is_served_by_another() {
        let gather = TestCoalescer::new(Coalescer::pipelined(2));
        let (may, fails) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        // One is sent directly, one takes a slot, one the other slot; one is buffered.
        let mut replies = JoinSet::new();
        for (job, may) in [(1, &may), (2, &may), (666, &fails), (3, &may)] {
            let run = run(&gather, may, job);
            replies.spawn(async move { (job, run.await) });
            settle().await;
        }
        fails.notify_one();
        assert_eq!(replies.join_next().await.unwrap().unwrap(), (666, None));
        for job in 1..=3 {
            may.notify_one();
            assert_eq!(replies.join_next().await.unwrap().unwrap(), (job, Some((job, 1))));
        }
    }

    #[tokio::test]
    async fn what_comes_after_a_call_that_was_left_waits_for_its_end() {
        let (gather, may) = (Arc::new(Coalescer::pipelined(2)), Arc::new(Notify::new()));
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
        // One is sent directly, so that the next takes a slot, where it continues without its
        // caller.
        let (mut direct, mut leaves, mut later) = (run(1), run(2), run(3));
        tokio::select! {
            biased;
            _ = &mut direct => unreachable!("it was not answered yet"),
            _ = &mut leaves => unreachable!("it was not answered yet"),
            () = settle() => {}
        }
        drop(leaves);
        tokio::select! {
            biased;
            _ = &mut later => unreachable!("it was not answered yet"),
            () = settle() => {}
        }
        assert_eq!(*begun.lock().unwrap(), [1, 2]);
        may.notify_one();
        assert_eq!(direct.await, Some(1));
        may.notify_one();
        settle().await;
        assert_eq!(*begun.lock().unwrap(), [1, 2, 3]);
        may.notify_one();
        assert_eq!(later.await, Some(3));
    }

    #[tokio::test]
    async fn nobody_waits_for_one_that_went_alone() {
        let (gather, may) = (TestCoalescer::new(Coalescer::pipelined(1)), Arc::new(Notify::new()));
        let mut first = Box::pin(run(&gather, &may, 1));
        tokio::select! {
            biased;
            _ = &mut first => unreachable!("it was not answered yet"),
            () = yield_now() => {}
        }
        // It was sent before, so it is answered before, but it is not polled.
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
        let gather = Arc::new(Coalescer::pipelined(3));
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
            // The request is sent now; a task awaits its reply.
            match poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await {
                Poll::Ready(reply) => assert_eq!(reply, Some(job)),
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
        /// Sends a request when it is dropped, as an object in a dropped task may do.
        struct Last(Arc<Coalescer<u32, u32>>);
        impl Drop for Last {
            fn drop(&mut self) {
                let gather = Arc::clone(&self.0);
                let mut asking = Box::pin(async move { gather.run(1, |jobs| async move { jobs }).await });
                let waker = std::task::Waker::noop();
                assert!(asking.as_mut().poll(&mut Context::from_waker(waker)).is_ready());
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let last = Last(Arc::new(Coalescer::sequential()));
        runtime.spawn(async move {
            let _last = last;
            std::future::pending::<()>().await;
        });
        runtime.block_on(yield_now());
        drop(runtime);
    }
}
