//! Runs that wait for a limit (such as their tenant's rate limit) occupy slots that other units
//! could use.
//!
//! A run reports that it waits ([`Context::begin_wait`](crate::Context::begin_wait)). While no run waits,
//! claims are unrestricted. Otherwise the worker fills at most half of its slots with units that
//! may have to wait: at that point it stops claiming for tenants with recent waits, and
//! claims for other tenants, a few units at a time until it is known whether they wait too. If waiting runs hold more than three quarters of the slots all the
//! same (there were no other units when they were claimed), the youngest are told that their slots
//! are needed, and their units are requeued at their old position.
//!
//! So waiting units are served in claim order, which is the fair order, and the worker does not
//! claim the same units in vain again and again.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_core::TenantId;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// A shorter wait does not count.
const MIN_WAIT: Duration = Duration::from_millis(20);

/// How long a waiting run keeps its slot at least, approximately.
const MIN_STAY: Duration = Duration::from_millis(250);

/// How long a tenant counts as limited after its last wait. Long, because a tenant of small weight is
/// claimed rarely: if it were forgotten meanwhile, it would be claimed alone and far beyond its share while
/// the others are excluded.
const LIMITED_FOR: Duration = Duration::from_secs(60);

/// Of how many slots one is filled per claim and [`MIN_WAIT`], while tenants are excluded.
const PROBE_FRACTION: u32 = 16;

/// Above this number of tenants, expired entries are removed.
const MAX_TRACKED_TENANTS: usize = 1000;

/// Tracks the runs of a worker that wait.
#[derive(Debug)]
pub(crate) struct WaitTracker {
    state: Mutex<WaitState>,
    /// Wakes the fetcher: fewer runs wait.
    pub(crate) waits_ended: Notify,
}

#[derive(Debug)]
struct WaitState {
    slots: u32,
    next: u64,
    /// Waiting runs by id, oldest first.
    waiting: BTreeMap<u64, (TenantId, Instant)>,
    /// Recently claimed units, of which it is not known yet whether they wait. Those of limited tenants are
    /// expected to.
    fresh: Vec<(TenantId, Instant)>,
    /// Tenants with recent waits, and until when they count.
    limited: HashMap<TenantId, Instant>,
}

/// Bounds of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClaimLimit {
    /// Maximum number of units.
    pub(crate) max_units: u32,
    /// Tenants to skip.
    pub(crate) excluded_tenants: Vec<TenantId>,
}

impl ClaimLimit {
    const UNLIMITED: Self = Self { max_units: u32::MAX, excluded_tenants: Vec::new() };

    pub(crate) fn is_unlimited(&self) -> bool {
        *self == Self::UNLIMITED
    }
}

impl WaitTracker {
    pub(crate) fn new(slots: u32) -> Self {
        let (waiting, fresh, limited) = (BTreeMap::new(), Vec::new(), HashMap::new());
        let state = Mutex::new(WaitState { slots, next: 0, waiting, fresh, limited });
        Self { state, waits_ended: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, WaitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bounds of the next claim of a worker with `slots` slots.
    pub(crate) fn claim_limit(&self, slots: u32, now: Instant) -> ClaimLimit {
        let mut state = self.state();
        state.slots = slots;
        state.claim_limit(now)
    }

    /// Records that units of these tenants were claimed.
    pub(crate) fn on_claimed<'t>(&self, tenants: impl Iterator<Item = &'t TenantId>, now: Instant) {
        let mut state = self.state();
        if state.waiting.is_empty() && state.limited.is_empty() {
            return;
        }
        state.fresh.extend(tenants.map(|tenant| (tenant.clone(), now)));
    }

    /// How long until all recently claimed units are known to wait or not; `None` if that is known
    /// now.
    pub(crate) fn recheck_in(&self) -> Option<Duration> {
        (!self.state().fresh.is_empty()).then_some(MIN_WAIT)
    }

    /// Records that a run of this tenant begins to wait.
    pub(crate) fn begin(self: &Arc<Self>, tenant: &TenantId) -> SlotWait {
        let mut state = self.state();
        if let Some(at) = state.fresh.iter().position(|(fresh, _)| fresh == tenant) {
            state.fresh.remove(at);
        }
        state.next += 1;
        let id = state.next;
        state.waiting.insert(id, (tenant.clone(), Instant::now()));
        SlotWait { waits: Arc::clone(self), id }
    }
}

impl WaitState {
    fn claim_limit(&mut self, now: Instant) -> ClaimLimit {
        self.fresh.retain(|(_, since)| now < *since + MIN_WAIT);
        let expected = self.fresh.iter().filter(|(tenant, _)| self.is_limited(tenant, now)).count();
        let count = u32::try_from(self.waiting(now).count() + expected).unwrap_or(u32::MAX);
        match self.slots / 2 {
            _ if count == 0 => ClaimLimit::UNLIMITED,
            half if count < half => ClaimLimit { max_units: half - count, ..ClaimLimit::UNLIMITED },
            // A tenant of which no wait is known may be limited all the same: with all free slots it would get
            // far more than its share.
            _ => {
                let excluded_tenants = self.excluded_tenants(now);
                ClaimLimit { max_units: (self.slots / PROBE_FRACTION).max(1), excluded_tenants }
            }
        }
    }

