//! Cap keys: how many units of each are leased, counted under the key's lock.

use std::collections::{BTreeSet, HashMap};

use longshore_core::Result;

use crate::advisory_lock::AdvisoryLock;
use crate::row::{count, value};
use crate::tx::Tx;

/// The cap keys of the units that a claim has read.
#[derive(Debug, Default)]
pub(super) struct ConcurrencyKeys {
    leased: HashMap<Vec<u8>, u32>,
    /// Keys that another claim or finish has locked.
    busy: BTreeSet<Vec<u8>>,
}

impl ConcurrencyKeys {
    /// Locks and counts those of `keys` that are new. It does not wait for locks: if another
    /// transaction holds a key, its units are skipped, and this process claims again soon.
    pub(super) async fn count(&mut self, tx: &mut Tx<'_>, keys: impl Iterator<Item = &[u8]>) -> Result<()> {
        let new: BTreeSet<&[u8]> = keys.filter(|key| !self.leased.contains_key(*key)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let free = self.try_locks(tx, new).await?;
        let sql = "SELECT cap_key, count(*) FROM longshore_unit
            WHERE cap_key = ANY($1) AND state = 3 AND state IN (3, 7) GROUP BY cap_key";
        let rows = tx.query(sql, &[&free]).await?;
        self.leased.extend(free.iter().map(|key| (key.to_vec(), 0)));
        for row in &rows {
            self.leased.insert(value(row, 0)?, count(row, 1)?);
        }
        Ok(())
    }

    async fn try_locks<'k>(&mut self, tx: &mut Tx<'_>, keys: BTreeSet<&'k [u8]>) -> Result<Vec<&'k [u8]>> {
        let lock_keys: Vec<i64> = keys.iter().map(|key| AdvisoryLock::CapKey(key).key()).collect();
        let sql = "SELECT pg_try_advisory_xact_lock(n)
            FROM unnest($1) WITH ORDINALITY AS k (n, at) ORDER BY at";
        let rows = tx.query(sql, &[&lock_keys]).await?;
        let mut free = Vec::new();
        for (key, row) in keys.into_iter().zip(&rows) {
            match value::<bool>(row, 0)? {
                true => {
                    self.busy.remove(key);
                    free.push(key);
                }
                false => {
                    tx.after.skipped = true;
                    self.busy.insert(key.to_vec());
                }
            }
        }
        Ok(free)
    }

    /// How many units of a key are leased; `None` if another transaction holds the key's lock.
    pub(super) fn leased_units(&self, key: &[u8]) -> Option<u32> {
        let leased = self.leased.get(key).copied().unwrap_or(0);
        (!self.busy.contains(key)).then_some(leased)
    }

    /// Counts one more leased unit of a key.
    pub(super) fn lease(&mut self, key: &[u8]) {
        if let Some(leased) = self.leased.get_mut(key) {
            *leased += 1;
        }
    }
}
