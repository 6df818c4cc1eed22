//! Claims: selects units for a worker, then leases them.
//!
//! [`Picker`] walks the ready units of all lanes without changing anything: the next lane by stride
//! scheduling gives its first unit that this worker can run. During one claim units only become
//! ineligible, so each unit is examined once.

use std::collections::btree_set;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;

use longshore_core::fair::{LaneShare, divide, entry_pass, share};
use longshore_core::machine::{Event, runs_alone};
use longshore_core::session::Lease;
use longshore_core::store::{Claim, Claimed, HeldUnit, Queues};
use longshore_core::{Error, Kind, Result, Timestamp, UnitId, UnitState};

use super::record::{LaneKey, UnitRecord};
use super::state::{LaneState, State};

impl State {
    pub(super) fn claim(&mut self, claim: &Claim, now: Timestamp) -> Result<Claimed> {
        if !self.sessions.contains_key(&claim.session) {
            return Err(Error::SessionGone(claim.session));
        }
        let selection = Picker::new(self, claim, now).pick();
        for id in selection.expired {
            _ = self.apply_event(id, &Event::Expired, now);
        }
        for (key, pass) in selection.passes {
            let lane = self.lanes.entry(key).or_default();
            (lane.pass, lane.rejoins) = (pass, false);
        }
        let take = |(id, started)| self.lease(id, claim, started, now);
        let units = selection.units.into_iter().filter_map(take).collect();
        let (alone_waiting, heavy_waiting) = (selection.alone_waiting, selection.heavy_waiting);
        Ok(Claimed { units, alone_waiting, heavy_waiting })
    }

    fn lease(
        &mut self,
        id: UnitId,
        claim: &Claim,
        started: bool,
        now: Timestamp,
    ) -> Option<HeldUnit> {
        self.update(id, |record| {
            let unit = &mut record.unit;
            unit.state = UnitState::Leased;
            unit.session = Some(claim.session);
            unit.fence += 1;
            unit.since = now;
            unit.started_at = started.then_some(now);
            unit.attempt += u32::from(started);
        });
        self.units.get(&id).map(held_unit)
    }
}

/// A leased unit as the worker receives it.
pub(super) fn held_unit(record: &UnitRecord) -> HeldUnit {
    let unit = record.unit.clone();
    let lease = Lease { unit: unit.id, fence: unit.fence };
    HeldUnit { lease, started: record.is_started(), alone: runs_alone(unit.lost), unit }
}

/// What a claim selected.
#[derive(Default)]
struct Selection {
    units: Vec<(UnitId, bool)>,
    expired: Vec<UnitId>,
    passes: Vec<(LaneKey, u64)>,
    alone_waiting: bool,
    heavy_waiting: bool,
}

struct Picker<'a> {
    state: &'a State,
    claim: &'a Claim,
    now: Timestamp,
    kinds: BTreeSet<&'a Kind>,
    lanes: Vec<LaneCursor<'a>>,
    shares: Vec<LaneShare>,
    free: u32,
    resources: BTreeMap<&'a str, u32>,
    selection: Selection,
}

/// A lane that a claim may take from, and its position in it.
struct LaneCursor<'a> {
    key: &'a LaneKey,
    lane: &'a LaneState,
    ready: Peekable<btree_set::Iter<'a, (Timestamp, UnitId)>>,
    taken: u64,
    /// How many more units the lane's tenant may lease; `None` without a cap.
    tenant_room: Option<u64>,
    taken_by_key: BTreeMap<&'a str, u32>,
}

impl LaneCursor<'_> {
    fn has_cap(&self) -> bool {
        self.lane.cap.is_some() || self.tenant_room.is_some()
    }
}

/// Whether a unit can be claimed now.
enum Eligibility {
    Eligible,
    Skip,
    Expired,
    Exclusive,
}

