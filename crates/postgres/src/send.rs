//! Sending: inserts many units with one statement.
//!
//! Most units have no dedup key and no dependencies, and most lanes have no limit: those units are
//! inserted at once. For the others, everything that the decisions depend on is read and locked
//! together. The units are then decided one after the other in memory ([`admission`]) and inserted
//! together.

mod admission;
mod fast_path;
mod insert;
mod tx_enqueue;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use longshore_core::store::SendResult;
use longshore_core::{NewUnit, Result, Scope};

use crate::error::damaged;
use crate::queue_limits::QueueLimits;
use crate::streams::{self, Stream, StreamCache, StreamKey, TenantUsage};
use crate::tx::Tx;

pub(crate) use admission::write_edges;
use admission::{AdmissionPlan, CapacityPolicy};
pub(crate) use fast_path::try_fast_path;
use insert::NewRow;
pub(crate) use tx_enqueue::send_in;

/// Whether limits and suspension apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitPolicy {
    /// Units of a sender.
    Enforce,
    /// Callbacks: the end of a batch must not wait for capacity.
    Exempt,
}

/// Sends units in order, and returns one answer for each.
pub(crate) async fn send(
    tx: &mut Tx<'_>,
    scope: &Scope,
    units: &[NewUnit],
    batch: i64,
    policy: LimitPolicy,
) -> Result<Vec<SendResult>> {
    scope.check_units(units)?;
    let streams = resolve_streams(tx, scope, units, batch, policy).await?;
    let limited = policy == LimitPolicy::Enforce;
    let plain = units.iter().all(is_plain) && !streams.iter().any(|stream| stream.is_placeholder());
    let done = match plain {
        true => send_plain(tx, units, &streams, limited).await?,
        false => 0,
    };
    if plain && limited {
        tx.streams.set_gated(&lanes(&streams), done < units.len());
    }
    let mut answers = created(&units[..done]);
    if done < units.len() {
        let (units, streams) = (&units[done..], &streams[done..]);
        let mut capacity = CapacityPolicy::Unlimited;
        if limited {
            let mut limits = QueueLimits::load(tx, &lanes(streams)).await?;
            limits.count(tx).await?;
            capacity = CapacityPolicy::Checked(limits);
        }
        answers.extend(send_with_admission(tx, units, streams, capacity).await?);
        if answers.iter().any(|answer| answer.rejection().is_some()) {
            streams::remove_unused(tx).await?;
        }
    }
    Ok(answers)
}

/// Whether a unit has neither a dedup key nor dependencies.
fn is_plain(unit: &NewUnit) -> bool {
    unit.dedup.is_none() && unit.dependencies.units.is_empty()
}

fn created(units: &[NewUnit]) -> Vec<SendResult> {
    units.iter().map(|unit| SendResult::Created(unit.id)).collect()
}

/// Inserts plain units and returns how many: fewer than all if a lane has a limit, its tenant is
/// suspended, or an id exists.
async fn send_plain(
    tx: &mut Tx<'_>,
    units: &[NewUnit],
    streams: &[Arc<Stream>],
    limited: bool,
) -> Result<usize> {
    let mut done = 0;
    while done < units.len() {
        let until = done + insert::chunk_len(units[done..].iter());
        let (units, streams) = (&units[done..until], &streams[done..until]);
        let now = tx.now;
        let rows: Vec<NewRow<'_>> =
            units.iter().zip(streams).map(|(unit, stream)| NewRow::new(now, unit, stream, 0)).collect();
        let lanes = if limited { lanes(streams) } else { Vec::new() };
        if !insert::insert_plain(tx, &rows, &lanes).await? {
            break;
        }
        done = until;
    }
    Ok(done)
}

