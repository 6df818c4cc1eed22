//! Limits of queues: whether a tenant is suspended, and whether a lane, its queue and its tenant
//! have capacity left.
//!
//! Live units are counted only where a limit is set, and under the limit's lock, so that senders
//! count and fill the same capacity one after the other. Without limits nothing is locked or
//! counted.

use std::collections::HashSet;

use longshore_core::Result;
use longshore_core::admission::{CapacityCheck, LimitUsage, ROW_BYTES};
use longshore_core::store::{Capacity, CapacityScope, SendRejection};
use tokio_postgres::Row;

use crate::advisory_lock::{self, AdvisoryLock};
use crate::error::damaged;
use crate::row::{count, value};
use crate::streams::Stream;
use crate::tx::Tx;

/// The limits that apply to one send, and how much of them is used.
#[derive(Default)]
pub(crate) struct QueueLimits {
    /// Lanes of suspended tenants.
    suspended: HashSet<i64>,
    pub(crate) capacity: CapacityCheck<LimitScope>,
}

/// What a limit applies to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LimitScope {
    Lane(i64),
    Queue(i64),
    Tenant(String),
}

/// SQL condition: whether reservation `r` counts at the time `now`. It counts while its caller's
/// transaction is open. Just after the commit the reservation may be visible although its units are
/// not, so it counts until it expires. (A transaction id from the future is from before a dump and
/// restore.)
pub(crate) fn active_reservation_sql(now: &str) -> String {
    format!(
        "(CASE WHEN r.xid < pg_snapshot_xmax(pg_current_snapshot()) THEN pg_xact_status(r.xid) END
         = ANY(CASE WHEN r.expires_at > {now} THEN '{{in progress,committed}}'
         ELSE '{{in progress}}' END::text[])) IS TRUE"
    )
}

impl QueueLimits {
    /// Loads the limits of these lanes.
    pub(crate) async fn load(tx: &mut Tx<'_>, lanes: &Vec<i64>) -> Result<Self> {
        let rows = tx
            .query(
                "SELECT l.num, l.queue, l.tenant, coalesce(t.suspended, false), l.max_units,
                 l.max_bytes, q.max_units, q.max_bytes, t.max_units, t.max_bytes
                 FROM longshore_lane l JOIN longshore_queue q ON q.num = l.queue
                 LEFT JOIN longshore_tenant t ON t.name = l.tenant WHERE l.num = ANY($1)",
                &[lanes],
            )
            .await?;
        let mut check = Self::default();
        for row in &rows {
            check.add_lane(row)?;
        }
        Ok(check)
    }

    fn add_lane(&mut self, row: &Row) -> Result<()> {
        let (num, tenant): (i64, String) = (value(row, 0)?, value(row, 2)?);
        self.suspended.extend(value::<bool>(row, 3)?.then_some(num));
        let mut scopes = Vec::new();
        let all = [LimitScope::Lane(num), LimitScope::Queue(value(row, 1)?), LimitScope::Tenant(tenant)];
        for (scope, at) in all.into_iter().zip([4, 6, 8]) {
            let usage = LimitUsage::new(scope.bound(), capacity(row, at)?);
            if usage.is_limited() {
                self.capacity.limits.entry(scope.clone()).or_insert(usage);
                scopes.push(scope);
            }
        }
        self.capacity.lanes.insert(num, scopes);
        Ok(())
    }

    /// Whether any of the lanes has a limit.
    pub(crate) fn has_limits(&self) -> bool {
        !self.capacity.limits.is_empty()
    }

