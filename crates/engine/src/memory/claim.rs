//! Claims: selects units for a worker, then leases them.
//!
//! [`Picker`] walks the ready units of all lanes without changing anything: the next lane by stride
//! scheduling gives its first unit, and [`ClaimBudget`] decides on it. During one claim units only
//! become ineligible, so each unit is examined once.

use std::collections::btree_set;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use longshore_core::claim::{ClaimBudget, FitDecision, UnitNeeds};
use longshore_core::store::{ClaimRequest, ClaimResult, LeasedUnit};
use longshore_core::stride_scheduler::{ClaimFilterHash, LaneShare, StrideCursor, TenantShare};
use longshore_core::unit_state::{Event, runs_alone};
use longshore_core::worker_session::Lease;
use longshore_core::{BatchId, Error, Kind, QueueName, Result, Timestamp, UnitId, UnitState};

use super::record::{LaneKey, UnitRecord};
use super::state::{LaneState, State};

impl State {
    pub(super) fn claim(&mut self, claim: &ClaimRequest, now: Timestamp) -> Result<ClaimResult> {
        if !self.sessions.contains_key(&claim.session) {
            return Err(Error::SessionGone(claim.session));
        }
        let filter = ClaimFilterHash::of(claim);
        let (selection, stride) = Picker::new(self, filter, claim, now).pick();
        self.stride.save(filter, &stride, &claim.excluded_tenants);
        for id in selection.expired {
            _ = self.apply_event(id, &Event::Expired, now);
        }
        let take = |(id, started)| self.lease(id, claim, started, now);
        let units = selection.units.into_iter().filter_map(take).collect();
        Ok(ClaimResult { units, ..selection.claimed })
    }

    fn lease(
        &mut self,
        id: UnitId,
        claim: &ClaimRequest,
        started: bool,
        now: Timestamp,
    ) -> Option<LeasedUnit> {
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
pub(super) fn held_unit(record: &UnitRecord) -> LeasedUnit {
    let unit = record.unit.clone();
    let lease = Lease { unit: unit.id, fence: unit.fence };
    LeasedUnit { lease, started: record.is_started(), alone: runs_alone(unit.lost), unit }
}

/// What a claim selected.
#[derive(Default)]
struct Selection {
    /// Each with whether it starts.
    units: Vec<(UnitId, bool)>,
    expired: Vec<UnitId>,
    claimed: ClaimResult,
}

struct Picker<'a> {
    state: &'a State,
    claim: &'a ClaimRequest,
    now: Timestamp,
    kinds: BTreeSet<&'a Kind>,
    lanes: Vec<LaneCursor<'a>>,
    stride: StrideCursor<QueueName>,
    budget: ClaimBudget<'a>,
    selection: Selection,
}

/// A lane that a claim may take from, and its position in it.
struct LaneCursor<'a> {
    key: &'a LaneKey,
    lane: &'a LaneState,
    ready: btree_set::Iter<'a, (Timestamp, UnitId)>,
    capped: bool,
    taken_by_key: BTreeMap<&'a str, u32>,
}

