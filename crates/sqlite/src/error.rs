//! Maps SQLite errors to [`Error`].

use longshore_core::Error;
use rusqlite::ErrorCode;

/// Maps a driver error to a store error.
pub(crate) fn translate(error: rusqlite::Error) -> Error {
    let code = error.sqlite_error_code();
    match code {
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
        _ => broken("SQLite rejected a statement", error),
    }
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
