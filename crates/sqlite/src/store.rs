//! [`SqliteStore`]: opens the file, and hands each verb to the writer or to a reader.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use longshore_core::batch::{BatchAction, Sums};
use longshore_core::schedule::{NewSchedule, Schedule};
use longshore_core::session::{Lease, NewSession, Order, Session};
use longshore_core::stall::Dead;
use longshore_core::store::{
    Added, BatchChunk, Beat, BeatAnswer, ChangeSet, Claim, Claimed, Finish, Finished, HeldUnit,
    LaneChange, Opened, Operated, Page, ProgressNote, Promoted, Pruned, QueueChange, QueueInfo,
    Queues, Reclaimed, Retention, Sent, Tenant, TenantChange, Totals, UnitAction, UnitFailure,
    UnitFilter, UnitSelection, Violation,
};
use longshore_core::store::{DueSchedules, Fired, Firing, IfThere, Placed, ScheduleSwitch};
use longshore_core::{
    Batch, BatchId, BatchStatus, Clock, Error, Inspect, Intake, Leases, NewBatch, NewUnit, Operate,
    Payload, QueueName, Result, ScheduleName, Schedules, Scope, SessionId, SystemClock, TenantId,
    Tenants, Timestamp, Unit, UnitId, Upkeep,
};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::watch;

use crate::busy::patiently;
use crate::error::Translate;
use crate::known::Known;
use crate::send::Admission;
use crate::sync::Syncer;
use crate::tx::Tx;
use crate::writer::Durability::{Durable, Relaxed};
use crate::writer::{Signals, Writer};
use crate::{
    batch, checkpoint, claim, finish, inspect, lists, location, maintain, migrate, operate,
    schedules, send, session, tenants, verify, watch as wal,
};

/// How sure a commit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// Survives a power failure: one fsync per group of commits.
    #[default]
    Full,
    /// Survives the process; a power failure may take the last moments.
    Normal,
}

/// How a store is opened.
#[derive(Clone)]
pub struct SqliteOptions {
    /// How sure a commit is.
    pub synchronous: Synchronous,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// How long a commit waits for other processes' write lock before it is an error.
    pub busy_timeout: Duration,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::Full,
            clock: Arc::new(SystemClock),
            busy_timeout: Duration::from_secs(10),
        }
    }
}

impl std::fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { synchronous, busy_timeout, .. } = self;
        write!(f, "SqliteOptions({synchronous:?}, {busy_timeout:?})")
    }
}

/// The embedded store.
pub struct SqliteStore {
    path: PathBuf,
    options: SqliteOptions,
    /// Before the writer: the connection that closes last removes the log, and must be able to.
    readers: Arc<Mutex<Vec<Connection>>>,
    writer: Arc<Writer>,
    signals: Arc<Signals>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SqliteStore({})", self.path.display())
    }
}

