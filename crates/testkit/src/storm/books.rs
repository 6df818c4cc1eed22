//! What the witness knows. Pure: whoever calls says what time it is.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use longshore_core::PermitId;

/// The witness' books.
#[derive(Debug)]
pub(super) struct Books {
    ttl: Duration,
    place: Duration,
    asks: HashMap<PermitId, Asked>,
    held: HashMap<PermitId, Held>,
    /// Every maximum that the pool had, or may have had.
    sizes: Vec<Size>,
    /// Grows with everything that is heard.
    order: u64,
    /// Grows with every restart of the server.
    pub(super) life: u64,
    pub(super) total: u64,
    pub(super) most: u32,
    /// What must not have been.
    pub(super) wrongs: Vec<String>,
}

#[derive(Debug)]
struct Asked {
    /// Before the last ask or extension was sent.
    sent: Instant,
    /// The server's life then. What the server answers may be heard of in a later one.
    life: u64,
    /// It was not given a permit before this.
    empty_handed: Instant,
    first: u64,
    /// It is known to stand in line: since when, and in which life of the server.
    queued: Option<(u64, u64)>,
    /// Whether its place may have been lost.
    doubtful: bool,
    fence: Option<u64>,
}

#[derive(Debug)]
struct Held {
    weight: u32,
    fence: u64,
    until: Instant,
}

#[derive(Debug)]
struct Size {
    max: u32,
    to: Option<Instant>,
}

impl Books {
    pub(super) fn new(ttl: Duration, place: Duration, max: u32) -> Self {
        Self {
            ttl,
            place,
            asks: HashMap::new(),
            held: HashMap::new(),
            sizes: vec![Size { max, to: None }],
            order: 0,
            life: 0,
            total: 0,
            most: 0,
            wrongs: Vec::new(),
        }
    }

    /// Somebody is about to ask, or to extend.
    pub(super) fn asks(&mut self, id: PermitId, now: Instant) {
        self.order += 1;
        let life = self.life;
        let fresh = Asked {
            sent: now,
            life,
            empty_handed: now,
            first: self.order,
            queued: None,
            doubtful: false,
            fence: None,
        };
        let asked = self.asks.entry(id).or_insert(fresh);
        (asked.sent, asked.life) = (now, life);
    }

    /// It was told to wait.
    pub(super) fn waits(&mut self, id: PermitId, now: Instant) {
        self.order += 1;
        let Some(asked) = self.asks.get_mut(&id) else { return };
        // Its place began after `empty_handed` and was begun anew before `now`.
        asked.doubtful |= asked.queued.is_some() && now - asked.empty_handed >= self.place;
        asked.empty_handed = asked.sent;
        asked.queued.get_or_insert((self.order, asked.life));
    }

    /// It was given a permit.
    pub(super) fn holds(&mut self, id: PermitId, fence: u64, weight: u32, now: Instant) {
        let life = self.life;
        let Some(asked) = self.asks.get_mut(&id) else { return };
        asked.doubtful |= asked.queued.is_some_and(|(_, since)| since != life);
        asked.doubtful |= now - asked.empty_handed >= self.place;
        asked.fence = Some(fence);
        let until = asked.sent + self.ttl;
        self.total += 1;
        self.held.insert(id, Held { weight, fence, until });
        self.judge(now);
    }

    /// Its lease began anew.
    pub(super) fn extended(&mut self, id: PermitId, now: Instant) {
        let Some(asked) = self.asks.get(&id) else { return };
        if let Some(held) = self.held.get_mut(&id) {
            held.until = asked.sent + self.ttl;
        }
        self.judge(now);
    }

    /// It is about to give its permit back, or was told that it is lost.
    pub(super) fn drops(&mut self, id: PermitId) {
        self.held.remove(&id);
    }

    /// The pool may get this maximum from now on.
    pub(super) fn resizing(&mut self, max: u32) {
        self.sizes.push(Size { max, to: None });
    }

    /// The pool has the last of them.
    pub(super) fn resized(&mut self, now: Instant) {
        let last = self.sizes.len() - 1;
        for size in &mut self.sizes[..last] {
            size.to.get_or_insert(now);
        }
    }

