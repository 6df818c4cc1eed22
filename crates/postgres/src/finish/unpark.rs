//! Unparks units of a concurrency key when another unit of the key leaves.

use std::collections::BTreeMap;

use longshore_core::Result;

use crate::advisory_lock::{self, AdvisoryLock};
use crate::row::READY_CAPPED;
use crate::tx::Tx;

/// Unparks the next units of each cap key. A caller's transaction leaves this for after its commit,
/// since claims would wait for its locks.
pub(crate) async fn unpark<'k>(tx: &mut Tx<'_>, keys: impl Iterator<Item = &'k [u8]>) -> Result<()> {
    let mut leaving: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
    for key in keys {
        *leaving.entry(key.to_vec()).or_default() += 1;
    }
    if tx.is_caller_transaction() {
        for (key, units) in leaving {
            *tx.after.unparks.entry(key).or_default() += units;
        }
        return Ok(());
    }
    unpark_counted(tx, &leaving).await
}

/// Unparks this many units of each stream with each cap key, under the keys' locks. Without the lock,
/// a concurrent claim could park a unit behind the one that ends now, and nothing would unpark it. A
/// stream may have no worker, or its batch may be paused, so units of the first stream alone would not
/// do. A claim parks the units that it cannot take.
pub(crate) async fn unpark_counted(tx: &mut Tx<'_>, leaving: &BTreeMap<Vec<u8>, i64>) -> Result<()> {
    if leaving.is_empty() {
        return Ok(());
    }
    let locks: Vec<AdvisoryLock<'_>> = leaving.keys().map(|key| AdvisoryLock::CapKey(key)).collect();
    advisory_lock::acquire(tx, &locks).await?;
    let counts: Vec<i64> = leaving.values().copied().collect();
    let keys: Vec<&[u8]> = leaving.keys().map(Vec::as_slice).collect();
    let woken = tx
        .query(
            "WITH RECURSIVE head (key, leaving, stream) AS (
               SELECT k.key, k.leaving, (SELECT u.stream FROM longshore_unit u
                 WHERE u.cap_key = k.key AND u.state = $3 AND u.state IN (3, 7)
                 ORDER BY u.stream LIMIT 1)
               FROM unnest($1, $2) AS k (key, leaving)
               UNION ALL SELECT h.key, h.leaving, (SELECT u.stream FROM longshore_unit u
                 WHERE u.cap_key = h.key AND u.state = $3 AND u.state IN (3, 7)
                 AND u.stream > h.stream ORDER BY u.stream LIMIT 1)
               FROM head h WHERE h.stream IS NOT NULL),
             woken AS (UPDATE longshore_unit SET state = 2 WHERE id IN (
               SELECT p.id FROM head h CROSS JOIN LATERAL (
                 SELECT u.id FROM longshore_unit u WHERE u.cap_key = h.key AND u.state = $3
                 AND u.state IN (3, 7) AND u.stream = h.stream
                 ORDER BY u.sort_key LIMIT h.leaving FOR UPDATE SKIP LOCKED) p)
               RETURNING stream, sort_key, id)
             INSERT INTO longshore_ready (stream, sort_key, id, claim)
             SELECT w.stream, w.sort_key, w.id, 2 FROM woken w RETURNING id",
            &[&keys, &counts, &i16::from(READY_CAPPED)],
        )
        .await?;
    tx.after.wake_workers |= !woken.is_empty();
    Ok(())
}
