//! Rows behind an ODBC driver: Db2 for i, SQL Server, PostgreSQL, SQLite and others.
//!
//! ODBC blocks, so all of it is off the async threads, on a few connections that are each used for
//! one call at a time. Databases differ in how they limit rows and compare text: which one it is, a
//! connection says itself, and `dialect` knows the rest. Nothing is connected before it is needed.

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

use self::connection::{Access, Live, Target};
use super::{Candidate, Described, Row, RowSource, SourceError};
use crate::definition::Candidates;

/// Calls under way at once, of readers and of writers: a server has other users as well.
const CONNECTIONS: usize = 8;

/// A database behind an ODBC driver as a source of rows.
pub struct OdbcRows {
    target: Arc<Target>,
    readers: Pool,
    writers: Pool,
}

/// Connections of one sort.
struct Pool {
    access: Access,
    room: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Live>>>,
}

impl OdbcRows {
    /// The database of a connection string, as `DSN=orders;UID=me;PWD=…` or
    /// `DRIVER={IBM i Access ODBC Driver};SYSTEM=…`. Connects when it is first needed.
    pub fn open(connection_string: &str) -> Self {
        Self {
            target: Arc::new(Target::new(connection_string)),
            readers: Pool::new(Access::Read),
            writers: Pool::new(Access::Write),
        }
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Live) -> Result<T, SourceError> + Send + 'static,
    ) -> Result<T, SourceError> {
        self.readers.run(&self.target, read).await
    }
}

impl Pool {
    fn new(access: Access) -> Self {
        Self { access, room: Arc::new(Semaphore::new(CONNECTIONS)), idle: Arc::default() }
    }

    /// Runs `work` on a blocking thread once there is room, on a connection that is nobody else's
    /// meanwhile. The room is held until it is over, even if nobody waits for it any more.
    async fn run<T: Send + 'static>(
        &self,
        target: &Arc<Target>,
        work: impl FnOnce(&Live) -> Result<T, SourceError> + Send + 'static,
    ) -> Result<T, SourceError> {
        let permit = Arc::clone(&self.room).acquire_owned().await;
        let permit = permit.map_err(|_| SourceError::Away("it is being closed".to_owned()))?;
        let (target, idle, access) = (Arc::clone(target), Arc::clone(&self.idle), self.access);
        let work = move || {
            let _permit = permit;
            let live = take(&idle).map_or_else(|| target.connect(access), Ok)?;
            let answer = work(&live).map_err(|error| live.blame(error));
            match &answer {
                // Whatever is wrong, a new connection is the better start.
                Err(SourceError::Away(_)) => drop(idle_mut(&idle, std::mem::take)),
                _ => idle_mut(&idle, |idle| idle.push(live)),
            }
            answer.map_err(|error| target.without_secrets(error))
        };
        tokio::task::spawn_blocking(work).await.map_err(broken)?
    }
}

/// An idle connection that lives.
fn take(idle: &Mutex<Vec<Live>>) -> Option<Live> {
    loop {
        let live = idle_mut(idle, Vec::pop)?;
        if !live.is_dead() {
            return Some(live);
        }
    }
}

fn idle_mut<T>(idle: &Mutex<Vec<Live>>, use_it: impl FnOnce(&mut Vec<Live>) -> T) -> T {
    use_it(&mut idle.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The driver gave up in a way that it should not. The connection is gone; another may do.
fn broken(error: tokio::task::JoinError) -> SourceError {
    SourceError::Away(format!("a statement did not come back: {error}"))
}

#[async_trait]
impl RowSource for OdbcRows {
    async fn describe(&self, sql: &str) -> Result<Described, SourceError> {
        let sql = sql.to_owned();
        self.read(move |live| read::describe(live, &sql)).await
    }

    async fn count(&self, candidates: &Candidates) -> Result<u64, SourceError> {
        let candidates = candidates.clone();
        self.read(move |live| read::count(live, &candidates)).await
    }

    async fn candidates(
        &self,
        candidates: &Candidates,
        from: Option<&SqlValue>,
        limit: u32,
    ) -> Result<Vec<Candidate>, SourceError> {
        let (candidates, from) = (candidates.clone(), from.cloned());
        self.read(move |live| read::candidates(live, &candidates, from.as_ref(), limit)).await
    }

    async fn fetch(
        &self,
        sql: &str,
        params: &[(String, SqlValue)],
    ) -> Result<Vec<Row>, SourceError> {
        let (sql, params) = (sql.to_owned(), params.to_vec());
        self.read(move |live| read::fetch(live, &sql, &params)).await
    }

    async fn apply(&self, effects: &[Effect]) -> Result<(), SourceError> {
        let effects = effects.to_vec();
        self.writers.run(&self.target, move |live| write::apply(live, &effects)).await
    }
}

impl std::fmt::Debug for OdbcRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the connection string: it may hold a password.
        write!(f, "OdbcRows({})", self.target.shown())
    }
}
