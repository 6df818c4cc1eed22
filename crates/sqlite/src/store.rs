//! [`SqliteStore`]: opens the file. The submodules implement the store traits with the writer or a
//! reader.

mod accounts;
mod admin;
mod enqueue;
mod maintenance;
mod operations;
mod permits;
mod queries;
mod schedules;
mod worker_api;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore_core::migration::MigrateOnOpen;
use longshore_core::store::{FinishRequest, FinishResult, SendResult};
use longshore_core::{Clock, Error, NewUnit, Result, Scope, SessionId, SystemClock};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use crate::busy_retry::retry_while_busy;
use crate::claim_cache::ClaimCache;
use crate::effects::EffectRuns;
use crate::error::Translate;
use crate::permits::boot_clock;
use crate::send::Admission;
use crate::tx::Tx;
use crate::wal_sync::WalSyncer;
use crate::writer::{Signals, Writer};
use crate::{filesystem_check, finish, migrate, send, wal_watcher};

pub(crate) use operations::operations;

/// How durable a commit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Synchronous {
    /// Survives a power failure: one fsync per group of commits.
    #[default]
    Full,
    /// Survives the process; a power failure may lose the last commits.
    Normal,
}

/// How to open a store.
#[derive(Clone)]
pub struct SqliteOptions {
    /// How durable a commit is.
    pub synchronous: Synchronous,
    /// What opening the store may change in the schema. [`MigrateOnOpen::Never`] changes nothing else either.
    pub migrate: MigrateOnOpen,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// How long a commit waits for the write lock of other processes before it fails.
    pub busy_timeout: Duration,
    /// Time limit of the effects of one unit. Meanwhile no process can write.
    pub effect_timeout: Duration,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::Full,
            migrate: MigrateOnOpen::Always,
            clock: Arc::new(SystemClock),
            busy_timeout: Duration::from_secs(10),
            effect_timeout: Duration::from_secs(5),
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
    /// Declared before the writer: the connection that closes last removes the log, and must be
    /// able to write.
    readers: Arc<Mutex<Vec<Connection>>>,
    reader_limit: Arc<Semaphore>,
    writer: Arc<Writer>,
    signals: Arc<Signals>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SqliteStore({})", self.path.display())
    }
}