impl SqliteStore {
    /// Opens a database file, makes it if there is none, and brings its schema up to date.
    pub fn open(path: &Path, options: SqliteOptions) -> Result<Self> {
        location::check(path)?;
        let db = connect(path, &options, Access::Write)?;
        // SQLite puts the log beside the file itself, not beside a link to it; and a relative path
        // means another file once the process has moved.
        let path = &path.canonicalize().map_err(|error| Error::Unavailable {
            message: format!("{} cannot be found again", path.display()),
            source: Some(Box::new(error)),
        })?;
        location::check(path)?;
        migrate::migrate(&db)?;
        let signals = Arc::new(Signals::new());
        let syncer = match options.synchronous {
            Synchronous::Full => Some(Syncer::start(path)?),
            Synchronous::Normal => None,
        };
        let clock = Arc::clone(&options.clock);
        let writer = Writer::start(db, syncer, options.busy_timeout, clock, Arc::clone(&signals))?;
        let writer = Arc::new(writer);
        wal::start(path, Arc::downgrade(&writer)).map_err(|error| Error::Unavailable {
            message: "no thread for watching the database".to_owned(),
            source: Some(Box::new(error)),
        })?;
        let readers = Arc::default();
        Ok(Self { path: path.to_owned(), options, writer, readers, signals })
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sends units inside the caller's own transaction on the same file: they are there if and
    /// only if the caller commits. Begin it with `BEGIN IMMEDIATE`, on a connection from
    /// [`Self::connect`] or one with a busy timeout.
    pub fn send_in(
        &self,
        transaction: &rusqlite::Transaction<'_>,
        scope: &Scope,
        units: &[NewUnit],
    ) -> Result<Vec<Sent>> {
        self.run_in(transaction, |tx| send::send(tx, scope, units, 0, Admission::Bounded))
    }

    /// Finishes runs inside the caller's own transaction on the same file.
    pub fn finish_in(
        &self,
        transaction: &rusqlite::Transaction<'_>,
        session: SessionId,
        finishes: &[Finish],
    ) -> Result<Vec<Finished>> {
        self.run_in(transaction, |tx| finish::finish(tx, session, finishes))
    }

    fn run_in<T>(
        &self,
        transaction: &rusqlite::Transaction<'_>,
        verb: impl FnOnce(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut known = Known::default();
        let mut tx = Tx::new(transaction, self.options.clock.now(), &mut known);
        // Of a verb that fails nothing may stay behind, should the caller commit all the same.
        transaction.execute_batch("SAVEPOINT longshore").or_translate()?;
        let done = verb(&mut tx).and_then(|answer| tx.flush().map(|()| answer));
        let end = match done {
            Ok(_) => "RELEASE longshore",
            Err(_) => "ROLLBACK TO longshore; RELEASE longshore",
        };
        transaction.execute_batch(end).or_translate()?;
        done
    }

    /// A connection of the caller's own, set up as the store's are.
    pub fn connect(&self) -> Result<Connection> {
        connect(&self.path, &self.options, Access::Write)
    }

    /// Runs a read on a connection of its own, off the async threads.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (readers, path, options) =
            (Arc::clone(&self.readers), self.path.clone(), self.options.clone());
        let run = move || {
            let idle = readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let db = idle.map_or_else(|| connect(&path, &options, Access::Read), Ok)?;
            let answer = snapshot(&db, read);
            readers.lock().unwrap_or_else(PoisonError::into_inner).push(db);
            answer
        };
        tokio::task::spawn_blocking(run)
            .await
            .map_err(|_| Error::unavailable("a read did not come back"))?
    }

    /// Cancels what waits of a batch given up, chunk by chunk. A crash in between is made good by
    /// `promote`.
    async fn sweep(&self) -> Result<()> {
        loop {
            let swept = self.writer.call(Durable, |tx| maintain::sweep(tx, operate::CHUNK)).await?;
            if swept < u64::from(operate::CHUNK) {
                return Ok(());
            }
        }
    }
}

/// Several statements, one state of the database.
fn snapshot<T>(db: &Connection, read: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
    db.execute_batch("BEGIN").or_translate()?;
    let answer = read(db);
    db.execute_batch("COMMIT").or_translate()?;
    answer
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

fn connect(path: &Path, options: &SqliteOptions, access: Access) -> Result<Connection> {
    let flags = match access {
        Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
        Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
    };
    let db = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .or_translate()?;
    db.set_prepared_statement_cache_capacity(128);
    // Without this SQLite compares bound values with partial indexes' conditions, and compiles a
    // statement anew whenever a value changed: a third of the writer's time.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).or_translate()?;
    db.busy_timeout(options.busy_timeout).or_translate()?;
    if access == Access::Write {
        // Of several processes that open a fresh file at once, one makes the switch.
        let mode: String = patiently(options.busy_timeout, || {
            db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        })?;
        if mode != "wal" {
            return Err(Error::Unsupported(format!(
                "this file cannot use a write-ahead log ({mode})"
            )));
        }
        let level = match options.synchronous {
            Synchronous::Full => "FULL",
            Synchronous::Normal => "NORMAL",
        };
        db.pragma_update(None, "synchronous", level).or_translate()?;
        // Checkpoints move many pages at once: 16 MB of log between two of them.
        db.pragma_update(None, "wal_autocheckpoint", 4000).or_translate()?;
        db.pragma_update(None, "journal_size_limit", 64 << 20).or_translate()?;
        db.pragma_update(None, "cache_size", -16_000).or_translate()?;
    }
    Ok(db)
}

#[async_trait]
impl Intake for SqliteStore {
    async fn send(&self, scope: &Scope, units: Vec<NewUnit>) -> Result<Vec<Sent>> {
        let scope = scope.clone();
        let verb = move |tx: &mut Tx<'_>| send::send(tx, &scope, &units, 0, Admission::Bounded);
        self.writer.call(Durable, verb).await
    }

    async fn open_batch(&self, scope: &Scope, new: NewBatch) -> Result<Opened> {
        let scope = scope.clone();
        self.writer.call(Durable, move |tx| batch::open(tx, &scope, &new)).await
    }

    async fn add_to_batch(&self, scope: &Scope, id: &BatchId, chunk: BatchChunk) -> Result<Added> {
        let (scope, id) = (scope.clone(), id.clone());
        self.writer.call(Durable, move |tx| batch::add(tx, &scope, &id, &chunk)).await
    }

    async fn seal_batch(&self, scope: &Scope, id: &BatchId) -> Result<Batch> {
        let (scope, id) = (scope.clone(), id.clone());
        self.writer.call(Durable, move |tx| batch::seal(tx, &scope, &id)).await
    }
}

#[async_trait]
impl Leases for SqliteStore {
    async fn open_session(&self, new: NewSession) -> Result<()> {
        self.writer.call(Relaxed, move |tx| session::open(tx, &new)).await
    }

    async fn beat(&self, id: SessionId, beat: Beat) -> Result<BeatAnswer> {
        self.writer.call(Relaxed, move |tx| session::beat(tx, id, &beat)).await
    }

    async fn close_session(&self, id: SessionId) -> Result<()> {
        let leaving = session::Leaving::Closed;
        self.writer.call(Durable, move |tx| session::end(tx, id, leaving).map(drop)).await
    }

    async fn adopt(&self, from: SessionId, to: SessionId) -> Result<Vec<HeldUnit>> {
        self.writer.call(Durable, move |tx| session::adopt(tx, from, to)).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.writer.call(Relaxed, move |tx| claim::claim(tx, &claim)).await
    }

    async fn start(&self, id: SessionId, leases: &[Lease]) -> Result<Vec<Option<Timestamp>>> {
        let leases = leases.to_vec();
        self.writer.call(Relaxed, move |tx| session::start(tx, id, &leases)).await
    }

    async fn release(&self, id: SessionId, leases: &[Lease]) -> Result<()> {
        let leases = leases.to_vec();
        self.writer.call(Relaxed, move |tx| session::release(tx, id, &leases)).await
    }

    async fn checkpoint(
        &self,
        id: SessionId,
        lease: Lease,
        state: Payload,
        sums: Sums,
    ) -> Result<bool> {
        longshore_core::unit::check_size("checkpoint", &state)?;
        let verb = move |tx: &mut Tx<'_>| checkpoint::keep(tx, id, &lease, &state, &sums);
        self.writer.call(Durable, verb).await
    }

    async fn progress(&self, id: SessionId, notes: Vec<ProgressNote>) -> Result<()> {
        let verb = move |tx: &mut Tx<'_>| {
            let num = session::number(tx.db, id)?;
            session::progress(tx, num, &notes)
        };
        self.writer.call(Relaxed, verb).await
    }

    async fn finish(&self, id: SessionId, finishes: Vec<Finish>) -> Result<Vec<Finished>> {
        self.writer.call(Durable, move |tx| finish::finish(tx, id, &finishes)).await
    }

    async fn held(&self, id: SessionId) -> Result<Vec<Lease>> {
        self.read(move |db| session::leases(db, session::number(db, id)?)).await
    }
}

#[async_trait]
impl Upkeep for SqliteStore {
    async fn reclaim(&self, dead: &[Dead]) -> Result<Reclaimed> {
        let mut all = Reclaimed::default();
        // One transaction each: a mass of dead workers does not hold up the living.
        for &dead in dead {
            let one = match self.writer.call(Durable, move |tx| maintain::reclaim(tx, dead)).await {
                Ok(one) => one,
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => {
                    // One that cannot be ended must not keep the others' units from running.
                    tracing::error!(%error, session = %dead.session, "cannot reclaim");
                    continue;
                }
            };
            all.sessions += one.sessions;
            all.rescued += one.rescued;
            all.failed += one.failed;
        }
        Ok(all)
    }

