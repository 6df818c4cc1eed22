//! Decides which units fit a worker's free slots and resources.

use std::collections::{BTreeMap, VecDeque};

use longshore_core::fair::LaneShare;
use longshore_core::machine::{Event, next};
use longshore_core::store::{Claim, Claimed};
use longshore_core::{Policy, Result, UnitState};

use super::concurrency_keys::ConcurrencyKeys;
use super::lanes::ClaimLanes;
use super::plan::{RoundPlan, StrideCursor};
use super::rows::{self, CandidateUnit};
use crate::finish::{self, UnitChange};
use crate::row::{Spec, UnitRow, flag};
use crate::tx::Tx;
use crate::typed_params::uuid;

/// Collects units up to the worker's capacity.
pub(super) struct Selection<'c> {
    claim: &'c Claim,
    pub(super) session: i64,
    pub(super) free: u32,
    ahead: u32,
    resources: BTreeMap<String, u32>,
    keys: ConcurrencyKeys,
    pub(super) claimed: Claimed,
    /// No further unit may be claimed.
    pub(super) stopped: bool,
    /// Some unit was not plain.
    pub(super) checked: bool,
}

/// The result of one round.
pub(super) struct RoundResult {
    /// Units claimed per lane.
    pub(super) units: Vec<u64>,
    /// Units that were read and not claimed: source and rank.
    pub(super) skipped: Vec<(usize, i64)>,
}

impl RoundResult {
    fn none(lanes: &ClaimLanes) -> Self {
        Self { units: vec![0; lanes.lanes.len()], skipped: Vec::new() }
    }
}

/// What to do with one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FitDecision {
    /// Claim and start it.
    Start,
    /// Claim it ahead.
    Ahead,
    /// Leave it and go on.
    Skip,
    /// Fail it: its deadline has passed.
    Expire,
    /// Park it: its cap is reached.
    Park,
    /// Leave it and take nothing more from its lane.
    LeaveLane,
    /// Leave it and claim nothing after it.
    Stop,
}

impl<'c> Selection<'c> {
    pub(super) fn new(claim: &'c Claim, session: i64) -> Self {
        Self {
            claim,
            session,
            free: claim.free,
            ahead: claim.ahead,
            resources: claim.resources.clone(),
            keys: ConcurrencyKeys::default(),
            claimed: Claimed::default(),
            stopped: false,
            checked: false,
        }
    }

    /// How many more units it can claim.
    pub(super) fn capacity(&self) -> u64 {
        u64::from(self.free) + u64::from(self.ahead)
    }

    /// Accepts the rows of a plan, which are all claimed.
    pub(super) fn accept(
        &mut self,
        tx: &mut Tx<'_>,
        lanes: &ClaimLanes,
        plan: &RoundPlan,
        rows: Vec<CandidateUnit>,
    ) -> Result<RoundResult> {
        let mut waiting = by_lane(lanes, rows);
        let mut result = RoundResult::none(lanes);
        for at in &plan.order {
            // Fewer than planned if other claims were faster.
            let Some(row) = waiting[*at].pop_front() else { continue };
            result.units[*at] += 1;
            match row.row.started_at {
                Some(_) => self.free = self.free.saturating_sub(1),
                None => self.ahead = self.ahead.saturating_sub(1),
            }
            self.push(tx, lanes, row, false)?;
        }
        Ok(result)
    }

