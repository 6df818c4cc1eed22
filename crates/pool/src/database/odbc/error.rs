//! What ODBC drivers say.

use odbc_api::Error;
use odbc_api::handles::Record;

use crate::database::error::{DbError, Reason};

/// Time ran out.
const TIMEOUTS: [&str; 3] = ["HYT00", "HYT01", "S1T00"];

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
    // SQLite's driver has no better word for it.
    let passes = TIMEOUTS.contains(&state) || text(record).contains("database is locked");
    DbError { retryable: found.retryable || passes, ..found }
}

/// Whether a statement was stopped because it took too long.
pub(super) fn is_timeout(error: &DbError) -> bool {
    let code = error.code.as_deref().unwrap_or_default();
    TIMEOUTS.contains(&code) || code == "57014" || code == "HY008"
}

fn record(error: &Error) -> Option<&Record> {
    match error {
        Error::Diagnostics { record, .. }
        | Error::UnsupportedOdbcApiVersion(record)
        | Error::UnableToRepresentNull(record)
        | Error::OracleOdbcDriverDoesNotSupport64Bit(record)
        | Error::InvalidRowArraySize { record, .. } => Some(record),
        _ => None,
    }
}

fn text(record: &Record) -> String {
    String::from_utf16_lossy(&record.message)
}

/// The first line, without the names of the parts that passed it on.
fn words(error: &Error) -> String {
    let Some(record) = record(error) else { return error.to_string() };
    let text = text(record);
    let mut words = text.lines().next().unwrap_or_default().trim();
    while let Some((_, rest)) = words.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        words = rest.trim_start();
    }
    let words = words.trim_end_matches(['\0', ';', ' ']);
    if words.is_empty() { format!("SQLSTATE {}", record.state.as_str()) } else { words.to_owned() }
}
