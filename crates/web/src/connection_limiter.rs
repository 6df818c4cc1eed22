//! Limits concurrent connections, in all and per address. At the limit of all, an idle connection is closed to
//! admit a new one; at an address's limit, its new connection is closed.
//!
//! Otherwise many idle connections could block all others until their timeout. A connection with an active
//! request is never closed.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
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
    addresses: Arc<AddressCounts>,
    max_per_address: usize,
    /// Addresses of proxies, each of which connects for many clients.
    proxies: BTreeSet<IpAddr>,
}

/// Open connections by address.
#[derive(Default)]
struct AddressCounts(Mutex<HashMap<IpAddr, usize>>);

/// The slot of one connection, released on drop.
pub(crate) struct ConnectionSlot {
    /// Active requests.
    active: AtomicUsize,
    has_served: AtomicBool,
    evicted: Notify,
    from: IpAddr,
    addresses: Arc<AddressCounts>,
    _permit: OwnedSemaphorePermit,
}

/// Marks a request as active until it is dropped.
pub(crate) struct ActiveRequest(Arc<ConnectionSlot>);

impl ConnectionLimiter {
    pub(crate) fn new(max: usize, max_per_address: usize, proxies: BTreeSet<IpAddr>) -> Self {
        let permits = Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS)));
        Self { permits, slots: VecDeque::new(), addresses: Arc::default(), max_per_address, proxies }
    }

    /// Whether an address may have one more connection. Proxies, and all of this machine, may.
    pub(crate) fn has_room_for(&self, from: IpAddr) -> bool {
        let canonical = from.to_canonical();
        canonical.is_loopback()
            || self.proxies.contains(&canonical)
            || self.addresses.0.lock().unwrap_or_else(PoisonError::into_inner).get(&from)
                < Some(&self.max_per_address)
    }

    /// Waits for a free connection. Cancel-safe.
    pub(crate) async fn acquire(&mut self) -> OwnedSemaphorePermit {
        loop {
            let permits = Arc::clone(&self.permits);
            if permits.available_permits() == 0 {
                self.evict_idle();
            }
            let waited = tokio::time::timeout(RETRY_INTERVAL, permits.acquire_owned()).await;
            // The semaphore is never closed.
            if let Ok(Ok(permit)) = waited {
                return permit;
            }
        }
    }

    /// Opens the slot of a connection from an address.
    pub(crate) fn open(&mut self, permit: OwnedSemaphorePermit, from: IpAddr) -> Arc<ConnectionSlot> {
        *self.addresses.0.lock().unwrap_or_else(PoisonError::into_inner).entry(from).or_default() += 1;
        let slot = Arc::new(ConnectionSlot {
            active: AtomicUsize::new(0),
            has_served: AtomicBool::new(false),
            evicted: Notify::new(),
            from,
            addresses: Arc::clone(&self.addresses),
            _permit: permit,
        });
        self.slots.push_back(Arc::downgrade(&slot));
        self.remove_closed();
        slot
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

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut counts = self.addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.from);
            }
        }
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

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    async fn open(limiter: &mut ConnectionLimiter) -> Arc<ConnectionSlot> {
        let permit = limiter.acquire().await;
        limiter.open(permit, CLIENT)
    }

    #[tokio::test]
    async fn one_address_cannot_take_all_connections() {
        let proxy: IpAddr = "192.0.2.9".parse().unwrap();
        let mut limiter = ConnectionLimiter::new(8, 2, BTreeSet::from([proxy]));
        let held = [open(&mut limiter).await, open(&mut limiter).await];
        assert!(!limiter.has_room_for(CLIENT));
        assert!(limiter.has_room_for("192.0.2.2".parse().unwrap()));
        assert!(limiter.has_room_for("127.0.0.1".parse().unwrap()), "proxies connect from here");
        let mut of_proxy = Vec::new();
        for _ in 0..3 {
            let permit = limiter.acquire().await;
            of_proxy.push(limiter.open(permit, proxy));
        }
        assert!(limiter.has_room_for(proxy), "a proxy connects for many clients");
        drop((held, of_proxy));
        assert!(limiter.has_room_for(CLIENT));
        assert!(limiter.addresses.0.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn who_says_nothing_gives_way_and_who_is_answered_does_not() {
        let mut limiter = ConnectionLimiter::new(2, 2, BTreeSet::new());
        let (first, second) = (open(&mut limiter).await, open(&mut limiter).await);
        let active = first.begin_request();
        limiter.evict_idle();
        second.evicted().await;
        drop(second);
        let third = open(&mut limiter).await;
        let also_active = third.begin_request();
        limiter.evict_idle();
        assert!(tokio::time::timeout(RETRY_INTERVAL, third.evicted()).await.is_err());
        drop((active, also_active));
        limiter.evict_idle();
        first.evicted().await;
    }
}
