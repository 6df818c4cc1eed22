//! Maps SQLite's errors to what the caller can do about them.

use std::path::Path;

use rusqlite::{Error, ErrorCode};

use crate::rows::SourceError;

/// A file that cannot be opened or is no valid database.
pub(super) fn of_file(path: &Path, error: Error) -> SourceError {
    let path = path.display();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => SourceError::Data(format!("{path} is not a SQLite database")),
        Some(ErrorCode::DatabaseCorrupt) => SourceError::Data(format!("{path} is damaged")),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            SourceError::Unavailable(format!("another program has locked {path}"))
        }
        _ => SourceError::Unavailable(format!("{path}: {}", message(error))),
    }
}

/// A statement that could not be prepared. Offsets count from the beginning of `sql`.
pub(super) fn of_statement(sql: &str, error: Error) -> SourceError {
    match error {
        Error::SqlInputError { msg, sql: rest, offset, .. } => {
            // Of several statements, SQLite reports the rest from the failing one on.
            let before = sql.trim_end().len().saturating_sub(rest.trim_end().len());
            let offset = usize::try_from(offset).ok().map(|offset| before + offset);
            SourceError::Statement { message: msg, offset }
        }
        Error::MultipleStatement => {
            SourceError::Statement { message: "only one statement may stand here".into(), offset: None }
        }
        error if is_transient(&error) => SourceError::Unavailable(message(error)),
        error => SourceError::Statement { message: message(error), offset: None },
    }
}

/// A prepared statement that failed when it ran.
pub(super) fn of_run(error: Error) -> SourceError {
    if is_transient(&error) {
        SourceError::Unavailable(message(error))
    } else {
        SourceError::Data(message(error))
    }
}

/// An error of a transaction that writes: the file may have become read-only.
pub(super) fn of_write(error: Error) -> SourceError {
    match error.sqlite_error_code() {
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => SourceError::Unavailable(message(error)),
        _ => of_run(error),
    }
}

/// Whether the file and not the statement failed, so that a retry may help.
fn is_transient(error: &Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::SchemaChanged
                | ErrorCode::SystemIoFailure
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::CannotOpen
                | ErrorCode::DiskFull
                | ErrorCode::OutOfMemory
        )
    )
}

fn message(error: Error) -> String {
    match error {
        Error::SqliteFailure(_, Some(message)) => message,
        error => error.to_string(),
    }
}
