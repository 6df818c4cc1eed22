//! Checkpoints of runs, and the sums they add to their batch.

use std::collections::BTreeMap;

use longshore_core::batch::Sums;
use longshore_core::store::CheckpointRequest;
use longshore_core::worker_session::Lease;
use longshore_core::{Error, Result, SessionId};
use rusqlite::Connection;

use crate::effects::EffectRuns;
use crate::error::Translate;
use crate::ledger::calls;
use crate::overflow_values::{self, ValueKind};
use crate::row::flag;
use crate::tx::Tx;
use crate::{finish, session};

/// Stores a run's checkpoint, runs its effects and adds its sums. If the stored checkpoint is identical, this is a
/// repeat after a lost answer and adds nothing. False if the lease is lost.
pub(crate) fn save(
    tx: &mut Tx<'_>,
    holder: SessionId,
    lease: &Lease,
    new: &CheckpointRequest,
    effect_runs: &mut EffectRuns,
) -> Result<bool> {
    let CheckpointRequest { state, sums, calls, effects } = new;
    effect_runs.restart();
    let Some(num) = session::find(tx.db, holder)? else { return Ok(false) };
    let Some(row) = session::held_row(tx, num, lease)? else { return Ok(false) };
    if row.has(flag::CHECKPOINTED)
        && overflow_values::load(tx.db, row.id, ValueKind::Checkpoint)?.as_ref() == Some(state)
    {
        return Ok(true);
    }
    if let Some(failure) = effect_runs.run(tx, *lease, effects)? {
        return Err(Error::EffectFailed(failure));
    }
    finish::save_checkpoint(tx, &row, state)?;
    if !sums.is_empty() {
        tx.sums.push((row.stream, sums.clone()));
    }
    calls::record(tx, calls)?;
    Ok(true)
}

/// Adds to the sums of the streams' batches. Above the largest integer SQLite would switch to REAL,
/// which could not be read back; the cast saturates.
pub(crate) fn add<'s>(db: &Connection, sums: impl Iterator<Item = &'s (i64, Sums)>) -> Result<()> {
    let mut all: BTreeMap<(i64, &str), i64> = BTreeMap::new();
    for (stream, sums) in sums {
        for (name, amount) in sums {
            let sum = all.entry((*stream, name)).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }
    if all.is_empty() {
        return Ok(());
    }
    let mut statement = db
        .prepare_cached(
            "INSERT INTO longshore_batch_sum (batch, name, amount)
             SELECT batch, ?2, ?3 FROM longshore_stream WHERE num = ?1 AND batch <> 0
             ON CONFLICT (batch, name)
             DO UPDATE SET amount = CAST(amount + excluded.amount AS INTEGER)",
        )
        .or_translate()?;
    for ((stream, name), amount) in all {
        statement.execute((stream, name, amount)).or_translate()?;
    }
    Ok(())
}

/// The sums of a batch.
pub(crate) fn sums(db: &Connection, batch: i64) -> Result<Sums> {
    let mut statement =
        db.prepare_cached("SELECT name, amount FROM longshore_batch_sum WHERE batch = ?1").or_translate()?;
    let sums = statement.query_map([batch], |row| Ok((row.get(0)?, row.get(1)?))).or_translate()?;
    sums.collect::<rusqlite::Result<Sums>>().or_translate()
}
