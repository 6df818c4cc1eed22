//! A pool's row, and its wait queue.

use std::time::Duration;

use longshore_core::permits::{WaitHistogram, wait_rank};
use longshore_core::{PermitId, PoolName, Priority, Result, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::{Translate, damaged};

/// A pool's row while an operation works on it.
pub(super) struct Pool<'c> {
    db: &'c Connection,
    pub(super) num: i64,
    pub(super) max: u32,
    pub(super) in_use: u32,
    pub(super) fence: u64,
    last_arrival: Timestamp,
    pub(super) next_expiry: Timestamp,
    pub(super) acquired: u64,
    pub(super) timeouts: u64,
    pub(super) expired: u64,
    pub(super) waits: WaitHistogram,
    /// Waiters that the operation notified to ask again.
    pub(super) woken: Vec<PermitId>,
}

/// A position in the wait queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueuePosition {
    pub(super) rank: Timestamp,
    pub(super) arrived_at: Timestamp,
}

const NEVER: Timestamp = Timestamp::from_micros(i64::MAX);

pub(super) fn read_timestamp(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp::from_micros)
}

impl<'c> Pool<'c> {
    pub(super) fn find(db: &'c Connection, name: &PoolName) -> Result<Option<Self>> {
        let mut statement = db
            .prepare_cached(
                "SELECT num, max_weight, in_use, fence, last_arrival, next_expiry, acquired,
                 timeouts, expired, wait_histogram
                 FROM longshore_bounded_pool WHERE name = ?1",
            )
            .or_translate()?;
        let found = statement.query_row([name.as_str()], |row| Self::read(db, row));
        found.optional().or_translate()
    }

    fn read(db: &'c Connection, row: &Row<'_>) -> rusqlite::Result<Self> {
        let bytes: [u8; 8 * WaitHistogram::STEPS] = row.get(9)?;
        let mut waits = WaitHistogram::default();
        for (count, bytes) in waits.0.iter_mut().zip(bytes.as_chunks().0) {
            *count = u64::from_le_bytes(*bytes);
        }
        Ok(Self {
            db,
            num: row.get(0)?,
            max: row.get(1)?,
            in_use: row.get(2)?,
            fence: row.get(3)?,
            last_arrival: read_timestamp(row, 4)?,
            next_expiry: read_timestamp(row, 5)?,
            acquired: row.get(6)?,
            timeouts: row.get(7)?,
            expired: row.get(8)?,
            waits,
            woken: Vec::new(),
        })
    }

    pub(super) fn find_or_create(db: &'c Connection, name: &PoolName, max: u32) -> Result<Self> {
        if let Some(pool) = Self::find(db, name)? {
            return Ok(pool);
        }
        let none = [0_u8; 8 * WaitHistogram::STEPS];
        db.execute(
            "INSERT INTO longshore_bounded_pool (name, max_weight, wait_histogram) VALUES (?1, ?2,
             ?3)",
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
                "UPDATE longshore_bounded_pool SET max_weight = ?2, in_use = ?3, fence = ?4,
                 last_arrival = ?5, next_expiry = ?6,
                 acquired = ?7, timeouts = ?8, expired = ?9, wait_histogram = ?10 WHERE num = ?1",
            )
            .or_translate()?
            .execute(params![
                self.num,
                self.max,
                self.in_use,
                self.fence,
                self.last_arrival.as_micros(),
                self.next_expiry.as_micros(),
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

    /// The position of a request that arrives now.
    pub(super) fn next_position(&self, priority: Priority, now: Timestamp) -> QueuePosition {
        let arrived_at = now.max(self.last_arrival + Duration::from_micros(1));
        QueuePosition { rank: wait_rank(priority, arrived_at), arrived_at }
    }

    /// Records an arrival.
    pub(super) fn record_arrival(&mut self, position: QueuePosition) {
        self.last_arrival = self.last_arrival.max(position.arrived_at);
    }

    /// The first position in the queue.
    pub(super) fn head(&self) -> Result<Option<QueuePosition>> {
        self.db
            .prepare_cached(
                "SELECT rank, arrived_at FROM longshore_permit WHERE pool = ?1 AND rank IS NOT NULL
                 ORDER BY rank, arrived_at LIMIT 1",
            )
            .or_translate()?
            .query_row([self.num], |row| {
                Ok(QueuePosition { rank: read_timestamp(row, 0)?, arrived_at: read_timestamp(row, 1)? })
            })
            .optional()
            .or_translate()
    }

    /// How many waiters are before a position, and when the first of their places expires.
    pub(super) fn count_before(&self, position: QueuePosition) -> Result<(u32, Option<Timestamp>)> {
        self.db
            .prepare_cached(
                "SELECT count(*), min(expires_at) FROM longshore_permit
                 WHERE pool = ?1 AND rank IS NOT NULL AND (rank, arrived_at) < (?2, ?3)",
            )
            .or_translate()?
            .query_row((self.num, position.rank.as_micros(), position.arrived_at.as_micros()), |row| {
                let ends: Option<i64> = row.get(1)?;
                Ok((row.get(0)?, ends.map(Timestamp::from_micros)))
            })
            .or_translate()
    }

    /// Removes a lease or a waiter; whether there was one.
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
            self.release_weight(weight);
        }
        Ok(gone.is_some())
    }

    fn release_weight(&mut self, weight: u32) {
        self.in_use = self.in_use.saturating_sub(weight);
    }

    /// Removes expired leases and waiters; whether it had to look.
    pub(super) fn expire(&mut self, now: Timestamp) -> Result<bool> {
        if now < self.next_expiry {
            return Ok(false);
        }
        let mut statement = self
            .db
            .prepare_cached(
                "DELETE FROM longshore_permit WHERE pool = ?1 AND expires_at <= ?2
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
                self.release_weight(weight);
                self.expired += 1;
            } else {
                self.woken.push(id);
            }
        }
        let next: Option<i64> = self
            .db
            .prepare_cached("SELECT min(expires_at) FROM longshore_permit WHERE pool = ?1")
            .or_translate()?
            .query_row([self.num], |row| row.get(0))
            .or_translate()?;
        self.next_expiry = next.map_or(NEVER, Timestamp::from_micros);
        self.notify_next()?;
        Ok(true)
    }

    /// Notifies the waiters for which enough weight is free now, in order.
    pub(super) fn notify_next(&mut self) -> Result<()> {
        let mut free = self.free();
        if free == 0 {
            return Ok(());
        }
        let mut waiters = self
            .db
            .prepare_cached(
                "SELECT id, weight, notified FROM longshore_permit WHERE pool = ?1 AND rank IS NOT
                 NULL
                 ORDER BY rank, arrived_at",
            )
            .or_translate()?;
        let mut waiters = waiters.query([self.num]).or_translate()?;
        let mut woken = Vec::new();
        while let Some(row) = waiters.next().or_translate()? {
            let weight: u32 = row.get(1).or_translate()?;
            let Some(rest) = free.checked_sub(weight) else { break };
            free = rest;
            if !row.get::<_, bool>(2).or_translate()? {
                woken.push(PermitId::from_bytes(row.get(0).or_translate()?));
            }
        }
        for id in woken {
            self.db
                .prepare_cached("UPDATE longshore_permit SET notified = 1 WHERE pool = ?1 AND id = ?2")
                .or_translate()?
                .execute((self.num, id.as_bytes()))
                .or_translate()?;
            self.woken.push(id);
        }
        Ok(())
    }
}
