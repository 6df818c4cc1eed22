//! Admission: who may send, and whether a lane, its queue and its tenant have room.
//!
//! Bounds are looked up once per call, and live units are added up only where one is set: an
//! unbounded queue counts nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use longshore_core::store::{Bound, Refusal};
use longshore_core::{NewUnit, Result, TenantId};
use rusqlite::OptionalExtension;

use crate::error::Translate;
use crate::tx::Tx;
use crate::{finish, tenants};

/// What one call has found out about bounds, and what it has taken of the room.
#[derive(Default)]
pub(crate) struct Rooms {
    suspended: HashMap<TenantId, bool>,
    bounds: HashMap<i64, [Bounded; 3]>,
    room: HashMap<Bounded, Option<Room>>,
}

/// Something with a capacity, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Bounded {
    Lane(i64),
    Queue(i64),
    /// 0 for a tenant without a record.
    Tenant(i64),
}

/// What is left under one bound.
struct Room {
    live: u64,
    bytes: u64,
    max_units: Option<u64>,
    max_bytes: Option<u64>,
}

impl Rooms {
    /// Refuses a new unit of a suspended tenant.
    pub(crate) fn refuse_suspended(
        &mut self,
        tx: &mut Tx<'_>,
        unit: &NewUnit,
    ) -> Result<Option<Refusal>> {
        let suspended = match self.suspended.get(&unit.tenant) {
            Some(known) => *known,
            None => {
                let found = tenants::is_suspended(tx.db, &unit.tenant)?;
                self.suspended.insert(unit.tenant.clone(), found);
                found
            }
        };
        // What is in already was not sent now.
        if !suspended || finish::find(tx, unit.id)?.is_some() {
            return Ok(None);
        }
        Ok(Some(Refusal::Suspended(unit.tenant.clone())))
    }

    /// Why the unit has no room, or takes its room.
    pub(crate) fn admit(
        &mut self,
        tx: &mut Tx<'_>,
        lane: i64,
        unit: &NewUnit,
    ) -> Result<Option<Refusal>> {
        let bounds = match self.bounds.entry(lane) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => *new.insert(Bounded::of(tx, lane)?),
        };
        let bytes = unit.payload.len() as u64;
        for bounded in bounds {
            if let Entry::Vacant(new) = self.room.entry(bounded) {
                new.insert(bounded.room(tx)?);
            }
        }
        let any = bounds.iter().any(|bounded| matches!(self.room.get(bounded), Some(Some(_))));
        if !any || finish::find(tx, unit.id)?.is_some() {
            // What is in already takes no more room.
            return Ok(None);
        }
        for bounded in bounds {
            if let Some(Some(room)) = self.room.get(&bounded)
                && let Some(limit) = room.exceeded(bytes)
            {
                let (bound, live, bytes) = (bounded.bound(), room.live, room.bytes);
                return Ok(Some(Refusal::Full { bound, live, bytes, limit }));
            }
        }
        for bounded in bounds {
            if let Some(Some(room)) = self.room.get_mut(&bounded) {
                room.live += 1;
                room.bytes += bytes;
            }
        }
        Ok(None)
    }

    /// A unit that ended as soon as it was in takes up no room.
    pub(crate) fn leave(&mut self, lane: i64, unit: &NewUnit) {
        for bounded in self.bounds.get(&lane).into_iter().flatten() {
            if let Some(Some(room)) = self.room.get_mut(bounded) {
                room.live -= 1;
                room.bytes -= unit.payload.len() as u64;
            }
        }
    }
}

impl Room {
    fn exceeded(&self, bytes: u64) -> Option<String> {
        match (self.max_units, self.max_bytes) {
            (Some(max), _) if self.live + 1 > max => Some(format!("{max} units")),
            (_, Some(max)) if self.bytes + bytes > max => Some(format!("{max} bytes")),
            _ => None,
        }
    }
}

impl Bounded {
    /// Everything whose bound a unit of this lane must keep to.
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

    /// Where the bound is kept, which lanes it is over, and its number.
    fn place(self) -> (&'static str, &'static str, i64) {
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

    /// What is left under the bound; `None` where none is set.
    fn room(self, tx: &Tx<'_>) -> Result<Option<Room>> {
        let (table, lanes, num) = self.place();
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
        Ok(Some(Room { live, bytes, max_units, max_bytes }))
    }
}
