//! Sending inside a caller's transaction.
//!
//! The caller's transaction does nothing that other transactions must see or would wait for:
//! streams are created, and capacity in bounded queues is reserved, in short transactions of the
//! store. A reservation counts while the caller's transaction is open, and is deleted by the commit
//! that adds its units.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use longshore_core::store::{SendRejection, SendResult};
use longshore_core::{Error, NewUnit, Result, Scope, UnitId};
use tokio_postgres::Transaction;

use super::admission::CapacityPolicy;
use super::{LimitPolicy, created, is_plain, lanes, resolve_streams, send_plain, send_with_admission};
use crate::commit_guard::CommitGuard;
use crate::error::is_conflict;
use crate::queue_limits::{QueueLimits, active_reservation_sql};
use crate::row::value;
use crate::store::{StoreInner, TransactionResult, retry_transaction};
use crate::streams::Stream;
use crate::tx::Tx;
use crate::typed_params::{unit_id, uuids};

/// How long a reservation counts that the commit should have deleted and did not: its caller rolled
/// back to a savepoint, or reads from an older snapshot.
const RESERVATION_TTL: Duration = Duration::from_secs(60);

/// What was reserved before anything is written in the caller's transaction.
#[derive(Default)]
struct ReservedCapacity {
    /// The rejection of each unit, if any.
    rejections: Vec<Option<SendRejection>>,
    reservations: Vec<i64>,
}

/// Sends units inside the caller's transaction.
pub(crate) async fn send_in(
    store: &StoreInner,
    transaction: &Transaction<'_>,
    scope: &Scope,
    units: &[NewUnit],
) -> Result<TransactionResult<Vec<SendResult>>> {
    scope.check_units(units)?;
    let (mut streams, reserved) = prepare(store, transaction, scope, units).await?;
    let mut tries = 0;
    loop {
        match try_send_in(store, transaction, units, &streams, &reserved).await {
            Err(error) if is_conflict(&error) && tries < 3 => tries += 1,
            answer => return answer,
        }
        check_isolation(store, transaction).await?;
        // A stream may have been retired.
        let resolved = retry_transaction!(store, Durable, tx =>
            resolve_streams(&mut tx, scope, units, 0, LimitPolicy::Enforce));
        (streams, _) = resolved.await?;
    }
}

/// Fails if a retry cannot succeed, because the caller's transaction keeps its snapshot.
async fn check_isolation(store: &StoreInner, transaction: &Transaction<'_>) -> Result<()> {
    let mut tx = Tx::in_caller_transaction(transaction, &store.clock, Arc::clone(&store.streams));
    let level = tx.query_one("SELECT current_setting('transaction_isolation')", &[]).await?;
    match value(&level, 0)? {
        "read committed" => Ok(()),
        level => Err(Error::unavailable(format!(
            "the snapshot of this transaction ({level}) is older than a queue or a unit that the send needs; run the \
             transaction again, or use the level READ COMMITTED"
        ))),
    }
}

/// Keeps the pruner from deleting these streams until the caller's transaction ends: a snapshot that is older than their
/// retirement shows them as open. Fails with SQLSTATE 40001 if one was deleted since the snapshot.
async fn lock_streams(tx: &mut Tx<'_>, streams: &[Arc<Stream>]) -> Result<()> {
    let nums: BTreeSet<i64> =
        streams.iter().filter(|stream| !stream.is_placeholder()).map(|stream| stream.num).collect();
    let nums: Vec<i64> = nums.into_iter().collect();
    let sql = "SELECT 1 FROM longshore_stream WHERE num = ANY($1) ORDER BY num FOR KEY SHARE";
    tx.query(sql, &[&nums]).await.map(drop)
}

/// Creates streams and reserves capacity.
async fn prepare(
    store: &StoreInner,
    transaction: &Transaction<'_>,
    scope: &Scope,
    units: &[NewUnit],
) -> Result<(Vec<Arc<Stream>>, ReservedCapacity)> {
    let prepared = retry_transaction!(store, Durable, tx => async {
        let streams = resolve_streams(&mut tx, scope, units, 0, LimitPolicy::Enforce).await?;
        let limits = QueueLimits::load(&mut tx, &lanes(&streams)).await?;
        Ok((streams, limits))
    });
    let ((streams, limits), _) = prepared.await?;
    let rejections = streams.iter().map(|stream| limits.stream_rejection(stream)).collect();
    if !limits.has_limits() {
        return Ok((streams, ReservedCapacity { rejections, ..ReservedCapacity::default() }));
    }
    let mut tx = Tx::in_caller_transaction(transaction, &store.clock, Arc::clone(&store.streams));
    let xid: String = value(&tx.query_one("SELECT pg_current_xact_id()::text", &[]).await?, 0)?;
    let reserve = retry_transaction!(store, Durable, tx =>
        reserve(&mut tx, units, &streams, rejections.clone(), &xid));
    let (reserved, _) = reserve.await?;
    Ok((streams, reserved))
}

