//! Runs that only wait: for a limit, say, that their tenant has reached. They hold slots that others
//! could use.
//!
//! A run says that it waits ([`Context::waits`](crate::Context::waits)). While nobody does, nothing
//! changes. Else the worker fills no more than half of its slots with units that may have to wait: when
//! so many wait, it passes over the tenants whose runs waited lately, and takes from the others. Should
//! more than three quarters of the slots be held all the same (nobody else was there when they were
//! claimed), the youngest are told that their slots are wanted, and go back to their place in the queue.
//!
//! Those who wait are so served in the order in which they were claimed, which is the fair one, and
//! nothing is claimed in vain again and again.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_core::TenantId;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// Who waits for less than this has hardly waited.
const NOTICED: Duration = Duration::from_millis(20);

/// How long a run stays in its slot at least, about.
const STAYS: Duration = Duration::from_millis(250);

/// A tenant counts as one whose runs wait for so many times as long as the last one did: its next turn
/// may be far away.
const REMEMBERED: u32 = 10;
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Tenants remembered at most before those are dropped that need not be.
const MANY: usize = 1000;

/// What is known of the runs of a worker that wait.
#[derive(Debug)]
pub(crate) struct Waits {
    book: Mutex<Book>,
    /// For intake: fewer wait.
    pub(crate) eased: Notify,
}

#[derive(Debug)]
struct Book {
    slots: u32,
    next: u64,
    /// The oldest first.
    waiting: BTreeMap<u64, (TenantId, Instant)>,
    /// Units that were claimed a moment ago, of tenants whose runs wait: they will too, most likely.
    expected: Vec<(TenantId, Instant)>,
    /// Tenants whose runs waited, and until when that counts.
    limited: HashMap<TenantId, Instant>,
}

/// How a claim is bounded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Restraint {
    /// Units at most.
    pub(crate) most: u32,
    /// Not from these tenants.
    pub(crate) except: Vec<TenantId>,
}

impl Restraint {
    const NONE: Self = Self { most: u32::MAX, except: Vec::new() };

    pub(crate) fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

impl Waits {
    pub(crate) fn new(slots: u32) -> Self {
        let (waiting, expected, limited) = (BTreeMap::new(), Vec::new(), HashMap::new());
        let book = Mutex::new(Book { slots, next: 0, waiting, expected, limited });
        Self { book, eased: Notify::new() }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a claim of a worker with so many slots is to be bounded.
    pub(crate) fn restraint(&self, slots: u32, now: Instant) -> Restraint {
        let mut book = self.book();
        book.slots = slots;
        book.restraint(now)
    }

    /// Units of these tenants were claimed.
    pub(crate) fn claimed<'t>(&self, tenants: impl Iterator<Item = &'t TenantId>, now: Instant) {
        let mut book = self.book();
        if book.waiting.is_empty() && book.limited.is_empty() {
            return;
        }
        let expected: Vec<(TenantId, Instant)> =
            tenants.filter(|who| book.is_limited(who, now)).map(|who| (who.clone(), now)).collect();
        book.expected.extend(expected);
    }

    /// In how long it is known of all units whether they wait, should that not be known now.
    pub(crate) fn known_in(&self) -> Option<Duration> {
        (!self.book().expected.is_empty()).then_some(NOTICED)
    }

    /// A run of this tenant begins to wait.
    pub(crate) fn begin(self: &Arc<Self>, tenant: &TenantId) -> Waiting {
        let mut book = self.book();
        if let Some(at) = book.expected.iter().position(|(who, _)| who == tenant) {
            book.expected.remove(at);
        }
        book.next += 1;
        let id = book.next;
        book.waiting.insert(id, (tenant.clone(), Instant::now()));
        Waiting { waits: Arc::clone(self), id }
    }
}

impl Book {
    fn restraint(&mut self, now: Instant) -> Restraint {
        self.expected.retain(|(_, since)| now < *since + NOTICED);
        let count = self.waiting(now).count() + self.expected.len();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        match self.slots / 2 {
            _ if count == 0 => Restraint::NONE,
            half if count < half => Restraint { most: half - count, ..Restraint::NONE },
            _ => Restraint { except: self.passed_over(now), ..Restraint::NONE },
        }
    }

    /// Those who count. Of a tenant that did not have to wait lately, one who has hardly waited is
    /// perhaps about to go on.
    fn waiting(&self, now: Instant) -> impl Iterator<Item = &TenantId> {
        let counts = move |tenant: &TenantId, since: Instant| {
            now >= since + NOTICED || self.is_limited(tenant, now)
        };
        self.waiting.values().filter(move |(who, since)| counts(who, *since)).map(|(who, _)| who)
    }

    fn is_limited(&self, tenant: &TenantId, now: Instant) -> bool {
        self.limited.get(tenant).is_some_and(|until| now < *until)
    }

    fn passed_over(&self, now: Instant) -> Vec<TenantId> {
        let limited = self.limited.iter().filter(|(_, until)| now < **until).map(|(who, _)| who);
        let mut tenants: Vec<TenantId> = limited.chain(self.waiting(now)).cloned().collect();
        tenants.sort_unstable();
        tenants.dedup();
        tenants
    }

