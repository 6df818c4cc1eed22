//! Streams, lanes and queues by number and by name.
//!
//! A stream's attributes never change and numbers are never reused, so every process caches
//! streams. The pruner deletes streams that are no longer used ([`crate::prune`]). Until then it
//! retires them: every insert of units checks that, and a process then reads the stream anew.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longshore_core::store::SendRejection;
use longshore_core::{BatchId, Kind, QueueName, Result, Scope, TenantId};
use tokio_postgres::Row;

use crate::error::damaged;
use crate::row::{count, value};
use crate::tx::Tx;
use crate::{batch, tenants};

/// The units of one lane, kind and batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) num: i64,
    pub(crate) lane: i64,
    pub(crate) queue_num: i64,
    /// 0 for none.
    pub(crate) batch_num: i64,
    pub(crate) tenant: TenantId,
    pub(crate) queue: QueueName,
    pub(crate) kind: Kind,
    pub(crate) batch: Option<BatchId>,
    /// Why its units are rejected, if it is a placeholder.
    pub(crate) rejection: Option<SendRejection>,
}

/// The key of a stream.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StreamKey {
    pub(crate) queue: QueueName,
    pub(crate) tenant: TenantId,
    pub(crate) kind: Kind,
    /// 0 for none.
    pub(crate) batch: i64,
}

/// The streams that a transaction has created.
#[derive(Debug, Default)]
pub(crate) struct NewStreams {
    by_num: HashMap<i64, Arc<Stream>>,
    by_key: HashMap<StreamKey, Arc<Stream>>,
}

impl NewStreams {
    fn insert(&mut self, stream: Arc<Stream>) {
        self.by_key.insert(stream.key(), Arc::clone(&stream));
        self.by_num.insert(stream.num, stream);
    }

    /// Removes and returns all.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Arc<Stream>> + use<> {
        self.by_key.clear();
        std::mem::take(&mut self.by_num).into_values()
    }
}

/// The process's cache of streams.
#[derive(Debug, Default)]
pub(crate) struct StreamCache {
    index: Mutex<StreamIndex>,
}

#[derive(Debug, Default)]
struct StreamIndex {
    by_num: HashMap<i64, Arc<Stream>>,
    by_key: HashMap<StreamKey, Arc<Stream>>,
    /// Whether a lane or its tenant had a cap when this process last claimed from it.
    capped: HashMap<i64, bool>,
    /// Lanes that had a limit, or a suspended tenant, when this process last sent to them.
    gated: HashSet<i64>,
    /// Streams with units that this process had to settle, and when it last did.
    settled: HashMap<i64, Instant>,
}

/// How long after units of a stream were settled claims write its rows at once. A stream with units that never need
/// to be settled is then bulk again; a stream with units that always do costs one such claim in this time.
const SETTLED_TTL: Duration = Duration::from_secs(30);

/// Streams cached at most: with a stream per batch the cache would grow for ever.
const MAX_STREAMS: usize = 10_000;

const SELECT: &str = "SELECT s.num, s.lane, q.num, s.batch, l.tenant, q.name, s.kind, b.name,
    s.retired_at IS NOT NULL
    FROM longshore_stream s JOIN longshore_lane l ON l.num = s.lane
    JOIN longshore_queue q ON q.num = l.queue LEFT JOIN longshore_batch b ON b.num = s.batch";

