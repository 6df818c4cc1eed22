//! One operation's part of a transaction: the connection, the time, and pending consequences.
//!
//! Operations report which units changed their state ([`Tx::count_transition`]). [`Tx::flush`]
//! updates counters, batches, dependants and the change feed in the same transaction, once per
//! operation and not once per unit.

use std::collections::{BTreeSet, HashMap};

use longshore_core::admission::ROW_BYTES;
use longshore_core::batch::Sums;
use longshore_core::{PermitId, Result, Timestamp, UnitId, UnitState};
use rusqlite::{CachedStatement, Connection};

use crate::claim_cache::ClaimCache;
use crate::error::Translate;
use crate::ledger::budgets::MonthDeltas;
use crate::prepared::{PreparedSql, PreparedStatements};
use crate::row::state_code;
use crate::{batch, finish};

/// Most dependants that one operation unblocks or cancels. The writer continues with the rest.
const MAX_DEPENDANTS: usize = 2_000;

/// One operation's part of a transaction.
pub(crate) struct Tx<'c> {
    pub(crate) db: &'c Connection,
    pub(crate) now: Timestamp,
    /// Units became claimable: wake workers after the commit.
    pub(crate) wake_workers: bool,
    /// This operation's last entry in the change feed; 0 for none.
    pub(crate) last_change: u64,
    /// Roll this operation back although it has a result.
    pub(crate) roll_back: bool,
    /// Waiters for permits that were notified to ask again.
    pub(crate) woken_permits: Vec<PermitId>,
    /// Amounts to add to the sums of batches, by stream. The writer adds them once for all
    /// operations of a commit.
    pub(crate) sums: Vec<(i64, Sums)>,
    /// Changes of tenants' months by the calls of this operation.
    pub(crate) months: MonthDeltas,
    deltas: HashMap<i64, CounterDelta>,
    batches: BTreeSet<i64>,
    ended: Vec<(UnitId, bool)>,
    /// How many more dependants this operation may unblock or cancel.
    pub(crate) dependants_left: usize,
    /// Dependants are left to the outbox.
    pub(crate) outbox: bool,
    topics: BTreeSet<TopicRow>,
    statements: PreparedStatements<'c>,
    pub(crate) claim_cache: &'c mut ClaimCache,
}

/// Changes of a stream's counters.
#[derive(Default)]
struct CounterDelta {
    counts: [i64; 7],
    bytes: i64,
    /// Bytes of new units, with [`ROW_BYTES`] each.
    stored: i64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct TopicRow {
    topic: &'static str,
    name: String,
    tenant: Option<String>,
}

impl<'c> Tx<'c> {
    /// A part of the open transaction of `db`.
    pub(crate) fn new(db: &'c Connection, now: Timestamp, claim_cache: &'c mut ClaimCache) -> Self {
        Self {
            db,
            now,
            wake_workers: false,
            last_change: 0,
            roll_back: false,
            woken_permits: Vec::new(),
            sums: Vec::new(),
            months: MonthDeltas::default(),
            deltas: HashMap::new(),
            batches: BTreeSet::new(),
            ended: Vec::new(),
            dependants_left: MAX_DEPENDANTS,
            outbox: false,
            topics: BTreeSet::new(),
            statements: PreparedStatements::default(),
            claim_cache,
        }
    }

    /// A statement that runs once per unit.
    pub(crate) fn prepared(&mut self, sql: PreparedSql) -> Result<&mut CachedStatement<'c>> {
        self.statements.get(self.db, sql)
    }

    /// Counts a unit with `bytes` of payload from one state to another. Bytes count while the unit
    /// is live.
    pub(crate) fn count_transition(
        &mut self,
        stream: i64,
        from: Option<UnitState>,
        to: Option<UnitState>,
        bytes: i64,
    ) {
        let delta = self.deltas.entry(stream).or_default();
        let live = |state: Option<UnitState>| state.is_some_and(|state| !state.is_final());
        if let Some(from) = from {
            delta.counts[usize::from(state_code(from))] -= 1;
        }
        if let Some(to) = to {
            delta.counts[usize::from(state_code(to))] += 1;
        }
        delta.bytes += bytes * (i64::from(live(to)) - i64::from(live(from)));
        if from.is_none() {
            delta.stored += bytes + ROW_BYTES.cast_signed();
        }
        self.wake_workers |= to == Some(UnitState::Ready);
    }