    /// No more may be held than there was room for when the last of them was given.
    fn judge(&mut self, now: Instant) {
        self.held.retain(|_, held| held.until > now);
        let sum: u32 = self.held.values().map(|held| held.weight).sum();
        self.most = self.most.max(sum);
        let Some((last, _)) = self.held.iter().max_by_key(|(_, held)| held.fence) else { return };
        let given_after = self.asks[last].empty_handed;
        let sizes = self.sizes.iter().filter(|size| size.to.is_none_or(|to| to >= given_after));
        let room = sizes.map(|size| size.max).max().unwrap_or(0);
        if sum > room {
            self.wrongs.push(format!("{sum} were held of {room}: {:?}", self.held));
        }
    }

    /// Those who stood in line before another came were served before it.
    pub(super) fn check_order(&mut self) {
        let mut queued: Vec<(u64, u64, PermitId)> = Vec::new();
        for (id, asked) in &self.asks {
            if let (Some((since, _)), Some(fence), false) =
                (asked.queued, asked.fence, asked.doubtful)
            {
                queued.push((since, fence, *id));
            }
        }
        queued.sort_unstable_by_key(|(since, ..)| *since);
        let mut came: Vec<(u64, u64, PermitId)> = Vec::new();
        came.extend(
            self.asks.iter().filter_map(|(id, asked)| Some((asked.first, asked.fence?, *id))),
        );
        came.sort_unstable_by_key(|(first, ..)| *first);
        let (mut waiting, mut latest) = (queued.iter().peekable(), None);
        for (first, fence, id) in came {
            while let Some(before) = waiting.next_if(|(since, ..)| *since < first) {
                latest = latest.max(Some((before.1, before.2)));
            }
            if let Some((passed, whom)) = latest.filter(|(passed, _)| *passed > fence) {
                self.wrongs.push(format!("{id} ({fence}) overtook {whom} ({passed})"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(2);
    const PLACE: Duration = Duration::from_secs(5);

    fn books(max: u32) -> (Books, Instant) {
        let now = Instant::now();
        (Books::new(LEASE, PLACE, max), now)
    }

    fn grant(books: &mut Books, fence: u64, now: Instant) -> PermitId {
        let id = PermitId::new();
        books.asks(id, now);
        books.holds(id, fence, 1, now);
        id
    }

    #[test]
    fn one_too_many_is_seen() {
        let (mut books, now) = books(1);
        let first = grant(&mut books, 1, now);
        books.drops(first);
        grant(&mut books, 2, now);
        assert_eq!(books.wrongs, [""; 0]);
        grant(&mut books, 3, now);
        assert_eq!(books.wrongs.len(), 1);
        grant(&mut books, 4, now + LEASE);
        assert_eq!(books.wrongs.len(), 1, "the others have run out");
    }

    #[test]
    fn what_was_given_before_the_pool_shrank_may_stay_and_nothing_more() {
        let (mut books, now) = books(2);
        let later = now + Duration::from_millis(1);
        grant(&mut books, 1, now);
        let slow = PermitId::new();
        books.asks(slow, now);
        books.resizing(1);
        books.resized(later);
        books.holds(slow, 2, 1, later);
        assert_eq!(books.wrongs, [""; 0], "it may have been given before");
        grant(&mut books, 3, later + Duration::from_millis(1));
        assert_eq!(books.wrongs.len(), 1);
    }

    #[test]
    fn one_that_overtakes_is_seen() {
        let (mut books, now) = books(9);
        let patient = PermitId::new();
        books.asks(patient, now);
        books.waits(patient, now);
        grant(&mut books, 1, now);
        books.asks(patient, now);
        books.holds(patient, 2, 1, now);
        books.check_order();
        assert_eq!(books.wrongs.len(), 1);
    }

    #[test]
    fn one_whose_place_was_lost_was_not_overtaken() {
        let (mut books, now) = books(9);
        let late = PermitId::new();
        books.asks(late, now);
        books.waits(late, now);
        grant(&mut books, 1, now);
        books.asks(late, now + PLACE);
        books.holds(late, 2, 1, now + PLACE);
        books.check_order();
        assert_eq!(books.wrongs, [""; 0]);
    }

    #[test]
    fn one_that_queued_before_a_restart_that_was_heard_of_sooner_was_not_overtaken() {
        let (mut books, now) = books(9);
        let before = PermitId::new();
        books.asks(before, now);
        books.life += 1;
        books.waits(before, now);
        grant(&mut books, 1, now);
        books.asks(before, now);
        books.holds(before, 2, 1, now);
        books.check_order();
        assert_eq!(books.wrongs, [""; 0]);
    }
}
