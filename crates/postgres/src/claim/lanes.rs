//! The lanes of a claim: how many units each has, and how many its caps allow.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use longshore_core::stride_scheduler::{LaneShare, TenantShare};
use longshore_core::{Result, TenantId};

use super::candidate_streams::{CandidateStream, cap};
use super::plan::{RoundPlan, Schedule};
use super::rows::{self, CandidateUnit};
use crate::advisory_lock::{self, AdvisoryLock};
use crate::row::{count, value};
use crate::stride::{ScanMode, ScanStarts, ScannedStream};
use crate::tx::Tx;

/// With this many times more lanes than a claim wants units, it reads only the lanes that are next.
pub(super) const MANY_LANES: u64 = 4;

/// All lanes of a claim.
pub(super) struct ClaimLanes {
    pub(super) lanes: Vec<ClaimLane>,
    pub(super) sources: Vec<CandidateStream>,
    /// The tenants of the lanes, and how many more units each may lease over all its lanes.
    pub(super) tenants: Vec<TenantShare>,
}

/// One lane of a claim.
pub(super) struct ClaimLane {
    pub(super) num: i64,
    pub(super) weight: u32,
    /// The lane or its tenant has a cap, so nothing is claimed ahead from it.
    pub(super) capped: bool,
    /// How many more units the lane's own cap allows.
    pub(super) remaining: u64,
    /// Index of the tenant in [`ClaimLanes::tenants`].
    pub(super) tenant: usize,
    /// Indexes of its streams in [`ClaimLanes::sources`].
    pub(super) sources: Vec<usize>,
    /// The streams of its next units, in the order of their ranks.
    pub(super) window: Vec<usize>,
}

impl ClaimLanes {
    /// The lanes of `sources`, and lanes that this claim does not serve: they keep their place in the stride order.
    pub(super) fn new(
        scan_starts: &ScanStarts,
        mode: &ScanMode,
        mut sources: Vec<CandidateStream>,
        unserved: &[ScannedStream],
    ) -> Self {
        let (mut lanes, mut tenants): (Vec<ClaimLane>, Vec<TenantShare>) = (Vec::new(), Vec::new());
        let mut index: HashMap<i64, usize> = HashMap::new();
        let mut index_by_tenant: HashMap<TenantId, usize> = HashMap::new();
        for (at, source) in sources.iter_mut().enumerate() {
            source.after.0 = source.after.0.max(scan_starts.start(mode, source.stream.num));
            let lane = *index.entry(source.stream.lane).or_insert_with(|| {
                let id = &source.stream.tenant;
                let tenant = *index_by_tenant.entry(id.clone()).or_insert_with(|| {
                    tenants.push(TenantShare::new(id.clone(), source.tenant_weight));
                    tenants.len() - 1
                });
                lanes.push(ClaimLane::new(source, tenant));
                lanes.len() - 1
            });
            lanes[lane].sources.push(at);
        }
        for stream in unserved {
            if let Entry::Vacant(new) = index.entry(stream.lane) {
                let tenant = *index_by_tenant.entry(stream.tenant.clone()).or_insert_with(|| {
                    tenants.push(TenantShare::new(stream.tenant.clone(), stream.tenant_weight));
                    tenants.len() - 1
                });
                new.insert(lanes.len());
                lanes.push(ClaimLane::empty(stream.lane, stream.weight, tenant));
            }
        }
        Self { lanes, sources, tenants }
    }

    /// The streams, for claims that resume this scan.
    pub(super) fn scanned(&self) -> Vec<ScannedStream> {
        let scanned = |source: &CandidateStream| ScannedStream {
            num: source.stream.num,
            lane: source.stream.lane,
            weight: source.weight,
            tenant: source.stream.tenant.clone(),
            tenant_weight: source.tenant_weight,
            rank: source.after.0,
        };
        self.sources.iter().map(scanned).collect()
    }

    /// The streams without units that this claim could take.
    pub(super) fn exhausted(&self) -> HashSet<i64> {
        let exhausted = self.sources.iter().filter(|source| source.exhausted);
        exhausted.map(|source| source.stream.num).collect()
    }

    /// Whether there is nothing to divide or check: at most one stream, no cap, no unit that must
    /// run alone.
    pub(super) fn is_simple(&self) -> bool {
        let plain =
            |source: &CandidateStream| source.cap.is_none() && source.tenant_cap.is_none() && !source.alone;
        self.lanes.len() <= 1 && self.sources.len() <= 1 && self.sources.iter().all(plain)
    }