    async fn promote(&self, limit: u32) -> Result<Promoted> {
        self.writer.call(Durable, move |tx| maintain::promote(tx, limit)).await
    }

    async fn next_due(&self) -> Result<Option<Duration>> {
        let now = self.options.clock.now();
        self.read(move |db| maintain::next_due(db, now)).await
    }

    async fn prune(&self, retention: Retention, limit: u32) -> Result<Pruned> {
        self.writer.call(Durable, move |tx| maintain::prune(tx, retention, limit)).await
    }

    async fn lead(&self, role: &str, id: SessionId, ttl: Duration) -> Result<bool> {
        let role = role.to_owned();
        self.writer.call(Relaxed, move |tx| maintain::lead(tx, &role, id, ttl)).await
    }
}

#[async_trait]
impl Operate for SqliteStore {
    async fn operate_units(
        &self,
        scope: &Scope,
        units: UnitSelection,
        action: UnitAction,
    ) -> Result<Operated> {
        let ids = match units {
            UnitSelection::Ids(ids) => {
                let scope = scope.clone();
                let verb = move |tx: &mut Tx<'_>| operate::units(tx, &scope, &ids, action);
                return self.writer.call(Durable, verb).await;
            }
            UnitSelection::Queue(queue, state) => {
                let scope = scope.clone();
                self.read(move |db| operate::in_queue(db, &scope, &queue, state)).await?
            }
        };
        let mut all = Operated::default();
        for chunk in ids.chunks(operate::CHUNK as usize) {
            let chunk = chunk.to_vec();
            let verb = move |tx: &mut Tx<'_>| operate::those_left(tx, &chunk, action);
            let one = self.writer.call(Durable, verb).await?;
            all.changed += one.changed;
            all.requested += one.requested;
            all.skipped += one.skipped;
        }
        Ok(all)
    }