    fn end(&mut self, id: u64, now: Instant) {
        let Some((tenant, since)) = self.waiting.remove(&id) else { return };
        let waited = now - since;
        if waited < NOTICED {
            return;
        }
        if self.limited.len() > MANY {
            self.limited.retain(|_, until| now < *until);
        }
        let until = now + (waited * REMEMBERED).clamp(SHORTEST, LONGEST);
        let known = self.limited.entry(tenant).or_insert(until);
        *known = until.max(*known);
    }

    /// Whether so many wait for longer already that this one's slot is wanted.
    fn is_surplus(&self, id: u64) -> bool {
        let most = (self.slots / 4 * 3 + self.slots % 4 * 3 / 4) as usize;
        self.waiting.len() > most && self.waiting.range(..id).count() >= most
    }
}

/// A run that waits, until this is dropped.
#[must_use = "it waits until this is dropped"]
pub struct Waiting {
    waits: Arc<Waits>,
    id: u64,
}

impl Waiting {
    /// Returns when its slot is wanted: too many wait, and have waited for longer. Never within the
    /// first moments. Whoever hears it should end with [`Verdict::Yield`](crate::Verdict::Yield).
    pub async fn unwanted(&self) {
        // Not all at the same moment: of two that wait, the older may go on meanwhile.
        let stays = STAYS + Duration::from_millis(self.id % 16 * 4);
        loop {
            sleep(stays).await;
            if self.waits.book().is_surplus(self.id) {
                return;
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.waits.book().end(self.id, Instant::now());
        self.waits.eased.notify_one();
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Waiting").field(&self.id).finish()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    fn crowd(waits: &Arc<Waits>, who: &str, count: usize) -> Vec<Waiting> {
        (0..count).map(|_| waits.begin(&tenant(who))).collect()
    }

    fn restraint(waits: &Waits, slots: u32) -> Restraint {
        waits.restraint(slots, Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn half_of_the_slots_are_for_those_who_wait_and_then_their_tenants_are_passed_over() {
        let waits = Arc::new(Waits::new(8));
        assert!(restraint(&waits, 8).is_none());
        let mut crowd = crowd(&waits, "a", 3);
        assert!(restraint(&waits, 8).is_none(), "they may go on in a moment");
        advance(NOTICED).await;
        assert_eq!(restraint(&waits, 8), Restraint { most: 1, except: vec![] });
        crowd.push(waits.begin(&tenant("a")));
        advance(NOTICED).await;
        let except = vec![tenant("a")];
        assert_eq!(restraint(&waits, 8), Restraint { most: u32::MAX, except });
        crowd.clear();
        assert!(restraint(&waits, 8).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_that_waited_is_passed_over_between_its_turns_and_not_for_ever() {
        let waits = Arc::new(Waits::new(4));
        let once = waits.begin(&tenant("seldom"));
        advance(Duration::from_millis(500)).await;
        drop(once);
        let _crowd = crowd(&waits, "a", 2);
        advance(NOTICED).await;
        assert_eq!(restraint(&waits, 4).except, [tenant("a"), tenant("seldom")]);
        advance(Duration::from_secs(5)).await;
        assert_eq!(restraint(&waits, 4).except, [tenant("a")]);
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_tenant_that_waited_lately_whoever_waits_counts_at_once() {
        let waits = Arc::new(Waits::new(4));
        let first = waits.begin(&tenant("a"));
        advance(NOTICED).await;
        drop(first);
        let _second = waits.begin(&tenant("a"));
        assert_eq!(restraint(&waits, 4).most, 1);
        let _hardly = waits.begin(&tenant("b"));
        assert_eq!(restraint(&waits, 4).most, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_just_claimed_for_a_tenant_that_waits_counts_until_it_is_known_better() {
        let waits = Arc::new(Waits::new(8));
        let first = waits.begin(&tenant("a"));
        advance(NOTICED).await;
        drop(first);
        waits.claimed([tenant("a"), tenant("b"), tenant("a")].iter(), Instant::now());
        assert_eq!(restraint(&waits, 8).most, 2, "of `b` nothing is known");
        assert_eq!(waits.known_in(), Some(NOTICED));
        let _waits = waits.begin(&tenant("a"));
        assert_eq!(restraint(&waits, 8).most, 2, "it was counted already");
        advance(NOTICED).await;
        assert_eq!(restraint(&waits, 8).most, 3, "the other went on at once");
        assert_eq!(waits.known_in(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_youngest_beyond_three_quarters_are_told_that_their_slots_are_wanted() {
        let waits = Arc::new(Waits::new(8));
        let mut crowd = crowd(&waits, "a", 8);
        for (place, waiting) in crowd.iter().enumerate() {
            let told = timeout(Duration::from_secs(5), waiting.unwanted()).await;
            assert_eq!(told.is_ok(), place >= 6, "{place}");
        }
        let last = crowd.pop().unwrap();
        assert!(timeout(Duration::from_millis(200), last.unwanted()).await.is_err(), "not at once");
        crowd.remove(0);
        assert!(timeout(Duration::from_secs(5), last.unwanted()).await.is_ok());
        crowd.remove(0);
        assert!(timeout(Duration::from_secs(5), last.unwanted()).await.is_err(), "one has gone on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_slot_is_given_back_after_a_moment() {
        let waits = Arc::new(Waits::new(1));
        let only = waits.begin(&tenant("a"));
        timeout(Duration::from_millis(400), only.unwanted()).await.unwrap();
    }
}
