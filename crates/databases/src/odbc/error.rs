//! Maps errors of ODBC drivers.

use odbc_api::Error;

use super::diagnostics::{self, message, record};
use crate::error::{DbError, ErrorClass, Reason};

/// Maps a failed connect. It is retryable, since the server may be starting, unless the
/// configuration is wrong.
pub(super) fn of_connect(error: &Error) -> DbError {
    let found = DbError::new(Reason::Unreachable, message(error));
    match record(error) {
        Some(record) => {
            let state = record.state.as_str();
            // A wrong password, driver or data source does not change by waiting.
            let retryable = !state.starts_with("28") && !state.starts_with("IM");
            let native = i64::from(record.native_error);
            DbError { retryable, ..found.code(state).native(native) }
        }
        None => found,
    }
}

/// Maps an error of a statement.
pub(super) fn of(error: &Error) -> DbError {
    let Some(record) = record(error) else {
        return DbError::new(Reason::Sql, message(error)).with_class(Some(ErrorClass::Unavailable));
    };
    let state = record.state.as_str();
    let found = match state.starts_with("08") {
        true => DbError::lost(message(error)),
        false => DbError::new(Reason::Sql, message(error)),
    };
    let found = found.code(state).native(i64::from(record.native_error));
    if !diagnostics::is_transient(record) {
        return found;
    }
    DbError { retryable: true, ..found.with_class(Some(ErrorClass::Unavailable)) }
}

/// Whether a statement was stopped by a timeout.
pub(super) fn is_timeout(error: &DbError) -> bool {
    let code = error.code.as_deref().unwrap_or_default();
    diagnostics::TIMEOUTS.contains(&code) || code == "57014" || code == "HY008"
}
