//! Maps ODBC errors to what the caller can do about them.

use longshore_pool::database::odbc::diagnostics::{is_transient, message, record};
use odbc_api::Error;

use crate::rows::SourceError;
use crate::rows::placeholders::PositionalStatement;

/// SQLSTATE classes of an unavailable database: connection errors, lack of resources, operator intervention, system
/// errors.
const UNAVAILABLE_CLASSES: [&str; 4] = ["08", "53", "57", "58"];
/// SQLSTATEs of locks, beside class 40: rollback by deadlock. 57033 is Db2's.
const BUSY_STATES: [&str; 2] = ["55P03", "57033"];
/// The SQLSTATE of statements that reached a time limit of the server or were cancelled.
const CANCELLED_STATE: &str = "57014";

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
    let message = message(&error);
    let Some(record) = record(&error) else { return SourceError::Unavailable(message) };
    let state = record.state.as_str();
    if state.starts_with("40") || BUSY_STATES.contains(&state) {
        SourceError::Busy(message)
    } else if state == CANCELLED_STATE {
        SourceError::TimedOut(message)
    } else if UNAVAILABLE_CLASSES.iter().any(|class| state.starts_with(class)) || is_transient(record) {
        SourceError::Unavailable(message)
    } else {
        SourceError::Data(message)
    }
}

/// The missing name in a message: in quotes, or after `no such …:`.
fn missing(message: &str) -> Option<&str> {
    if let Some((_, name)) = message.split_once("no such ").and_then(|(_, of)| of.split_once(": ")) {
        return name.split_whitespace().next();
    }
    message.split(['"', '\'', '`']).nth(1)
}