    /// Runs that count as waiting. A run of a tenant without recent waits counts only after
    /// `MIN_WAIT`: it may continue before that.
    fn waiting(&self, now: Instant) -> impl Iterator<Item = &TenantId> {
        let counts =
            move |tenant: &TenantId, since: Instant| now >= since + MIN_WAIT || self.is_limited(tenant, now);
        self.waiting.values().filter(move |(tenant, since)| counts(tenant, *since)).map(|(tenant, _)| tenant)
    }

    fn is_limited(&self, tenant: &TenantId, now: Instant) -> bool {
        self.limited.get(tenant).is_some_and(|until| now < *until)
    }

    fn excluded_tenants(&self, now: Instant) -> Vec<TenantId> {
        let limited = self.limited.iter().filter(|(_, until)| now < **until).map(|(tenant, _)| tenant);
        let fresh = self.fresh.iter().map(|(tenant, _)| tenant);
        let mut tenants: Vec<TenantId> = limited.chain(self.waiting(now)).chain(fresh).cloned().collect();
        tenants.sort_unstable();
        tenants.dedup();
        tenants
    }

    fn end(&mut self, id: u64, now: Instant) {
        let Some((tenant, since)) = self.waiting.remove(&id) else { return };
        // A limited tenant stays limited however short its wait was.
        if now - since < MIN_WAIT && !self.is_limited(&tenant, now) {
            return;
        }
        if self.limited.len() > MAX_TRACKED_TENANTS {
            self.limited.retain(|_, until| now < *until);
        }
        self.limited.insert(tenant, now + LIMITED_FOR);
    }

    /// Whether three quarters of the slots are held by runs that have waited longer than this one.
    fn is_surplus(&self, id: u64) -> bool {
        let most = (self.slots / 4 * 3 + self.slots % 4 * 3 / 4) as usize;
        self.waiting.len() > most && self.waiting.range(..id).count() >= most
    }
}

/// A run that waits, until this guard is dropped.
#[must_use = "the wait ends when this is dropped"]
pub struct SlotWait {
    waits: Arc<WaitTracker>,
    id: u64,
}

impl SlotWait {
    /// Returns when the slot is needed: too many runs wait, and the others have waited longer.
    /// Never returns within the first 250 ms. The handler should then end with
    /// [`Verdict::Yield`](crate::Verdict::Yield).
    pub async fn slot_needed(&self) {
        // Staggered by id: of two waiting runs the older may continue in the meantime.
        let stay = MIN_STAY + Duration::from_millis(self.id % 16 * 4);
        loop {
            sleep(stay).await;
            if self.waits.state().is_surplus(self.id) {
                return;
            }
        }
    }
}

impl Drop for SlotWait {
    fn drop(&mut self) {
        self.waits.state().end(self.id, Instant::now());
        self.waits.waits_ended.notify_one();
    }
}

impl fmt::Debug for SlotWait {
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

    fn crowd(waits: &Arc<WaitTracker>, name: &str, count: usize) -> Vec<SlotWait> {
        (0..count).map(|_| waits.begin(&tenant(name))).collect()
    }

