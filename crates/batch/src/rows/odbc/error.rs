//! Maps ODBC errors to what the caller can do about them.

use longshore_pool::database::odbc::diagnostics::{is_transient, message, record};
use odbc_api::Error;

use crate::rows::SourceError;
use crate::rows::placeholders::PositionalStatement;

/// Transient SQLSTATE classes: connection errors, rollback by deadlock, lack of resources, operator
/// intervention.
const TRANSIENT_CLASSES: [&str; 4] = ["08", "40", "53", "57"];

/// A failed connection attempt. Retryable: the database may be started or its password corrected.
pub(super) fn of_connect(error: Error) -> SourceError {
    SourceError::Unavailable(message(&error))
}

/// A statement that the database does not accept.
pub(super) fn of_statement(statement: &PositionalStatement, error: Error) -> SourceError {
    match of_run(error) {
        SourceError::Data(message) => {
            let offset = missing(&message).and_then(|name| statement.offset_of_name(name));
            SourceError::Statement { message, offset }
        }
        error => error,
    }
}

/// A prepared statement that failed when it ran.
pub(super) fn of_run(error: Error) -> SourceError {
    if is_transient_error(&error) {
        SourceError::Unavailable(message(&error))
    } else {
        SourceError::Data(message(&error))
    }
}

/// Whether the database and not the statement failed, so that a retry may help.
fn is_transient_error(error: &Error) -> bool {
    let Some(record) = record(error) else { return true };
    let state = record.state.as_str();
    TRANSIENT_CLASSES.iter().any(|class| state.starts_with(class)) || is_transient(record)
}

/// The missing name in a message: in quotes, or after `no such …:`.
fn missing(message: &str) -> Option<&str> {
    if let Some((_, name)) = message.split_once("no such ").and_then(|(_, of)| of.split_once(": ")) {
        return name.split_whitespace().next();
    }
    message.split(['"', '\'', '`']).nth(1)
}
