//! Rows behind the driver layer: SQLite, PostgreSQL, MySQL or MariaDB, and everything with an ODBC driver.
//!
//! Drivers block, so all calls run on blocking threads, over a few connections that each serve one call at a time. If a
//! call is dropped, its statement is stopped. Databases differ in how they limit rows and compare text: the connection
//! knows its dialect, and `dialect` has the differences. Servers are connected to on first use.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use longshore::{Effect, SqlValue};
use longshore_databases::{Connection, ConnectionConfig, DatabaseTarget, DbError, Deadline};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::error::{self, CallError};
use super::job_queue::JobQueue;
use super::priority_pass::{PriorityPass, quoted};
use super::sqlite_file::SqliteFile;
use super::{
    Candidate, DatabaseFingerprint, Row, RowSource, SourceError, StatementInfo, fingerprint, read, write,
};
use crate::definition::Candidates;

/// Maximum connections to a server: it has other users as well. Reads and writes of one that needs separate connections
/// for them have half of it each.
const MAX_CONNECTIONS: usize = 16;
/// Prepared statements kept per connection: a batch has a handful, a worker serves many batches.
const MAX_CACHED_STATEMENTS: usize = 128;
/// How long a call waits for another process's lock on a SQLite file. A server has its own limit.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Lost connections skipped per call. Few: a statement that crashes the server must not be repeated again and again.
const MAX_STALE_CONNECTIONS: u32 = 4;
/// Connections that were not needed this long are closed.
const MAX_IDLE: Duration = Duration::from_secs(60);
/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a transaction on a server may take, with its waits for locks.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether a source may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Read only: [`RowSource::apply`] is rejected. For checks and dry runs.
    Read,
    /// Read and write.
    Write,
}

/// A database as a source of rows.
pub struct DatabaseRows {
    database: Arc<RowsDatabase>,
    readers: ConnectionPool,
    writers: ConnectionPool,
}

struct RowsDatabase {
    target: DatabaseTarget,
    mode: OpenMode,
    busy: Option<Duration>,
    /// Of SQLite.
    file: Option<SqliteFile>,
    /// The database of the first connection. A name or an address may lead to another one later.
    first: Mutex<Option<DatabaseFingerprint>>,
}

/// Connections for reads, for writes, or for both.
#[derive(Clone)]
struct ConnectionPool {
    read_only: bool,
    jobs: Arc<JobQueue>,
    /// As many as were ever needed at once.
    idle: Arc<IdleConnections>,
}

#[derive(Default)]
struct IdleConnections(Mutex<Vec<(Instant, Box<dyn Connection>)>>);

impl DatabaseRows {
    /// An existing SQLite file, which is checked.
    pub fn sqlite(path: &Path, mode: OpenMode) -> Result<Self, SourceError> {
        Self::sqlite_with_busy_timeout(path, mode, BUSY_TIMEOUT)
    }

    /// An existing SQLite file; calls wait this long for other processes' locks.
    pub fn sqlite_with_busy_timeout(
        path: &Path,
        mode: OpenMode,
        busy: Duration,
    ) -> Result<Self, SourceError> {
        let file = SqliteFile::find(path)?;
        let (target, first) = (DatabaseTarget::Sqlite(file.path.clone()), Mutex::default());
        let rows = Self::new(RowsDatabase { target, mode, busy: Some(busy), file: Some(file), first });
        let first = rows.database.connect(true, &Deadline::until(Instant::now() + CONNECT_TIMEOUT));
        rows.readers.idle.push(first.map_err(|error| error.error)?);
        Ok(rows)
    }

    /// A server, which is connected to on first use. Checks the address.
    pub fn server(target: DatabaseTarget) -> Result<Self, SourceError> {
        target.check().map_err(|error| SourceError::Data(error.message))?;
        let (mode, first) = (OpenMode::Write, Mutex::default());
        Ok(Self::new(RowsDatabase { target, mode, busy: None, file: None, first }))
    }

