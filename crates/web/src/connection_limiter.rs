//! Limits concurrent connections. At the limit, an idle connection is closed to admit a new one.
//!
//! Otherwise many idle connections could block all others until their timeout. A connection with an active
//! request is never closed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Maximum number of connections examined to find an idle one.
const MAX_SCAN: usize = 1_000;
/// Delay between attempts to find an idle connection, while all are active.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The limiter.
pub(crate) struct ConnectionLimiter {
    permits: Arc<Semaphore>,
    /// Open connections, roughly in order of arrival.
    slots: VecDeque<Weak<ConnectionSlot>>,
}

/// The slot of one connection, released on drop.
pub(crate) struct ConnectionSlot {
    /// Active requests.
    active: AtomicUsize,
    has_served: AtomicBool,
    evicted: Notify,
    _permit: OwnedSemaphorePermit,
}

/// Marks a request as active until it is dropped.
pub(crate) struct ActiveRequest(Arc<ConnectionSlot>);

impl ConnectionLimiter {
    pub(crate) fn new(count: usize) -> Self {
        let permits = Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Self { permits, slots: VecDeque::new() }
    }

    /// Waits for a free slot. Cancel-safe.
    pub(crate) async fn acquire(&mut self) -> Arc<ConnectionSlot> {
        loop {
            let permits = Arc::clone(&self.permits);
            if permits.available_permits() == 0 {
                self.evict_idle();
            }
            let waited = tokio::time::timeout(RETRY_INTERVAL, permits.acquire_owned()).await;
            // The semaphore is never closed.
            let Ok(Ok(permit)) = waited else { continue };
            let slot = Arc::new(ConnectionSlot {
                active: AtomicUsize::new(0),
                has_served: AtomicBool::new(false),
                evicted: Notify::new(),
                _permit: permit,
            });
            self.slots.push_back(Arc::downgrade(&slot));
            self.remove_closed();
            return slot;
        }
    }

    /// Asks an idle connection to close; active ones move to the end of the queue.
    fn evict_idle(&mut self) {
        for _ in 0..MAX_SCAN.min(self.slots.len()) {
            let Some(next) = self.slots.pop_front() else { return };
            let Some(slot) = next.upgrade() else { continue };
            if slot.active.load(Ordering::Relaxed) == 0 {
                return slot.evicted.notify_one();
            }
            self.slots.push_back(next);
        }
    }

    /// Removes closed connections when the queue would grow.
    fn remove_closed(&mut self) {
        if self.slots.len() == self.slots.capacity() {
            self.slots.retain(|slot| slot.strong_count() > 0);
        }
    }
}

impl ConnectionSlot {
    /// Marks a request as active.
    pub(crate) fn begin_request(self: &Arc<Self>) -> ActiveRequest {
        self.has_served.store(true, Ordering::Relaxed);
        self.active.fetch_add(1, Ordering::Relaxed);
        ActiveRequest(Arc::clone(self))
    }

    /// Whether a request is active.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) > 0
    }

    /// Whether the connection has had a request: part of a response may still be in transit.
    pub(crate) fn has_served(&self) -> bool {
        self.has_served.load(Ordering::Relaxed)
    }

    /// Waits until the connection is asked to close.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_says_nothing_gives_way_and_who_is_answered_does_not() {
        let mut limiter = ConnectionLimiter::new(2);
        let (first, second) = (limiter.acquire().await, limiter.acquire().await);
        let active = first.begin_request();
        limiter.evict_idle();
        second.evicted().await;
        drop(second);
        let third = limiter.acquire().await;
        let also_active = third.begin_request();
        limiter.evict_idle();
        assert!(tokio::time::timeout(RETRY_INTERVAL, third.evicted()).await.is_err());
        drop((active, also_active));
        limiter.evict_idle();
        first.evicted().await;
    }
}