    /// Checks locked units one by one in stride order, and claims each that fits.
    pub(super) async fn select(
        &mut self,
        tx: &mut Tx<'_>,
        lanes: &ClaimLanes,
        plan: &RoundPlan,
        rows: Vec<CandidateUnit>,
    ) -> Result<RoundResult> {
        self.checked = true;
        self.keys.count(tx, rows.iter().filter_map(|row| row.row.cap_key.as_deref())).await?;
        let mut waiting = by_lane(lanes, rows);
        let mut cursor = resume_cursor(lanes, plan, &waiting);
        let mut result = RoundResult::none(lanes);
        let (mut leases, mut parked, mut expired) = (Vec::new(), Vec::new(), Vec::new());
        let mut skipped = Vec::new();
        while self.capacity() > 0 && !self.stopped {
            let Some(at) = cursor.next() else { break };
            let Some(mut row) = waiting[at].pop_front() else {
                cursor.drop_lane(at);
                continue;
            };
            match self.fit(&row.row, lanes.lanes[at].capped, tx.now.as_micros())? {
                fit @ (FitDecision::Start | FitDecision::Ahead) => {
                    leases.push((uuid(row.row.id), fit == FitDecision::Start));
                    row.lease(tx.now.as_micros(), fit == FitDecision::Start);
                    self.push(tx, lanes, row, false)?;
                    cursor.serve(at);
                    result.units[at] += 1;
                }
                FitDecision::Expire => expired.push(expire(tx, row.row)?),
                FitDecision::Park => parked.push(uuid(row.row.id)),
                fit @ (FitDecision::Skip | FitDecision::LeaveLane | FitDecision::Stop) => {
                    skipped.push(row);
                    self.stopped |= fit == FitDecision::Stop;
                    if fit == FitDecision::LeaveLane {
                        cursor.drop_lane(at);
                    }
                }
            }
        }
        result.skipped = skipped
            .iter()
            .chain(waiting.iter().flatten())
            .map(CandidateUnit::source_and_rank)
            .collect();
        rows::lease(tx, self.session, &leases).await?;
        rows::park(tx, &parked).await?;
        finish::apply(tx, expired).await?;
        Ok(result)
    }

    /// Counts a unit that was claimed, and adds it to the result.
    fn push(
        &mut self,
        tx: &mut Tx<'_>,
        lanes: &ClaimLanes,
        candidate: CandidateUnit,
        alone: bool,
    ) -> Result<()> {
        let row = &candidate.row;
        let (from, to) = (UnitState::Ready, UnitState::Leased);
        match candidate.claimed {
            true => tx.note_counted(row.stream, Some(from), to),
            false => tx.count_transition(row.stream, Some(from), Some(to), row.bytes),
        }
        let stream = &lanes.sources[candidate.source].stream;
        self.claimed.units.push(candidate.into_held(self.claim, stream, alone)?);
        Ok(())
    }

    /// Claims a unit that must run alone before any other, if the worker holds nothing: while other
    /// units keep coming, the worker would never be empty again. If the worker holds units, it only
    /// learns that such a unit waits.
    pub(super) async fn take_alone(&mut self, tx: &mut Tx<'_>, lanes: &ClaimLanes) -> Result<bool> {
        let open = lanes.lanes.iter().filter(|lane| lanes.remaining(lane) > 0);
        let sources = open.flat_map(|lane| &lane.sources).copied();
        let sources_alone: Vec<usize> = sources.filter(|at| lanes.sources[*at].alone).collect();
        if sources_alone.is_empty() {
            return Ok(false);
        }
        let empty_handed = self.claim.empty_handed;
        let rows = rows::alone(tx, &lanes.sources, &sources_alone, empty_handed).await?;
        tx.after.skipped |= rows.is_empty();
        self.keys.count(tx, rows.iter().filter_map(|row| row.row.cap_key.as_deref())).await?;
        let mut expired = Vec::new();
        let mut claimed_one = false;
        for mut row in rows {
            if is_late(&row.row, tx.now.as_micros()) {
                if empty_handed {
                    expired.push(expire(tx, row.row)?);
                }
                continue;
            }
            let spec = Spec::parse(row.row.spec.as_deref())?;
            if self.is_capped(&row.row, &spec) || !self.could_run(&spec) {
                continue;
            }
            claimed_one = empty_handed && self.fits_now(&spec);
            self.claimed.alone_waiting = !claimed_one;
            if claimed_one {
                rows::lease(tx, self.session, &[(uuid(row.row.id), true)]).await?;
                row.lease(tx.now.as_micros(), true);
                self.push(tx, lanes, row, true)?;
            }
            break;
        }
        finish::apply(tx, expired).await?;
        Ok(claimed_one)
    }