impl StreamCache {
    fn with<T>(&self, change: impl FnOnce(&mut StreamIndex) -> T) -> T {
        change(&mut self.index.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records whether a cap applies to a lane.
    pub(crate) fn set_capped(&self, lane: i64, capped: bool) {
        self.with(|index| index.capped.insert(lane, capped));
    }

    /// Whether the end of a unit may let another be claimed. A process that finishes units of a
    /// lane has claimed from it, except in callers' transactions; for an unknown lane the answer is
    /// true.
    pub(crate) fn may_be_capped(&self, lane: i64) -> bool {
        self.with(|index| index.capped.get(&lane).copied().unwrap_or(true))
    }

    /// Records whether sends to these lanes are limited or rejected.
    pub(crate) fn set_gated(&self, lanes: &[i64], gated: bool) {
        self.with(|index| match gated {
            true => index.gated.extend(lanes),
            false => lanes.iter().for_each(|lane| {
                index.gated.remove(lane);
            }),
        });
    }

    /// Whether one of these lanes had a limit or a suspended tenant when this process last sent to
    /// it.
    pub(crate) fn may_be_gated(&self, lanes: &[i64]) -> bool {
        self.with(|index| lanes.iter().any(|lane| index.gated.contains(lane)))
    }

    /// Records that units of these streams were settled: their runs save checkpoints or fail, so the next claims write
    /// their rows at once.
    pub(crate) fn set_settled(&self, streams: impl IntoIterator<Item = i64>, now: Instant) {
        self.with(|index| index.settled.extend(streams.into_iter().map(|stream| (stream, now))));
    }

    /// The streams with units that this process had to settle within [`SETTLED_TTL`].
    pub(crate) fn settled(&self, now: Instant) -> Vec<i64> {
        self.with(|index| {
            index.settled.retain(|_, at| now.duration_since(*at) < SETTLED_TTL);
            index.settled.keys().copied().collect()
        })
    }

    /// The streams with these numbers, if all are cached.
    pub(crate) fn cached_by_num(&self, nums: &BTreeSet<i64>) -> Option<HashMap<i64, Arc<Stream>>> {
        let lookup = |index: &mut StreamIndex| {
            nums.iter().map(|num| index.by_num.get(num).map(|one| (*num, Arc::clone(one)))).collect()
        };
        self.with(lookup)
    }

    /// A stream by its key, if it is cached.
    pub(crate) fn cached(&self, key: &StreamKey) -> Option<Arc<Stream>> {
        self.with(|index| index.by_key.get(key).cloned())
    }

    /// Adds a stream to the cache.
    pub(crate) fn insert(&self, stream: Arc<Stream>) -> Arc<Stream> {
        self.with(|index| {
            if index.by_num.len() >= MAX_STREAMS {
                *index = StreamIndex::default();
            }
            index.by_num.insert(stream.num, Arc::clone(&stream));
            index.by_key.insert(stream.key(), Arc::clone(&stream));
        });
        stream
    }

    /// Removes streams from the cache.
    pub(crate) fn evict(&self, nums: impl IntoIterator<Item = i64>) {
        self.with(|index| {
            for num in nums {
                if let Some(stream) = index.by_num.remove(&num) {
                    index.by_key.remove(&stream.key());
                }
            }
        });
    }

    /// The streams with these numbers. A stream that was pruned is omitted.
    pub(crate) async fn by_num(
        &self,
        tx: &mut Tx<'_>,
        nums: impl IntoIterator<Item = i64>,
    ) -> Result<HashMap<i64, Arc<Stream>>> {
        let mut found = HashMap::new();
        let mut missing: Vec<i64> = Vec::new();
        self.with(|index| {
            for num in nums {
                let created = || tx.new_streams.by_num.get(&num);
                match index.by_num.get(&num).or_else(created) {
                    Some(stream) => {
                        found.insert(num, Arc::clone(stream));
                    }
                    None => missing.push(num),
                }
            }
        });
        if !missing.is_empty() {
            missing.sort_unstable();
            missing.dedup();
            let sql = format!("{SELECT} WHERE s.num = ANY($1)");
            for row in tx.query(&sql, &[&missing]).await? {
                let stream = self.insert(Arc::new(Stream::read(&row)?));
                found.insert(stream.num, stream);
            }
        }
        Ok(found)
    }

    /// One stream by its number.
    pub(crate) async fn one(&self, tx: &mut Tx<'_>, num: i64) -> Result<Arc<Stream>> {
        let mut found = self.by_num(tx, [num]).await?;
        found.remove(&num).ok_or_else(|| damaged("a unit without its stream"))
    }

    /// Creates a stream with its lane and queue. Its rows persist only if `tx` commits, so until then
    /// only `tx` knows the new stream.
    pub(crate) async fn create(&self, tx: &mut Tx<'_>, key: &StreamKey) -> Result<Arc<Stream>> {
        let (lane, queue_num) = lane(tx, &key.queue, &key.tenant).await?;
        let insert = "INSERT INTO longshore_stream (lane, kind, batch) VALUES ($1, $2, $3)
            ON CONFLICT DO NOTHING RETURNING num";
        let inserted = tx.query_opt(insert, &[&lane, &key.kind.as_str(), &key.batch]).await?;
        let created = match inserted.filter(|_| key.batch == 0) {
            Some(row) => Stream::without_batch(value(&row, 0)?, lane, queue_num, key.clone()),
            None => {
                let found = find(tx, key).await?.ok_or_else(|| damaged("a stream that cannot be found"))?;
                Stream::read(&found)?
            }
        };
        let created = Arc::new(created);
        tx.new_streams.insert(Arc::clone(&created));
        Ok(created)
    }

    /// A stream by its key, if it exists.
    pub(crate) async fn find(&self, tx: &mut Tx<'_>, key: &StreamKey) -> Result<Option<Arc<Stream>>> {
        if let Some(stream) = self.cached(key) {
            return Ok(Some(stream));
        }
        if let Some(created) = tx.new_streams.by_key.get(key) {
            return Ok(Some(Arc::clone(created)));
        }
        let Some(row) = find(tx, key).await? else { return Ok(None) };
        Ok(Some(self.insert(Arc::new(Stream::read(&row)?))))
    }
}

/// Reads a stream by its key. A retired one is opened to sends again.
async fn find(tx: &mut Tx<'_>, key: &StreamKey) -> Result<Option<Row>> {
    let sql = format!("{SELECT} WHERE q.name = $1 AND l.tenant = $2 AND s.kind = $3 AND s.batch = $4");
    let StreamKey { queue, tenant, kind, batch } = key;
    let found = tx.query_opt(&sql, &[&queue.as_str(), &tenant.as_str(), &kind.as_str(), batch]).await?;
    let Some(row) = found else { return Ok(None) };
    if value(&row, 8)? {
        let sql = "UPDATE longshore_stream SET idle_since = NULL, retired_at = NULL, retired_xid = NULL
            WHERE num = $1";
        let reopened = tx.execute(sql, &[&value::<i64>(&row, 0)?]).await?;
        return Ok((reopened > 0).then_some(row)); // else the pruner has deleted it in the meantime
    }
    Ok(Some(row))
}

/// What a tenant has that may not grow without limit, read once per send.
pub(crate) struct TenantUsage {
    pub(crate) tenant: TenantId,
    suspended: bool,
    queues: HashSet<String>,
    /// Queues with a stream that has units.
    used_queues: u64,
    streams: u64,
    batches: u64,
}

impl TenantUsage {
    /// Counts the tenant's queues, streams and batches. Idle streams do not count. Nothing is counted
    /// for an operator's send, which has no limit.
    pub(crate) async fn load(tx: &mut Tx<'_>, scope: &Scope, tenant: &TenantId) -> Result<Self> {
        let suspended = tenants::is_suspended(tx, tenant).await?;
        let (tenant, queues) = (tenant.clone(), HashSet::new());
        let mut usage = Self { tenant, suspended, queues, used_queues: 0, streams: 0, batches: 0 };
        if scope.tenant().is_none() {
            return Ok(usage);
        }
        usage.batches = batch::count_of(tx, &usage.tenant).await?;
        let sql = "SELECT q.name, (SELECT count(*) FROM longshore_stream s
              WHERE s.lane = l.num AND s.idle_since IS NULL)
            FROM longshore_lane l JOIN longshore_queue q ON q.num = l.queue WHERE l.tenant = $1";
        for row in tx.query(sql, &[&usage.tenant.as_str()]).await? {
            let streams: u64 = count(&row, 1)?;
            usage.queues.insert(value(&row, 0)?);
            usage.used_queues += u64::from(streams > 0);
            usage.streams += streams;
        }
        Ok(usage)
    }

    /// Counts a new stream, or returns why its units are rejected: its tenant is suspended, or has too
    /// many queues or streams.
    pub(crate) fn add(&mut self, scope: &Scope, key: &StreamKey) -> Option<SendRejection> {
        if self.suspended {
            return Some(SendRejection::Suspended(self.tenant.clone()));
        }
        let is_new = !self.queues.contains(key.queue.as_str());
        let of_queue = is_new.then(|| scope.check_new_queue(self.used_queues)).flatten();
        let rejection = of_queue.or_else(|| scope.check_new_stream(self.streams, self.batches));
        if rejection.is_none() {
            self.used_queues += u64::from(is_new);
            self.streams += 1;
            self.queues.insert(key.queue.as_str().to_owned());
        }
        rejection
    }
}

/// Deletes the streams, lanes and queues that this transaction has inserted for units that were
/// rejected.
pub(crate) async fn remove_unused(tx: &mut Tx<'_>) -> Result<()> {
    let (used, unused): (Vec<_>, Vec<_>) =
        tx.new_streams.take().partition(|stream| tx.has_counted(stream.num));
    used.into_iter().for_each(|stream| tx.new_streams.insert(stream));
    if unused.is_empty() {
        return Ok(());
    }
    let nums: Vec<i64> = unused.iter().map(|stream| stream.num).collect();
    let lanes: Vec<i64> = unused.iter().map(|stream| stream.lane).collect();
    let queues: Vec<i64> = unused.iter().map(|stream| stream.queue_num).collect();
    let own = "xmin = pg_current_xact_id()::xid";
    tx.execute("DELETE FROM longshore_stream WHERE num = ANY($1)", &[&nums]).await?;
    for (nums, table, parts) in [
        (&lanes, "longshore_lane", "longshore_stream s WHERE s.lane = t.num"),
        (&queues, "longshore_queue", "longshore_lane l WHERE l.queue = t.num"),
    ] {
        let sql = format!(
            "DELETE FROM {table} t WHERE num = ANY($1) AND t.{own} AND NOT EXISTS (SELECT 1 FROM {parts})"
        );
        tx.execute(&sql, &[nums]).await?;
    }
    Ok(())
}

/// A queue's number. A new queue is created. The pruner keeps it until `tx` ends.
async fn queue(tx: &mut Tx<'_>, name: &QueueName) -> Result<i64> {
    let insert = "INSERT INTO longshore_queue (name) VALUES ($1) ON CONFLICT DO NOTHING RETURNING num";
    let select = "SELECT num FROM longshore_queue WHERE name = $1 FOR KEY SHARE";
    loop {
        if let Some(created) = tx.query_opt(insert, &[&name.as_str()]).await? {
            return value(&created, 0);
        }
        if let Some(row) = tx.query_opt(select, &[&name.as_str()]).await? {
            return value(&row, 0);
        }
    }
}

/// The numbers of a lane and its queue. A new lane is created. The pruner keeps it until `tx` ends.
pub(crate) async fn lane(tx: &mut Tx<'_>, name: &QueueName, tenant: &TenantId) -> Result<(i64, i64)> {
    let select = "SELECT l.num, l.queue FROM longshore_lane l JOIN longshore_queue q ON q.num = l.queue
        WHERE q.name = $1 AND l.tenant = $2 FOR KEY SHARE OF l";
    let insert = "INSERT INTO longshore_lane (queue, tenant) VALUES ($1, $2)
        ON CONFLICT DO NOTHING RETURNING num";
    loop {
        if let Some(row) = tx.query_opt(select, &[&name.as_str(), &tenant.as_str()]).await? {
            return Ok((value(&row, 0)?, value(&row, 1)?));
        }
        let queue = queue(tx, name).await?;
        if let Some(created) = tx.query_opt(insert, &[&queue, &tenant.as_str()]).await? {
            return Ok((value(&created, 0)?, queue));
        }
    }
}

impl Stream {
    /// Stands for a stream that does not exist: none is created for units that will be rejected.
    pub(crate) fn placeholder(key: StreamKey, rejection: SendRejection) -> Self {
        let StreamKey { queue, tenant, kind, batch: batch_num } = key;
        let rejection = Some(rejection);
        Self { num: 0, lane: 0, queue_num: 0, batch_num, tenant, queue, kind, batch: None, rejection }
    }

