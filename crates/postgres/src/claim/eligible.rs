//! The streams that a claim may take from.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::fair::share;
use longshore_core::store::{Claim, Queues};
use longshore_core::{BatchId, Error, Kind, QueueName, Result, Scope};
use tokio_postgres::Row;

use crate::param::session_uuid;
use crate::row::{count, small, value};
use crate::streams::Stream;
use crate::turns::Look;
use crate::tx::Tx;

/// What the first statement of a claim finds.
pub(super) struct Found {
    /// The claimer's number.
    pub(super) session: i64,
    /// How long the server looked.
    pub(super) cost: Duration,
    pub(super) sources: Vec<Source>,
}

/// A stream that has something to give, and the switches it stands under.
pub(super) struct Source {
    pub(super) stream: Arc<Stream>,
    pub(super) weight: u32,
    pub(super) cap: Option<u64>,
    pub(super) tenant_cap: Option<u64>,
    /// Whether it has units that must run alone.
    pub(super) alone: bool,
    /// Where to look for more.
    pub(super) after: (i64, uuid::Uuid),
    /// Nothing more is there.
    pub(super) dry: bool,
    /// The smallest rank of those that were found and left.
    pub(super) left: Option<i64>,
    /// How many were seen at the last look, and whether that was all.
    pub(super) seen: Option<(u64, bool)>,
}

/// Every stream with ready units, one step in the index for each, however many units it has; and
/// where its first unit is, so that the index need not be walked to it again.
const WHOLE: &str = "ready (stream, place) AS (
    (SELECT u.stream, u.place FROM longshore_unit u WHERE u.state = 2
      ORDER BY u.stream, u.place LIMIT 1)
    UNION ALL SELECT n.stream, n.place FROM ready r CROSS JOIN LATERAL (
      SELECT u.stream, u.place FROM longshore_unit u WHERE u.state = 2 AND u.stream > r.stream
      ORDER BY u.stream, u.place LIMIT 1) n)";

/// A batch has few streams: each is asked.
const OF_BATCH: &str = "ready (stream, place) AS (
    SELECT s.num, n.place FROM longshore_batch b JOIN longshore_stream s ON s.batch = b.num
    CROSS JOIN LATERAL (SELECT u.place FROM longshore_unit u WHERE u.stream = s.num AND u.state = 2
      ORDER BY u.place LIMIT 1) n WHERE b.name = $5)";

/// Those that are known to have some.
const KNOWN: &str = "ready (stream, place) AS (SELECT k, NULL::bigint FROM unnest($6) k)";

/// Finds them. The claimer's session cannot end until the claim is committed.
pub(super) async fn eligible(tx: &mut Tx<'_>, claim: &Claim, look: &Look) -> Result<Found> {
    let none = Vec::new();
    let (ready, known) = match look {
        Look::Known(streams) => (KNOWN, streams),
        Look::Whole if claim.batch.is_some() => (OF_BATCH, &none),
        Look::Whole => (WHOLE, &none),
    };
    let sql = format!(
        "WITH RECURSIVE me AS MATERIALIZED (
           SELECT num FROM longshore_session WHERE id = $1 FOR KEY SHARE),
         {ready},
         alone (stream) AS (
           (SELECT u.stream FROM longshore_unit u WHERE u.state = 8 ORDER BY u.stream LIMIT 1)
           UNION ALL SELECT (SELECT u.stream FROM longshore_unit u WHERE u.state = 8
             AND u.stream > a.stream ORDER BY u.stream LIMIT 1)
             FROM alone a WHERE a.stream IS NOT NULL),
         found AS MATERIALIZED (
           SELECT f.stream, bool_or(f.ready) AS ready, bool_or(NOT f.ready) AS alone,
             min(f.place) AS place
           FROM (SELECT stream, true, place FROM ready UNION ALL SELECT stream, false, NULL FROM alone)
             AS f (stream, ready, place) GROUP BY f.stream),
         open AS MATERIALIZED (
           SELECT s.num, f.ready, f.alone, f.place, l.weight, l.cap, coalesce(t.weight, 1) AS tenant_weight,
             t.cap AS tenant_cap
           FROM found f JOIN longshore_stream s ON s.num = f.stream
           JOIN longshore_lane l ON l.num = s.lane JOIN longshore_queue q ON q.num = l.queue
           LEFT JOIN longshore_batch b ON b.num = s.batch
           LEFT JOIN longshore_tenant t ON t.name = l.tenant
           WHERE s.kind = ANY($2) AND NOT l.paused AND NOT q.paused
           AND NOT coalesce(t.suspended, false)
           AND coalesce(b.status, 'running') IN ('queued', 'running')
           AND ($7 OR q.name = ANY($3)) AND ($4 IS NULL OR l.tenant = $4)
           AND ($5 IS NULL OR b.name = $5) ORDER BY s.num)
         SELECT me.num,
           (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint,
           o.num, o.ready, o.alone, o.weight, o.cap, o.tenant_weight, o.tenant_cap,
           o.place
         FROM me LEFT JOIN open o ON true"
    );
    let kinds: Vec<&str> = claim.kinds.iter().map(Kind::as_str).collect();
    let queues: Vec<&str> = match &claim.queues {
        Queues::All => Vec::new(),
        Queues::Named(names) => names.iter().map(QueueName::as_str).collect(),
    };
    let tenant = match &claim.scope {
        Scope::All => None,
        Scope::Tenant(tenant) => Some(tenant.as_str()),
    };
    let batch = claim.batch.as_ref().map(BatchId::as_str);
    let anywhere = claim.queues == Queues::All;
    let session = session_uuid(claim.session);
    let rows =
        tx.query(&sql, &[&session, &kinds, &queues, &tenant, &batch, known, &anywhere]).await?;
    let first = rows.first().ok_or(Error::SessionGone(claim.session))?;
    let session = value(first, 0)?;
    let mut cost = 0;
    for row in &rows {
        cost = cost.max(count(row, 1)?);
    }
    Ok(Found { session, cost: Duration::from_micros(cost), sources: sources(tx, &rows).await? })
}

async fn sources(tx: &mut Tx<'_>, rows: &[Row]) -> Result<Vec<Source>> {
    let mut nums: Vec<i64> = Vec::new();
    for row in rows {
        nums.extend(value::<Option<i64>>(row, 2)?);
    }
    let shared = Arc::clone(&tx.streams);
    let streams = shared.by_num(tx, nums).await?;
    let mut sources = Vec::with_capacity(rows.len());
    for row in rows {
        let Some(num) = value::<Option<i64>>(row, 2)? else { continue };
        let Some(stream) = streams.get(&num) else { continue };
        let (lane_cap, tenant_cap) = (cap(row, 6)?, cap(row, 8)?);
        shared.note_cap(stream.lane, lane_cap.is_some() || tenant_cap.is_some());
        sources.push(Source {
            stream: Arc::clone(stream),
            weight: share(small(row, 5)?, small(row, 7)?),
            cap: lane_cap,
            tenant_cap,
            alone: value(row, 4)?,
            after: (value::<Option<i64>>(row, 9)?.unwrap_or(i64::MIN), uuid::Uuid::nil()),
            dry: !value::<bool>(row, 3)?,
            left: None,
            seen: None,
        });
    }
    Ok(sources)
}

/// A cap's column.
pub(super) fn cap(row: &Row, at: usize) -> Result<Option<u64>> {
    Ok(value::<Option<i32>>(row, at)?.map(|cap| u64::try_from(cap).unwrap_or(0)))
}