async fn send_with_admission(
    tx: &mut Tx<'_>,
    units: &[NewUnit],
    streams: &[Arc<Stream>],
    capacity: CapacityPolicy,
) -> Result<Vec<SendResult>> {
    let mut plan = AdmissionPlan::load(tx, units, streams, capacity).await?;
    let mut answers = Vec::with_capacity(units.len());
    for (at, (unit, stream)) in units.iter().zip(streams).enumerate() {
        answers.push(plan.decide(at, unit, stream));
    }
    plan.write(tx).await?;
    Ok(answers)
}

/// A dedup or cap key, which is unique within a lane. Bytes, because text cannot hold NUL.
pub(crate) fn lane_key(lane: i64, key: &str) -> Vec<u8> {
    format!("{lane}:{key}").into_bytes()
}

/// Each unit's stream. New streams are created in sorted order, so that two senders do not
/// deadlock.
async fn resolve_streams(
    tx: &mut Tx<'_>,
    scope: &Scope,
    units: &[NewUnit],
    batch: i64,
    policy: LimitPolicy,
) -> Result<Vec<Arc<Stream>>> {
    let mut keys: BTreeSet<StreamKey> = BTreeSet::new();
    let mut last: Option<&NewUnit> = None;
    for unit in units {
        // Nearly always the stream of the previous unit.
        if !last.is_some_and(|last| same_stream(last, unit)) {
            keys.insert(key(unit, batch));
        }
        last = Some(unit);
    }
    let cache = Arc::clone(&tx.streams);
    let mut found: HashMap<StreamKey, Arc<Stream>> = HashMap::new();
    let mut usage = None;
    for key in keys {
        let stream = find_or_create_stream(tx, &cache, scope, &key, policy, &mut usage).await?;
        found.insert(key, stream);
    }
    unit_streams(units, |unit| found.get(&key(unit, batch)).cloned())
        .ok_or_else(|| damaged("no stream for a unit that is being sent"))
}

/// Each unit's stream, if `find` finds them all.
fn unit_streams(
    units: &[NewUnit],
    find: impl Fn(&NewUnit) -> Option<Arc<Stream>>,
) -> Option<Vec<Arc<Stream>>> {
    let mut streams: Vec<Arc<Stream>> = Vec::with_capacity(units.len());
    for (at, unit) in units.iter().enumerate() {
        let before = streams.last().filter(|_| at > 0 && same_stream(&units[at - 1], unit));
        let stream = before.cloned().or_else(|| find(unit))?;
        streams.push(stream);
    }
    Some(streams)
}

async fn find_or_create_stream(
    tx: &mut Tx<'_>,
    cache: &StreamCache,
    scope: &Scope,
    key: &StreamKey,
    policy: LimitPolicy,
    usage: &mut Option<TenantUsage>,
) -> Result<Arc<Stream>> {
    if let Some(stream) = cache.find(tx, key).await? {
        return Ok(stream);
    }
    let rejection = match policy {
        LimitPolicy::Exempt => None,
        LimitPolicy::Enforce => {
            // Units of one send are nearly always of one tenant.
            if usage.as_ref().is_none_or(|usage| usage.tenant != key.tenant) {
                *usage = Some(TenantUsage::load(tx, scope, &key.tenant).await?);
            }
            usage.as_mut().and_then(|usage| usage.add(scope, key))
        }
    };
    match rejection {
        Some(rejection) => Ok(Arc::new(Stream::placeholder(key.clone(), rejection))),
        None => cache.create(tx, key).await,
    }
}

fn key(unit: &NewUnit, batch: i64) -> StreamKey {
    StreamKey { queue: unit.queue.clone(), tenant: unit.tenant.clone(), kind: unit.kind.clone(), batch }
}

fn same_stream(one: &NewUnit, other: &NewUnit) -> bool {
    one.queue == other.queue && one.tenant == other.tenant && one.kind == other.kind
}

fn lanes(streams: &[Arc<Stream>]) -> Vec<i64> {
    let lanes: BTreeSet<i64> = streams.iter().map(|stream| stream.lane).collect();
    lanes.into_iter().collect()
}
