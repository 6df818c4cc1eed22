//! What SQLite says, as what the caller can do about it.

use std::path::Path;

use rusqlite::{Error, ErrorCode};

use crate::rows::SourceError;

/// A file that cannot be opened or is not what it should be.
pub(super) fn of_file(path: &Path, error: Error) -> SourceError {
    let path = path.display();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            SourceError::Data(format!("{path} is not a SQLite database"))
        }
        Some(ErrorCode::DatabaseCorrupt) => SourceError::Data(format!("{path} is damaged")),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            SourceError::Away(format!("another program has locked {path}"))
        }
        _ => SourceError::Away(format!("{path}: {}", words(error))),
    }
}

/// A statement that could not be prepared. Offsets count from the beginning of `sql`.
pub(super) fn of_statement(sql: &str, error: Error) -> SourceError {
    match error {
        Error::SqlInputError { msg, sql: rest, offset, .. } => {
            // Of several statements SQLite speaks of the one that it reads.
            let before = sql.trim_end().len().saturating_sub(rest.trim_end().len());
            let offset = usize::try_from(offset).ok().map(|offset| before + offset);
            SourceError::Statement { message: msg, offset }
        }
        Error::MultipleStatement => SourceError::Statement {
            message: "only one statement may stand here".into(),
            offset: None,
        },
        error if is_away(&error) => SourceError::Away(words(error)),
        error => SourceError::Statement { message: words(error), offset: None },
    }
}

/// A statement that was accepted and failed while it ran.
pub(super) fn of_run(error: Error) -> SourceError {
    if is_away(&error) { SourceError::Away(words(error)) } else { SourceError::Data(words(error)) }
}

/// Whether the file, not the statement, is to blame, and later may be better.
fn is_away(error: &Error) -> bool {
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

fn words(error: Error) -> String {
    match error {
        Error::SqliteFailure(_, Some(words)) => words,
        error => error.to_string(),
    }
}