    async fn operate_batch(
        &self,
        scope: &Scope,
        id: &BatchId,
        action: BatchAction,
    ) -> Result<Batch> {
        let (own, name) = (scope.clone(), id.clone());
        let verb = move |tx: &mut Tx<'_>| operate::batch(tx, &own, &name, &action);
        let batch = self.writer.call(Durable, verb).await?;
        if batch.status.is_given_up() {
            self.sweep().await?;
            return self.batch(scope, id).await;
        }
        Ok(batch)
    }

    async fn change_queue(
        &self,
        scope: &Scope,
        queue: &QueueName,
        change: QueueChange,
    ) -> Result<()> {
        let (scope, queue) = (scope.clone(), queue.clone());
        self.writer.call(Durable, move |tx| operate::queue(tx, &scope, &queue, change)).await
    }

    async fn change_lane(
        &self,
        scope: &Scope,
        queue: &QueueName,
        tenant: &TenantId,
        change: LaneChange,
    ) -> Result<()> {
        let (scope, queue, tenant) = (scope.clone(), queue.clone(), tenant.clone());
        let verb = move |tx: &mut Tx<'_>| operate::lane(tx, &scope, &queue, &tenant, change);
        self.writer.call(Durable, verb).await
    }

    async fn order(&self, id: SessionId, order: Order) -> Result<()> {
        self.writer.call(Durable, move |tx| session::give_order(tx, id, order)).await
    }
}

#[async_trait]
impl Inspect for SqliteStore {
    async fn unit(&self, scope: &Scope, id: UnitId) -> Result<Unit> {
        let scope = scope.clone();
        self.read(move |db| inspect::one_unit(db, &scope, id)).await
    }

