//! Claiming: which units a worker gets. Looks first, then takes.
//!
//! [`Picker`] walks the ready units of all lanes without changing anything: the lane that is next
//! by stride gives its first unit that this worker can run. Reasons to pass a unit over only grow
//! during one claim, so each unit is looked at once.

use std::collections::btree_set;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;

use longshore_core::fair::{LaneShare, divide, entry_pass, share};
use longshore_core::machine::{Event, runs_alone};
use longshore_core::session::Lease;
use longshore_core::store::{Claim, Claimed, HeldUnit, Queues};
use longshore_core::{Error, Kind, Result, Timestamp, UnitId, UnitState};

use super::record::{LaneKey, Record};
use super::state::{Lane, State};

impl State {
    pub(super) fn claim(&mut self, claim: &Claim, now: Timestamp) -> Result<Claimed> {
        if !self.sessions.contains_key(&claim.session) {
            return Err(Error::SessionGone(claim.session));
        }
        let picked = Picker::new(self, claim, now).pick();
        for id in picked.expired {
            _ = self.happen(id, &Event::Expired, now);
        }
        for (key, pass) in picked.passes {
            let lane = self.lanes.entry(key).or_default();
            (lane.pass, lane.rejoins) = (pass, false);
        }
        let take = |(id, started)| self.lease(id, claim, started, now);
        let units = picked.units.into_iter().filter_map(take).collect();
        let (alone_waiting, heavy_waiting) = (picked.alone_waiting, picked.heavy_waiting);
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
        self.units.get(&id).map(held)
    }
}

/// A leased unit as its holder gets it.
pub(super) fn held(record: &Record) -> HeldUnit {
    let unit = record.unit.clone();
    let lease = Lease { unit: unit.id, fence: unit.fence };
    HeldUnit { lease, started: record.is_started(), alone: runs_alone(unit.lost), unit }
}

/// What a claim will take and note.
#[derive(Default)]
struct Picked {
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
    lanes: Vec<OpenLane<'a>>,
    shares: Vec<LaneShare>,
    free: u32,
    resources: BTreeMap<&'a str, u32>,
    picked: Picked,
}

/// A lane that a claim may take from, and how far it has been looked through.
struct OpenLane<'a> {
    key: &'a LaneKey,
    lane: &'a Lane,
    ready: Peekable<btree_set::Iter<'a, (Timestamp, UnitId)>>,
    taken: u64,
    /// How many more the lane's tenant may lease; `None` if it has no cap.
    tenant_room: Option<u64>,
    taken_by_key: BTreeMap<&'a str, u32>,
}

impl OpenLane<'_> {
    fn has_cap(&self) -> bool {
        self.lane.cap.is_some() || self.tenant_room.is_some()
    }
}

/// Whether a unit can go now.
enum Verdict {
    Takes,
    PassOver,
    Expired,
    Alone,
}