    /// A new stream of no batch.
    fn without_batch(num: i64, lane: i64, queue_num: i64, key: StreamKey) -> Self {
        let StreamKey { queue, tenant, kind, .. } = key;
        Self { num, lane, queue_num, batch_num: 0, tenant, queue, kind, batch: None, rejection: None }
    }

    /// Whether it is [`Self::placeholder`].
    pub(crate) fn is_placeholder(&self) -> bool {
        self.num == 0
    }

    /// The stream's key.
    pub(crate) fn key(&self) -> StreamKey {
        StreamKey {
            queue: self.queue.clone(),
            tenant: self.tenant.clone(),
            kind: self.kind.clone(),
            batch: self.batch_num,
        }
    }

    fn read(row: &Row) -> Result<Self> {
        let batch: Option<&str> = value(row, 7)?;
        Ok(Self {
            num: value(row, 0)?,
            lane: value(row, 1)?,
            queue_num: value(row, 2)?,
            batch_num: value(row, 3)?,
            tenant: TenantId::new(value::<&str>(row, 4)?).map_err(damaged)?,
            queue: QueueName::new(value::<&str>(row, 5)?).map_err(damaged)?,
            kind: Kind::new(value::<&str>(row, 6)?).map_err(damaged)?,
            batch: batch.map(BatchId::new).transpose().map_err(damaged)?,
            rejection: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_claimed_by_rows_only_for_a_while_after_its_units_were_settled() {
        let (cache, start) = (StreamCache::default(), Instant::now());
        cache.set_settled([1, 2], start);
        cache.set_settled([2], start + SETTLED_TTL / 2);
        assert_eq!(cache.settled(start + SETTLED_TTL / 2).len(), 2);
        assert_eq!(cache.settled(start + SETTLED_TTL), [2]);
        assert!(cache.settled(start + SETTLED_TTL * 2).is_empty());
    }
}
