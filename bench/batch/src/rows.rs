//! The rows that are reviewed: the same for us and for the script.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use longshore_sqlite::rusqlite::Connection;

const SCRIPT: &str = include_str!("../review/rows.sql");

/// Where a folder's database is.
pub(crate) fn database(folder: &Path) -> PathBuf {
    folder.join("bench.db")
}

/// Makes a database with `count` rows, on disk before anything is timed.
pub(crate) fn create(path: &Path, count: u64) -> Result<()> {
    let db = Connection::open(path)?;
    let script = SCRIPT.replace(":count", &count.to_string());
    db.execute_batch(&format!("PRAGMA synchronous = FULL; BEGIN; {script} COMMIT;"))?;
    db.close().map_err(|(_, error)| error)?;
    Ok(())
}

/// Makes sure that each of `count` rows was reviewed.
pub(crate) fn check(path: &Path, count: u64) -> Result<()> {
    let db = Connection::open(path)?;
    let sql = "SELECT count(*) FROM line WHERE verdict = 'APPROVE' AND confidence = 0.93";
    let reviewed: u64 = db.query_row(sql, [], |row| row.get(0))?;
    ensure!(reviewed == count, "{reviewed} of {count} rows were reviewed");
    Ok(())
}