impl<'a> Picker<'a> {
    fn new(state: &'a State, claim: &'a Claim, now: Timestamp) -> Self {
        let active = state.lanes.iter().filter(|(key, lane)| {
            let named = match &claim.queues {
                Queues::All => true,
                Queues::Named(names) => names.contains(&key.0),
            };
            let wanted = named && claim.scope.covers(&key.1) && !claim.except.contains(&key.1);
            wanted && !lane.ready.is_empty() && state.is_lane_active(key)
        });
        let lanes: Vec<LaneCursor<'a>> = active
            .map(|(key, lane)| {
                let ready = lane.ready.iter().peekable();
                let (taken, tenant_room) = (0, state.tenant_room(&key.1));
                LaneCursor { key, lane, ready, taken, tenant_room, taken_by_key: BTreeMap::new() }
            })
            .collect();
        let rejoin_pass = rejoin_pass(&lanes);
        let lane_share = |cursor: &LaneCursor<'_>| {
            let LaneState { pass, weight, rejoins, .. } = *cursor.lane;
            let pass = if rejoins { entry_pass(pass, rejoin_pass) } else { pass };
            let tenants = state.tenants.get(&cursor.key.1).map_or(1, |tenant| tenant.weight);
            LaneShare { pass, weight: share(weight, tenants), available: 0 }
        };
        Self {
            state,
            claim,
            now,
            kinds: claim.kinds.iter().collect(),
            shares: lanes.iter().map(lane_share).collect(),
            lanes,
            free: claim.free,
            resources: claim.resources.iter().map(|(name, n)| (name.as_str(), *n)).collect(),
            selection: Selection::default(),
        }
    }

    fn pick(mut self) -> Selection {
        if !self.pick_exclusive() {
            self.pick_to_run();
            if !self.selection.heavy_waiting {
                self.pick_prefetch();
            }
        }
        let passes = self.lanes.iter().zip(&self.shares);
        let moved =
            passes.filter(|(cursor, share)| cursor.lane.rejoins || cursor.lane.pass != share.pass);
        self.selection.passes =
            moved.map(|(cursor, share)| (cursor.key.clone(), share.pass)).collect();
        self.selection
    }

    /// Gives an idle worker a unit that must run alone before any other; otherwise such a unit
    /// would never run. Tells a busy worker that one waits.
    fn pick_exclusive(&mut self) -> bool {
        let candidates = self.state.index.alone.iter().filter_map(|id| self.state.units.get(id));
        let mut in_order: Vec<&UnitRecord> = candidates.collect();
        in_order.sort_by_key(|record| (record.sort_key, record.unit.id));
        for record in in_order {
            let lane = record.lane();
            let position = self.lanes.iter().position(|cursor| *cursor.key == lane);
            let Some(at) = position.filter(|at| !self.is_capped(*at)) else {
                continue;
            };
            if !matches!(self.eligibility(at, record), Eligibility::Exclusive) {
                continue;
            }
            if self.claim.empty_handed && self.fits_now(record) {
                self.selection.units.push((record.unit.id, true));
                return true;
            }
            self.selection.alone_waiting = true;
        }
        false
    }

    fn pick_to_run(&mut self) {
        while self.free > 0 {
            let Some((at, record, pass)) = self.next(false) else {
                return;
            };
            if !self.fits_now(record) {
                // It is still this lane's turn.
                self.shares[at].pass = pass;
                self.selection.heavy_waiting = true;
                return;
            }
            self.free -= record.unit.weight.slots;
            for (name, n) in &record.unit.weight.resources {
                if let Some(left) = self.resources.get_mut(name.as_str()) {
                    *left = left.saturating_sub(*n);
                }
            }
            self.take(at, record, true);
        }
    }

    /// Whether slots and resources are free for it now.
    fn fits_now(&self, record: &UnitRecord) -> bool {
        let weight = &record.unit.weight;
        let free = |(name, n): (&String, &u32)| self.resources.get(name.as_str()) >= Some(n);
        weight.slots <= self.free && weight.resources.iter().all(free)
    }

    /// Whether it needs a resource that this worker has, but not free now.
    fn waits_for_resource(&self, record: &UnitRecord) -> bool {
        let free = |(name, n): (&String, &u32)| self.resources.get(name.as_str()) >= Some(n);
        !record.unit.weight.resources.iter().all(free)
    }

    fn pick_prefetch(&mut self) {
        for _ in 0..self.claim.ahead {
            let Some((at, record, pass)) = self.next(true) else {
                return;
            };
            if self.waits_for_resource(record) {
                self.shares[at].pass = pass;
                self.selection.heavy_waiting = true;
                return;
            }
            self.take(at, record, false);
        }
    }

    fn take(&mut self, at: usize, record: &'a UnitRecord, started: bool) {
        let cursor = &mut self.lanes[at];
        cursor.ready.next();
        cursor.taken += 1;
        if let Some(cap) = &record.unit.cap {
            *cursor.taken_by_key.entry(&cap.key).or_default() += 1;
        }
        self.selection.units.push((record.unit.id, started));
        for cursor in self.lanes.iter_mut().filter(|cursor| cursor.key.1 == record.unit.tenant) {
            cursor.tenant_room = cursor.tenant_room.map(|room| room.saturating_sub(1));
        }
    }

    /// The next unit by share and rank, its lane, and that lane's pass before.
    fn next(&mut self, ahead: bool) -> Option<(usize, &'a UnitRecord, u64)> {
        let heads: Vec<(Option<&'a UnitRecord>, u64)> =
            (0..self.lanes.len()).map(|at| (self.head(at, ahead), self.shares[at].pass)).collect();
        for (share, (head, _)) in self.shares.iter_mut().zip(&heads) {
            share.available = u64::from(head.is_some());
        }
        let at = divide(&mut self.shares, 1).iter().position(|part| *part == 1)?;
        let (head, pass) = heads[at];
        head.map(|record| (at, record, pass))
    }

    /// The first eligible unit of a lane; units before it are skipped for the rest of the claim.
    fn head(&mut self, at: usize, ahead: bool) -> Option<&'a UnitRecord> {
        if self.is_capped(at) || (ahead && self.lanes[at].has_cap()) {
            return None;
        }
        while let Some((_, id)) = self.lanes[at].ready.peek() {
            let record = self.state.units.get(id)?;
            match self.eligibility(at, record) {
                Eligibility::Eligible if !ahead || self.may_prefetch(record) => {
                    return Some(record);
                }
                Eligibility::Eligible | Eligibility::Skip | Eligibility::Exclusive => {}
                Eligibility::Expired => self.selection.expired.push(*id),
            }
            self.lanes[at].ready.next();
        }
        None
    }

    fn is_capped(&self, at: usize) -> bool {
        let cursor = &self.lanes[at];
        if cursor.tenant_room == Some(0) {
            return true;
        }
        let leased = cursor.lane.counts.leased + cursor.taken;
        cursor.lane.cap.is_some_and(|cap| leased >= u64::from(cap))
    }

    fn eligibility(&self, at: usize, record: &UnitRecord) -> Eligibility {
        let (unit, claim) = (&record.unit, self.claim);
        let in_batch = claim.batch.is_none() || claim.batch == unit.batch;
        if !in_batch || !self.kinds.contains(&unit.kind) || !self.state.is_runnable(record) {
            return Eligibility::Skip;
        }
        if record.is_late(self.now) {
            return Eligibility::Expired;
        }
        let has = |(name, n): (&String, &u32)| claim.all_resources.get(name) >= Some(n);
        let fits = unit.weight.slots <= claim.slots && unit.weight.resources.iter().all(has);
        if !fits || self.is_key_capped(at, record) {
            return Eligibility::Skip;
        }
        if runs_alone(unit.lost) { Eligibility::Exclusive } else { Eligibility::Eligible }
    }

    /// Units with a cap key or resources are not prefetched, or they would block what other workers
    /// could use. But no unit overtakes one that waits for a resource of this worker.
    fn may_prefetch(&self, record: &UnitRecord) -> bool {
        let unit = &record.unit;
        let scarce = unit.cap.is_some() || !unit.weight.resources.is_empty();
        !scarce || self.waits_for_resource(record)
    }

    fn is_key_capped(&self, at: usize, record: &UnitRecord) -> bool {
        let Some(cap) = &record.unit.cap else {
            return false;
        };
        let cursor = &self.lanes[at];
        let before = cursor.lane.capped.get(&cap.key).copied().unwrap_or(0);
        let now = cursor.taken_by_key.get(cap.key.as_str()).copied().unwrap_or(0);
        before + now >= cap.limit
    }
}

/// The pass at which an inactive lane rejoins: that of the next lane, or the highest if all were
/// inactive. Only lanes of this claim count; lanes that other workers serve do not compete here.
fn rejoin_pass(lanes: &[LaneCursor<'_>]) -> Option<u64> {
    let there =
        lanes.iter().filter(|cursor| !cursor.lane.rejoins).map(|cursor| cursor.lane.pass).min();
    there.or_else(|| lanes.iter().map(|cursor| cursor.lane.pass).max())
}
