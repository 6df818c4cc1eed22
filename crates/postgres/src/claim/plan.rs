//! Divides a round of a claim among streams.

use std::collections::BTreeMap;

use longshore_core::stride_scheduler::{LaneShare, StrideCursor};

use super::lanes::ClaimLanes;
use super::rows::CandidateUnit;
use super::selection::RoundResult;
use crate::stride::StrideState;

/// What one round claims.
pub(super) struct RoundPlan {
    /// The stride order of lanes, as indexes into [`ClaimLanes::lanes`].
    pub(super) order: Vec<usize>,
    /// How many units to claim from each stream.
    pub(super) quotas: Vec<StreamQuota>,
    /// The lanes' shares before the round.
    pub(super) before: Vec<LaneShare>,
}

/// How many units to claim from one stream.
pub(super) struct StreamQuota {
    /// Index of the stream in [`ClaimLanes::sources`].
    pub(super) source: usize,
    /// All units.
    pub(super) units: u64,
    /// How many of them, from the first on, get a free slot.
    pub(super) started: u64,
}

impl RoundPlan {
    /// Divides `wanted` units, of which the first `free` can start, plus `spare` more, by the
    /// lanes' shares.
    pub(super) fn make(stride: &StrideState, lanes: &ClaimLanes, free: u64, wanted: u64, spare: u64) -> Self {
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
            let mut cursor = lanes.stride_cursor(before.clone());
            let order = order(&mut cursor, lanes, free, wanted, spare);
            for ((_, share), after) in shares.iter_mut().zip(&cursor.shares) {
                share.pass = after.pass;
            }
            Self { quotas: quotas(lanes, &order, free), order, before }
        })
    }

    /// Streams that returned some units but fewer than requested: either they have no more, or
    /// other transactions hold the rest.
    pub(super) fn partial_streams(&self, lanes: &ClaimLanes, rows: &[CandidateUnit]) -> Vec<i64> {
        let short = |quota: &&StreamQuota| {
            let found = rows.iter().filter(|row| row.source == quota.source).count() as u64;
            found > 0 && found < quota.units
        };
        let short = self.quotas.iter().filter(short);
        short.map(|quota| lanes.sources[quota.source].stream.num).collect()
    }

    /// Refunds the stride charge of units that were planned and not claimed.
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
                lanes.tenant_remaining[tenant] = lanes.tenant_remaining[tenant].saturating_sub(claimed);
            }
            if planned > claimed {
                stride.refund(lane.num, lane.weight, planned - claimed);
            }
        }
    }
}

fn order(cursor: &mut StrideCursor, lanes: &ClaimLanes, free: u64, wanted: u64, spare: u64) -> Vec<usize> {
    let total = wanted + spare;
    // Nothing is claimed ahead from a capped lane. How many slots the spare units would need is
    // unknown.
    let free = if spare > 0 && free > 0 { total } else { free };
    let mut order = Vec::new();
    let mut used = 0;
    while used < total {
        let Some(at) = cursor.next_lane() else { break };
        if used >= free && lanes.lanes[at].capped {
            cursor.close(at);
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
