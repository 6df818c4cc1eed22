//! One pool: its leases and its wait queue. Pure but for the wake-ups; the caller passes the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::{HashMap, HashMapExt};
use longshore_core::permits::{
    self, AcquireRequest, AcquireResult, Holder, IfFull, PermitGrant, PoolStats, WaitHistogram,
};
use longshore_core::{PermitId, Priority, Timestamp};
use tokio::sync::Notify;

/// The state of a pool.
pub(super) struct PoolState {
    max: u32,
    in_use: u32,
    fence: u64,
    /// Arrival of the last waiter; the next one's is later, whatever the clock does.
    last_arrival: Timestamp,
    leases: HashMap<PermitId, PermitLease>,
    wait_queue: BTreeMap<QueuePosition, QueuedWaiter>,
    positions: HashMap<PermitId, QueuePosition>,
    /// Nothing expires before this time: until then there is nothing to sweep.
    next_expiry: Timestamp,
    acquired: u64,
    timeouts: u64,
    expired: u64,
    waits: WaitHistogram,
}

struct PermitLease {
    owner: Arc<str>,
    weight: u32,
    grant: PermitGrant,
    since: Timestamp,
    until: Timestamp,
}

/// A position in the wait queue: by rank, then by arrival, which is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct QueuePosition {
    rank: Timestamp,
    arrived_at: Timestamp,
}

struct QueuedWaiter {
    id: PermitId,
    owner: Arc<str>,
    weight: u32,
    priority: Priority,
    until: Timestamp,
    wakeup: Arc<Notify>,
    /// Notified since its last ask; once is enough.
    is_notified: bool,
}

const NEVER: Timestamp = Timestamp::from_micros(i64::MAX);

impl PoolState {
    pub(super) fn new(max: u32) -> Self {
        Self {
            max,
            in_use: 0,
            fence: 0,
            last_arrival: Timestamp::ZERO,
            leases: HashMap::new(),
            wait_queue: BTreeMap::new(),
            positions: HashMap::new(),
            next_expiry: NEVER,
            acquired: 0,
            timeouts: 0,
            expired: 0,
            waits: WaitHistogram::default(),
        }
    }

    pub(super) fn ask(&mut self, ask: &AcquireRequest, now: Timestamp) -> AcquireResult {
        self.expire(now);
        if let Some(held) = self.leases.get_mut(&ask.id) {
            held.until = now + ask.ttl;
            self.next_expiry = self.next_expiry.min(held.until);
            return AcquireResult::Granted(held.grant);
        }
        if ask.weight > self.max {
            self.dequeue(ask.id);
            self.wake_eligible();
            return AcquireResult::TooHeavy { max: self.max };
        }
        let position = self.positions.get(&ask.id).copied();
        if self.has_room_for(ask.weight) && self.is_first(position, ask.priority, now) {
            return AcquireResult::Granted(self.grant(ask, position, now));
        }
        match ask.if_full {
            IfFull::Fail => {
                self.dequeue(ask.id);
                self.wake_eligible();
                AcquireResult::Full
            }
            IfFull::Wait(queue_ttl) => self.wait(ask, position, now + queue_ttl, now),
        }
    }

    fn has_room_for(&self, weight: u32) -> bool {
        weight <= self.max.saturating_sub(self.in_use)
    }

    fn is_first(&self, position: Option<QueuePosition>, priority: Priority, now: Timestamp) -> bool {
        let position = position.unwrap_or_else(|| self.next_position(priority, now));
        self.wait_queue.first_key_value().is_none_or(|(first, _)| position <= *first)
    }

    /// The position of a request that arrives now.
    fn next_position(&self, priority: Priority, now: Timestamp) -> QueuePosition {
        let arrived_at = now.max(self.last_arrival + Duration::from_micros(1));
        QueuePosition { rank: permits::wait_rank(priority, arrived_at), arrived_at }
    }

    fn grant(
        &mut self,
        ask: &AcquireRequest,
        position: Option<QueuePosition>,
        now: Timestamp,
    ) -> PermitGrant {
        self.dequeue(ask.id);
        self.fence += 1;
        let waited = position.map_or(Duration::ZERO, |position| now.since(position.arrived_at));
        let grant = PermitGrant { fence: self.fence, waited };
        let until = now + ask.ttl;
        let held = PermitLease { owner: ask.owner.clone(), weight: ask.weight, grant, since: now, until };
        self.leases.insert(ask.id, held);
        self.in_use += ask.weight;
        self.next_expiry = self.next_expiry.min(until);
        self.acquired += 1;
        self.waits.add(waited);
        grant
    }

    fn wait(
        &mut self,
        ask: &AcquireRequest,
        position: Option<QueuePosition>,
        until: Timestamp,
        now: Timestamp,
    ) -> AcquireResult {
        let position = position.unwrap_or_else(|| self.enqueue(ask, now));
        if let Some(waiter) = self.wait_queue.get_mut(&position) {
            (waiter.until, waiter.is_notified) = (until, false);
        }
        self.next_expiry = self.next_expiry.min(until);
        // The first waiter watches leases to expire; the others watch the waiters before them.
        let ahead = self.wait_queue.range(..position).map(|(_, waiter)| waiter.until);
        let (ahead_count, recheck_at) =
            ahead.fold((0, NEVER), |(n, recheck_at), end| (n + 1, recheck_at.min(end)));
        let recheck_at = if ahead_count == 0 { self.next_expiry } else { recheck_at };
        AcquireResult::Waiting { position: ahead_count, retry_after: recheck_at.since(now) }
    }