impl<'a> Picker<'a> {
    fn new(state: &'a State, claim: &'a Claim, now: Timestamp) -> Self {
        let open = state.lanes.iter().filter(|(key, lane)| {
            let named = match &claim.queues {
                Queues::All => true,
                Queues::Named(names) => names.contains(&key.0),
            };
            let wanted = named && claim.scope.covers(&key.1) && !claim.except.contains(&key.1);
            wanted && !lane.ready.is_empty() && state.is_flowing(key)
        });
        let lanes: Vec<OpenLane<'a>> = open
            .map(|(key, lane)| {
                let ready = lane.ready.iter().peekable();
                let (taken, tenant_room) = (0, state.tenant_room(&key.1));
                OpenLane { key, lane, ready, taken, tenant_room, taken_by_key: BTreeMap::new() }
            })
            .collect();
        let level = level(&lanes);
        let lane_share = |open: &OpenLane<'_>| {
            let Lane { pass, weight, rejoins, .. } = *open.lane;
            let pass = if rejoins { entry_pass(pass, level) } else { pass };
            let tenants = state.tenants.get(&open.key.1).map_or(1, |tenant| tenant.weight);
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
            picked: Picked::default(),
        }
    }

    fn pick(mut self) -> Picked {
        if !self.pick_alone() {
            self.pick_to_run();
            if !self.picked.heavy_waiting {
                self.pick_ahead();
            }
        }
        let passes = self.lanes.iter().zip(&self.shares);
        let moved =
            passes.filter(|(open, share)| open.lane.rejoins || open.lane.pass != share.pass);
        self.picked.passes = moved.map(|(open, share)| (open.key.clone(), share.pass)).collect();
        self.picked
    }

    /// Empty hands get a unit that must run alone before anything else, else it would never be
    /// their turn. Others hear that one waits.
    fn pick_alone(&mut self) -> bool {
        let candidates = self.state.index.alone.iter().filter_map(|id| self.state.units.get(id));
        let mut in_order: Vec<&Record> = candidates.collect();
        in_order.sort_by_key(|record| (record.place, record.unit.id));
        for record in in_order {
            let lane = record.lane();
            let open = self.lanes.iter().position(|open| *open.key == lane);
            let Some(at) = open.filter(|at| !self.is_capped(*at)) else {
                continue;
            };
            if !matches!(self.judge(at, record), Verdict::Alone) {
                continue;
            }
            if self.claim.empty_handed && self.is_room_for(record) {
                self.picked.units.push((record.unit.id, true));
                return true;
            }
            self.picked.alone_waiting = true;
        }
        false
    }

    fn pick_to_run(&mut self) {
        while self.free > 0 {
            let Some((at, record, pass)) = self.next(false) else {
                return;
            };
            if !self.is_room_for(record) {
                // It is still this lane's turn.
                self.shares[at].pass = pass;
                self.picked.heavy_waiting = true;
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
    fn is_room_for(&self, record: &Record) -> bool {
        let weight = &record.unit.weight;
        let free = |(name, n): (&String, &u32)| self.resources.get(name.as_str()) >= Some(n);
        weight.slots <= self.free && weight.resources.iter().all(free)
    }

    /// Whether it needs a resource that this worker has, but not free now.
    fn waits_for_resource(&self, record: &Record) -> bool {
        let free = |(name, n): (&String, &u32)| self.resources.get(name.as_str()) >= Some(n);
        !record.unit.weight.resources.iter().all(free)
    }

    fn pick_ahead(&mut self) {
        for _ in 0..self.claim.ahead {
            let Some((at, record, pass)) = self.next(true) else {
                return;
            };
            if self.waits_for_resource(record) {
                self.shares[at].pass = pass;
                self.picked.heavy_waiting = true;
                return;
            }
            self.take(at, record, false);
        }
    }

    fn take(&mut self, at: usize, record: &'a Record, started: bool) {
        let open = &mut self.lanes[at];
        open.ready.next();
        open.taken += 1;
        if let Some(cap) = &record.unit.cap {
            *open.taken_by_key.entry(&cap.key).or_default() += 1;
        }
        self.picked.units.push((record.unit.id, started));
        for open in self.lanes.iter_mut().filter(|open| open.key.1 == record.unit.tenant) {
            open.tenant_room = open.tenant_room.map(|room| room.saturating_sub(1));
        }
    }

    /// The next unit by share and rank, its lane, and that lane's pass before.
    fn next(&mut self, ahead: bool) -> Option<(usize, &'a Record, u64)> {
        let heads: Vec<(Option<&'a Record>, u64)> =
            (0..self.lanes.len()).map(|at| (self.head(at, ahead), self.shares[at].pass)).collect();
        for (share, (head, _)) in self.shares.iter_mut().zip(&heads) {
            share.available = u64::from(head.is_some());
        }
        let at = divide(&mut self.shares, 1).iter().position(|part| *part == 1)?;
        let (head, pass) = heads[at];
        head.map(|record| (at, record, pass))
    }

    /// The first unit of a lane that can go; those before it are passed over for good.
    fn head(&mut self, at: usize, ahead: bool) -> Option<&'a Record> {
        if self.is_capped(at) || (ahead && self.lanes[at].has_cap()) {
            return None;
        }
        while let Some((_, id)) = self.lanes[at].ready.peek() {
            let record = self.state.units.get(id)?;
            match self.judge(at, record) {
                Verdict::Takes if !ahead || self.goes_ahead(record) => return Some(record),
                Verdict::Takes | Verdict::PassOver | Verdict::Alone => {}
                Verdict::Expired => self.picked.expired.push(*id),
            }
            self.lanes[at].ready.next();
        }
        None
    }

    fn is_capped(&self, at: usize) -> bool {
        let open = &self.lanes[at];
        if open.tenant_room == Some(0) {
            return true;
        }
        let leased = open.lane.counts.leased + open.taken;
        open.lane.cap.is_some_and(|cap| leased >= u64::from(cap))
    }

    fn judge(&self, at: usize, record: &Record) -> Verdict {
        let (unit, claim) = (&record.unit, self.claim);
        let in_batch = claim.batch.is_none() || claim.batch == unit.batch;
        if !in_batch || !self.kinds.contains(&unit.kind) || !self.state.is_wanted(record) {
            return Verdict::PassOver;
        }
        if record.is_late(self.now) {
            return Verdict::Expired;
        }
        let has = |(name, n): (&String, &u32)| claim.all_resources.get(name) >= Some(n);
        let fits = unit.weight.slots <= claim.slots && unit.weight.resources.iter().all(has);
        if !fits || self.is_key_capped(at, record) {
            return Verdict::PassOver;
        }
        if runs_alone(unit.lost) { Verdict::Alone } else { Verdict::Takes }
    }

    /// What is scarce is held back from claim-ahead, or it would sit on what others could use; but
    /// nothing overtakes a unit that waits for a resource of this worker.
    fn goes_ahead(&self, record: &Record) -> bool {
        let unit = &record.unit;
        let scarce = unit.cap.is_some() || !unit.weight.resources.is_empty();
        !scarce || self.waits_for_resource(record)
    }

    fn is_key_capped(&self, at: usize, record: &Record) -> bool {
        let Some(cap) = &record.unit.cap else {
            return false;
        };
        let open = &self.lanes[at];
        let before = open.lane.capped.get(&cap.key).copied().unwrap_or(0);
        let now = open.taken_by_key.get(cap.key.as_str()).copied().unwrap_or(0);
        before + now >= cap.limit
    }
}

/// Where a lane that was silent joins: level with the lane that is next, or with the furthest if
/// all of them were silent. Only lanes of this claim count: those that others serve faster or slower
/// do not compete here.
fn level(lanes: &[OpenLane<'_>]) -> Option<u64> {
    let there = lanes.iter().filter(|open| !open.lane.rejoins).map(|open| open.lane.pass).min();
    there.or_else(|| lanes.iter().map(|open| open.lane.pass).max())
}
