//! Rows behind an ODBC driver: Db2 for i, SQL Server, PostgreSQL, SQLite and others.
//!
//! ODBC blocks, so all calls run on blocking threads, over a few connections that each serve one
//! call at a time. Databases differ in how they limit rows and compare text: the connection reports
//! the product, and `dialect` has the differences. Connects on first use.

mod connection;
mod dialect;
mod error;
mod read;
mod value;
mod write;

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use longshore::{Effect, SqlValue};
use tokio::sync::Semaphore;

use self::connection::{AccessMode, OdbcConnection, OdbcTarget};
use super::fingerprint;
use super::priority_pass::PriorityPass;
use super::{Candidate, DatabaseFingerprint, Row, RowSource, SourceError, StatementInfo};
use crate::definition::Candidates;

/// Maximum connections for reads, and for writes: a server has other users as well.
const MAX_CONNECTIONS: usize = 8;
/// What the databases behind ODBC tell of themselves; each knows one of these.
const QUERIES: [(&str, &str); 9] = [
    fingerprint::POSTGRES,
    fingerprint::POSTGRES_DATABASE,
    fingerprint::MYSQL[0],
    fingerprint::MYSQL[1],
    fingerprint::MYSQL[2],
    ("SQL Server", "SELECT @@SERVERNAME AS server, DB_NAME(), SCHEMA_NAME()"),
    ("Db2", "SELECT CURRENT SERVER, CURRENT SERVER, CURRENT SCHEMA FROM SYSIBM.SYSDUMMY1"),
    (
        "Oracle",
        "SELECT SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME'), SYS_CONTEXT('USERENV', 'DB_NAME'), \
                SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') FROM DUAL",
    ),
    ("SQLite", "SELECT file FROM pragma_database_list WHERE name = 'main'"),
];

/// A database behind an ODBC driver as a source of rows.
pub struct OdbcRows {
    target: Arc<OdbcTarget>,
    readers: ConnectionPool,
    writers: ConnectionPool,
}

/// Connections for reads or for writes.
struct ConnectionPool {
    access: AccessMode,
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<OdbcConnection>>>,
}

impl OdbcRows {
    /// The database of a connection string, such as `DSN=orders;UID=me;PWD=…` or `DRIVER={IBM i
    /// Access ODBC Driver};SYSTEM=…`. Connects on first use.
    pub fn open(connection_string: &str) -> Self {
        Self {
            target: Arc::new(OdbcTarget::new(connection_string)),
            readers: ConnectionPool::new(AccessMode::Read),
            writers: ConnectionPool::new(AccessMode::Write),
        }
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&OdbcConnection) -> Result<T, SourceError> + Send + 'static,
    ) -> Result<T, SourceError> {
        self.readers.run(&self.target, read).await
    }
}

impl ConnectionPool {
    fn new(access: AccessMode) -> Self {
        Self { access, permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)), idle: Arc::default() }
    }

    /// Runs `work` on a blocking thread once a permit is free, with exclusive use of a connection.
    /// The permit is held until `work` returns, even if the caller is dropped.
    async fn run<T: Send + 'static>(
        &self,
        target: &Arc<OdbcTarget>,
        work: impl FnOnce(&OdbcConnection) -> Result<T, SourceError> + Send + 'static,
    ) -> Result<T, SourceError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit =
            permit.map_err(|_| SourceError::Unavailable("the connection pool is closed".to_owned()))?;
        let (target, idle, access) = (Arc::clone(target), Arc::clone(&self.idle), self.access);
        let work = move || {
            let _permit = permit;
            let connection = pop_idle(&idle).map_or_else(|| target.connect(access), Ok)?;
            let answer = work(&connection).map_err(|error| connection.reclassify(error));
            match &answer {
                // After such an error all idle connections are dropped: new ones are the better
                // start.
                Err(SourceError::Unavailable(_)) => drop(idle_mut(&idle, std::mem::take)),
                _ => idle_mut(&idle, |idle| idle.push(connection)),
            }
            answer.map_err(|error| target.without_secrets(error))
        };
        tokio::task::spawn_blocking(work).await.map_err(join_error)?
    }
}

/// An idle connection that is alive.
fn pop_idle(idle: &Mutex<Vec<OdbcConnection>>) -> Option<OdbcConnection> {
    loop {
        let connection = idle_mut(idle, Vec::pop)?;
        if !connection.is_dead() {
            return Some(connection);
        }
    }
}

fn idle_mut<T>(idle: &Mutex<Vec<OdbcConnection>>, use_it: impl FnOnce(&mut Vec<OdbcConnection>) -> T) -> T {
    use_it(&mut idle.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The driver panicked. The connection is lost; another may work.
fn join_error(error: tokio::task::JoinError) -> SourceError {
    SourceError::Unavailable(format!("a statement did not return: {error}"))
}

#[async_trait]
impl RowSource for OdbcRows {
    async fn describe(&self, sql: &str) -> Result<StatementInfo, SourceError> {
        let sql = sql.to_owned();
        self.read(move |connection| read::describe(connection, &sql)).await
    }

    async fn count(&self, candidates: &Candidates) -> Result<u64, SourceError> {
        let candidates = candidates.clone();
        self.read(move |connection| read::count(connection, &candidates)).await
    }

    async fn candidates(
        &self,
        candidates: &Candidates,
        from: Option<&SqlValue>,
        limit: u32,
    ) -> Result<Vec<Candidate>, SourceError> {
        let (candidates, from) = (candidates.clone(), from.cloned());
        self.read(move |connection| read::candidates(connection, &candidates, from.as_ref(), limit)).await
    }

    fn in_pass(&self, candidates: &Candidates, pass: PriorityPass) -> Option<Candidates> {
        let column = candidates.priority.as_deref()?;
        // The quotes are known only to a connection.
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        column.chars().all(plain).then(|| pass.select(candidates, column))
    }

    async fn fetch(&self, sql: &str, params: &[(String, SqlValue)]) -> Result<Vec<Row>, SourceError> {
        let (sql, params) = (sql.to_owned(), params.to_vec());
        self.read(move |connection| read::fetch(connection, &sql, &params)).await
    }

    async fn apply(&self, effects: &[Effect]) -> Result<(), SourceError> {
        let effects = effects.to_vec();
        self.writers.run(&self.target, move |connection| write::apply(connection, &effects)).await
    }

    async fn fingerprint(&self) -> Result<Option<DatabaseFingerprint>, SourceError> {
        fingerprint::by_queries(self, &QUERIES).await
    }
}

impl std::fmt::Debug for OdbcRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the connection string: it may contain a password.
        write!(f, "OdbcRows({})", self.target.display_name())
    }
}
