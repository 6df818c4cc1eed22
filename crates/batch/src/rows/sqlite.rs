//! Rows in a SQLite file.
//!
//! Reads use a few read-only connections, effects one that writes, all on blocking threads. The
//! file belongs to the user: it is never created, and its settings are not changed.

mod bind;
mod error;
mod read;
mod statement_kind;
mod write;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use longshore::{Effect, SqlValue};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use super::priority_pass::{PriorityPass, quoted};
use super::{Candidate, DatabaseFingerprint, Row, RowSource, SourceError, StatementInfo};
use crate::definition::Candidates;

/// Maximum concurrent reads: enough to keep a few processors busy, few enough for their caches.
const MAX_READERS: usize = 8;
/// Prepared statements cached per connection: a batch has a handful, a worker serves many batches.
const MAX_CACHED_STATEMENTS: usize = 128;
/// How long a call waits for another process's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether a source may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Read only: [`RowSource::apply`] is rejected. For checks and dry runs.
    Read,
    /// Read and write.
    Write,
}

/// A SQLite file as a source of rows. Cheap to clone.
#[derive(Clone)]
pub struct SqliteRows {
    file: Arc<DatabaseFile>,
    read_permits: Arc<Semaphore>,
    write_permits: Arc<Semaphore>,
}

struct DatabaseFile {
    path: PathBuf,
    /// The file as it was opened. Connections keep to it, although another file may have its path by now.
    identity: DatabaseFingerprint,
    mode: OpenMode,
    busy_timeout: Duration,
    /// Idle connections; as many as were ever needed at once.
    readers: Mutex<Vec<Connection>>,
    writer: Mutex<Option<Connection>>,
}

impl SqliteRows {
    /// Opens an existing file, and checks that it is a database.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self, SourceError> {
        Self::open_with_busy_timeout(path, mode, BUSY_TIMEOUT)
    }

    /// Opens an existing file; calls wait this long for other processes' locks.
    pub fn open_with_busy_timeout(
        path: &Path,
        mode: OpenMode,
        busy_timeout: Duration,
    ) -> Result<Self, SourceError> {
        let path = canonical_file(path)?;
        let (readers, writer) = (Mutex::default(), Mutex::default());
        let identity = file_identity(&path)?;
        let file = Arc::new(DatabaseFile { path, identity, mode, busy_timeout, readers, writer });
        let first = file.connect(AccessMode::Read)?;
        file.readers().push(first);
        let (read_permits, write_permits) = (Semaphore::new(MAX_READERS), Semaphore::new(1));
        Ok(Self { file, read_permits: Arc::new(read_permits), write_permits: Arc::new(write_permits) })
    }

    /// Runs a read on a blocking thread, with exclusive use of a connection.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, SourceError> + Send + 'static,
    ) -> Result<T, SourceError> {
        let file = Arc::clone(&self.file);
        run(&self.read_permits, move || {
            let idle = file.readers().pop();
            let db = idle.map_or_else(|| file.connect(AccessMode::Read), Ok)?;
            let answer = file.require_same().and_then(|()| read(&db));
            file.readers().push(db);
            answer
        })
        .await
    }
}

/// Runs `work` on a blocking thread once a permit is free. The permit is held until `work` returns,
/// even if the caller is dropped.
async fn run<T: Send + 'static>(
    permits: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T, SourceError> + Send + 'static,
) -> Result<T, SourceError> {
    let permit = Arc::clone(permits).acquire_owned().await;
    let permit = permit.map_err(|_| SourceError::Unavailable("the connection pool is closed".to_owned()))?;
    let work = move || {
        let _permit = permit;
        work()
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| SourceError::Data(format!("a statement did not return: {error}")))?
}

#[async_trait]
impl RowSource for SqliteRows {
    async fn describe(&self, sql: &str) -> Result<StatementInfo, SourceError> {
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

    fn in_pass(&self, candidates: &Candidates, pass: PriorityPass) -> Option<Candidates> {
        let column = candidates.priority.as_deref()?;
        Some(pass.select(candidates, &quoted(column)))
    }

    async fn fetch(&self, sql: &str, params: &[(String, SqlValue)]) -> Result<Vec<Row>, SourceError> {
        let (sql, params) = (sql.to_owned(), params.to_vec());
        self.read(move |db| read::fetch(db, &sql, &params)).await
    }

    async fn apply(&self, effects: &[Effect]) -> Result<(), SourceError> {
        if self.file.mode == OpenMode::Read {
            return Err(SourceError::Data("the database was opened for reading only".to_owned()));
        }
        let (file, effects) = (Arc::clone(&self.file), effects.to_vec());
        run(&self.write_permits, move || {
            let mut writer = file.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let mut db = writer.take().map_or_else(|| file.connect(AccessMode::Write), Ok)?;
            let done = file.require_same().and_then(|()| write::apply(&mut db, &effects));
            *writer = Some(db);
            done
        })
        .await
    }

    async fn fingerprint(&self) -> Result<Option<DatabaseFingerprint>, SourceError> {
        self.file.require_same()?;
        Ok(Some(self.file.identity.clone()))
    }
}

/// The file's identity: its inode, and when it was made, if the file system says so. A copy is another file.
fn file_identity(path: &Path) -> Result<DatabaseFingerprint, SourceError> {
    let file = std::fs::metadata(path).map_err(|error| io_error(path, &error))?;
    let made = file.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let made = made.map(|since| format!("-{}", since.as_micros())).unwrap_or_default();
    let server = Some(format!("{}{made}", file.ino()));
    let path = Some(path.display().to_string());
    Ok(DatabaseFingerprint { server, path, ..DatabaseFingerprint::new("SQLite") })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AccessMode {
    Read,
    Write,
}

impl DatabaseFile {
    fn readers(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if another file has the path by now, or none: what is written to the open file would be lost with it.
    fn require_same(&self) -> Result<(), SourceError> {
        file_identity(&self.path)?.require(Some(&self.identity))
    }

    fn connect(&self, access: AccessMode) -> Result<Connection, SourceError> {
        self.try_connect(access).map_err(|error| error::of_file(&self.path, error))
    }

    /// Readers are opened read-write and then set to `query_only`: only so can they recover after a
    /// program that crashed in the middle of a commit. If the file cannot be opened for writing,
    /// SQLite falls back to read-only.
    fn try_connect(&self, access: AccessMode) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&self.path, flags)?;
        db.set_prepared_statement_cache_capacity(MAX_CACHED_STATEMENTS);
        // Without this, SQLite recompiles a statement whenever a bound value could mean another
        // plan.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        db.busy_timeout(self.busy_timeout)?;
        if access == AccessMode::Read {
            db.pragma_update(None, "query_only", true)?;
        }
        // Opening reads nothing; this checks that the file is a database.
        db.query_row("PRAGMA schema_version", [], |_| Ok(()))?;
        Ok(db)
    }
}

/// The absolute path: a relative one would name another file after the process changes its
/// directory.
fn canonical_file(path: &Path) -> Result<PathBuf, SourceError> {
    let found = path.canonicalize().map_err(|error| io_error(path, &error))?;
    if found.is_file() {
        return Ok(found);
    }
    Err(SourceError::Data(format!("{} is not a file", path.display())))
}

fn io_error(path: &Path, error: &std::io::Error) -> SourceError {
    SourceError::Unavailable(match error.kind() {
        std::io::ErrorKind::NotFound => format!("there is no file {}", path.display()),
        _ => format!("{}: {error}", path.display()),
    })
}

impl std::fmt::Debug for SqliteRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SqliteRows({}, {:?})", self.file.path.display(), self.file.mode)
    }
}
