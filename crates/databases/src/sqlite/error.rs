//! Maps SQLite's errors, with the SQLSTATE that PostgreSQL would report.

use std::path::Path;

use rusqlite::{Error, ErrorCode, ffi};

use crate::error::{DbError, ErrorClass, Reason};

/// The code of a statement that was stopped.
pub(super) const INTERRUPTED: &str = "57014";

/// Maps an error of opening a file.
pub(super) fn of_file(path: &Path, error: &Error) -> DbError {
    let path = path.display();
    let (message, class) = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => (format!("{path} is not a SQLite database"), ErrorClass::Data),
        Some(ErrorCode::DatabaseCorrupt) => (format!("{path} is damaged"), ErrorClass::Data),
        Some(ErrorCode::CannotOpen) => {
            (format!("{path} does not exist or cannot be opened"), ErrorClass::Unavailable)
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (format!("another program has locked {path}"), ErrorClass::Unavailable)
        }
        _ => (format!("{path}: {}", message(error)), ErrorClass::Unavailable),
    };
    // Another process may be about to create the file, or to release its lock.
    let retryable = matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::CannotOpen)
    );
    let found = with_code(DbError::new(Reason::Unreachable, message), error).with_class(Some(class));
    DbError { retryable, ..found }
}

/// Maps an error of a statement that could not be prepared.
pub(super) fn of_prepare(sql: &str, error: Error) -> DbError {
    let position = match &error {
        // Of several statements, SQLite reports the rest from the failing one on.
        Error::SqlInputError { sql: rest, offset, .. } => {
            let before = sql.trim_end().len().saturating_sub(rest.trim_end().len());
            usize::try_from(*offset).ok().map(|offset| before + offset)
        }
        _ => None,
    };
    DbError { position, ..of(error).rejected() }
}

/// Maps an error of a statement.
pub(super) fn of(error: Error) -> DbError {
    let code = error.sqlite_error_code();
    let retryable =
        matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::SchemaChanged));
    // Another program has the file, or the file system fails.
    let is_unavailable =
        retryable || matches!(code, Some(ErrorCode::FileLockingProtocolFailed | ErrorCode::CannotOpen));
    let found = with_code(DbError::new(Reason::Sql, message(&error)), &error);
    let found = found.with_class(is_unavailable.then_some(ErrorClass::Unavailable));
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
        ffi::SQLITE_READONLY | ffi::SQLITE_PERM => "25006",
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
