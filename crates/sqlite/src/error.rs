//! Maps SQLite errors to [`Error`].

use longshore_core::Error;
use rusqlite::ErrorCode;

/// Maps a driver error to a store error.
pub(crate) fn translate(error: rusqlite::Error) -> Error {
    let code = error.sqlite_error_code();
    match code {
        _ if is_data_error(&error) => {
            Error::Rejected { message: error.to_string(), source: Some(Box::new(error)) }
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            unavailable("another process holds the database's write lock", error)
        }
        Some(ErrorCode::DiskFull) => Error::DiskFull { source: Some(Box::new(error)) },
        Some(ErrorCode::SystemIoFailure) => unavailable("the database file cannot be read or written", error),
        Some(ErrorCode::CannotOpen) => unavailable("the database file cannot be opened", error),
        Some(ErrorCode::OutOfMemory) => unavailable("SQLite is out of memory", error),
        Some(ErrorCode::NotADatabase) => broken("the file is not a SQLite database", error),
        Some(ErrorCode::DatabaseCorrupt) => broken("the database file is damaged", error),
        Some(ErrorCode::ReadOnly) => broken("the database file or its folder is read-only", error),
        // A wrong statement, a violated key, a misuse of the driver (which has no code).
        None | Some(ErrorCode::Unknown | ErrorCode::ConstraintViolation | ErrorCode::ApiMisuse) => {
            broken("SQLite rejected a statement", error)
        }
        Some(_) => unavailable("SQLite cannot run a statement at the moment", error),
    }
}

/// Whether the statement fails again because of its data, as [`Error::is_data_sqlstate`] tells for
/// SQLSTATEs.
fn is_data_error(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_CONSTRAINT_CHECK, SQLITE_CONSTRAINT_NOTNULL, SQLITE_MISMATCH, SQLITE_TOOBIG};
    let Some(failure) = error.sqlite_error() else { return false };
    let data = [SQLITE_CONSTRAINT_CHECK, SQLITE_CONSTRAINT_NOTNULL, SQLITE_MISMATCH, SQLITE_TOOBIG];
    data.contains(&failure.extended_code)
}

fn unavailable(message: &str, source: rusqlite::Error) -> Error {
    Error::Unavailable { message: message.to_owned(), source: Some(Box::new(source)) }
}

fn broken(message: &str, source: rusqlite::Error) -> Error {
    Error::Broken { message: message.to_owned(), source: Some(Box::new(source)) }
}

pub(crate) use longshore_core::sql_row::damaged;

/// Maps SQLite errors with `?`.
pub(crate) trait Translate<T> {
    /// Maps the error, keeps the value.
    fn or_translate(self) -> Result<T, Error>;
}

impl<T> Translate<T> for rusqlite::Result<T> {
    fn or_translate(self) -> Result<T, Error> {
        self.map_err(translate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_that_are_known_to_be_caused_by_the_data_are_final() {
        let db = rusqlite::Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER NOT NULL CHECK (n > 0)) STRICT")
            .unwrap();
        db.execute_batch("INSERT INTO t VALUES (1, 1)").unwrap();
        for (sql, is_final) in [
            ("INSERT INTO t VALUES (2, 0)", true),
            ("INSERT INTO t VALUES (2, NULL)", true),
            ("INSERT INTO t VALUES (1, 1)", false),
            ("INSERT INTO missing VALUES (1)", false),
        ] {
            let error = translate(db.execute_batch(sql).unwrap_err());
            assert_eq!((error.is_final(), error.is_retryable()), (is_final, false), "{sql}: {error:?}");
        }
        for code in [rusqlite::ffi::SQLITE_PROTOCOL, rusqlite::ffi::SQLITE_PERM, rusqlite::ffi::SQLITE_NOLFS]
        {
            let unknown = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
            assert!(translate(unknown).is_retryable(), "{code}");
        }
    }
}