    async fn units(
        &self,
        scope: &Scope,
        filter: &UnitFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Unit>> {
        let (scope, filter, after) = (scope.clone(), filter.clone(), after.map(str::to_owned));
        self.read(move |db| lists::units(db, &scope, &filter, after.as_deref(), limit)).await
    }

    async fn failures(&self, scope: &Scope, id: UnitId) -> Result<Vec<UnitFailure>> {
        let scope = scope.clone();
        self.read(move |db| inspect::failures(db, &scope, id)).await
    }

    async fn queues(&self, scope: &Scope) -> Result<Vec<QueueInfo>> {
        let scope = scope.clone();
        self.read(move |db| inspect::queues(db, &scope)).await
    }

    async fn batch(&self, scope: &Scope, id: &BatchId) -> Result<Batch> {
        let (scope, id) = (scope.clone(), id.clone());
        self.read(move |db| batch::show(db, batch::number(db, &scope, &id)?)).await
    }

    async fn definition(&self, scope: &Scope, id: &BatchId) -> Result<Option<Payload>> {
        let (scope, id) = (scope.clone(), id.clone());
        self.read(move |db| batch::definition(db, &scope, &id)).await
    }

    async fn batches(
        &self,
        scope: &Scope,
        status: Option<BatchStatus>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Batch>> {
        let (scope, after) = (scope.clone(), after.map(str::to_owned));
        self.read(move |db| lists::batches(db, &scope, status, after.as_deref(), limit)).await
    }

    async fn sessions(&self) -> Result<Vec<Session>> {
        self.read(session::list).await
    }

    async fn totals(&self, scope: &Scope, queues: &Queues) -> Result<Totals> {
        let (scope, queues) = (scope.clone(), queues.clone());
        self.read(move |db| inspect::totals(db, &scope, &queues)).await
    }

    async fn changes(&self, scope: &Scope, since: u64, wait: Duration) -> Result<ChangeSet> {
        let until = tokio::time::Instant::now() + wait;
        let mut changed = self.signals.changed.subscribe();
        // "From now on" is from this moment, not from when the read gets its turn.
        let last = self.signals.last_change.load(Ordering::Relaxed);
        let mut since = if since == u64::MAX { last } else { since };
        loop {
            changed.mark_unchanged();
            let own = scope.clone();
            let set = self.read(move |db| inspect::changes(db, &own, since)).await?;
            if !set.changes.is_empty() || set.missed {
                return Ok(set);
            }
            since = set.cursor;
            let timed_out = tokio::time::timeout_at(until, changed.changed()).await.is_err();
            if timed_out {
                return Ok(set);
            }
        }
    }

    async fn wake(&self, seen: u64, wait: Duration) -> u64 {
        let mut ready: watch::Receiver<u64> = self.signals.ready.subscribe();
        // A timeout is an answer too.
        let _ = tokio::time::timeout(wait, ready.wait_for(|count| *count != seen)).await;
        *self.signals.ready.borrow()
    }

    async fn migrate(&self) -> Result<u32> {
        let (path, options) = (self.path.clone(), self.options.clone());
        let run = move || migrate::migrate(&connect(&path, &options, Access::Write)?);
        tokio::task::spawn_blocking(run)
            .await
            .map_err(|_| Error::unavailable("a migration did not come back"))?
    }

    async fn verify(&self) -> Result<Vec<Violation>> {
        self.read(verify::verify).await
    }
}

#[async_trait]
impl Tenants for SqliteStore {
    async fn put_tenant(
        &self,
        scope: &Scope,
        id: &TenantId,
        change: TenantChange,
    ) -> Result<Tenant> {
        let (scope, id) = (scope.clone(), id.clone());
        self.writer.call(Durable, move |tx| tenants::put(tx, &scope, &id, change)).await
    }

    async fn remove_tenant(&self, scope: &Scope, id: &TenantId) -> Result<()> {
        let (scope, id) = (scope.clone(), id.clone());
        self.writer.call(Durable, move |tx| tenants::remove(tx, &scope, &id)).await
    }

    async fn tenants(&self, scope: &Scope) -> Result<Vec<Tenant>> {
        let scope = scope.clone();
        self.read(move |db| tenants::list(db, &scope)).await
    }
}

#[async_trait]
impl Schedules for SqliteStore {
    async fn put_schedule(
        &self,
        scope: &Scope,
        new: NewSchedule,
        if_there: IfThere,
    ) -> Result<Placed> {
        let scope = scope.clone();
        self.writer.call(Durable, move |tx| schedules::put(tx, &scope, &new, if_there)).await
    }

    async fn remove_schedule(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ScheduleName,
    ) -> Result<()> {
        let (scope, tenant, name) = (scope.clone(), tenant.clone(), name.clone());
        self.writer.call(Durable, move |tx| schedules::remove(tx, &scope, &tenant, &name)).await
    }

    async fn switch_schedule(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ScheduleName,
        switch: ScheduleSwitch,
    ) -> Result<Schedule> {
        let (scope, tenant, name) = (scope.clone(), tenant.clone(), name.clone());
        let verb = move |tx: &mut Tx<'_>| schedules::switch(tx, &scope, &tenant, &name, switch);
        self.writer.call(Durable, verb).await
    }

    async fn fire_schedule(&self, scope: &Scope, firing: Firing) -> Result<Fired> {
        let scope = scope.clone();
        self.writer.call(Durable, move |tx| schedules::fire(tx, &scope, &firing)).await
    }

    async fn schedule(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ScheduleName,
    ) -> Result<Schedule> {
        let (scope, tenant, name) = (scope.clone(), tenant.clone(), name.clone());
        self.read(move |db| schedules::show(db, &scope, &tenant, &name)).await
    }

    async fn schedules(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Schedule>> {
        let (scope, after) = (scope.clone(), after.map(str::to_owned));
        self.read(move |db| schedules::list(db, &scope, after.as_deref(), limit)).await
    }

    async fn due_schedules(&self, after: Option<&str>, limit: u32) -> Result<DueSchedules> {
        let (now, after) = (self.options.clock.now(), after.map(str::to_owned));
        self.read(move |db| schedules::due(db, now, after.as_deref(), limit)).await
    }
}
