//! Creates a SQLite database from a SQL script, for examples and tests: completely or not at all.

use std::path::Path;

use rusqlite::Connection;
use rusqlite::fallible_iterator::FallibleIterator;

use super::SourceError;

/// Creates the database at `path` from the SQL in `script`; false if it exists. Built under a
/// temporary name and then linked to `path`, so that no process sees an incomplete file.
pub fn create(path: &Path, script: &Path) -> Result<bool, SourceError> {
    if path.exists() {
        return Ok(false);
    }
    let sql = std::fs::read_to_string(script)
        .map_err(|error| SourceError::Data(format!("{}: {error}", script.display())))?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let created = build_database(&new, &sql).and_then(|()| publish(&new, path));
    // The database stays under its own name.
    let _ = std::fs::remove_file(&new);
    created
}

fn build_database(new: &Path, sql: &str) -> Result<(), SourceError> {
    let _ = std::fs::remove_file(new);
    let db = Connection::open(new).map_err(|error| SourceError::Data(error.to_string()))?;
    db.execute_batch("BEGIN").map_err(|error| SourceError::Data(error.to_string()))?;
    run_script(&db, sql)?;
    db.execute_batch("COMMIT").map_err(|error| SourceError::Data(error.to_string()))?;
    db.close().map_err(|(_, error)| SourceError::Data(error.to_string()))
}

/// Runs the script statement by statement, so that an error can name its number.
fn run_script(db: &Connection, sql: &str) -> Result<(), SourceError> {
    let mut batch = rusqlite::Batch::new(db, sql);
    let mut ran = 0;
    loop {
        match run_next(&mut batch) {
            Ok(true) => ran += 1,
            Ok(false) => return Ok(()),
            Err(error) => return Err(explain(&error, ran + 1)),
        }
    }
}

/// Runs the next statement and discards its rows; false at the end.
fn run_next(batch: &mut rusqlite::Batch<'_, '_>) -> rusqlite::Result<bool> {
    let Some(mut statement) = FallibleIterator::next(batch)? else { return Ok(false) };
    let mut rows = statement.raw_query();
    while rows.next()?.is_some() {}
    Ok(true)
}

fn explain(error: &rusqlite::Error, statement: usize) -> SourceError {
    let message = match error {
        // The full message would repeat the whole script.
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    };
    let message = format!("statement {statement}: {message}");
    SourceError::Statement { message, offset: None }
}

/// Links the new file to its name. A hard link does not replace a file that another process created
/// first.
fn publish(new: &Path, path: &Path) -> Result<bool, SourceError> {
    match std::fs::hard_link(new, path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(SourceError::Data(format!("{}: {error}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_made_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let (path, script) = (dir.path().join("a.db"), dir.path().join("seed.sql"));
        std::fs::write(&script, "CREATE TABLE t (a); INSERT INTO t VALUES (1); nonsense").unwrap();
        assert!(create(&path, &script).is_err());
        assert!(!path.exists(), "no half-written database is left");
        std::fs::write(&script, "CREATE TABLE t (a); INSERT INTO t VALUES (1); -- done").unwrap();
        assert!(create(&path, &script).unwrap());
        assert!(!create(&path, &script).unwrap(), "one that is there is left alone");
        let db = Connection::open(&path).unwrap();
        assert_eq!(db.query_row("SELECT count(*) FROM t", [], |row| row.get(0)), Ok(1));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left over");
    }
}
