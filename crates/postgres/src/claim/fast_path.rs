//! The fast path of a claim: one statement, if there is nothing to divide or check.
//!
//! Condition: one stream has ready units, no cap limits it, no unit must run alone, and all units
//! found are plain. Then a server function claims what the full claim would. From its reply this
//! process updates the same state as the full claim: scan starts, and what to recheck.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_core::store::{ClaimRequest, ClaimResult};
use longshore_core::stride_scheduler::ClaimFilterHash;
use longshore_core::{Error, Result};
use tokio_postgres::Row;

use super::MAX_CLAIM;
use super::candidate_streams::ClaimParams;
use super::rows::{CandidateUnit, SUMMARY_COLUMNS};
use crate::error::{damaged, is_unique_violation};
use crate::row::{count, value};
use crate::store::StoreInner;
use crate::streams::Stream;
use crate::stride::{ScanMode, ScannedStream};
use crate::tx::PostCommit;
use crate::typed_params::SqlParam;

/// Claims units, or returns `None` if the full claim is needed.
pub(crate) async fn try_fast_path(
    inner: &Arc<StoreInner>,
    claim: &Arc<ClaimRequest>,
) -> Result<Option<ClaimResult>> {
    let filter = ClaimFilterHash::of(claim);
    let wanted = u64::from(claim.free_slots) + u64::from(claim.prefetch);
    let needs_full_claim = !claim.excluded_tenants.is_empty() || inner.stride.needs_full_claim(filter);
    if wanted == 0 || wanted > MAX_CLAIM || needs_full_claim {
        return Ok(None);
    }
    let mode = inner.stride.scan_starts.mode(filter, Instant::now());
    if matches!(&mode, ScanMode::Resume(streams) if streams.len() != 1) {
        return Ok(None);
    }
    let resuming = mode != ScanMode::Full;
    let claimed = try_fast_path_at(inner, claim, filter, mode).await?;
    if resuming && claimed.as_ref().is_some_and(|claimed| claimed.units.is_empty()) {
        return try_fast_path_at(inner, claim, filter, ScanMode::Full).await;
    }
    Ok(claimed)
}

async fn try_fast_path_at(
    inner: &Arc<StoreInner>,
    claim: &Arc<ClaimRequest>,
    filter: ClaimFilterHash,
    mode: ScanMode,
) -> Result<Option<ClaimResult>> {
    let (store, claim) = (Arc::clone(inner), Arc::clone(claim));
    let task = async move {
        let Some(answer) = query(&store, &claim, &mode).await? else {
            store.stride.set_needs_full_claim(filter, true);
            return Ok(None);
        };
        let (claimed, after) = answer.record(&store, &claim, filter, &mode).await?;
        store.run_post_commit(after).await?;
        Ok(Some(claimed))
    };
    inner.run_to_completion(task).await
}

/// The server's reply.
struct ClaimReply {
    wanted: u64,
    cost: Duration,
    /// The stream with ready units.
    source: Option<ClaimedStream>,
    /// In the order of their ranks.
    units: Vec<CandidateUnit>,
}

struct ClaimedStream {
    num: i64,
    /// Where the server's scan started.
    first: Option<i64>,
}

async fn query(inner: &StoreInner, claim: &ClaimRequest, mode: &ScanMode) -> Result<Option<ClaimReply>> {
    let start = match mode {
        ScanMode::Resume(streams) => streams.first().map(|one| inner.stride.scan_starts.start(mode, *one)),
        ScanMode::Full => None,
    };
    let (start, now) = (start.unwrap_or(i64::MIN), inner.now());
    let (free, wanted) =
        (i64::from(claim.free_slots), i64::from(claim.free_slots) + i64::from(claim.prefetch));
    let (first_fence, now) = (inner.stride.fences.reserve(now, wanted), now.as_micros());
    let filter_params = ClaimParams::new(claim, mode);
    let mut params = filter_params.params().to_vec();
    let settled = inner.streams.settled(Instant::now());
    params.extend([&start as &dyn SqlParam, &wanted, &free, &now, &first_fence, &settled]);
    let sql = "SELECT * FROM longshore_claim_fast($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
        $12, $13, $14)";
    let rows = match inner.query_autocommit(sql, &params).await {
        // Another process that claims for the same session has used one of the fences. The full claim reserves others.
        Err(error) if is_unique_violation(&error) => return Ok(None),
        rows => rows?,
    };
    let (first, units) = rows.split_first().ok_or(Error::SessionGone(claim.session))?;
    ClaimReply::read(first, units, wanted.unsigned_abs())
}

