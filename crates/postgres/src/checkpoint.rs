//! Checkpoints of runs, and the amounts that they add to their batch's sums.

use longshore_core::batch::Sums;
use longshore_core::effect_budget::EffectBudget;
use longshore_core::store::{CheckpointRequest, FinishResult};
use longshore_core::worker_session::Lease;
use longshore_core::{Error, Payload, Result, SessionId};

use crate::effects;
use crate::ledger::calls;
use crate::row::{flag, value};
use crate::session;
use crate::tx::Tx;
use crate::typed_params::{replace_nul, session_uuid, uuid};

/// Saves a run's checkpoint and adds its sums. If the same checkpoint is saved already, this is a
/// repeat after a lost reply, and nothing is added. Returns false if the lease is lost.
pub(crate) async fn save(
    tx: &mut Tx<'_>,
    holder: SessionId,
    lease: &Lease,
    new: &CheckpointRequest,
    budget: &mut EffectBudget,
) -> Result<bool> {
    let CheckpointRequest { state, sums, calls, effects } = new;
    let mut saved = write(tx, holder, lease, state).await?;
    if saved.is_none() {
        // The lease may be part of a lease group, and the row says nothing of it.
        session::settle_leases_in(tx, holder, &[*lease]).await?;
        saved = write(tx, holder, lease, state).await?;
    }
    if let Some(stream) = saved {
        match effects::run(tx, effects, budget).await? {
            None => {}
            Some(FinishResult::EffectFailed(failure)) => return Err(Error::EffectFailed(failure)),
            Some(_) => return Err(Error::timed_out("an effect waits for a lock of another transaction")),
        }
        if !sums.is_empty() {
            tx.add_sums(stream, &sanitise_names(sums));
        }
        calls::record_with(tx, calls.iter());
        return Ok(true);
    }
    let held = tx
        .query_opt(
            "SELECT 1 FROM longshore_unit WHERE id = $1 AND fence = $2
             AND session = (SELECT num FROM longshore_session WHERE id = $3)",
            &[&uuid(lease.unit), &lease.fence.cast_signed(), &session_uuid(holder)],
        )
        .await?;
    Ok(held.is_some())
}

/// Writes a checkpoint into the row of a unit, and returns the unit's stream. Returns `None` if the row says neither
/// that the session holds the unit nor that its checkpoint differs.
async fn write(
    tx: &mut Tx<'_>,
    holder: SessionId,
    lease: &Lease,
    checkpoint: &Payload,
) -> Result<Option<i64>> {
    let (unit, fence) = (uuid(lease.unit), lease.fence.cast_signed());
    let row = tx
        .query_opt(
            "UPDATE longshore_unit SET checkpoint = $4, flags = flags | $5
             WHERE id = $1 AND fence = $2
             AND session = (SELECT num FROM longshore_session WHERE id = $3)
             AND checkpoint IS DISTINCT FROM $4 RETURNING stream",
            &[&unit, &fence, &session_uuid(holder), &checkpoint.as_bytes(), &flag::CHECKPOINTED],
        )
        .await?;
    row.map(|row| value(&row, 0)).transpose()
}

/// Replaces characters in names that PostgreSQL cannot hold.
fn sanitise_names(sums: &Sums) -> Sums {
    let mut all = Sums::new();
    for (name, amount) in sums {
        let sum = all.entry(replace_nul(name)).or_default();
        *sum = sum.saturating_add(*amount);
    }
    all
}

/// The sums of a batch, rolled up or not. A sum saturates at the limits of `bigint`.
pub(crate) async fn sums(tx: &mut Tx<'_>, batch: i64) -> Result<Sums> {
    let rows = tx
        .query(
            "SELECT a.name, least(greatest(sum(a.amount), -9223372036854775808),
               9223372036854775807)::bigint
             FROM (SELECT name, amount::numeric AS amount FROM longshore_batch_sum WHERE batch = $1
               UNION ALL SELECT e.key, e.value::numeric
               FROM longshore_stream s JOIN longshore_stream_delta d ON d.stream = s.num
               CROSS JOIN LATERAL json_each_text(d.sums::json) e
               WHERE s.batch = $1 AND s.batch <> 0 AND d.sums IS NOT NULL) a
             GROUP BY a.name",
            &[&batch],
        )
        .await?;
    rows.iter().map(|row| Ok((value(row, 0)?, value(row, 1)?))).collect()
}
