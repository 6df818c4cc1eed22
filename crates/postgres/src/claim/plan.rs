//! How a round of a claim is divided: so many units of each stream.

use std::collections::BTreeMap;

use longshore_core::fair::{LaneShare, turn};

use super::lanes::ClaimLanes;
use super::rows::CandidateUnit;
use super::selection::RoundResult;
use crate::stride::StrideState;

/// What one round asks for.
pub(super) struct RoundPlan {
    /// Whose turn it is, as positions in [`ClaimLanes::lanes`].
    pub(super) order: Vec<usize>,
    /// What each stream is asked for.
    pub(super) quotas: Vec<StreamQuota>,
    /// Where the lanes stood before.
    pub(super) before: Vec<LaneShare>,
}

/// What one stream is asked for.
pub(super) struct StreamQuota {
    /// Which, as a position in [`ClaimLanes::sources`].
    pub(super) source: usize,
    /// How many units in all.
    pub(super) units: u64,
    /// How many of them, the first, have a free slot.
    pub(super) started: u64,
}

/// Takes turns among lanes, within what caps allow.
pub(super) struct StrideCursor<'l> {
    lanes: &'l ClaimLanes,
    pub(super) shares: Vec<LaneShare>,
    tenant_remaining: Vec<u64>,
}

impl<'l> StrideCursor<'l> {
    /// Begins where `shares` says.
    pub(super) fn new(lanes: &'l ClaimLanes, shares: Vec<LaneShare>) -> Self {
        Self { lanes, shares, tenant_remaining: lanes.tenant_remaining.clone() }
    }

    /// Whose turn it is.
    pub(super) fn next(&self) -> Option<usize> {
        turn(self.shares.iter())
    }

    /// The lane gives a unit: its tenant's other lanes have less room, too.
    pub(super) fn serve(&mut self, at: usize) {
        self.shares[at].serve();
        let Some(tenant) = self.lanes.lanes[at].tenant else { return };
        self.tenant_remaining[tenant] = self.tenant_remaining[tenant].saturating_sub(1);
        for (lane, share) in self.lanes.lanes.iter().zip(&mut self.shares) {
            if lane.tenant == Some(tenant) {
                share.available = share.available.min(self.tenant_remaining[tenant]);
            }
        }
    }

    /// The lane gives nothing more.
    pub(super) fn drop_lane(&mut self, at: usize) {
        self.shares[at].available = 0;
    }
}

impl RoundPlan {
    /// Divides `wanted` units, of which the first `free` can start, and `spare` more by the lanes'
    /// shares.
    pub(super) fn make(
        stride: &StrideState,
        lanes: &ClaimLanes,
        free: u64,
        wanted: u64,
        spare: u64,
    ) -> Self {
        let shares = lanes.lanes.iter().map(|lane| {
            let window = u64::try_from(lane.window.len()).unwrap_or(u64::MAX);
            let remaining = match lanes.remaining(lane) {
                0 => 0,
                remaining => remaining.saturating_add(spare),
            };
            (lane.num, lane.share(window.min(remaining)))
        });
        let mut shares: Vec<(i64, LaneShare)> = shares.collect();
        stride.plan(&mut shares, |shares| {
            let before: Vec<LaneShare> = shares.iter().map(|(_, share)| *share).collect();
            let mut cursor = StrideCursor::new(lanes, before.clone());
            let order = order(&mut cursor, free, wanted, spare);
            for ((_, share), after) in shares.iter_mut().zip(&cursor.shares) {
                share.pass = after.pass;
            }
            Self { quotas: quotas(lanes, &order, free), order, before }
        })
    }

    /// The streams that gave some, and fewer than they were asked for: all they have, or all that
    /// others do not hold.
    pub(super) fn partial_streams(&self, lanes: &ClaimLanes, rows: &[CandidateUnit]) -> Vec<i64> {
        let short = |quota: &&StreamQuota| {
            let found = rows.iter().filter(|row| row.source == quota.source).count() as u64;
            found > 0 && found < quota.units
        };
        let short = self.quotas.iter().filter(short);
        short.map(|quota| lanes.sources[quota.source].stream.num).collect()
    }

    /// Gives back the turns of units that could not be taken.
    pub(super) fn refund_unclaimed(
        &self,
        stride: &StrideState,
        lanes: &mut ClaimLanes,
        result: &RoundResult,
    ) {
        for (at, lane) in lanes.lanes.iter_mut().enumerate() {
            let planned = self.order.iter().filter(|one| **one == at).count();
            let planned = u64::try_from(planned).unwrap_or(u64::MAX);
            let claimed = result.units[at];
            lane.remaining = lane.remaining.saturating_sub(claimed);
            if let Some(tenant) = lane.tenant {
                lanes.tenant_remaining[tenant] =
                    lanes.tenant_remaining[tenant].saturating_sub(claimed);
            }
            if planned > claimed {
                stride.refund(lane.num, lane.weight, planned - claimed);
            }
        }
    }
}

fn order(cursor: &mut StrideCursor<'_>, free: u64, wanted: u64, spare: u64) -> Vec<usize> {
    let total = wanted + spare;
    // Nothing is claimed ahead from a capped lane; how many slots spares would need nobody knows.
    let free = if spare > 0 && free > 0 { total } else { free };
    let mut order = Vec::new();
    let mut used = 0;
    while used < total {
        let Some(at) = cursor.next() else { break };
        if used >= free && cursor.lanes.lanes[at].capped {
            cursor.drop_lane(at);
            continue;
        }
        cursor.serve(at);
        order.push(at);
        used += 1;
    }
    order
}

fn quotas(lanes: &ClaimLanes, order: &[usize], free: u64) -> Vec<StreamQuota> {
    let mut next: Vec<usize> = vec![0; lanes.lanes.len()];
    let mut quotas: BTreeMap<usize, StreamQuota> = BTreeMap::new();
    for (turn, at) in (0_u64..).zip(order) {
        let Some(source) = lanes.lanes[*at].window.get(next[*at]).copied() else { continue };
        next[*at] += 1;
        let quota = quotas.entry(source).or_insert(StreamQuota { source, units: 0, started: 0 });
        quota.units += 1;
        quota.started += u64::from(turn < free);
    }
    quotas.into_values().collect()
}