    /// Records a unit that ended and has dependants.
    pub(crate) fn record_end(&mut self, unit: UnitId, succeeded: bool) {
        self.ended.push((unit, succeeded));
    }

    /// Records a batch that must be updated.
    pub(crate) fn touch_batch(&mut self, num: i64) {
        self.batches.insert(num);
    }

    /// Adds an entry to the change feed.
    pub(crate) fn announce(&mut self, topic: &'static str, name: impl Into<String>, tenant: Option<&str>) {
        let tenant = tenant.map(str::to_owned);
        self.topics.insert(TopicRow { topic, name: name.into(), tenant });
    }

    /// Applies the pending consequences. These may cause more (a dependant, a callback), so it
    /// repeats until none is left.
    pub(crate) fn flush(&mut self) -> Result<()> {
        loop {
            while let Some((unit, succeeded)) = self.ended.pop() {
                finish::resolve_dependants(self, unit, succeeded)?;
            }
            for (stream, delta) in std::mem::take(&mut self.deltas) {
                self.count(stream, &delta)?;
            }
            for num in std::mem::take(&mut self.batches) {
                batch::advance(self, num)?;
            }
            if self.ended.is_empty() && self.deltas.is_empty() && self.batches.is_empty() {
                break;
            }
        }
        self.months.write(self.db)?;
        self.write_topics()
    }

    fn count(&mut self, stream: i64, delta: &CounterDelta) -> Result<()> {
        let [blocked, scheduled, ready, leased, done, failed, cancelled] = delta.counts;
        self.db
            .prepare_cached(
                "UPDATE longshore_stream SET blocked = blocked + ?2, scheduled = scheduled + ?3,
                 ready = ready + ?4, leased = leased + ?5, done = done + ?6, failed = failed + ?7,
                 cancelled = cancelled + ?8, bytes = bytes + ?9, stored_bytes = stored_bytes + ?10
                 WHERE num = ?1",
            )
            .or_translate()?
            .execute((
                stream,
                blocked,
                scheduled,
                ready,
                leased,
                done,
                failed,
                cancelled,
                delta.bytes,
                delta.stored,
            ))
            .or_translate()?;
        let (batch, queue, tenant, capped) = self
            .db
            .prepare_cached(
                "SELECT s.batch, q.name, l.tenant, l.cap IS NOT NULL OR EXISTS
                 (SELECT 1 FROM longshore_tenant t WHERE t.name = l.tenant AND t.cap IS NOT NULL)
                 FROM longshore_stream s JOIN longshore_lane l ON l.num = s.lane
                 JOIN longshore_queue q ON q.num = l.queue WHERE s.num = ?1",
            )
            .or_translate()?
            .query_row([stream], |row| {
                Ok((row.get(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?, row.get::<_, bool>(3)?))
            })
            .or_translate()?;
        if batch != 0 {
            self.batches.insert(batch);
        }
        // A unit left a capped lane or tenant: another may be leased.
        self.wake_workers |= capped && leased < 0;
        self.announce("queue", queue, Some(&tenant));
        Ok(())
    }

    fn write_topics(&mut self) -> Result<()> {
        for TopicRow { topic, name, tenant } in std::mem::take(&mut self.topics) {
            self.db
                .prepare_cached("INSERT INTO longshore_change (topic, name, tenant) VALUES (?1, ?2, ?3)")
                .or_translate()?
                .execute((topic, &name, &tenant))
                .or_translate()?;
            let seq = self.db.last_insert_rowid();
            self.last_change = seq.unsigned_abs();
            if seq % 1000 == 0 {
                self.db
                    .execute("DELETE FROM longshore_change WHERE seq <= ?1", [seq - FEED_LENGTH])
                    .or_translate()?;
            }
        }
        Ok(())
    }
}

/// How many changes the feed keeps: enough for a reader that was away for a moment.
pub(crate) const FEED_LENGTH: i64 = 20_000;