    fn enqueue(&mut self, ask: &AcquireRequest, now: Timestamp) -> QueuePosition {
        let position = self.next_position(ask.priority, now);
        self.last_arrival = position.arrived_at;
        let waiter = QueuedWaiter {
            id: ask.id,
            owner: ask.owner.clone(),
            weight: ask.weight,
            priority: ask.priority,
            until: NEVER,
            wakeup: Arc::default(),
            is_notified: false,
        };
        self.wait_queue.insert(position, waiter);
        self.positions.insert(ask.id, position);
        position
    }

    /// The wake-up of a waiter; `None` if it does not wait.
    pub(super) fn wakeup(&self, id: PermitId) -> Option<Arc<Notify>> {
        let position = self.positions.get(&id)?;
        self.wait_queue.get(position).map(|waiter| Arc::clone(&waiter.wakeup))
    }

    /// Renews a lease. Returns whether it is held.
    pub(super) fn extend(&mut self, id: PermitId, ttl: Duration, now: Timestamp) -> bool {
        self.expire(now);
        let Some(held) = self.leases.get_mut(&id) else { return false };
        held.until = now + ttl;
        self.next_expiry = self.next_expiry.min(held.until);
        true
    }

    pub(super) fn release(&mut self, ids: &[PermitId], timed_out: bool) {
        for id in ids {
            let was_there = self.end_lease(*id) | self.dequeue(*id);
            self.timeouts += u64::from(was_there && timed_out);
        }
        self.wake_eligible();
    }

    /// Waiters that are too heavy now leave the queue; their next ask returns the error.
    pub(super) fn resize(&mut self, max: u32, now: Timestamp) {
        self.expire(now);
        self.max = max;
        let heavy = self.wait_queue.values().filter(|waiter| waiter.weight > max);
        for id in heavy.map(|waiter| waiter.id).collect::<Vec<_>>() {
            self.dequeue(id);
        }
        self.wake_eligible();
    }

    pub(super) fn reset(&mut self) {
        for waiter in self.wait_queue.values() {
            waiter.wakeup.notify_one();
        }
        *self = Self { fence: self.fence, last_arrival: self.last_arrival, ..Self::new(self.max) };
    }

    pub(super) fn stats(&mut self, now: Timestamp) -> PoolStats {
        self.expire(now);
        let mut holders: Vec<Holder> = self.leases.iter().map(|(id, held)| held.show(*id, now)).collect();
        holders.sort_by_key(|holder| holder.fence);
        PoolStats {
            max: self.max,
            in_use: self.in_use,
            acquired: self.acquired,
            timeouts: self.timeouts,
            expired: self.expired,
            waits: self.waits,
            holders,
            waiting: self.wait_queue.iter().map(|(position, waiter)| waiter.show(*position, now)).collect(),
            quarantine: None,
        }
    }

    /// Removes expired leases and waiters.
    fn expire(&mut self, now: Timestamp) {
        if now < self.next_expiry {
            return;
        }
        let ended = self.leases.iter().filter(|(_, held)| held.until <= now).map(|(id, _)| *id);
        for id in ended.collect::<Vec<_>>() {
            self.end_lease(id);
            self.expired += 1;
        }
        let gone = self.wait_queue.values().filter(|waiter| waiter.until <= now).map(|waiter| waiter.id);
        for id in gone.collect::<Vec<_>>() {
            self.dequeue(id);
        }
        let leases = self.leases.values().map(|held| held.until);
        let waiters = self.wait_queue.values().map(|waiter| waiter.until);
        self.next_expiry = leases.chain(waiters).min().unwrap_or(NEVER);
        self.wake_eligible();
    }

    fn end_lease(&mut self, id: PermitId) -> bool {
        let Some(held) = self.leases.remove(&id) else { return false };
        self.in_use -= held.weight;
        true
    }

    /// Leaves the wait queue, and wakes the task that waits.
    fn dequeue(&mut self, id: PermitId) -> bool {
        if self.positions.is_empty() {
            return false;
        }
        let Some(position) = self.positions.remove(&id) else { return false };
        if let Some(waiter) = self.wait_queue.remove(&position) {
            waiter.wakeup.notify_one();
        }
        true
    }

    /// Wakes the waiters that fit now, in order.
    fn wake_eligible(&mut self) {
        let mut free = self.max.saturating_sub(self.in_use);
        for waiter in self.wait_queue.values_mut() {
            let Some(rest) = free.checked_sub(waiter.weight) else { return };
            free = rest;
            if !std::mem::replace(&mut waiter.is_notified, true) {
                waiter.wakeup.notify_one();
            }
        }
    }
}

impl PermitLease {
    fn show(&self, id: PermitId, now: Timestamp) -> Holder {
        Holder {
            id,
            owner: self.owner.as_ref().to_owned(),
            weight: self.weight,
            fence: self.grant.fence,
            held_for: now.since(self.since),
            expires_in: self.until.since(now),
        }
    }
}

impl QueuedWaiter {
    fn show(&self, position: QueuePosition, now: Timestamp) -> permits::Waiter {
        permits::Waiter {
            id: self.id,
            owner: self.owner.as_ref().to_owned(),
            weight: self.weight,
            priority: self.priority,
            waited: now.since(position.arrived_at),
        }
    }
}
