//! Passes candidates to the claim's budget, and leases the units that it admits.

use std::collections::VecDeque;

use longshore_core::claim::{ClaimBudget, FitDecision, UnitNeeds};
use longshore_core::store::ClaimRequest;
use longshore_core::stride_scheduler::{LaneShare, StrideCursor};
use longshore_core::unit_state::{Event, transition};
use longshore_core::{Policy, Result, Timestamp, UnitState};

use super::concurrency_keys::ConcurrencyKeys;
use super::lanes::ClaimLanes;
use super::plan::RoundPlan;
use super::rows::{self, CandidateUnit, LockedColumns};
use crate::finish::{self, UnitChange};
use crate::row::{UnitAttributes, UnitRow, flag};
use crate::tx::Tx;

/// Collects units up to the worker's capacity.
pub(super) struct Selection<'c> {
    claim: &'c ClaimRequest,
    pub(super) session: i64,
    pub(super) budget: ClaimBudget<'c>,
    keys: ConcurrencyKeys,
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

impl<'c> Selection<'c> {
    pub(super) fn new(claim: &'c ClaimRequest, session: i64) -> Self {
        let (budget, keys) = (ClaimBudget::new(claim), ConcurrencyKeys::default());
        Self { claim, session, budget, keys, stopped: false, checked: false }
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
            self.budget.record_plain(row.row.started_at.is_some());
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
        let (mut leases, mut parked) = (LockedColumns::default(), LockedColumns::default());
        let (mut expired, mut skipped) = (Vec::new(), Vec::new());
        while self.budget.remaining() > 0 && !self.stopped {
            let Some(at) = cursor.next_lane() else { break };
            let Some(mut row) = waiting[at].pop_front() else {
                cursor.close(at);
                continue;
            };
            match self.fit(&row.row, lanes.lanes[at].capped, tx.now)? {
                fit @ (FitDecision::Start | FitDecision::Prefetch) => {
                    leases.push(&row, fit == FitDecision::Start);
                    row.lease(tx.now.as_micros(), fit == FitDecision::Start);
                    self.push(tx, lanes, row, false)?;
                    cursor.serve(at);
                    result.units[at] += 1;
                }
                FitDecision::Expire => expired.push(expire(tx, row.row)?),
                FitDecision::Park => parked.push(&row, false),
                fit @ (FitDecision::Skip | FitDecision::LeaveLane | FitDecision::Stop) => {
                    skipped.push(row);
                    self.stopped |= fit == FitDecision::Stop;
                    if fit == FitDecision::LeaveLane {
                        cursor.close(at);
                    }
                }
            }
        }
        result.skipped =
            skipped.iter().chain(waiting.iter().flatten()).map(CandidateUnit::source_and_rank).collect();
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
        self.budget.claimed.units.push(candidate.into_held(self.claim, stream, alone)?);
        Ok(())
    }

    /// Claims a unit that must run alone, if there is one and the worker holds nothing. Returns the
    /// index of its lane.
    pub(super) async fn take_alone(&mut self, tx: &mut Tx<'_>, lanes: &ClaimLanes) -> Result<Option<usize>> {
        let open = lanes.lanes.iter().filter(|lane| lanes.remaining(lane) > 0);
        let sources = open.flat_map(|lane| &lane.sources).copied();
        let sources_alone: Vec<usize> = sources.filter(|at| lanes.sources[*at].alone).collect();
        if sources_alone.is_empty() {
            return Ok(None);
        }
        let empty_handed = self.claim.holds_nothing;
        let rows = rows::alone(tx, &lanes.sources, &sources_alone, empty_handed).await?;
        tx.after.skipped |= rows.is_empty();
        self.keys.count(tx, rows.iter().filter_map(|row| row.row.cap_key.as_deref())).await?;
        let mut expired = Vec::new();
        let mut claimed_lane = None;
        for mut row in rows {
            let spec = UnitAttributes::parse(row.row.spec.as_deref())?;
            let needs = UnitNeeds::from_columns(&spec, row.row.deadline, row.row.flags);
            let leased = || leased_with_key(&self.keys, &row.row);
            match self.budget.admit_alone(&needs, tx.now, leased)? {
                FitDecision::Start => {
                    let mut lease = LockedColumns::default();
                    lease.push(&row, true);
                    rows::lease(tx, self.session, &lease).await?;
                    row.lease(tx.now.as_micros(), true);
                    claimed_lane = lanes.lanes.iter().position(|lane| lane.sources.contains(&row.source));
                    self.push(tx, lanes, row, true)?;
                    break;
                }
                FitDecision::Stop => break,
                // A row that may not be claimed is not locked.
                FitDecision::Expire if empty_handed => expired.push(expire(tx, row.row)?),
                _ => {}
            }
        }
        finish::apply(tx, expired).await?;
        Ok(claimed_lane)
    }

    fn fit(&mut self, row: &UnitRow, lane_capped: bool, now: Timestamp) -> Result<FitDecision> {
        if !row.has(flag::NEEDS_CHECK) {
            return Ok(self.budget.admit_plain(lane_capped));
        }
        let spec = UnitAttributes::parse(row.spec.as_deref())?;
        let needs = UnitNeeds::from_columns(&spec, row.deadline, row.flags);
        let leased = || leased_with_key(&self.keys, row);
        let fit = self.budget.admit(&needs, lane_capped, now, leased)?;
        if let (FitDecision::Start, Some(key)) = (fit, &row.cap_key) {
            self.keys.lease(key);
        }
        Ok(fit)
    }
}

fn leased_with_key(keys: &ConcurrencyKeys, row: &UnitRow) -> Result<Option<u32>> {
    Ok(row.cap_key.as_deref().map_or(Some(0), |key| keys.leased_units(key)))
}

/// Groups units by lane, in the order of their ranks.
fn by_lane(lanes: &ClaimLanes, mut rows: Vec<CandidateUnit>) -> Vec<VecDeque<CandidateUnit>> {
    let mut of = vec![0; lanes.sources.len()];
    for (lane, sources) in lanes.lanes.iter().map(|lane| &lane.sources).enumerate() {
        sources.iter().for_each(|source| of[*source] = lane);
    }
    rows.sort_by_key(CandidateUnit::key);
    let mut waiting: Vec<VecDeque<CandidateUnit>> = lanes.lanes.iter().map(|_| VecDeque::new()).collect();
    for row in rows {
        waiting[of[row.source]].push_back(row);
    }
    waiting
}

/// A cursor that starts where the plan did, limited to the rows that were read.
fn resume_cursor(
    lanes: &ClaimLanes,
    plan: &RoundPlan,
    waiting: &[VecDeque<CandidateUnit>],
) -> StrideCursor<i64> {
    let share = |(at, before): (usize, &LaneShare<i64>)| {
        let there = u64::try_from(waiting[at].len()).unwrap_or(u64::MAX);
        let available = there.min(lanes.remaining(&lanes.lanes[at]));
        LaneShare { available, ..before.clone() }
    };
    let shares = plan.before.lanes().iter().enumerate().map(share).collect();
    StrideCursor::new(plan.before.tenants().to_vec(), shares)
}

fn expire(tx: &Tx<'_>, row: UnitRow) -> Result<UnitChange> {
    let step = transition(&row.transition_input()?, &Event::Expired, &Policy::default(), tx.now)?;
    Ok(UnitChange::step(row, step))
}