/// Counts live units and reserves what these units need, lane by lane.
async fn reserve(
    tx: &mut Tx<'_>,
    units: &[NewUnit],
    streams: &[Arc<Stream>],
    mut rejections: Vec<Option<SendRejection>>,
    xid: &str,
) -> Result<ReservedCapacity> {
    // The caller's transaction is open meanwhile: rejecting is better than a long wait.
    tx.batch("SET LOCAL lock_timeout = '2s'").await?;
    let mut limits = QueueLimits::load(tx, &lanes(streams)).await?;
    limits.count(tx).await?;
    let existing = existing_ids(tx, units).await?;
    let mut by_lane: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for (at, (unit, stream)) in units.iter().zip(streams).enumerate() {
        if rejections[at].is_some() || existing.contains(&unit.id) {
            continue;
        }
        rejections[at] = limits.capacity.admit(stream.lane, unit.stored_bytes());
        if rejections[at].is_none() {
            let (units, bytes) = by_lane.entry(stream.lane).or_default();
            *units += 1;
            *bytes += i64::try_from(unit.stored_bytes()).unwrap_or(i64::MAX);
        }
    }
    let reservations = write_reservations(tx, &by_lane, xid).await?;
    Ok(ReservedCapacity { rejections, reservations })
}

async fn existing_ids(tx: &mut Tx<'_>, units: &[NewUnit]) -> Result<Vec<UnitId>> {
    let sql = "SELECT id FROM longshore_unit WHERE id = ANY($1)";
    let rows = tx.query(sql, &[&uuids(units.iter().map(|unit| &unit.id))]).await?;
    rows.iter().map(|row| value(row, 0).map(unit_id)).collect()
}

/// Writes reservations, and deletes expired ones of the same lanes.
async fn write_reservations(
    tx: &mut Tx<'_>,
    by_lane: &BTreeMap<i64, (i64, i64)>,
    xid: &str,
) -> Result<Vec<i64>> {
    let lanes: Vec<i64> = by_lane.keys().copied().collect();
    let units: Vec<i64> = by_lane.values().map(|(units, _)| *units).collect();
    let bytes: Vec<i64> = by_lane.values().map(|(_, bytes)| *bytes).collect();
    let until = (tx.now + RESERVATION_TTL).as_micros();
    let reserved = active_reservation_sql("$4");
    let sql = format!(
        "WITH old AS (DELETE FROM longshore_capacity_reservation r
           WHERE r.lane = ANY($1) AND NOT {reserved})
         INSERT INTO longshore_capacity_reservation (lane, units, bytes, expires_at, xid)
         SELECT n.*, $5, $6::xid8 FROM unnest($1, $2, $3) n RETURNING num"
    );
    let rows = tx.query(&sql, &[&lanes, &units, &bytes, &tx.now.as_micros(), &until, &xid]).await?;
    rows.iter().map(|row| value(row, 0)).collect()
}

/// Writes the units, or rolls back to the state before.
async fn try_send_in(
    store: &StoreInner,
    transaction: &Transaction<'_>,
    units: &[NewUnit],
    streams: &[Arc<Stream>],
    reserved: &ReservedCapacity,
) -> Result<TransactionResult<Vec<SendResult>>> {
    let mut tx = Tx::in_caller_transaction(transaction, &store.clock, Arc::clone(&store.streams));
    let guard = CommitGuard::arm(&mut tx).await?;
    let done = async {
        lock_streams(&mut tx, streams).await?;
        let answer = insert(&mut tx, units, streams, &reserved.rejections).await?;
        if !reserved.reservations.is_empty() {
            let sql = "DELETE FROM longshore_capacity_reservation WHERE num = ANY($1)";
            tx.execute(sql, &[&reserved.reservations]).await?;
        }
        tx.flush().await?;
        Ok(answer)
    };
    let done = done.await;
    guard.disarm(&mut tx, done).await
}

async fn insert(
    tx: &mut Tx<'_>,
    units: &[NewUnit],
    streams: &[Arc<Stream>],
    rejections: &[Option<SendRejection>],
) -> Result<Vec<SendResult>> {
    if units.iter().all(is_plain) && rejections.iter().all(Option::is_none) {
        // Capacity is reserved already, so it is not checked again.
        if send_plain(tx, units, streams, false).await? == units.len() {
            return Ok(created(units));
        }
    }
    send_with_admission(tx, units, streams, CapacityPolicy::Reserved(rejections.to_vec())).await
}