    /// Counts leased units where a cap applies, under the cap's lock. Other claims under the same
    /// cap wait until this one is committed, so the counts stay valid.
    pub(super) async fn count_capped(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        let mut locks = Vec::new();
        let (mut nums, mut tenants): (Vec<i64>, Vec<String>) = (Vec::new(), Vec::new());
        for source in &self.sources {
            let (lane, tenant) = (source.stream.lane, source.stream.tenant.as_str());
            if source.cap.is_some() {
                locks.push(AdvisoryLock::LaneCap(lane));
                nums.push(lane);
            }
            if source.tenant_cap.is_some() {
                locks.push(AdvisoryLock::TenantCap(tenant));
                tenants.push(tenant.to_owned());
            }
        }
        if locks.is_empty() {
            return Ok(());
        }
        advisory_lock::acquire(tx, &locks).await?;
        // Read the caps again, since changing one requires its lock. The view is not used: it would
        // add up every past stream of the lanes.
        let sql = "WITH lanes AS (SELECT num, tenant, cap FROM longshore_lane
              WHERE num = ANY($1) OR tenant = ANY($2)),
            leased AS (
              SELECT s.lane, s.leased FROM longshore_stream s
              WHERE s.lane IN (SELECT num FROM lanes)
              UNION ALL SELECT s.lane, d.leased FROM longshore_stream_delta d
              JOIN longshore_stream s ON s.num = d.stream
              WHERE s.lane IN (SELECT num FROM lanes))
            SELECT l.num, l.tenant, coalesce(sum(x.leased), 0)::bigint, l.cap, t.cap
            FROM lanes l LEFT JOIN leased x ON x.lane = l.num
            LEFT JOIN longshore_tenant t ON t.name = l.tenant
            GROUP BY l.num, l.tenant, l.cap, t.cap";
        let (mut by_lane, mut by_tenant) = (HashMap::new(), HashMap::new());
        for row in tx.query(sql, &[&nums, &tenants]).await? {
            let (lane, leased): (i64, u64) = (value(&row, 0)?, count(&row, 2)?);
            *by_tenant.entry(value::<String>(&row, 1)?).or_insert(0) += leased;
            by_lane.insert(lane, (leased, cap(&row, 3)?, cap(&row, 4)?));
        }
        for source in &mut self.sources {
            if let Some((_, lane_cap, tenant_cap)) = by_lane.get(&source.stream.lane) {
                // A cap that is new applies from the next claim on: its lock is not held.
                source.cap = source.cap.and(*lane_cap);
                source.tenant_cap = source.tenant_cap.and(*tenant_cap);
            }
        }
        for lane in &mut self.lanes {
            let Some(source) = lane.sources.first().map(|at| &self.sources[*at]) else { continue };
            if let Some(cap) = source.cap {
                lane.remaining = cap.saturating_sub(by_lane.get(&lane.num).map_or(0, |(leased, ..)| *leased));
            }
            if let Some(cap) = source.tenant_cap {
                let leased = by_tenant.get(source.stream.tenant.as_str()).copied().unwrap_or(0);
                self.tenants[lane.tenant].allowed = cap.saturating_sub(leased);
            }
        }
        Ok(())
    }

    /// How many more units the caps of a lane and its tenant allow.
    pub(super) fn remaining(&self, lane: &ClaimLane) -> u64 {
        lane.remaining.min(self.tenants[lane.tenant].allowed)
    }

    /// Finds the streams of the next `wanted` units. With only one stream no statement is needed.
    pub(super) async fn plan_windows(
        &mut self,
        tx: &mut Tx<'_>,
        schedule: &Schedule<'_>,
        wanted: u64,
    ) -> Result<()> {
        let mut open: Vec<usize> = (0..self.lanes.len())
            .filter(|at| self.remaining(&self.lanes[*at]) > 0 && self.is_open(&self.lanes[*at]))
            .collect();
        self.lanes.iter_mut().for_each(|lane| lane.window.clear());
        if open.len() as u64 > wanted.saturating_mul(MANY_LANES) {
            open = schedule.served(self, &open, wanted.saturating_mul(2));
        }
        let limits = self.fair_limits(&open, wanted);
        let mut asked = Vec::new();
        for at in &open {
            let (lane, limit) = (&self.lanes[*at], limits[at]);
            let more = lane.sources.iter().filter(|source| !self.sources[**source].exhausted);
            let mut more: Vec<usize> = more.copied().collect();
            // The first units of a lane are in the streams with the lowest ranks.
            if more.len() as u64 > limit {
                more.sort_by_key(|source| self.sources[*source].after);
                more.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
            }
            asked.extend(more.into_iter().map(|source| (*at, source, limit)));
        }
        if let [(lane, source, _)] = asked[..] {
            let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
            self.lanes[lane].window = vec![source; wanted];
            self.sources[source].seen = None;
            return Ok(());
        }
        let sort_keys = rows::peek(tx, &self.sources, &asked).await?;
        let mut windows: HashMap<usize, Vec<(i64, usize)>> = HashMap::new();
        for ((lane, source, limit), sort_keys) in asked.iter().zip(&sort_keys) {
            let found = u64::try_from(sort_keys.len()).unwrap_or(u64::MAX);
            self.sources[*source].seen = Some((found, found < *limit));
            self.sources[*source].exhausted |= found == 0;
            let window = windows.entry(*lane).or_default();
            window.extend(sort_keys.iter().map(|sort_key| (*sort_key, *source)));
        }
        for (lane, mut window) in windows {
            // A stable sort keeps units of equal rank in the order of their stream.
            window.sort_by_key(|(sort_key, _)| *sort_key);
            window.truncate(usize::try_from(limits[&lane]).unwrap_or(usize::MAX));
            self.lanes[lane].window = window.into_iter().map(|(_, source)| source).collect();
        }
        Ok(())
    }

    /// How many units to read from each lane: twice its share, because other lanes may have fewer,
    /// and a few more. A lane's share is a part of its tenant's.
    fn fair_limits(&self, open: &[usize], wanted: u64) -> HashMap<usize, u64> {
        let weight = |at: &usize| u128::from(self.lanes[*at].weight);
        let mut lane_weights = vec![0; self.tenants.len()];
        open.iter().for_each(|at| lane_weights[self.lanes[*at].tenant] += weight(at));
        let present = self.tenants.iter().zip(&lane_weights).filter(|(_, lanes)| **lanes > 0);
        let tenant_weights: u128 = present.map(|(tenant, _)| u128::from(tenant.weight)).sum();
        let limit = |at: &usize| {
            let tenant = self.lanes[*at].tenant;
            let part = u128::from(wanted) * u128::from(self.tenants[tenant].weight) * weight(at);
            let share = part / (tenant_weights * lane_weights[tenant]).max(1);
            (*at, wanted.min(u64::try_from(share * 2 + 8).unwrap_or(u64::MAX)))
        };
        open.iter().map(limit).collect()
    }

    fn is_open(&self, lane: &ClaimLane) -> bool {
        lane.sources.iter().any(|at| !self.sources[*at].exhausted)
    }

    /// Moves past the rows that were read, and marks streams that are exhausted.
    pub(super) fn advance(&mut self, plan: &RoundPlan, rows: &[CandidateUnit]) {
        let mut found: HashMap<usize, u64> = HashMap::new();
        for row in rows {
            *found.entry(row.source).or_default() += 1;
            let source = &mut self.sources[row.source];
            source.after = source.after.max(row.key());
        }
        for quota in &plan.quotas {
            let source = &mut self.sources[quota.source];
            let found = found.get(&quota.source).copied().unwrap_or(0);
            let all = source.seen.is_some_and(|(seen, all)| all && quota.units == seen);
            source.exhausted |= found < quota.units || all;
        }
    }

    /// Records units that were read and not claimed.
    pub(super) fn record_skipped(&mut self, skipped: &[(usize, i64)]) {
        for (source, rank) in skipped {
            let source = &mut self.sources[*source];
            source.lowest_skipped = Some(source.lowest_skipped.map_or(*rank, |least| least.min(*rank)));
        }
    }

    /// Records where in each stream the next claim may start.
    pub(super) fn record_starts(&self, scan_starts: &ScanStarts, mode: &ScanMode, units: usize) {
        let found = self.sources.iter().filter(|source| source.after.0 != i64::MIN);
        let sort_keys =
            found.map(|source| (source.stream.num, source.lowest_skipped.unwrap_or(source.after.0)));
        scan_starts.record_claim(mode, sort_keys, units);
    }
}

impl ClaimLane {
    fn new(source: &CandidateStream, tenant: usize) -> Self {
        let capped = source.cap.is_some() || source.tenant_cap.is_some();
        Self { capped, ..Self::empty(source.stream.lane, source.weight, tenant) }
    }

    fn empty(num: i64, weight: u32, tenant: usize) -> Self {
        let (sources, window) = (Vec::new(), Vec::new());
        Self { num, weight, capped: false, remaining: u64::MAX, tenant, sources, window }
    }

    /// The lane's stride share with `available` units.
    pub(super) fn share(&self, available: u64) -> LaneShare<i64> {
        LaneShare { available, ..LaneShare::new(self.num, self.tenant, self.weight) }
    }
}