    /// Acquires the locks of all limits, and counts what is live under them.
    pub(crate) async fn count(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        if self.capacity.limits.is_empty() {
            return Ok(());
        }
        let locks: Vec<AdvisoryLock<'_>> = self.capacity.limits.keys().map(LimitScope::lock).collect();
        advisory_lock::acquire(tx, &locks).await?;
        self.reload_limits(tx).await?;
        let (mut lanes, mut queues, mut tenants) = (Vec::new(), Vec::new(), Vec::new());
        for scope in self.capacity.limits.keys() {
            match scope {
                LimitScope::Lane(num) => lanes.push(*num),
                LimitScope::Queue(num) => queues.push(*num),
                LimitScope::Tenant(name) => tenants.push(name.clone()),
            }
        }
        let reserved = active_reservation_sql("$4");
        let sql = format!(
            "WITH lanes AS (SELECT num, queue, tenant FROM longshore_lane
               WHERE num = ANY($1) OR queue = ANY($2) OR tenant = ANY($3)),
             taken AS (
               SELECT s.lane, s.blocked + s.scheduled + s.ready + s.leased AS units, s.bytes,
                 s.stored_bytes AS stored FROM longshore_stream s WHERE s.lane IN (SELECT num FROM lanes)
               UNION ALL SELECT s.lane, d.blocked + d.scheduled + d.ready + d.leased, d.bytes,
                 d.stored_bytes FROM longshore_stream_delta d JOIN longshore_stream s ON s.num = d.stream
               WHERE s.lane IN (SELECT num FROM lanes)
               UNION ALL SELECT r.lane, r.units, r.bytes, r.bytes + r.units * {ROW_BYTES}
               FROM longshore_capacity_reservation r
               WHERE r.lane IN (SELECT num FROM lanes) AND {reserved})
             SELECT l.num, l.queue, l.tenant, sum(t.units)::bigint, sum(t.bytes)::bigint,
               (sum(t.stored) FILTER (WHERE l.tenant = ANY($3)))::bigint
             FROM lanes l JOIN taken t ON t.lane = l.num GROUP BY l.num, l.queue, l.tenant"
        );
        for row in tx.query(&sql, &[&lanes, &queues, &tenants, &tx.now.as_micros()]).await? {
            let names = [
                LimitScope::Lane(value(&row, 0)?),
                LimitScope::Queue(value(&row, 1)?),
                LimitScope::Tenant(value(&row, 2)?),
            ];
            for scope in names {
                if let Some(usage) = self.capacity.limits.get_mut(&scope) {
                    usage.live += count::<u64>(&row, 3)?;
                    usage.bytes += count::<u64>(&row, 4)?;
                    if let Some(stored) = &mut usage.stored {
                        *stored += count::<u64>(&row, 5)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the limits again under their locks, since changing a limit requires its lock.
    async fn reload_limits(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        let lanes: Vec<i64> = self.capacity.lanes.keys().copied().collect();
        let current = Self::load(tx, &lanes).await?.capacity.limits;
        for (scope, usage) in &mut self.capacity.limits {
            *usage =
                current.get(scope).copied().unwrap_or(LimitUsage::new(scope.bound(), Capacity::default()));
        }
        Ok(())
    }

    /// The rejection if the stream's tenant is suspended, or may not have another queue or kind.
    pub(crate) fn stream_rejection(&self, stream: &Stream) -> Option<SendRejection> {
        let suspended = self.suspended.contains(&stream.lane);
        let rejection = suspended.then(|| SendRejection::Suspended(stream.tenant.clone()));
        rejection.or_else(|| stream.rejection.clone())
    }
}

/// Reads a capacity from the two columns that begin at `at`.
fn capacity(row: &Row, at: usize) -> Result<Capacity> {
    let limit = |at: usize| -> Result<Option<u64>> {
        value::<Option<i64>>(row, at)?.map(u64::try_from).transpose().map_err(damaged)
    };
    Ok(Capacity { units: limit(at)?, bytes: limit(at + 1)? })
}

impl LimitScope {
    fn lock(&self) -> AdvisoryLock<'_> {
        match self {
            Self::Lane(num) => AdvisoryLock::LaneCapacity(*num),
            Self::Queue(num) => AdvisoryLock::QueueCapacity(*num),
            Self::Tenant(name) => AdvisoryLock::TenantCapacity(name),
        }
    }

    fn bound(&self) -> CapacityScope {
        match self {
            Self::Lane(_) => CapacityScope::Lane,
            Self::Queue(_) => CapacityScope::Queue,
            Self::Tenant(_) => CapacityScope::Tenant,
        }
    }
}