    fn new(database: RowsDatabase) -> Self {
        let (readers, writers) = match &database.target {
            target if target.protects_reads() => {
                let max = target.max_connections().map_or(MAX_CONNECTIONS, |max| max.min(MAX_CONNECTIONS));
                let shared = ConnectionPool::new(true, max);
                (shared.clone(), shared)
            }
            // SQLite has one writer at a time.
            DatabaseTarget::Sqlite(_) => {
                (ConnectionPool::new(true, MAX_CONNECTIONS / 2), ConnectionPool::new(false, 1))
            }
            _ => {
                let half = |read_only| ConnectionPool::new(read_only, MAX_CONNECTIONS / 2);
                (half(true), half(false))
            }
        };
        Self { database: Arc::new(database), readers, writers }
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl Fn(&mut dyn Connection, &Deadline) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, SourceError> {
        self.readers.run(&self.database, None, read).await
    }
}

impl ConnectionPool {
    fn new(read_only: bool, max: usize) -> Self {
        Self { read_only, jobs: Arc::new(JobQueue::new(max)), idle: Arc::default() }
    }

    /// Runs `work` on a blocking thread once one is free, with exclusive use of a connection. If the caller is dropped,
    /// `work` is stopped, or does not begin.
    async fn run<T: Send + 'static>(
        &self,
        database: &Arc<RowsDatabase>,
        limit: Option<Duration>,
        work: impl Fn(&mut dyn Connection, &Deadline) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, SourceError> {
        let (pool, database, caller) = (self.clone(), Arc::clone(database), CallerGuard::default());
        let (gone, (answer, answered)) = (Arc::clone(&caller.0), oneshot::channel());
        self.jobs.submit(move || {
            if !gone.load(Ordering::Relaxed) {
                // Fails if the caller was dropped meanwhile.
                let _ = answer.send(pool.run_blocking(&database, limit, &gone, work));
            }
        });
        // The driver panicked. The connection is lost; another may work.
        let panicked = |_| SourceError::Unavailable("a statement did not return".to_owned());
        answered.await.map_err(panicked)?
    }

    /// Repeats `work` on a new connection if an idle one turns out to be lost before a write was sent.
    fn run_blocking<T>(
        &self,
        database: &RowsDatabase,
        limit: Option<Duration>,
        gone: &Arc<AtomicBool>,
        work: impl Fn(&mut dyn Connection, &Deadline) -> Result<T, CallError>,
    ) -> Result<T, SourceError> {
        let deadline = |limit: Option<Duration>| {
            let gone = Arc::clone(gone);
            Deadline::new(limit.map(|limit| Instant::now() + limit), move || gone.load(Ordering::Relaxed))
        };
        let mut stale = MAX_STALE_CONNECTIONS;
        loop {
            let idle = self.idle.pop();
            stale -= u32::from(idle.is_some());
            let may_be_stale = idle.is_some() && stale > 0;
            let connecting = || database.connect(self.read_only, &deadline(Some(CONNECT_TIMEOUT)));
            let mut connection = idle.map_or_else(connecting, Ok).map_err(|error| error.error)?;
            let answer = database.require_same_file().and_then(|()| work(&mut *connection, &deadline(limit)));
            let Err(failed) = answer else {
                self.idle.push(connection);
                return answer.map_err(|error| error.error);
            };
            if matches!(failed.error, SourceError::Unavailable(_)) && database.file.is_none() {
                // New connections are the better start, after a restart too.
                drop((connection, self.idle.take()));
            } else if !failed.is_broken {
                self.idle.push(connection);
            }
            let is_repeatable = failed.is_lost && (self.is_reading(limit) || !failed.is_sent);
            if !(may_be_stale && is_repeatable) {
                return Err(failed.error);
            }
        }
    }

    /// Whether a call only reads: writes have a time limit.
    fn is_reading(&self, limit: Option<Duration>) -> bool {
        self.read_only && limit.is_none()
    }
}

/// Tells the driver that the caller was dropped.
#[derive(Default)]
struct CallerGuard(Arc<AtomicBool>);

impl Drop for CallerGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl IdleConnections {
    /// A connection that is alive, as far as is known.
    fn pop(&self) -> Option<Box<dyn Connection>> {
        loop {
            let (_, connection) = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
            if !connection.is_closed() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection. Closes what was not needed for [`MAX_IDLE`]: the youngest are used first.
    fn push(&self, connection: Box<dyn Connection>) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle.iter().position(|(since, _)| since.elapsed() < MAX_IDLE).unwrap_or(idle.len());
        let old: Vec<_> = idle.drain(..kept).collect();
        idle.push((Instant::now(), connection));
        drop(idle);
        drop(old);
    }

    fn take(&self) -> Vec<(Instant, Box<dyn Connection>)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for IdleConnections {
    /// Drivers block when they close a connection.
    fn drop(&mut self) {
        let connections = self.take();
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || drop(connections))),
            Err(_) => drop(connections),
        }
    }
}