    fn fit(&mut self, row: &UnitRow, capped: bool, now: i64) -> Result<FitDecision> {
        if !row.has(flag::SPECIAL) {
            return Ok(self.fit_plain(capped));
        }
        if is_late(row, now) {
            return Ok(FitDecision::Expire);
        }
        let spec = Spec::parse(row.spec.as_deref())?;
        if !self.could_run(&spec) {
            return Ok(FitDecision::Skip);
        }
        if row.cap_key.as_deref().is_some_and(|key| self.keys.is_busy(key)) {
            return Ok(FitDecision::Skip);
        }
        if self.is_capped(row, &spec) {
            return Ok(FitDecision::Park);
        }
        if !self.fits_now(&spec) {
            return Ok(self.decide_without_room(capped, &spec));
        }
        self.free -= spec.slots.unwrap_or(1);
        for (name, amount) in &spec.resources {
            if let Some(left) = self.resources.get_mut(name) {
                *left -= amount;
            }
        }
        if let Some(key) = &row.cap_key {
            self.keys.lease(key);
        }
        Ok(FitDecision::Start)
    }

    fn fit_plain(&mut self, capped: bool) -> FitDecision {
        if self.free > 0 {
            self.free -= 1;
            return FitDecision::Start;
        }
        if capped || self.ahead == 0 {
            return FitDecision::LeaveLane;
        }
        self.ahead -= 1;
        FitDecision::Ahead
    }

    /// Decides on a unit that does not fit now. If no slot is free, a unit of one slot may be
    /// claimed ahead. For a heavier one the claim stops and keeps slots and resources free; else
    /// other units would overtake it for ever.
    fn decide_without_room(&mut self, capped: bool, spec: &Spec) -> FitDecision {
        if spec.slots.unwrap_or(1) > 1 || self.free > 0 {
            self.claimed.heavy_waiting = true;
            return FitDecision::Stop;
        }
        let later = spec.cap.is_none() && spec.resources.is_empty();
        if later { self.fit_plain(capped) } else { FitDecision::Skip }
    }

    /// Whether the worker has enough slots and resources in total, free or not.
    fn could_run(&self, spec: &Spec) -> bool {
        let all = &self.claim.all_resources;
        spec.slots.unwrap_or(1) <= self.claim.slots
            && spec.resources.iter().all(|(name, amount)| all.get(name) >= Some(amount))
    }

    fn fits_now(&self, spec: &Spec) -> bool {
        let has = |(name, amount): (&String, &u32)| self.resources.get(name) >= Some(amount);
        spec.slots.unwrap_or(1) <= self.free && spec.resources.iter().all(has)
    }

    fn is_capped(&self, row: &UnitRow, spec: &Spec) -> bool {
        match (&spec.cap, &row.cap_key) {
            (Some(cap), Some(key)) => {
                self.keys.is_busy(key) || self.keys.leased_units(key) >= cap.limit
            }
            _ => false,
        }
    }
}

/// Groups units by lane, in the order of their ranks.
fn by_lane(lanes: &ClaimLanes, mut rows: Vec<CandidateUnit>) -> Vec<VecDeque<CandidateUnit>> {
    let mut of = vec![0; lanes.sources.len()];
    for (lane, sources) in lanes.lanes.iter().map(|lane| &lane.sources).enumerate() {
        sources.iter().for_each(|source| of[*source] = lane);
    }
    rows.sort_by_key(CandidateUnit::key);
    let mut waiting: Vec<VecDeque<CandidateUnit>> =
        lanes.lanes.iter().map(|_| VecDeque::new()).collect();
    for row in rows {
        waiting[of[row.source]].push_back(row);
    }
    waiting
}

/// A cursor that starts where the plan did, limited to the rows that were read.
fn resume_cursor<'l>(
    lanes: &'l ClaimLanes,
    plan: &RoundPlan,
    waiting: &[VecDeque<CandidateUnit>],
) -> StrideCursor<'l> {
    let share = |(at, before): (usize, &LaneShare)| {
        let there = u64::try_from(waiting[at].len()).unwrap_or(u64::MAX);
        let available = there.min(lanes.remaining(&lanes.lanes[at]));
        LaneShare { available, ..*before }
    };
    StrideCursor::new(lanes, plan.before.iter().enumerate().map(share).collect())
}

fn is_late(row: &UnitRow, now: i64) -> bool {
    row.deadline.is_some_and(|deadline| deadline <= now)
}

fn expire(tx: &Tx<'_>, row: UnitRow) -> Result<UnitChange> {
    let step = next(&row.transition_input()?, &Event::Expired, &Policy::default(), tx.now)?;
    Ok(UnitChange::step(row, step))
}
