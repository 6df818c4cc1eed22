//! One pool: the leases that count against it and the line before it. Pure but for the hints; whoever
//! calls says what time it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::{HashMap, HashMapExt};
use longshore_core::permits::{
    self, Answer, Ask, Grant, Holder, Leaving, Otherwise, PoolStats, Waits,
};
use longshore_core::{PermitId, Priority, Timestamp};
use tokio::sync::Notify;

/// A pool's books.
pub(super) struct Pool {
    max: u32,
    in_use: u32,
    fence: u64,
    /// When the last one came: the next comes later, whatever the clock does.
    came: Timestamp,
    held: HashMap<PermitId, Held>,
    line: BTreeMap<Place, Waiter>,
    places: HashMap<PermitId, Place>,
    /// No lease and no place ends before this: until then there is nothing to sweep.
    next_end: Timestamp,
    acquired: u64,
    timeouts: u64,
    expired: u64,
    waits: Waits,
}

struct Held {
    owner: Arc<str>,
    weight: u32,
    grant: Grant,
    since: Timestamp,
    until: Timestamp,
}

/// Where one stands: by rank, and then by when it came, which no two share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    rank: Timestamp,
    came: Timestamp,
}

struct Waiter {
    id: PermitId,
    owner: Arc<str>,
    weight: u32,
    priority: Priority,
    until: Timestamp,
    hint: Arc<Notify>,
    /// Told since it last asked: once is enough.
    told: bool,
}

const NEVER: Timestamp = Timestamp::from_micros(i64::MAX);

impl Pool {
    pub(super) fn new(max: u32) -> Self {
        Self {
            max,
            in_use: 0,
            fence: 0,
            came: Timestamp::ZERO,
            held: HashMap::new(),
            line: BTreeMap::new(),
            places: HashMap::new(),
            next_end: NEVER,
            acquired: 0,
            timeouts: 0,
            expired: 0,
            waits: Waits::default(),
        }
    }

    pub(super) fn ask(&mut self, ask: &Ask, now: Timestamp) -> Answer {
        self.sweep(now);
        if let Some(held) = self.held.get_mut(&ask.id) {
            held.until = now + ask.ttl;
            self.next_end = self.next_end.min(held.until);
            return Answer::Granted(held.grant);
        }
        if ask.weight > self.max {
            self.step_out(ask.id);
            self.tell();
            return Answer::TooHeavy { max: self.max };
        }
        let place = self.places.get(&ask.id).copied();
        if self.is_free_for(ask.weight) && self.is_first(place, ask.priority, now) {
            return Answer::Granted(self.grant(ask, place, now));
        }
        match ask.otherwise {
            Otherwise::GoAway => {
                self.step_out(ask.id);
                self.tell();
                Answer::Full
            }
            Otherwise::Wait(keeps) => self.wait(ask, place, now + keeps, now),
        }
    }

    fn is_free_for(&self, weight: u32) -> bool {
        weight <= self.max.saturating_sub(self.in_use)
    }

    fn is_first(&self, place: Option<Place>, priority: Priority, now: Timestamp) -> bool {
        let place = place.unwrap_or_else(|| self.next_place(priority, now));
        self.line.first_key_value().is_none_or(|(first, _)| place <= *first)
    }

    /// The place of one that comes now.
    fn next_place(&self, priority: Priority, now: Timestamp) -> Place {
        let came = now.max(self.came + Duration::from_micros(1));
        Place { rank: permits::rank(priority, came), came }
    }

    fn grant(&mut self, ask: &Ask, place: Option<Place>, now: Timestamp) -> Grant {
        self.step_out(ask.id);
        self.fence += 1;
        let waited = place.map_or(Duration::ZERO, |place| now.since(place.came));
        let grant = Grant { fence: self.fence, waited };
        let until = now + ask.ttl;
        let held = Held { owner: ask.owner.clone(), weight: ask.weight, grant, since: now, until };
        self.held.insert(ask.id, held);
        self.in_use += ask.weight;
        self.next_end = self.next_end.min(until);
        self.acquired += 1;
        self.waits.add(waited);
        grant
    }

    fn wait(
        &mut self,
        ask: &Ask,
        place: Option<Place>,
        until: Timestamp,
        now: Timestamp,
    ) -> Answer {
        let place = place.unwrap_or_else(|| self.join(ask, now));
        if let Some(waiter) = self.line.get_mut(&place) {
            (waiter.until, waiter.told) = (until, false);
        }
        self.next_end = self.next_end.min(until);
        // Leases are for the first in line to watch, places for those behind.
        let ahead = self.line.range(..place).map(|(_, waiter)| waiter.until);
        let (before, look) = ahead.fold((0, NEVER), |(n, look), end| (n + 1, look.min(end)));
        let look = if before == 0 { self.next_end } else { look };
        Answer::Waiting { before, look_again: look.since(now) }
    }