impl<'a> Picker<'a> {
    fn new(state: &'a State, filter: ClaimFilterHash, claim: &'a ClaimRequest, now: Timestamp) -> Self {
        let active = state.lanes.iter().filter(|(key, lane)| {
            claim.covers_lane(key.0.as_str(), key.1.as_str())
                && !lane.ready.is_empty()
                && state.is_lane_active(key)
        });
        let (mut lanes, mut tenants, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        let mut index_by_tenant = BTreeMap::new();
        for (key, lane) in active {
            let tenant = *index_by_tenant.entry(&key.1).or_insert_with(|| {
                let weight = state.tenants.get(&key.1).map_or(1, |tenant| tenant.weight);
                let allowed = state.tenant_room(&key.1).unwrap_or(u64::MAX);
                tenants.push(TenantShare { allowed, ..TenantShare::new(key.1.clone(), weight) });
                tenants.len() - 1
            });
            let cap = lane.cap.map_or(u64::MAX, u64::from);
            let available = cap.saturating_sub(lane.counts.leased).min(lane.ready.len() as u64);
            shares.push(LaneShare { available, ..LaneShare::new(key.0.clone(), tenant, lane.weight) });
            let capped = lane.cap.is_some() || tenants[tenant].allowed < u64::MAX;
            lanes.push(LaneCursor {
                key,
                lane,
                ready: lane.ready.iter(),
                capped,
                taken_by_key: BTreeMap::new(),
            });
        }
        Self {
            state,
            claim,
            now,
            kinds: claim.kinds.iter().collect(),
            lanes,
            stride: state.stride.cursor(filter, claim.session, tenants, shares),
            budget: ClaimBudget::new(claim),
            selection: Selection::default(),
        }
    }

    fn pick(mut self) -> (Selection, StrideCursor<QueueName>) {
        if !self.pick_alone() {
            self.pick_by_stride();
        }
        (Selection { claimed: self.budget.claimed, ..self.selection }, self.stride)
    }

    /// Gives an idle worker a unit that must run alone before any other.
    fn pick_alone(&mut self) -> bool {
        let candidates = self.state.index.alone.iter().filter_map(|id| self.state.units.get(id));
        let mut in_order: Vec<&UnitRecord> = candidates.collect();
        in_order.sort_by_key(|record| (record.sort_key, record.unit.id));
        for record in in_order {
            let lane = record.lane();
            let position = self.lanes.iter().position(|cursor| *cursor.key == lane);
            let open = |at: &usize| self.stride.is_open(*at);
            let position = position.filter(open).filter(|_| self.is_candidate(record));
            let Some(at) = position else { continue };
            let (cursor, needs) = (&self.lanes[at], UnitNeeds::from(&record.unit));
            let leased = || cursor.leased_with_key(record);
            let Ok(fit) = self.budget.admit_alone(&needs, self.now, leased);
            match fit {
                FitDecision::Start => {
                    self.selection.units.push((record.unit.id, true));
                    self.stride.serve(at);
                    return true;
                }
                FitDecision::Stop => return false,
                FitDecision::Expire => self.selection.expired.push(record.unit.id),
                _ => {}
            }
        }
        false
    }

    fn pick_by_stride(&mut self) {
        while self.budget.remaining() > 0 {
            let Some(at) = self.stride.next_lane() else { return };
            let Some((_, id)) = self.lanes[at].ready.next() else {
                self.stride.close(at);
                continue;
            };
            let Some(record) = self.state.units.get(id) else { continue };
            if runs_alone(record.unit.lost) || !self.is_candidate(record) {
                continue;
            }
            let (cursor, needs) = (&self.lanes[at], UnitNeeds::from(&record.unit));
            let leased = || cursor.leased_with_key(record);
            let Ok(fit) = self.budget.admit(&needs, cursor.capped, self.now, leased);
            match fit {
                FitDecision::Start | FitDecision::Prefetch => {
                    self.stride.serve(at);
                    if let Some(cap) = &record.unit.cap {
                        *self.lanes[at].taken_by_key.entry(&cap.key).or_default() += 1;
                    }
                    self.selection.units.push((*id, fit == FitDecision::Start));
                }
                FitDecision::Expire => {
                    self.selection.expired.push(*id);
                    self.stride.pass_over(at);
                }
                FitDecision::Skip | FitDecision::Park => self.stride.pass_over(at),
                FitDecision::LeaveLane => self.stride.close(at),
                FitDecision::Stop => return,
            }
        }
    }

    /// Whether it may run, and the worker handles its kind and batch.
    fn is_candidate(&self, record: &UnitRecord) -> bool {
        let unit = &record.unit;
        self.claim.covers_batch(unit.batch.as_ref().map(BatchId::as_str))
            && self.kinds.contains(&unit.kind)
            && self.state.is_runnable(record)
    }
}

impl LaneCursor<'_> {
    /// How many units with the unit's cap key are leased, with those of this claim.
    fn leased_with_key(&self, record: &UnitRecord) -> Result<Option<u32>, Infallible> {
        let key = record.unit.cap.as_ref().map_or("", |cap| &cap.key);
        let before = self.lane.capped.get(key).copied().unwrap_or(0);
        Ok(Some(before + self.taken_by_key.get(key).copied().unwrap_or(0)))
    }
}