impl ClaimReply {
    /// Reads the reply from its first row, the summary, and the rows of the units.
    fn read(first: &Row, rows: &[Row], wanted: u64) -> Result<Option<Self>> {
        if value::<i32>(first, SUMMARY_COLUMNS)? > 1 {
            return Ok(None);
        }
        let cost = Duration::from_micros(count(first, SUMMARY_COLUMNS + 3)?);
        let Some(num) = value::<Option<i64>>(first, SUMMARY_COLUMNS + 1)? else {
            return Ok(Some(Self { wanted, cost, source: None, units: Vec::new() }));
        };
        let source = Some(ClaimedStream { num, first: value(first, SUMMARY_COLUMNS + 2)? });
        let mut units = Vec::new();
        for row in rows {
            CandidateUnit::read_into(&mut units, row, 0)?;
        }
        units.sort_by_key(CandidateUnit::key);
        let plain = units.iter().all(|unit| unit.claimed);
        Ok(plain.then_some(Self { wanted, cost, source, units }))
    }

    /// Records where the units were, and returns them. With one stream there are no shares to charge.
    async fn record(
        self,
        inner: &StoreInner,
        claim: &ClaimRequest,
        filter: ClaimFilterHash,
        mode: &ScanMode,
    ) -> Result<(ClaimResult, PostCommit)> {
        let (stride, mut after) = (&inner.stride, PostCommit::default());
        let claimed_units = self.units.len() as u64;
        let Some(source) = self.source else {
            if *mode == ScanMode::Full {
                stride.scan_starts.record_full_scan(filter, self.cost, Vec::new(), Instant::now());
            }
            return Ok((ClaimResult::default(), after));
        };
        let last = self.units.last().map(|unit| unit.rank).or(source.first);
        let last = last.filter(|last| *last != i64::MIN);
        stride.scan_starts.record_claim(
            mode,
            last.map(|last| (source.num, last)).into_iter(),
            self.units.len(),
        );
        let mut streams = inner.streams_by_num(BTreeSet::from([source.num])).await?;
        let missing = || damaged("a unit without its stream");
        let stream = streams.remove(&source.num).ok_or_else(missing)?;
        inner.streams.set_capped(stream.lane, false);
        if *mode == ScanMode::Full {
            let (rank, tenant) = (source.first.unwrap_or(i64::MIN), stream.tenant.clone());
            let (num, lane) = (stream.num, stream.lane);
            let scanned = ScannedStream { num, lane, weight: 1, tenant, tenant_weight: 1, rank };
            stride.scan_starts.record_full_scan(filter, self.cost, vec![scanned], Instant::now());
            // There were ready units a moment ago, and other transactions hold some or all of them.
            after.skipped = claimed_units == 0;
            after.rechecks.extend((claimed_units > 0 && claimed_units < self.wanted).then_some(source.num));
        }
        if claimed_units > 0 {
            after.deltas = 1;
            after.note_stream(&inner.streams, &stream, false);
        }
        Ok((into_claimed(claim, &stream, self.units)?, after))
    }
}

fn into_claimed(claim: &ClaimRequest, stream: &Stream, units: Vec<CandidateUnit>) -> Result<ClaimResult> {
    let held = units.into_iter().map(|unit| unit.into_held(claim, stream, false));
    Ok(ClaimResult { units: held.collect::<Result<_>>()?, ..ClaimResult::default() })
}
