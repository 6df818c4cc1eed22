//! The streams that a claim may take units from.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::store::{ClaimRequest, Queues};
use longshore_core::{Error, Kind, QueueName, Result, TenantId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::row::{count, small, value};
use crate::streams::Stream;
use crate::stride::ScanMode;
use crate::tx::Tx;
use crate::typed_params::{SqlParam, session_uuid};

/// The result of a claim's first statement.
pub(super) struct ClaimCandidates {
    /// The number of the claiming session.
    pub(super) session: i64,
    /// How long the server scanned.
    pub(super) cost: Duration,
    pub(super) sources: Vec<CandidateStream>,
}

/// A stream with ready units, and the limits that apply to it.
pub(super) struct CandidateStream {
    pub(super) stream: Arc<Stream>,
    pub(super) weight: u32,
    pub(super) cap: Option<u64>,
    pub(super) tenant_weight: u32,
    pub(super) tenant_cap: Option<u64>,
    /// Whether it has units that must run alone.
    pub(super) alone: bool,
    /// Rank and id after which to read on.
    pub(super) after: (i64, Uuid),
    /// There are no more units.
    pub(super) exhausted: bool,
    /// The lowest rank among the units that were read and not claimed.
    pub(super) lowest_skipped: Option<i64>,
    /// How many units the last read found, and whether those were all.
    pub(super) seen: Option<(u64, bool)>,
}

/// Parameters 1 to 8 of the claim functions.
pub(super) struct ClaimParams<'c> {
    session: Uuid,
    kinds: Vec<&'c str>,
    queues: Vec<&'c str>,
    tenant: Option<&'c str>,
    batch: Option<String>,
    resumed: Vec<i64>,
    all_queues: bool,
    mode: i32,
}

impl<'c> ClaimParams<'c> {
    pub(super) fn new(claim: &'c ClaimRequest, mode: &ScanMode) -> Self {
        let (mode, resumed) = match mode {
            ScanMode::Full if claim.batch.is_none() => (0, Vec::new()),
            ScanMode::Full => (1, Vec::new()),
            ScanMode::Resume(streams) => (2, streams.clone()),
        };
        Self {
            session: session_uuid(claim.session),
            kinds: claim.kinds.iter().map(Kind::as_str).collect(),
            queues: match &claim.queues {
                Queues::All => Vec::new(),
                Queues::Named(names) => names.iter().map(QueueName::as_str).collect(),
            },
            tenant: claim.scope.tenant().map(TenantId::as_str),
            batch: claim.batch.as_ref().map(|id| claim.scope.batch_id(id).into()),
            resumed,
            all_queues: claim.queues == Queues::All,
            mode,
        }
    }

    pub(super) fn params(&self) -> [&dyn SqlParam; 8] {
        let Self { session, kinds, queues, tenant, batch, resumed, all_queues, mode } = self;
        [session, kinds, queues, tenant, batch, resumed, all_queues, mode]
    }
}

/// Finds candidate streams. The claiming session cannot end until the claim is committed.
pub(super) async fn find_candidates(
    tx: &mut Tx<'_>,
    claim: &ClaimRequest,
    mode: &ScanMode,
) -> Result<ClaimCandidates> {
    let sql = "SELECT * FROM longshore_candidate_streams($1, $2, $3, $4, $5, $6, $7, $8)";
    let rows = tx.query(sql, &ClaimParams::new(claim, mode).params()).await?;
    let first = rows.first().ok_or(Error::SessionGone(claim.session))?;
    let session = value(first, 0)?;
    let mut cost = 0;
    for row in &rows {
        cost = cost.max(count(row, 1)?);
    }
    let mut sources = sources(tx, &rows).await?;
    sources.retain(|source| !claim.excluded_tenants.contains(&source.stream.tenant));
    Ok(ClaimCandidates { session, cost: Duration::from_micros(cost), sources })
}

async fn sources(tx: &mut Tx<'_>, rows: &[Row]) -> Result<Vec<CandidateStream>> {
    let mut nums: Vec<i64> = Vec::new();
    for row in rows {
        nums.extend(value::<Option<i64>>(row, 2)?);
    }
    let cache = Arc::clone(&tx.streams);
    let streams = cache.by_num(tx, nums).await?;
    let mut sources = Vec::with_capacity(rows.len());
    for row in rows {
        let Some(num) = value::<Option<i64>>(row, 2)? else { continue };
        let Some(stream) = streams.get(&num) else { continue };
        let (lane_cap, tenant_cap) = (cap(row, 6)?, cap(row, 8)?);
        cache.set_capped(stream.lane, lane_cap.is_some() || tenant_cap.is_some());
        sources.push(CandidateStream {
            stream: Arc::clone(stream),
            weight: small(row, 5)?,
            cap: lane_cap,
            tenant_weight: small(row, 7)?,
            tenant_cap,
            alone: value(row, 4)?,
            after: (value::<Option<i64>>(row, 9)?.unwrap_or(i64::MIN), Uuid::nil()),
            exhausted: !value::<bool>(row, 3)?,
            lowest_skipped: None,
            seen: None,
        });
    }
    Ok(sources)
}

/// Reads the column of a cap.
pub(super) fn cap(row: &Row, at: usize) -> Result<Option<u64>> {
    Ok(value::<Option<i32>>(row, at)?.map(|cap| u64::try_from(cap).unwrap_or(0)))
}