impl RowsDatabase {
    fn connect(&self, read_only: bool, deadline: &Deadline) -> Result<Box<dyn Connection>, CallError> {
        let config = ConnectionConfig {
            statements: MAX_CACHED_STATEMENTS,
            busy: self.busy,
            read_only,
            stateless: true,
            ..ConnectionConfig::default()
        };
        let connected = self.target.connect(&config, deadline).map_err(error::of_call);
        let connected = connected.and_then(|mut connection| {
            if matches!(self.target, DatabaseTarget::Postgres(_)) {
                self.identify(&mut *connection, deadline)?;
            }
            Ok(connection)
        });
        connected.map_err(|failed| if self.file.is_some() { failed } else { failed.of_connecting() })
    }

    /// What identifies the database of a connection; an error if it is another than at first.
    fn identify(
        &self,
        connection: &mut dyn Connection,
        deadline: &Deadline,
    ) -> Result<Option<DatabaseFingerprint>, CallError> {
        let found = fingerprint::read(connection, deadline)?;
        if let Some(found) = &found {
            let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
            found.require(Some(&*first.get_or_insert_with(|| found.clone())))?;
        }
        Ok(found)
    }

    fn require_same_file(&self) -> Result<(), CallError> {
        Ok(self.file.as_ref().map_or(Ok(()), SqliteFile::require_same)?)
    }
}

#[async_trait]
impl RowSource for DatabaseRows {
    async fn describe(&self, sql: &str) -> Result<StatementInfo, SourceError> {
        let sql = sql.to_owned();
        self.read(move |db, deadline| read::describe(db, &sql, deadline)).await
    }

    async fn count(&self, candidates: &Candidates) -> Result<u64, SourceError> {
        let candidates = candidates.clone();
        self.read(move |db, deadline| read::count(db, &candidates, deadline)).await
    }

    async fn candidates(
        &self,
        candidates: &Candidates,
        from: Option<&SqlValue>,
        limit: u32,
    ) -> Result<Vec<Candidate>, SourceError> {
        let (candidates, from) = (candidates.clone(), from.cloned());
        self.read(move |db, deadline| read::candidates(db, &candidates, from.as_ref(), limit, deadline)).await
    }

    fn in_pass(&self, candidates: &Candidates, pass: PriorityPass) -> Option<Candidates> {
        let column = candidates.priority.as_deref()?;
        let name = match self.database.target {
            DatabaseTarget::Sqlite(_) | DatabaseTarget::Postgres(_) => quoted(column),
            DatabaseTarget::Mysql(_) => format!("`{}`", column.replace('`', "``")),
            // The quotes are known only to a connection.
            DatabaseTarget::Odbc(_) => {
                let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
                column.chars().all(is_plain).then(|| column.to_owned())?
            }
        };
        Some(pass.select(candidates, &name))
    }

    async fn fetch(&self, sql: &str, params: &[(String, SqlValue)]) -> Result<Vec<Row>, SourceError> {
        let (sql, params) = (sql.to_owned(), params.to_vec());
        self.read(move |db, deadline| read::fetch(db, &sql, &params, deadline)).await
    }

    async fn apply(&self, effects: &[Effect]) -> Result<(), SourceError> {
        if self.database.mode == OpenMode::Read {
            return Err(SourceError::Data("the database was opened for reading only".to_owned()));
        }
        let effects = effects.to_vec();
        let limit = self.database.target.protects_reads().then_some(TRANSACTION_TIMEOUT);
        let apply = move |db: &mut dyn Connection, deadline: &Deadline| write::apply(db, &effects, deadline);
        match self.writers.run(&self.database, limit, apply).await {
            Err(SourceError::TimedOut(message)) if message == DbError::timeout().message => {
                let limit = TRANSACTION_TIMEOUT.as_secs();
                Err(SourceError::Busy(format!("the transaction did not end within {limit} s")))
            }
            done => done,
        }
    }

    async fn fingerprint(&self) -> Result<Option<DatabaseFingerprint>, SourceError> {
        if let Some(file) = &self.database.file {
            return file.require_same().map(|()| Some(file.identity.clone()));
        }
        let database = Arc::clone(&self.database);
        self.read(move |db, deadline| database.identify(db, deadline)).await
    }
}

impl std::fmt::Debug for DatabaseRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the address: it may contain a password.
        write!(f, "DatabaseRows({}, {:?})", self.database.target, self.database.mode)
    }
}
