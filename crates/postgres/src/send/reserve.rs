//! Sending inside a caller's transaction.
//!
//! Nothing that others must see, or would have to wait for, happens in it: streams are made, and
//! room in bounded queues is reserved, in short transactions of our own. A reservation counts as
//! long as the caller's transaction goes on, and goes with the commit that brings its units.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::store::{Refusal, Sent};
use longshore_core::{NewUnit, Result, Scope, UnitId};
use tokio_postgres::Transaction;

use super::decide::Gate;
use super::{Admission, check, created, is_plain, lanes, send_carefully, send_plainly, streams};
use crate::capacity::{Rooms, reserved};
use crate::error::is_conflict;
use crate::param::{unit_id, uuids};
use crate::promise::Promise;
use crate::row::value;
use crate::store::{InTransaction, Shared, attempt};
use crate::streams::Stream;
use crate::tx::Tx;

/// How long a reservation counts that a commit should have removed, and has not: its caller went
/// back to a savepoint, or saw an older state of the database.
const LEFT_BEHIND: Duration = Duration::from_secs(60);

/// What was arranged before anything is written in the caller's transaction.
#[derive(Default)]
struct Arranged {
    /// Why a unit cannot go in, for each.
    said: Vec<Option<Refusal>>,
    reservations: Vec<i64>,
}

/// Takes units in, inside the caller's transaction.
pub(crate) async fn send_in(
    store: &Shared,
    transaction: &Transaction<'_>,
    scope: &Scope,
    units: &[NewUnit],
) -> Result<InTransaction<Vec<Sent>>> {
    check(scope, units)?;
    let (streams, arranged) = arrange(store, transaction, units).await?;
    let mut tries = 0;
    loop {
        match try_in(store, transaction, units, &streams, &arranged).await {
            Err(error) if is_conflict(&error) && tries < 3 => tries += 1,
            answer => return answer,
        }
    }
}

/// Makes streams and reserves room.
async fn arrange(
    store: &Shared,
    transaction: &Transaction<'_>,
    units: &[NewUnit],
) -> Result<(Vec<Arc<Stream>>, Arranged)> {
    let look = attempt!(store, Durable, tx => async {
        let streams = streams(&mut tx, units, 0, Admission::Bounded).await?;
        let rooms = Rooms::of(&mut tx, &lanes(&streams)).await?;
        Ok((streams, rooms))
    });
    let ((streams, rooms), _) = look.await?;
    let said = streams.iter().map(|stream| rooms.suspended(stream)).collect();
    if !rooms.are_bounded() {
        return Ok((streams, Arranged { said, ..Arranged::default() }));
    }
    let mut tx = Tx::foreign(transaction, store.options.clock.now(), Arc::clone(&store.streams));
    let xid: String = value(&tx.query_one("SELECT pg_current_xact_id()::text", &[]).await?, 0)?;
    let reserve =
        attempt!(store, Durable, tx => reserve(&mut tx, units, &streams, said.clone(), &xid));
    let (arranged, _) = reserve.await?;
    Ok((streams, arranged))
}

/// Counts what there is and sets aside what these units need, lane by lane.
async fn reserve(
    tx: &mut Tx<'_>,
    units: &[NewUnit],
    streams: &[Arc<Stream>],
    mut said: Vec<Option<Refusal>>,
    xid: &str,
) -> Result<Arranged> {
    // The caller's transaction is open meanwhile: better no room than a long wait.
    tx.batch("SET LOCAL lock_timeout = '2s'").await?;
    let mut rooms = Rooms::of(tx, &lanes(streams)).await?;
    rooms.count(tx).await?;
    let known = known(tx, units).await?;
    let mut taken: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for (at, (unit, stream)) in units.iter().zip(streams).enumerate() {
        if said[at].is_some() || known.contains(&unit.id) {
            continue;
        }
        said[at] = rooms.admit(stream.lane, unit.payload.len() as u64);
        if said[at].is_none() {
            let (units, bytes) = taken.entry(stream.lane).or_default();
            *units += 1;
            *bytes += i64::try_from(unit.payload.len()).unwrap_or(i64::MAX);
        }
    }
    let reservations = write(tx, &taken, xid).await?;
    Ok(Arranged { said, reservations })
}

async fn known(tx: &mut Tx<'_>, units: &[NewUnit]) -> Result<Vec<UnitId>> {
    let sql = "SELECT id FROM longshore_unit WHERE id = ANY($1)";
    let rows = tx.query(sql, &[&uuids(units.iter().map(|unit| &unit.id))]).await?;
    rows.iter().map(|row| value(row, 0).map(unit_id)).collect()
}

/// Writes reservations, and removes those of the same lanes that count no more.
async fn write(tx: &mut Tx<'_>, taken: &BTreeMap<i64, (i64, i64)>, xid: &str) -> Result<Vec<i64>> {
    let lanes: Vec<i64> = taken.keys().copied().collect();
    let units: Vec<i64> = taken.values().map(|(units, _)| *units).collect();
    let bytes: Vec<i64> = taken.values().map(|(_, bytes)| *bytes).collect();
    let until = (tx.now + LEFT_BEHIND).as_micros();
    let reserved = reserved("$4");
    let sql = format!(
        "WITH old AS (DELETE FROM longshore_reservation r
           WHERE r.lane = ANY($1) AND NOT {reserved})
         INSERT INTO longshore_reservation (lane, units, bytes, until, xid)
         SELECT n.*, $5, $6::xid8 FROM unnest($1, $2, $3) n RETURNING num"
    );
    let rows = tx.query(&sql, &[&lanes, &units, &bytes, &tx.now.as_micros(), &until, &xid]).await?;
    rows.iter().map(|row| value(row, 0)).collect()
}

/// Writes the units, or leaves nothing behind.
async fn try_in(
    store: &Shared,
    transaction: &Transaction<'_>,
    units: &[NewUnit],
    streams: &[Arc<Stream>],
    arranged: &Arranged,
) -> Result<InTransaction<Vec<Sent>>> {
    let now = store.options.clock.now();
    let mut tx = Tx::foreign(transaction, now, Arc::clone(&store.streams));
    let promise = Promise::give(&mut tx).await?;
    let done = async {
        let answer = put(&mut tx, units, streams, &arranged.said).await?;
        if !arranged.reservations.is_empty() {
            let sql = "DELETE FROM longshore_reservation WHERE num = ANY($1)";
            tx.execute(sql, &[&arranged.reservations]).await?;
        }
        tx.flush().await?;
        Ok(answer)
    };
    let done = done.await;
    promise.settle(&mut tx, done).await
}

async fn put(
    tx: &mut Tx<'_>,
    units: &[NewUnit],
    streams: &[Arc<Stream>],
    said: &[Option<Refusal>],
) -> Result<Vec<Sent>> {
    if units.iter().all(is_plain) && said.iter().all(Option::is_none) {
        // The room is theirs already: nobody asks again.
        send_plainly(tx, units, streams, false).await?;
        return Ok(created(units));
    }
    send_carefully(tx, units, streams, Gate::Said(said.to_vec())).await
}
