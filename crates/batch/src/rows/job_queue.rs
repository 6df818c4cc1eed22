//! Runs blocking calls on a bounded number of threads, in order.
//!
//! A thread takes the next call itself: with a semaphore around `spawn_blocking`, a call may find the thread of the one
//! before not idle yet, and the runtime starts another.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

/// Calls that wait for a thread.
pub(super) struct JobQueue {
    max_threads: usize,
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Job>,
    threads: usize,
}

impl JobQueue {
    /// A queue for this many threads.
    pub(super) fn new(max_threads: usize) -> Self {
        Self { max_threads, state: Mutex::default() }
    }

    /// Runs `job` on one of the runtime's blocking threads.
    pub(super) fn submit(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        state.waiting.push_back(Box::new(job));
        if state.threads < self.max_threads {
            state.threads += 1;
            let queue = Arc::clone(self);
            drop(tokio::task::spawn_blocking(move || queue.work()));
        }
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            // Its caller notices that the answer's sender is gone.
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::warn!("a call of a database driver panicked");
            }
        }
    }

    /// The next call. `None` ends the thread.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        let job = state.waiting.pop_front();
        state.threads -= usize::from(job.is_none());
        job
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    #[tokio::test]
    async fn calls_share_few_threads_and_outlive_one_that_panics() {
        let (queue, running) = (Arc::new(JobQueue::new(3)), Arc::new(AtomicUsize::new(0)));
        let (done, mut ended) = unbounded_channel();
        for number in 0..200 {
            let (running, done) = (Arc::clone(&running), done.clone());
            queue.submit(move || {
                let before = running.fetch_add(1, Ordering::SeqCst);
                std::thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
                assert_ne!(number % 10, 7, "a driver's mistake");
                done.send(before).unwrap();
            });
        }
        drop(done);
        let mut count = 0;
        while let Some(before) = ended.recv().await {
            assert!(before < 3, "{before} others ran");
            count += 1;
        }
        assert_eq!(count, 180);
    }
}