    fn join(&mut self, ask: &Ask, now: Timestamp) -> Place {
        let place = self.next_place(ask.priority, now);
        self.came = place.came;
        let waiter = Waiter {
            id: ask.id,
            owner: ask.owner.clone(),
            weight: ask.weight,
            priority: ask.priority,
            until: NEVER,
            hint: Arc::default(),
            told: false,
        };
        self.line.insert(place, waiter);
        self.places.insert(ask.id, place);
        place
    }

    /// What tells a waiter that its turn may have come; nothing for one that does not wait.
    pub(super) fn hint(&self, id: PermitId) -> Option<Arc<Notify>> {
        let place = self.places.get(&id)?;
        self.line.get(place).map(|waiter| Arc::clone(&waiter.hint))
    }

    /// Begins a lease anew; whether it is held.
    pub(super) fn extend(&mut self, id: PermitId, ttl: Duration, now: Timestamp) -> bool {
        self.sweep(now);
        let Some(held) = self.held.get_mut(&id) else { return false };
        held.until = now + ttl;
        self.next_end = self.next_end.min(held.until);
        true
    }

    pub(super) fn release(&mut self, ids: &[PermitId]) {
        for id in ids {
            self.give_back(*id);
            self.step_out(*id);
        }
        self.tell();
    }

    pub(super) fn leave(&mut self, id: PermitId, why: Leaving) {
        let was_there = self.give_back(id) | self.step_out(id);
        if was_there && why == Leaving::TimedOut {
            self.timeouts += 1;
        }
        self.tell();
    }

    /// Those that are too heavy now leave the line, to be told so when they ask again.
    pub(super) fn resize(&mut self, max: u32, now: Timestamp) {
        self.sweep(now);
        self.max = max;
        let heavy = self.line.values().filter(|waiter| waiter.weight > max);
        for id in heavy.map(|waiter| waiter.id).collect::<Vec<_>>() {
            self.step_out(id);
        }
        self.tell();
    }

    pub(super) fn reset(&mut self) {
        for waiter in self.line.values() {
            waiter.hint.notify_one();
        }
        *self = Self { fence: self.fence, came: self.came, ..Self::new(self.max) };
    }

    pub(super) fn stats(&mut self, now: Timestamp) -> PoolStats {
        self.sweep(now);
        let mut holders: Vec<Holder> =
            self.held.iter().map(|(id, held)| held.show(*id, now)).collect();
        holders.sort_by_key(|holder| holder.fence);
        PoolStats {
            max: self.max,
            in_use: self.in_use,
            acquired: self.acquired,
            timeouts: self.timeouts,
            expired: self.expired,
            waits: self.waits,
            holders,
            waiting: self.line.iter().map(|(place, waiter)| waiter.show(*place, now)).collect(),
            quarantine: None,
        }
    }

    /// Drops what has run out.
    fn sweep(&mut self, now: Timestamp) {
        if now < self.next_end {
            return;
        }
        let ended = self.held.iter().filter(|(_, held)| held.until <= now).map(|(id, _)| *id);
        for id in ended.collect::<Vec<_>>() {
            self.give_back(id);
            self.expired += 1;
        }
        let gone = self.line.values().filter(|waiter| waiter.until <= now).map(|waiter| waiter.id);
        for id in gone.collect::<Vec<_>>() {
            self.step_out(id);
        }
        let leases = self.held.values().map(|held| held.until);
        let places = self.line.values().map(|waiter| waiter.until);
        self.next_end = leases.chain(places).min().unwrap_or(NEVER);
        self.tell();
    }

    fn give_back(&mut self, id: PermitId) -> bool {
        let Some(held) = self.held.remove(&id) else { return false };
        self.in_use -= held.weight;
        true
    }

    /// Leaves the line, and wakes whoever waits for its turn.
    fn step_out(&mut self, id: PermitId) -> bool {
        if self.places.is_empty() {
            return false;
        }
        let Some(place) = self.places.remove(&id) else { return false };
        if let Some(waiter) = self.line.remove(&place) {
            waiter.hint.notify_one();
        }
        true
    }

    /// Hints to those for whom there is room now, in order.
    fn tell(&mut self) {
        let mut free = self.max.saturating_sub(self.in_use);
        for waiter in self.line.values_mut() {
            let Some(rest) = free.checked_sub(waiter.weight) else { return };
            free = rest;
            if !std::mem::replace(&mut waiter.told, true) {
                waiter.hint.notify_one();
            }
        }
    }
}

impl Held {
    fn show(&self, id: PermitId, now: Timestamp) -> Holder {
        Holder {
            id,
            owner: self.owner.as_ref().to_owned(),
            weight: self.weight,
            fence: self.grant.fence,
            held: now.since(self.since),
            left: self.until.since(now),
        }
    }
}

impl Waiter {
    fn show(&self, place: Place, now: Timestamp) -> permits::Waiter {
        permits::Waiter {
            id: self.id,
            owner: self.owner.as_ref().to_owned(),
            weight: self.weight,
            priority: self.priority,
            waited: now.since(place.came),
        }
    }
}
