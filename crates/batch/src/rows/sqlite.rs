//! Rows in a SQLite file.
//!
//! Reads go to a few connections that cannot write, effects to one that can, all of them off the
//! async threads. The file is the user's: it is never created, and its settings stay as they are.

mod bind;
mod error;
mod read;
mod verb;
mod write;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use longshore::{Effect, SqlValue};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use super::{Candidate, Described, Row, RowSource, SourceError};
use crate::definition::Candidates;

/// Reads under way at once: enough to keep a few processors busy, few enough for their caches.
const READERS: usize = 8;
/// Prepared statements kept per connection: a batch has a handful, a worker serves many batches.
const STATEMENTS: usize = 128;
/// How long a lock of somebody else's is waited for.
const BUSY: Duration = Duration::from_secs(10);

/// What a source may do to its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Only look: [`RowSource::apply`] is refused. For checks and dry runs.
    Read,
    /// Also change rows.
    Write,
}

/// A SQLite file as a source of rows. Cheap to clone.
#[derive(Clone)]
pub struct SqliteRows {
    file: Arc<File>,
    reading: Arc<Semaphore>,
    writing: Arc<Semaphore>,
}

struct File {
    path: PathBuf,
    mode: OpenMode,
    busy: Duration,
    /// Idle ones; as many as were ever needed at once.
    readers: Mutex<Vec<Connection>>,
    writer: Mutex<Option<Connection>>,
}

impl SqliteRows {
    /// Opens a database file that exists, and looks whether it is one.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self, SourceError> {
        Self::open_with_patience(path, mode, BUSY)
    }

    /// The same, but others' locks are waited for only this long.
    pub fn open_with_patience(
        path: &Path,
        mode: OpenMode,
        busy: Duration,
    ) -> Result<Self, SourceError> {
        let path = existing(path)?;
        let (readers, writer) = (Mutex::default(), Mutex::default());
        let file = Arc::new(File { path, mode, busy, readers, writer });
        let first = file.connect(Access::Read)?;
        file.readers().push(first);
        let (reading, writing) = (Semaphore::new(READERS), Semaphore::new(1));
        Ok(Self { file, reading: Arc::new(reading), writing: Arc::new(writing) })
    }

    /// Runs a read off the async threads, on a connection that is nobody else's meanwhile.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, SourceError> + Send + 'static,
    ) -> Result<T, SourceError> {
        let file = Arc::clone(&self.file);
        run(&self.reading, move || {
            let idle = file.readers().pop();
            let db = idle.map_or_else(|| file.connect(Access::Read), Ok)?;
            let answer = read(&db);
            file.readers().push(db);
            answer
        })
        .await
    }
}

/// Runs `work` on a blocking thread once there is room. The room is held until it is over, even
/// if nobody waits for it any more.
async fn run<T: Send + 'static>(
    room: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T, SourceError> + Send + 'static,
) -> Result<T, SourceError> {
    let permit = Arc::clone(room).acquire_owned().await;
    let permit = permit.map_err(|_| SourceError::Away("it is being closed".to_owned()))?;
    let work = move || {
        let _permit = permit;
        work()
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| SourceError::Data(format!("a statement did not come back: {error}")))?
}

#[async_trait]
impl RowSource for SqliteRows {
    async fn describe(&self, sql: &str) -> Result<Described, SourceError> {
        let sql = sql.to_owned();
        self.read(move |db| read::describe(db, &sql)).await
    }

    async fn count(&self, candidates: &Candidates) -> Result<u64, SourceError> {
        let candidates = candidates.clone();
        self.read(move |db| read::count(db, &candidates)).await
    }

    async fn candidates(
        &self,
        candidates: &Candidates,
        from: Option<&SqlValue>,
        limit: u32,
    ) -> Result<Vec<Candidate>, SourceError> {
        let (candidates, from) = (candidates.clone(), from.cloned());
        self.read(move |db| read::candidates(db, &candidates, from.as_ref(), limit)).await
    }

    async fn fetch(
        &self,
        sql: &str,
        params: &[(String, SqlValue)],
    ) -> Result<Vec<Row>, SourceError> {
        let (sql, params) = (sql.to_owned(), params.to_vec());
        self.read(move |db| read::fetch(db, &sql, &params)).await
    }

    async fn apply(&self, effects: &[Effect]) -> Result<(), SourceError> {
        if self.file.mode == OpenMode::Read {
            return Err(SourceError::Data("the database was opened for reading only".to_owned()));
        }
        let (file, effects) = (Arc::clone(&self.file), effects.to_vec());
        run(&self.writing, move || {
            let mut writer = file.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let mut db = writer.take().map_or_else(|| file.connect(Access::Write), Ok)?;
            let done = write::apply(&mut db, &effects);
            *writer = Some(db);
            done
        })
        .await
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl File {
    fn readers(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self, access: Access) -> Result<Connection, SourceError> {
        self.try_connect(access).map_err(|error| error::of_file(&self.path, error))
    }

    /// Readers are opened for writing, too, and then forbidden to: only so can they tidy up after
    /// a program that crashed in the middle of a commit. SQLite makes do where that is impossible.
    fn try_connect(&self, access: Access) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&self.path, flags)?;
        db.set_prepared_statement_cache_capacity(STATEMENTS);
        // Or a statement is compiled anew whenever a bound value could mean another plan.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        db.busy_timeout(self.busy)?;
        if access == Access::Read {
            db.pragma_update(None, "query_only", true)?;
        }
        // Opening reads nothing yet; this finds out whether the file is a database.
        db.query_row("PRAGMA schema_version", [], |_| Ok(()))?;
        Ok(db)
    }
}

/// The file's full path: a relative one would mean another file once the process has moved.
fn existing(path: &Path) -> Result<PathBuf, SourceError> {
    let found = path.canonicalize().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            SourceError::Away(format!("there is no file {}", path.display()))
        }
        _ => SourceError::Away(format!("{}: {error}", path.display())),
    })?;
    if found.is_file() {
        return Ok(found);
    }
    Err(SourceError::Data(format!("{} is not a file", path.display())))
}

impl std::fmt::Debug for SqliteRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SqliteRows({}, {:?})", self.file.path.display(), self.file.mode)
    }
}
