//! A pool's row, and the line before it.

use std::time::Duration;

use longshore_core::permits::{Waits, rank};
use longshore_core::{PermitId, PoolName, Priority, Result, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::{Translate, damaged};

/// A pool's row while a verb works on it.
pub(super) struct Pool<'c> {
    db: &'c Connection,
    pub(super) num: i64,
    pub(super) max: u32,
    pub(super) in_use: u32,
    pub(super) fence: u64,
    came: Timestamp,
    pub(super) next_end: Timestamp,
    pub(super) acquired: u64,
    pub(super) timeouts: u64,
    pub(super) expired: u64,
    pub(super) waits: Waits,
    /// Whom a verb told that asking again is worth it.
    pub(super) told: Vec<PermitId>,
}

/// Where one stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) rank: Timestamp,
    pub(super) came: Timestamp,
}

const NEVER: Timestamp = Timestamp::from_micros(i64::MAX);

pub(super) fn moment(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp::from_micros)
}

impl<'c> Pool<'c> {
    pub(super) fn find(db: &'c Connection, name: &PoolName) -> Result<Option<Self>> {
        let mut statement = db
            .prepare_cached(
                "SELECT num, max, in_use, fence, came, next_end, acquired, timeouts, expired, waits
                 FROM longshore_pool WHERE name = ?1",
            )
            .or_translate()?;
        let found = statement.query_row([name.as_str()], |row| Self::read(db, row));
        found.optional().or_translate()
    }

    fn read(db: &'c Connection, row: &Row<'_>) -> rusqlite::Result<Self> {
        let bytes: [u8; 8 * Waits::STEPS] = row.get(9)?;
        let mut waits = Waits::default();
        for (count, bytes) in waits.0.iter_mut().zip(bytes.as_chunks().0) {
            *count = u64::from_le_bytes(*bytes);
        }
        Ok(Self {
            db,
            num: row.get(0)?,
            max: row.get(1)?,
            in_use: row.get(2)?,
            fence: row.get(3)?,
            came: moment(row, 4)?,
            next_end: moment(row, 5)?,
            acquired: row.get(6)?,
            timeouts: row.get(7)?,
            expired: row.get(8)?,
            waits,
            told: Vec::new(),
        })
    }

    pub(super) fn find_or_make(db: &'c Connection, name: &PoolName, max: u32) -> Result<Self> {
        if let Some(pool) = Self::find(db, name)? {
            return Ok(pool);
        }
        let none = [0_u8; 8 * Waits::STEPS];
        db.execute(
            "INSERT INTO longshore_pool (name, max, waits) VALUES (?1, ?2, ?3)",
            params![name.as_str(), max, none],
        )
        .or_translate()?;
        Self::find(db, name)?.ok_or_else(|| damaged("a pool that is not there"))
    }

    /// Writes the row back.
    pub(super) fn write(&self) -> Result<()> {
        let waits: Vec<u8> = self.waits.0.iter().flat_map(|count| count.to_le_bytes()).collect();
        self.db
            .prepare_cached(
                "UPDATE longshore_pool SET max = ?2, in_use = ?3, fence = ?4, came = ?5, next_end = ?6,
                 acquired = ?7, timeouts = ?8, expired = ?9, waits = ?10 WHERE num = ?1",
            )
            .or_translate()?
            .execute(params![
                self.num,
                self.max,
                self.in_use,
                self.fence,
                self.came.as_micros(),
                self.next_end.as_micros(),
                self.acquired,
                self.timeouts,
                self.expired,
                waits,
            ])
            .or_translate()?;
        Ok(())
    }

    pub(super) fn free(&self) -> u32 {
        self.max.saturating_sub(self.in_use)
    }

    /// The place of one that comes now.
    pub(super) fn next_place(&self, priority: Priority, now: Timestamp) -> Place {
        let came = now.max(self.came + Duration::from_micros(1));
        Place { rank: rank(priority, came), came }
    }

    /// One came.
    pub(super) fn joined(&mut self, place: Place) {
        self.came = self.came.max(place.came);
    }

