//! Maps SQLite's errors, with the SQLSTATE that PostgreSQL would report.

use std::path::Path;

use rusqlite::{Error, ErrorCode, ffi};

use crate::database::error::{DbError, Reason};

/// The code of a statement that was stopped.
pub(super) const INTERRUPTED: &str = "57014";

/// Maps an error of opening a file.
pub(super) fn of_file(path: &Path, error: &Error) -> DbError {
    let path = path.display();
    let message = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => format!("{path} is not a SQLite database"),
        Some(ErrorCode::DatabaseCorrupt) => format!("{path} is damaged"),
        Some(ErrorCode::CannotOpen) => format!("{path} does not exist or cannot be opened"),
        _ => format!("{path}: {}", message(error)),
    };
    // Another process may be about to create the file, or to release its lock.
    let retryable = matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::CannotOpen)
    );
    DbError { retryable, ..with_code(DbError::new(Reason::Unreachable, message), error) }
}

/// Maps an error of a statement.
pub(super) fn of(error: Error) -> DbError {
    let retryable = matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::SchemaChanged)
    );
    let found = with_code(DbError::new(Reason::Sql, message(&error)), &error);
    DbError { retryable: found.retryable || retryable, ..found }
}

fn with_code(found: DbError, error: &Error) -> DbError {
    let extended = match error {
        Error::SqliteFailure(failure, _) => Some(failure.extended_code),
        Error::SqlInputError { error, .. } => Some(error.extended_code),
        Error::MultipleStatement => return found.code("42601"),
        _ => None,
    };
    match extended {
        Some(extended) => found.code(state(extended)).native(i64::from(extended)),
        None => found.code("HY000"),
    }
}

/// The SQLSTATE for an extended code of SQLite.
fn state(extended: i32) -> &'static str {
    match extended {
        ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY | ffi::SQLITE_CONSTRAINT_ROWID => {
            return "23505";
        }
        ffi::SQLITE_CONSTRAINT_FOREIGNKEY => return "23503",
        ffi::SQLITE_CONSTRAINT_NOTNULL => return "23502",
        ffi::SQLITE_CONSTRAINT_CHECK => return "23514",
        _ => {}
    }
    match extended & 0xff {
        ffi::SQLITE_CONSTRAINT => "23000",
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED => "55P03",
        ffi::SQLITE_INTERRUPT => INTERRUPTED,
        ffi::SQLITE_READONLY => "25006",
        ffi::SQLITE_FULL => "53100",
        ffi::SQLITE_NOMEM => "53200",
        ffi::SQLITE_IOERR => "58030",
        ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB => "XX001",
        ffi::SQLITE_TOOBIG => "54000",
        ffi::SQLITE_MISMATCH => "22018",
        ffi::SQLITE_ERROR => "42000",
        _ => "HY000",
    }
}

fn message(error: &Error) -> String {
    match error {
        Error::SqliteFailure(_, Some(message)) => message.clone(),
        // The error's own text would repeat the whole statement.
        Error::SqlInputError { msg, .. } => msg.clone(),
        Error::MultipleStatement => "only one statement is allowed".to_owned(),
        other => other.to_string(),
    }
}
