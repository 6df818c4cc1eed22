//! Admission of new units: suspension, and the capacity of lanes, queues and tenants.
//!
//! Limits are looked up once per call, and live units are summed only where a limit is set: a queue
//! without a limit costs nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use longshore_core::store::{Bound, Refusal};
use longshore_core::{NewUnit, Result, TenantId};
use rusqlite::OptionalExtension;

use crate::error::Translate;
use crate::tx::Tx;
use crate::{finish, tenants};

/// The limits that a call has looked up, and the capacity it has used.
#[derive(Default)]
pub(crate) struct CapacityCheck {
    suspended: HashMap<TenantId, bool>,
    scopes: HashMap<i64, [LimitScope; 3]>,
    remaining: HashMap<LimitScope, Option<Remaining>>,
}

/// A lane, queue or tenant with a capacity, by row number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LimitScope {
    Lane(i64),
    Queue(i64),
    /// 0 for a tenant without a record.
    Tenant(i64),
}

/// Usage and limit of one scope.
struct Remaining {
    live: u64,
    bytes: u64,
    max_units: Option<u64>,
    max_bytes: Option<u64>,
}

impl CapacityCheck {
    /// Rejects a new unit of a suspended tenant.
    pub(crate) fn refuse_suspended(
        &mut self,
        tx: &mut Tx<'_>,
        unit: &NewUnit,
    ) -> Result<Option<Refusal>> {
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
        Ok(Some(Refusal::Suspended(unit.tenant.clone())))
    }

    /// Reserves capacity for a unit, or returns why there is none.
    pub(crate) fn admit(
        &mut self,
        tx: &mut Tx<'_>,
        lane: i64,
        unit: &NewUnit,
    ) -> Result<Option<Refusal>> {
        let scopes = match self.scopes.entry(lane) {
            Entry::Occupied(cached) => *cached.get(),
            Entry::Vacant(new) => *new.insert(LimitScope::of(tx, lane)?),
        };
        let bytes = unit.payload.len() as u64;
        for scope in scopes {
            if let Entry::Vacant(new) = self.remaining.entry(scope) {
                new.insert(scope.remaining(tx)?);
            }
        }
        let any = scopes.iter().any(|scope| matches!(self.remaining.get(scope), Some(Some(_))));
        if !any || finish::find(tx, unit.id)?.is_some() {
            // A unit that is stored already uses no further capacity.
            return Ok(None);
        }
        for scope in scopes {
            if let Some(Some(remaining)) = self.remaining.get(&scope)
                && let Some(limit) = remaining.exceeded(bytes)
            {
                let (bound, live, bytes) = (scope.bound(), remaining.live, remaining.bytes);
                return Ok(Some(Refusal::Full { bound, live, bytes, limit }));
            }
        }
        for scope in scopes {
            if let Some(Some(remaining)) = self.remaining.get_mut(&scope) {
                remaining.live += 1;
                remaining.bytes += bytes;
            }
        }
        Ok(None)
    }

    /// Returns the capacity of a unit that ended as soon as it was stored.
    pub(crate) fn release(&mut self, lane: i64, unit: &NewUnit) {
        for scope in self.scopes.get(&lane).into_iter().flatten() {
            if let Some(Some(remaining)) = self.remaining.get_mut(scope) {
                remaining.live -= 1;
                remaining.bytes -= unit.payload.len() as u64;
            }
        }
    }
}

impl Remaining {
    fn exceeded(&self, bytes: u64) -> Option<String> {
        match (self.max_units, self.max_bytes) {
            (Some(max), _) if self.live + 1 > max => Some(format!("{max} units")),
            (_, Some(max)) if self.bytes + bytes > max => Some(format!("{max} bytes")),
            _ => None,
        }
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

    fn bound(self) -> Bound {
        match self {
            Self::Lane(_) => Bound::Lane,
            Self::Queue(_) => Bound::Queue,
            Self::Tenant(_) => Bound::Tenant,
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

    /// Usage and limit; `None` if no limit is set.
    fn remaining(self, tx: &Tx<'_>) -> Result<Option<Remaining>> {
        let (table, lanes, num) = self.table_and_lanes();
        let limits: Option<(Option<u64>, Option<u64>)> = tx
            .db
            .prepare_cached(&format!("SELECT max_units, max_bytes FROM {table} WHERE num = ?1"))
            .or_translate()?
            .query_row([num], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .or_translate()?;
        let (max_units, max_bytes) = limits.unwrap_or_default();
        if max_units.is_none() && max_bytes.is_none() {
            return Ok(None);
        }
        let live = format!(
            "SELECT coalesce(sum(blocked + scheduled + ready + leased), 0), coalesce(sum(bytes), 0)
             FROM longshore_stream INDEXED BY longshore_stream_live
             WHERE blocked + scheduled + ready + leased > 0 AND lane {lanes}"
        );
        let (live, bytes) = tx
            .db
            .prepare_cached(&live)
            .or_translate()?
            .query_row([num], |row| Ok((row.get(0)?, row.get(1)?)))
            .or_translate()?;
        Ok(Some(Remaining { live, bytes, max_units, max_bytes }))
    }
}