    fn claim_limit(waits: &WaitTracker, slots: u32) -> ClaimLimit {
        waits.claim_limit(slots, Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn half_of_the_slots_are_for_those_who_wait_and_then_their_tenants_are_passed_over() {
        let waits = Arc::new(WaitTracker::new(8));
        assert!(claim_limit(&waits, 8).is_unlimited());
        let mut crowd = crowd(&waits, "a", 3);
        assert!(claim_limit(&waits, 8).is_unlimited(), "they may go on in a moment");
        advance(MIN_WAIT).await;
        assert_eq!(claim_limit(&waits, 8), ClaimLimit { max_units: 1, excluded_tenants: vec![] });
        crowd.push(waits.begin(&tenant("a")));
        advance(MIN_WAIT).await;
        let excluded_tenants = vec![tenant("a")];
        assert_eq!(claim_limit(&waits, 8), ClaimLimit { max_units: 1, excluded_tenants });
        waits.on_claimed([tenant("b")].iter(), Instant::now());
        assert_eq!(claim_limit(&waits, 8).excluded_tenants, [tenant("a"), tenant("b")], "it may wait, too");
        advance(MIN_WAIT).await;
        assert_eq!(claim_limit(&waits, 8).excluded_tenants, [tenant("a")]);
        crowd.clear();
        assert!(claim_limit(&waits, 8).is_unlimited());
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_that_waited_is_passed_over_between_its_turns_and_not_for_ever() {
        let waits = Arc::new(WaitTracker::new(4));
        let once = waits.begin(&tenant("seldom"));
        advance(Duration::from_millis(500)).await;
        drop(once);
        let _crowd = crowd(&waits, "a", 2);
        advance(MIN_WAIT).await;
        assert_eq!(claim_limit(&waits, 4).excluded_tenants, [tenant("a"), tenant("seldom")]);
        advance(LIMITED_FOR).await;
        assert_eq!(claim_limit(&waits, 4).excluded_tenants, [tenant("a")]);
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_tenant_that_waited_lately_whoever_waits_counts_at_once() {
        let waits = Arc::new(WaitTracker::new(4));
        let first = waits.begin(&tenant("a"));
        advance(MIN_WAIT).await;
        drop(first);
        let _second = waits.begin(&tenant("a"));
        assert_eq!(claim_limit(&waits, 4).max_units, 1);
        let _hardly = waits.begin(&tenant("b"));
        assert_eq!(claim_limit(&waits, 4).max_units, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_just_claimed_for_a_tenant_that_waits_counts_until_it_is_known_better() {
        let waits = Arc::new(WaitTracker::new(8));
        let first = waits.begin(&tenant("a"));
        advance(MIN_WAIT).await;
        drop(first);
        waits.on_claimed([tenant("a"), tenant("b"), tenant("a")].iter(), Instant::now());
        assert_eq!(claim_limit(&waits, 8).max_units, 2, "of `b` nothing is known");
        assert_eq!(waits.recheck_in(), Some(MIN_WAIT));
        let _waits = waits.begin(&tenant("a"));
        assert_eq!(claim_limit(&waits, 8).max_units, 2, "it was counted already");
        advance(MIN_WAIT).await;
        assert_eq!(claim_limit(&waits, 8).max_units, 3, "the other went on at once");
        assert_eq!(waits.recheck_in(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_youngest_beyond_three_quarters_are_told_that_their_slots_are_wanted() {
        let waits = Arc::new(WaitTracker::new(8));
        let mut crowd = crowd(&waits, "a", 8);
        for (index, waiting) in crowd.iter().enumerate() {
            let result = timeout(Duration::from_secs(5), waiting.slot_needed()).await;
            assert_eq!(result.is_ok(), index >= 6, "{index}");
        }
        let last = crowd.pop().unwrap();
        assert!(timeout(Duration::from_millis(200), last.slot_needed()).await.is_err(), "not at once");
        drop(crowd.remove(0));
        assert!(timeout(Duration::from_secs(5), last.slot_needed()).await.is_ok());
        drop(crowd.remove(0));
        assert!(timeout(Duration::from_secs(5), last.slot_needed()).await.is_err(), "one has gone on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_slot_is_given_back_after_a_moment() {
        let waits = Arc::new(WaitTracker::new(1));
        let only = waits.begin(&tenant("a"));
        timeout(Duration::from_millis(400), only.slot_needed()).await.unwrap();
    }
}