    /// Who is first in line.
    pub(super) fn first(&self) -> Result<Option<Place>> {
        self.db
            .prepare_cached(
                "SELECT rank, came FROM longshore_permit WHERE pool = ?1 AND rank IS NOT NULL
                 ORDER BY rank, came LIMIT 1",
            )
            .or_translate()?
            .query_row([self.num], |row| Ok(Place { rank: moment(row, 0)?, came: moment(row, 1)? }))
            .optional()
            .or_translate()
    }

    /// How many stand before a place, and when the first of them loses its own.
    pub(super) fn before(&self, place: Place) -> Result<(u32, Option<Timestamp>)> {
        self.db
            .prepare_cached(
                "SELECT count(*), min(ends) FROM longshore_permit
                 WHERE pool = ?1 AND rank IS NOT NULL AND (rank, came) < (?2, ?3)",
            )
            .or_translate()?
            .query_row((self.num, place.rank.as_micros(), place.came.as_micros()), |row| {
                let ends: Option<i64> = row.get(1)?;
                Ok((row.get(0)?, ends.map(Timestamp::from_micros)))
            })
            .or_translate()
    }

    /// Ends a lease or a place in line; whether there was one.
    pub(super) fn remove(&mut self, id: PermitId) -> Result<bool> {
        let gone = self
            .db
            .prepare_cached(
                "DELETE FROM longshore_permit WHERE pool = ?1 AND id = ?2
                 RETURNING weight, fence IS NOT NULL",
            )
            .or_translate()?
            .query_row((self.num, id.as_bytes()), |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .or_translate()?;
        if let Some((weight, true)) = gone {
            self.freed(weight);
        }
        Ok(gone.is_some())
    }

    fn freed(&mut self, weight: u32) {
        self.in_use = self.in_use.saturating_sub(weight);
    }

    /// Drops what has run out; whether anything had to be looked at.
    pub(super) fn sweep(&mut self, now: Timestamp) -> Result<bool> {
        if now < self.next_end {
            return Ok(false);
        }
        let mut statement = self
            .db
            .prepare_cached(
                "DELETE FROM longshore_permit WHERE pool = ?1 AND ends <= ?2
                 RETURNING id, weight, fence IS NOT NULL",
            )
            .or_translate()?;
        let gone: Vec<(PermitId, u32, bool)> = statement
            .query_map((self.num, now.as_micros()), |row| {
                Ok((PermitId::from_bytes(row.get(0)?), row.get(1)?, row.get(2)?))
            })
            .and_then(Iterator::collect)
            .or_translate()?;
        for (id, weight, held) in gone {
            if held {
                self.freed(weight);
                self.expired += 1;
            } else {
                self.told.push(id);
            }
        }
        let next: Option<i64> = self
            .db
            .prepare_cached("SELECT min(ends) FROM longshore_permit WHERE pool = ?1")
            .or_translate()?
            .query_row([self.num], |row| row.get(0))
            .or_translate()?;
        self.next_end = next.map_or(NEVER, Timestamp::from_micros);
        self.tell()?;
        Ok(true)
    }

    /// Hints to those for whom there is room now, in order.
    pub(super) fn tell(&mut self) -> Result<()> {
        let mut free = self.free();
        if free == 0 {
            return Ok(());
        }
        let mut line = self
            .db
            .prepare_cached(
                "SELECT id, weight, told FROM longshore_permit WHERE pool = ?1 AND rank IS NOT NULL
                 ORDER BY rank, came",
            )
            .or_translate()?;
        let mut line = line.query([self.num]).or_translate()?;
        let mut told = Vec::new();
        while let Some(row) = line.next().or_translate()? {
            let weight: u32 = row.get(1).or_translate()?;
            let Some(rest) = free.checked_sub(weight) else { break };
            free = rest;
            if !row.get::<_, bool>(2).or_translate()? {
                told.push(PermitId::from_bytes(row.get(0).or_translate()?));
            }
        }
        for id in told {
            self.db
                .prepare_cached("UPDATE longshore_permit SET told = 1 WHERE pool = ?1 AND id = ?2")
                .or_translate()?
                .execute((self.num, id.as_bytes()))
                .or_translate()?;
            self.told.push(id);
        }
        Ok(())
    }
}