impl SqliteStore {
    /// Opens a database file, creates it if necessary, and brings its schema up to date, as
    /// [`SqliteOptions::migrate`] permits.
    pub fn open(path: &Path, options: SqliteOptions) -> Result<Self> {
        filesystem_check::check(path)?;
        if options.migrate == MigrateOnOpen::Never {
            migrate::open(&connect(path, &options, Access::Read)?, options.migrate)?;
        }
        let db = connect(path, &options, Access::Write)?;
        // SQLite puts the log beside the file itself, not beside a symbolic link to it; and a
        // relative path would name another file after the process changes its directory.
        let path = &path.canonicalize().map_err(|error| Error::Unavailable {
            message: format!("the path of {} cannot be resolved", path.display()),
            source: Some(Box::new(error)),
        })?;
        filesystem_check::check(path)?;
        migrate::open(&db, options.migrate)?;
        if options.migrate != MigrateOnOpen::Never {
            boot_clock::clear_after_reboot(&db)?;
        }
        let signals = Arc::new(Signals::new());
        let syncer = match options.synchronous {
            Synchronous::Full => Some(WalSyncer::start(path)?),
            Synchronous::Normal => None,
        };
        let clock = Arc::clone(&options.clock);
        let writer = Writer::start(db, syncer, options.busy_timeout, clock, Arc::clone(&signals))?;
        let writer = Arc::new(writer);
        wal_watcher::start(path, Arc::downgrade(&writer)).map_err(|error| Error::Unavailable {
            message: "the thread that watches the database could not be started".to_owned(),
            source: Some(Box::new(error)),
        })?;
        let (readers, reader_limit) = (Arc::default(), Arc::new(Semaphore::new(MAX_READERS)));
        Ok(Self { path: path.to_owned(), options, writer, readers, reader_limit, signals })
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sends units inside the caller's own transaction on the same file: they are stored if and
    /// only if the caller commits. Start it with `BEGIN IMMEDIATE`, on a connection from
    /// [`Self::connect`] or one with a busy timeout.
    pub fn send_in(
        &self,
        transaction: &rusqlite::Transaction<'_>,
        scope: &Scope,
        units: &[NewUnit],
    ) -> Result<Vec<SendResult>> {
        self.run_in(transaction, |tx| send::send(tx, scope, units, 0, Admission::Bounded))
    }

    /// Finishes runs inside the caller's own transaction on the same file.
    pub fn finish_in(
        &self,
        transaction: &rusqlite::Transaction<'_>,
        session: SessionId,
        finishes: &[FinishRequest],
    ) -> Result<Vec<FinishResult>> {
        self.run_in(transaction, |tx| finish::finish(tx, session, finishes, &mut EffectRuns::unlimited()))
    }

    fn run_in<T>(
        &self,
        transaction: &rusqlite::Transaction<'_>,
        operation: impl FnOnce(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut claim_cache = ClaimCache::default();
        let mut tx = Tx::new(transaction, self.options.clock.now(), &mut claim_cache);
        // A failed operation must leave nothing behind, even if the caller commits.
        transaction.execute_batch("SAVEPOINT longshore").or_translate()?;
        let done = operation(&mut tx).and_then(|answer| tx.flush().map(|()| answer));
        let end = match done {
            Ok(_) => "RELEASE longshore",
            Err(_) => "ROLLBACK TO longshore; RELEASE longshore",
        };
        transaction.execute_batch(end).or_translate()?;
        done
    }

    /// A connection for the caller, configured like the store's.
    pub fn connect(&self) -> Result<Connection> {
        connect(&self.path, &self.options, Access::Write)
    }

    /// Runs a read on its own connection, on a blocking thread.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (readers, path, options) = (Arc::clone(&self.readers), self.path.clone(), self.options.clone());
        let abandoned = Arc::new(AtomicBool::new(false));
        let _caller = AbandonOnDrop(Arc::clone(&abandoned));
        let limit = Arc::clone(&self.reader_limit).acquire_owned().await;
        let run = move || {
            // Held until the thread is done, also if the caller has gone.
            let _limit = limit;
            let idle = readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut db = idle.map_or_else(|| connect(&path, &options, Access::Read), Ok)?;
            // A client that hangs up frees the thread: SQLite interrupts the statement.
            let is_abandoned = move || abandoned.load(Ordering::Relaxed);
            db.progress_handler(ABANDON_CHECK_OPS, Some(is_abandoned)).or_translate()?;
            let answer = snapshot(&db, read);
            // After an interrupted commit the reader is still in its transaction.
            if db.is_autocommit() {
                readers.lock().unwrap_or_else(PoisonError::into_inner).push(db);
            }
            answer
        };
        tokio::task::spawn_blocking(run)
            .await
            .map_err(|_| Error::unavailable("the thread of a read panicked"))?
    }
}

/// Connections for reads at most. Each has a page cache of its own, and holds three files open.
const MAX_READERS: usize = 16;

/// VM instructions of a read between two checks whether its caller still waits.
const ABANDON_CHECK_OPS: i32 = 10_000;

/// Tells the thread of a read that its caller has stopped waiting.
struct AbandonOnDrop(Arc<AtomicBool>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs several statements on one snapshot of the database.
fn snapshot<T>(db: &Connection, read: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
    db.execute_batch("BEGIN").or_translate()?;
    let answer = read(db);
    db.execute_batch("COMMIT").or_translate()?;
    answer
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Creates a missing database file with mode 0600, because payloads are not for other users. SQLite
/// would apply the umask, and gives the log the mode of the database file. An existing file is not
/// opened here: to close it would release the locks that this process has on it.
fn create_file(path: &Path) -> Result<()> {
    let target = match path.read_link() {
        Ok(target) => path.parent().unwrap_or(Path::new("")).join(target),
        Err(_) => path.to_path_buf(),
    };
    match longshore_trusted_path::create_private(&target) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(Error::Unavailable {
            message: format!("the database file {} cannot be created", path.display()),
            source: Some(Box::new(error)),
        }),
        _ => Ok(()),
    }
}

pub(crate) fn connect(path: &Path, options: &SqliteOptions, access: Access) -> Result<Connection> {
    let flags = match access {
        Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
        Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
    };
    if access == Access::Write {
        create_file(path)?;
    }
    let db = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).or_translate()?;
    db.set_prepared_statement_cache_capacity(128);
    // Otherwise SQLite compares bound values with the conditions of partial indexes, and recompiles
    // a statement whenever a value changed: a third of the writer's time.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).or_translate()?;
    db.busy_timeout(options.busy_timeout).or_translate()?;
    if access == Access::Write {
        // The pruner returns free pages to the file system. Only for a new file: the pragma takes the write lock.
        let pages: i64 = db.query_row("PRAGMA page_count", [], |row| row.get(0)).or_translate()?;
        if pages == 0 {
            db.pragma_update(None, "auto_vacuum", "INCREMENTAL").or_translate()?;
        }
        // Of several processes that open a new file at once, one switches it to WAL.
        let mode: String = retry_while_busy(options.busy_timeout, || {
            db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        })?;
        if mode != "wal" {
            return Err(Error::Unsupported(format!("this file cannot use a write-ahead log ({mode})")));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_read_ends_when_its_caller_has_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("longshore.db");
        let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
        let (started, mut has_started) = tokio::sync::mpsc::channel(1);
        let (ended, has_ended) = tokio::sync::oneshot::channel();
        let slow = store.read(move |db| {
            started.blocking_send(()).unwrap();
            let sql = "WITH RECURSIVE nth (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM nth
                 WHERE i < 300000000) SELECT count(*) FROM nth";
            let count = db.query_row(sql, [], |row| row.get::<_, i64>(0)).or_translate();
            ended.send(count.is_err()).unwrap();
            count
        });
        tokio::select! {
            _ = slow => panic!("the read has ended"),
            _ = has_started.recv() => {}
        }
        assert!(has_ended.await.unwrap(), "it was interrupted");
        assert!(store.read(|db| Ok(db.is_autocommit())).await.is_ok());
    }
}
