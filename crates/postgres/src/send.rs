//! Taking units in: many in one statement.
//!
//! Most units have no key and wait for nothing, and most lanes have no bound: those are inserted
//! at once. The others are decided one after the other in memory, on facts that were read and
//! locked together ([`decide`]), and then inserted together all the same.

mod decide;
mod insert;
mod reserve;
mod short;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use longshore_core::store::Sent;
use longshore_core::{Error, NewUnit, Result, Scope};

use crate::capacity::Rooms;
use crate::streams::{Stream, StreamKey, Streams};
use crate::tenants;
use crate::tx::Tx;

use decide::{Desk, Gate};
use insert::{CHUNK, NewRow};
pub(crate) use reserve::send_in;
pub(crate) use short::shortly;

/// Whether bounds and suspension apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// A sender's units.
    Bounded,
    /// Callbacks: the end of a batch must not wait for room.
    Exempt,
}

/// Takes units in, in order; one answer each.
pub(crate) async fn send(
    tx: &mut Tx<'_>,
    scope: &Scope,
    units: &[NewUnit],
    batch: i64,
    admission: Admission,
) -> Result<Vec<Sent>> {
    check(scope, units)?;
    let streams = streams(tx, units, batch, admission).await?;
    let gated = admission == Admission::Bounded;
    let plain = units.iter().all(is_plain) && !streams.iter().any(|stream| stream.is_nowhere());
    let done = match plain {
        true => send_plainly(tx, units, &streams, gated).await?,
        false => 0,
    };
    if plain && gated {
        tx.streams.note_gate(&lanes(&streams), done < units.len());
    }
    let mut answers = created(&units[..done]);
    if done < units.len() {
        let (units, streams) = (&units[done..], &streams[done..]);
        let mut gate = Gate::Open;
        if gated {
            let mut rooms = Rooms::of(tx, &lanes(streams)).await?;
            rooms.count(tx).await?;
            gate = Gate::Rooms(rooms);
        }
        answers.extend(send_carefully(tx, units, streams, gate).await?);
    }
    Ok(answers)
}

fn check(scope: &Scope, units: &[NewUnit]) -> Result<()> {
    for unit in units {
        unit.check()?;
        if !scope.covers(&unit.tenant) {
            return Err(Error::not_found("tenant", &unit.tenant));
        }
    }
    Ok(())
}

/// Whether nothing about a unit needs a second look.
fn is_plain(unit: &NewUnit) -> bool {
    unit.dedup.is_none() && unit.after.units.is_empty()
}

fn created(units: &[NewUnit]) -> Vec<Sent> {
    units.iter().map(|unit| Sent::Created(unit.id)).collect()
}

/// Inserts units that need no second look; how many, which is fewer than all if a lane has a
/// bound or its tenant is suspended. An id that is known already is left alone.
async fn send_plainly(
    tx: &mut Tx<'_>,
    units: &[NewUnit],
    streams: &[Arc<Stream>],
    gated: bool,
) -> Result<usize> {
    let mut done = 0;
    while done < units.len() {
        let until = insert::chunk_end(units, done, CHUNK);
        let (units, streams) = (&units[done..until], &streams[done..until]);
        let now = tx.now;
        let rows: Vec<NewRow<'_>> = units
            .iter()
            .zip(streams)
            .map(|(unit, stream)| NewRow::new(now, unit, stream, 0))
            .collect();
        let lanes = if gated { lanes(streams) } else { Vec::new() };
        if !insert::plainly(tx, &rows, &lanes).await? {
            break;
        }
        done = until;
    }
    Ok(done)
}

async fn send_carefully(
    tx: &mut Tx<'_>,
    units: &[NewUnit],
    streams: &[Arc<Stream>],
    gate: Gate,
) -> Result<Vec<Sent>> {
    let mut desk = Desk::gather(tx, units, streams, gate).await?;
    let mut answers = Vec::with_capacity(units.len());
    for (at, (unit, stream)) in units.iter().zip(streams).enumerate() {
        answers.push(desk.decide(at, unit, stream));
    }
    desk.write(tx).await?;
    Ok(answers)
}

/// Keys are unique within a lane. Bytes, because text cannot hold a zero.
pub(crate) fn dedup_key(lane: i64, key: &str) -> Vec<u8> {
    format!("{lane}:{key}").into_bytes()
}

/// Each unit's stream. New ones are made in one order, so that two senders do not wait for each
/// other.
async fn streams(
    tx: &mut Tx<'_>,
    units: &[NewUnit],
    batch: i64,
    admission: Admission,
) -> Result<Vec<Arc<Stream>>> {
    let mut keys: BTreeSet<StreamKey> = BTreeSet::new();
    let mut last: Option<&NewUnit> = None;
    for unit in units {
        // Nearly always the same as the unit before.
        if !last.is_some_and(|last| same_stream(last, unit)) {
            keys.insert(key(unit, batch));
        }
        last = Some(unit);
    }
    let shared = Arc::clone(&tx.streams);
    let mut found: HashMap<StreamKey, Arc<Stream>> = HashMap::new();
    for key in keys {
        let stream = stream(tx, &shared, &key, admission).await?;
        found.insert(key, stream);
    }
    let mut streams: Vec<Arc<Stream>> = Vec::with_capacity(units.len());
    for (at, unit) in units.iter().enumerate() {
        let before = streams.last().filter(|_| at > 0 && same_stream(&units[at - 1], unit));
        let stream = before.or_else(|| found.get(&key(unit, batch)));
        streams.extend(stream.cloned());
    }
    Ok(streams)
}

async fn stream(
    tx: &mut Tx<'_>,
    shared: &Streams,
    key: &StreamKey,
    admission: Admission,
) -> Result<Arc<Stream>> {
    match shared.find(tx, key).await? {
        Some(stream) => Ok(stream),
        None if admission == Admission::Bounded
            && tenants::is_suspended(tx, &key.tenant).await? =>
        {
            Ok(Arc::new(Stream::nowhere(key.clone())))
        }
        None => shared.by_key(tx, key).await,
    }
}

fn key(unit: &NewUnit, batch: i64) -> StreamKey {
    StreamKey {
        queue: unit.queue.clone(),
        tenant: unit.tenant.clone(),
        kind: unit.kind.clone(),
        batch,
    }
}

fn same_stream(one: &NewUnit, other: &NewUnit) -> bool {
    one.queue == other.queue && one.tenant == other.tenant && one.kind == other.kind
}

fn lanes(streams: &[Arc<Stream>]) -> Vec<i64> {
    let lanes: BTreeSet<i64> = streams.iter().map(|stream| stream.lane).collect();
    lanes.into_iter().collect()
}
