//! A SQLite database made from a script of SQL, for examples and tests: whole, or not at all.

use std::path::Path;

use rusqlite::Connection;
use rusqlite::fallible_iterator::FallibleIterator;

use super::SourceError;

/// Creates the database at `path` by running the SQL in `script`; false if it is there already.
/// Made beside its place and moved there, so that nobody meets half of it.
pub fn create(path: &Path, script: &Path) -> Result<bool, SourceError> {
    if path.exists() {
        return Ok(false);
    }
    let sql = std::fs::read_to_string(script)
        .map_err(|error| SourceError::Data(format!("{}: {error}", script.display())))?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let made = fill(&new, &sql).and_then(|()| place(&new, path));
    // Gone already if all went well.
    let _ = std::fs::remove_file(&new);
    made
}

fn fill(new: &Path, sql: &str) -> Result<(), SourceError> {
    let _ = std::fs::remove_file(new);
    let db = Connection::open(new).map_err(|error| SourceError::Data(error.to_string()))?;
    db.execute_batch("BEGIN").map_err(|error| SourceError::Data(error.to_string()))?;
    run(&db, sql)?;
    db.execute_batch("COMMIT").map_err(|error| SourceError::Data(error.to_string()))?;
    db.close().map_err(|(_, error)| SourceError::Data(error.to_string()))
}

/// Runs a script statement by statement, so that an error can say where it is.
fn run(db: &Connection, sql: &str) -> Result<(), SourceError> {
    let mut batch = rusqlite::Batch::new(db, sql);
    let mut ran = 0;
    loop {
        match step(&mut batch) {
            Ok(true) => ran += 1,
            Ok(false) => return Ok(()),
            Err(error) => return Err(explain(&error, ran + 1)),
        }
    }
}

/// Runs the next statement, whatever it returns; false at the end.
fn step(batch: &mut rusqlite::Batch<'_, '_>) -> rusqlite::Result<bool> {
    let Some(mut statement) = FallibleIterator::next(batch)? else { return Ok(false) };
    let mut rows = statement.raw_query();
    while rows.next()?.is_some() {}
    Ok(true)
}

fn explain(error: &rusqlite::Error, statement: usize) -> SourceError {
    let message = match error {
        // Its own words would repeat all of the script.
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    };
    let message = format!("statement {statement}: {message}");
    SourceError::Statement { message, offset: None }
}

/// Whoever was first has it; a hard link does not replace another's work.
fn place(new: &Path, path: &Path) -> Result<bool, SourceError> {
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
        assert!(!path.exists(), "half a database helps nobody");
        std::fs::write(&script, "CREATE TABLE t (a); INSERT INTO t VALUES (1); -- done").unwrap();
        assert!(create(&path, &script).unwrap());
        assert!(!create(&path, &script).unwrap(), "one that is there is left alone");
        let db = Connection::open(&path).unwrap();
        assert_eq!(db.query_row("SELECT count(*) FROM t", [], |row| row.get(0)), Ok(1));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left over");
    }
}
