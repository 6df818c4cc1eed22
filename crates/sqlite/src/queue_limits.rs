//! Admission of new units: suspension, and the capacity of lanes, queues and tenants.
//!
//! Limits are looked up once per call, and live units are summed only where a limit is set: a queue
//! without a limit costs nothing.

use std::collections::HashMap;

use longshore_core::admission::{CapacityCheck, LimitUsage};
use longshore_core::store::{Capacity, CapacityScope, SendRejection};
use longshore_core::{NewUnit, Result, TenantId};
use rusqlite::OptionalExtension;

use crate::error::Translate;
use crate::tx::Tx;
use crate::{finish, tenants};

/// The limits that a call has looked up, and the capacity it has used.
#[derive(Default)]
pub(crate) struct QueueLimits {
    suspended: HashMap<TenantId, bool>,
    /// Also caches scopes without a limit, which are not listed for any lane.
    capacity: CapacityCheck<LimitScope>,
}

/// A lane, queue or tenant with a capacity, by row number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LimitScope {
    Lane(i64),
    Queue(i64),
    /// 0 for a tenant without a record.
    Tenant(i64),
}

impl QueueLimits {
    /// Rejects a new unit of a suspended tenant.
    pub(crate) fn suspended_rejection(
        &mut self,
        tx: &mut Tx<'_>,
        unit: &NewUnit,
    ) -> Result<Option<SendRejection>> {
        let suspended = match self.suspended.get(&unit.tenant) {
            Some(cached) => *cached,
            None => {
                let found = tenants::is_suspended(tx.db, &unit.tenant)?;
                self.suspended.insert(unit.tenant.clone(), found);
                found
            }
        };
        // A unit that is stored already is a repeat.
        if !suspended || finish::find(tx, unit.id)?.is_some() {
            return Ok(None);
        }
        Ok(Some(SendRejection::Suspended(unit.tenant.clone())))
    }

    /// Reserves capacity for a unit, or returns why there is none.
    pub(crate) fn admit(
        &mut self,
        tx: &mut Tx<'_>,
        lane: i64,
        unit: &NewUnit,
    ) -> Result<Option<SendRejection>> {
        if !self.capacity.lanes.contains_key(&lane) {
            self.load(tx, lane)?;
        }
        let limited = self.capacity.lanes.get(&lane).is_some_and(|scopes| !scopes.is_empty());
        if !limited || finish::find(tx, unit.id)?.is_some() {
            // A unit that is stored already uses no further capacity.
            return Ok(None);
        }
        Ok(self.capacity.admit(lane, unit.stored_bytes()))
    }

    fn load(&mut self, tx: &Tx<'_>, lane: i64) -> Result<()> {
        let mut limited = Vec::new();
        for scope in LimitScope::of(tx, lane)? {
            let usage = match self.capacity.limits.get(&scope) {
                Some(cached) => *cached,
                None => scope.usage(tx)?,
            };
            self.capacity.limits.insert(scope, usage);
            limited.extend(usage.is_limited().then_some(scope));
        }
        self.capacity.lanes.insert(lane, limited);
        Ok(())
    }

    /// Returns the capacity of a unit that ended as soon as it was stored.
    pub(crate) fn release(&mut self, lane: i64, unit: &NewUnit) {
        self.capacity.release(lane, unit.stored_bytes());
    }
}

impl LimitScope {
    /// All scopes that limit a unit of this lane.
    fn of(tx: &Tx<'_>, lane: i64) -> Result<[Self; 3]> {
        let (queue, tenant) = tx
            .db
            .prepare_cached(
                "SELECT l.queue, coalesce(t.num, 0) FROM longshore_lane l
                 LEFT JOIN longshore_tenant t ON t.name = l.tenant WHERE l.num = ?1",
            )
            .or_translate()?
            .query_row([lane], |row| Ok((row.get(0)?, row.get(1)?)))
            .or_translate()?;
        Ok([Self::Lane(lane), Self::Queue(queue), Self::Tenant(tenant)])
    }

    fn bound(self) -> CapacityScope {
        match self {
            Self::Lane(_) => CapacityScope::Lane,
            Self::Queue(_) => CapacityScope::Queue,
            Self::Tenant(_) => CapacityScope::Tenant,
        }
    }

    /// The table with the limit, the condition for its lanes, and its row number.
    fn table_and_lanes(self) -> (&'static str, &'static str, i64) {
        match self {
            Self::Lane(num) => ("longshore_lane", "= ?1", num),
            Self::Queue(num) => {
                ("longshore_queue", "IN (SELECT num FROM longshore_lane WHERE queue = ?1)", num)
            }
            Self::Tenant(num) => (
                "longshore_tenant",
                "IN (SELECT l.num FROM longshore_tenant t JOIN longshore_lane l
                 ON l.tenant = t.name WHERE t.num = ?1)",
                num,
            ),
        }
    }

    /// Limit and usage. If no limit is set, the usage is not counted.
    fn usage(self, tx: &Tx<'_>) -> Result<LimitUsage> {
        let (table, lanes, num) = self.table_and_lanes();
        let limits: Option<(Option<u64>, Option<u64>)> = tx
            .db
            .prepare_cached(&format!("SELECT max_units, max_bytes FROM {table} WHERE num = ?1"))
            .or_translate()?
            .query_row([num], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .or_translate()?;
        let (units, bytes) = limits.unwrap_or_default();
        let usage = LimitUsage::new(self.bound(), Capacity { units, bytes });
        if !usage.is_limited() {
            return Ok(usage);
        }
        let stored = match usage.stored {
            Some(_) => {
                &format!("(SELECT coalesce(sum(stored_bytes), 0) FROM longshore_stream WHERE lane {lanes})")
            }
            None => "NULL",
        };
        let sql = format!(
            "SELECT coalesce(sum(blocked + scheduled + ready + leased), 0), coalesce(sum(bytes), 0), {stored}
             FROM longshore_stream INDEXED BY longshore_stream_live
             WHERE blocked + scheduled + ready + leased > 0 AND lane {lanes}"
        );
        let (live, bytes, stored) = tx
            .db
            .prepare_cached(&sql)
            .or_translate()?
            .query_row([num], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .or_translate()?;
        Ok(LimitUsage { live, bytes, stored, ..usage })
    }
}
