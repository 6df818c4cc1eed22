//! The streams that a claim may take from.

use std::sync::Arc;

use longshore_core::store::ClaimRequest;
use longshore_core::{BatchId, QueueName, Result, TenantId};
use rusqlite::Connection;

use crate::error::{Translate, damaged};
use crate::row::{READY_ALONE, StreamNames, parse_policy};

/// A stream that a claim may take from.
pub(super) struct Stream {
    pub(super) num: i64,
    pub(super) lane: i64,
    pub(super) names: Arc<StreamNames>,
    pub(super) ready: u64,
    pub(super) weight: u32,
    pub(super) cap: Option<u64>,
    pub(super) tenant_weight: u32,
    pub(super) tenant_cap: Option<u64>,
    /// Whether it has units that must run alone.
    pub(super) alone: bool,
}

pub(super) fn eligible_streams(db: &Connection, claim: &ClaimRequest) -> Result<Vec<Stream>> {
    let mut statement = db
        .prepare_cached(
            "SELECT s.num, s.lane, s.kind, s.ready, l.tenant, l.weight, l.cap, q.name, b.name,
             coalesce(t.weight, 1), t.cap, s.policy,
             EXISTS (SELECT 1 FROM longshore_unit u INDEXED BY longshore_unit_sort
                     WHERE u.stream = s.num AND u.state = ?1)
             FROM longshore_stream s INDEXED BY longshore_stream_ready
             JOIN longshore_lane l ON l.num = s.lane JOIN longshore_queue q ON q.num = l.queue
             LEFT JOIN longshore_batch b ON b.num = s.batch
             LEFT JOIN longshore_tenant t ON t.name = l.tenant
             WHERE s.ready > 0 AND NOT l.paused AND NOT q.paused AND NOT coalesce(t.suspended, 0)
             AND coalesce(b.status, 'running') IN ('queued', 'running')",
        )
        .or_translate()?;
    let mut rows = statement.query([READY_ALONE]).or_translate()?;
    let mut streams = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        let text = |at: usize| row.get_ref(at).or_translate();
        let as_text = |at| text(at).and_then(|value| value.as_str().map_err(|e| damaged(e.to_string())));
        let kind = as_text(2)?;
        let Some(kind) = claim.kinds.iter().find(|handled| handled.as_str() == kind) else {
            continue;
        };
        let (tenant, queue) = (as_text(4)?, as_text(7)?);
        let batch: Option<String> = row.get(8).or_translate()?;
        if !claim.covers_lane(queue, tenant) || !claim.covers_batch(batch.as_deref()) {
            continue;
        }
        streams.push(Stream {
            num: row.get(0).or_translate()?,
            lane: row.get(1).or_translate()?,
            names: Arc::new(StreamNames {
                tenant: TenantId::new(tenant).map_err(damaged)?,
                queue: QueueName::new(queue).map_err(damaged)?,
                kind: kind.clone(),
                batch: batch.map(BatchId::new).transpose().map_err(damaged)?,
                policy: parse_policy(row.get_ref(11).or_translate()?.as_str_or_null().map_err(damaged)?)?,
            }),
            ready: row.get(3).or_translate()?,
            weight: row.get(5).or_translate()?,
            cap: row.get(6).or_translate()?,
            tenant_weight: row.get(9).or_translate()?,
            tenant_cap: row.get(10).or_translate()?,
            alone: row.get(12).or_translate()?,
        });
    }
    Ok(streams)
}
