//! What ODBC drivers say.

use odbc_api::Error;

use super::words::{self, record, words};
use crate::database::error::{DbError, Reason};

/// A database that does not let us in. Somebody may start it, or put the password right.
pub(super) fn of_connect(error: &Error) -> DbError {
    let found = DbError::new(Reason::Unreachable, words(error));
    match record(error) {
        Some(record) => {
            let state = record.state.as_str();
            // A password, a driver or a data source that is wrong stays so.
            let retryable = !state.starts_with("28") && !state.starts_with("IM");
            let native = i64::from(record.native_error);
            DbError { retryable, ..found.code(state).native(native) }
        }
        None => found,
    }
}

/// What a statement met with.
pub(super) fn of(error: &Error) -> DbError {
    let Some(record) = record(error) else { return DbError::new(Reason::Sql, words(error)) };
    let state = record.state.as_str();
    let found = match state.starts_with("08") {
        true => DbError::lost(words(error)),
        false => DbError::new(Reason::Sql, words(error)),
    };
    let found = found.code(state).native(i64::from(record.native_error));
    DbError { retryable: found.retryable || words::passes(record), ..found }
}

/// Whether a statement was stopped because it took too long.
pub(super) fn is_timeout(error: &DbError) -> bool {
    let code = error.code.as_deref().unwrap_or_default();
    words::TIMEOUTS.contains(&code) || code == "57014" || code == "HY008"
}
