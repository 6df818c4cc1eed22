//! Divides a round of a claim among streams.

use std::collections::{BTreeMap, HashMap, HashSet};

use longshore_core::store::ClaimRequest;
use longshore_core::stride_scheduler::{ClaimFilterHash, StrideCursor};

use super::lanes::{ClaimLane, ClaimLanes};
use super::rows::CandidateUnit;
use super::selection::RoundResult;
use crate::stride::{ScanMode, ScannedStream, StrideState};

/// The stride schedule of claims with one filter.
pub(super) struct Schedule<'c> {
    pub(super) stride: &'c StrideState,
    pub(super) filter: ClaimFilterHash,
    pub(super) claim: &'c ClaimRequest,
}

impl Schedule<'_> {
    /// Lets `plan` take units of these lanes, and charges them. The lanes' available units are those
    /// that `available` returns. Also returns the cursor from before.
    fn plan<T>(
        &self,
        lanes: &ClaimLanes,
        available: impl Fn(&ClaimLane) -> u64,
        plan: impl FnOnce(&mut StrideCursor<i64>) -> T,
    ) -> (T, StrideCursor<i64>) {
        let shares = lanes.lanes.iter().map(|lane| lane.share(available(lane))).collect();
        self.stride.with(|state| {
            let before = state.cursor(self.filter, self.claim.session, lanes.tenants.clone(), shares);
            let mut cursor = before.clone();
            let planned = plan(&mut cursor);
            state.save(self.filter, &cursor, &self.claim.excluded_tenants);
            (planned, before)
        })
    }

    /// Those of the `open` lanes that the next `units` would be of, if all had enough.
    pub(super) fn served(&self, lanes: &ClaimLanes, open: &[usize], units: u64) -> Vec<usize> {
        let mut shares: Vec<_> = lanes.lanes.iter().map(|lane| lane.share(0)).collect();
        open.iter().for_each(|at| shares[*at].available = u64::MAX);
        let mut cursor = self
            .stride
            .with(|state| state.cursor(self.filter, self.claim.session, lanes.tenants.clone(), shares));
        served_first(&mut cursor, units)
    }

    /// The streams that the next units are of, and all others. For a claim that resumes a scan of many streams.
    pub(super) fn split(&self, scanned: &[ScannedStream], units: u64) -> (Vec<i64>, Vec<ScannedStream>) {
        let claimable = |stream: &&ScannedStream| !self.claim.excluded_tenants.contains(&stream.tenant);
        let scanned: Vec<ScannedStream> = scanned.iter().filter(claimable).cloned().collect();
        let none = ClaimLanes::new(&self.stride.scan_starts, &ScanMode::Full, Vec::new(), &scanned);
        let open: Vec<usize> = (0..none.lanes.len()).collect();
        let next = self.served(&none, &open, units);
        let next: HashSet<i64> = next.into_iter().map(|at| none.lanes[at].num).collect();
        let (mut served, unserved): (Vec<_>, Vec<_>) =
            scanned.into_iter().partition(|stream| next.contains(&stream.lane));
        // A lane may have many streams, and its first units are in those with the lowest ranks.
        let start = |stream: &ScannedStream| {
            let resume = ScanMode::Resume(Vec::new());
            stream.rank.max(self.stride.scan_starts.start(&resume, stream.num))
        };
        served.sort_by_cached_key(|stream| (stream.lane, start(stream)));
        let mut streams = Vec::new();
        for lane in served.chunk_by(|one, next| one.lane == next.lane) {
            streams.extend(
                lane.iter().take(usize::try_from(units).unwrap_or(usize::MAX)).map(|stream| stream.num),
            );
        }
        (streams, unserved)
    }

    /// Charges a lane for a unit that was claimed before all others.
    pub(super) fn charge(&self, lanes: &ClaimLanes, at: usize) {
        self.plan(lanes, |_| 1, |cursor| cursor.serve(at));
    }
}

/// The lanes of the next `units`, each once.
fn served_first(cursor: &mut StrideCursor<i64>, units: u64) -> Vec<usize> {
    let (mut order, mut seen) = (Vec::new(), HashSet::new());
    for _ in 0..units {
        let Some(at) = cursor.next_lane() else { break };
        cursor.serve(at);
        if seen.insert(at) {
            order.push(at);
        }
    }
    order
}

/// What one round claims.
pub(super) struct RoundPlan {
    /// The stride order of lanes, as indexes into [`ClaimLanes::lanes`].
    pub(super) order: Vec<usize>,
    /// How many units to claim from each stream.
    pub(super) quotas: Vec<StreamQuota>,
    /// The lanes' shares before the round.
    pub(super) before: StrideCursor<i64>,
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
    pub(super) fn make(
        schedule: &Schedule<'_>,
        lanes: &ClaimLanes,
        free: u64,
        wanted: u64,
        spare: u64,
    ) -> Self {
        let available = |lane: &ClaimLane| {
            let window = u64::try_from(lane.window.len()).unwrap_or(u64::MAX);
            match lanes.remaining(lane) {
                0 => 0,
                remaining => window.min(remaining.saturating_add(spare)),
            }
        };
        let free_now = free.saturating_sub(schedule.claim.start_ahead.into());
        let (order, before) =
            schedule.plan(lanes, available, |cursor| order(cursor, lanes, free_now, wanted, spare));
        Self { quotas: quotas(lanes, &order, free), order, before }
    }

    /// Streams that returned some units but fewer than requested: either they have no more, or
    /// other transactions hold the rest.
    pub(super) fn partial_streams(&self, lanes: &ClaimLanes, rows: &[CandidateUnit]) -> Vec<i64> {
        let mut found: HashMap<usize, u64> = HashMap::new();
        rows.iter().for_each(|row| *found.entry(row.source).or_default() += 1);
        let short = |quota: &&StreamQuota| found.get(&quota.source).is_some_and(|found| *found < quota.units);
        let short = self.quotas.iter().filter(short);
        short.map(|quota| lanes.sources[quota.source].stream.num).collect()
    }

    /// Refunds the stride charge of units that were planned and not claimed.
    pub(super) fn refund_unclaimed(
        &self,
        schedule: &Schedule<'_>,
        lanes: &mut ClaimLanes,
        result: &RoundResult,
    ) {
        let mut unclaimed: Vec<u64> = vec![0; lanes.lanes.len()];
        self.order.iter().for_each(|at| unclaimed[*at] += 1);
        for (at, lane) in lanes.lanes.iter_mut().enumerate() {
            let claimed = result.units[at];
            let tenant = &mut lanes.tenants[lane.tenant];
            lane.remaining = lane.remaining.saturating_sub(claimed);
            tenant.allowed = tenant.allowed.saturating_sub(claimed);
            unclaimed[at] = unclaimed[at].saturating_sub(claimed);
        }
        schedule.stride.with(|state| {
            for (at, units) in unclaimed.iter().enumerate().filter(|(_, units)| **units > 0) {
                state.refund(schedule.filter, &self.before, at, *units);
            }
        });
    }
}

fn order(
    cursor: &mut StrideCursor<i64>,
    lanes: &ClaimLanes,
    free: u64,
    wanted: u64,
    spare: u64,
) -> Vec<usize> {
    let total = wanted + spare;
    // Nothing is claimed or started ahead from a capped lane. How many slots the spare units would need
    // is unknown.
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
