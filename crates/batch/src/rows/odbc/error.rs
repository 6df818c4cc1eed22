//! What drivers say, as what the caller can do about it.

use longshore_pool::database::odbc::words::{passes, record, words};
use odbc_api::Error;

use crate::rows::SourceError;
use crate::rows::positional::Positional;

/// Classes of SQLSTATE that pass: connections, rollbacks by deadlock, no room, an operator's word.
const PASSING: [&str; 4] = ["08", "40", "53", "57"];

/// A database that does not let us in. Somebody may start it, or put the password right.
pub(super) fn of_connect(error: Error) -> SourceError {
    SourceError::Away(words(&error))
}

/// A statement that the database does not accept.
pub(super) fn of_statement(statement: &Positional, error: Error) -> SourceError {
    match of_run(error) {
        SourceError::Data(message) => {
            let offset = missing(&message).and_then(|name| statement.place_of(name));
            SourceError::Statement { message, offset }
        }
        error => error,
    }
}

/// A statement that was accepted and failed while it ran.
pub(super) fn of_run(error: Error) -> SourceError {
    if is_away(&error) {
        SourceError::Away(words(&error))
    } else {
        SourceError::Data(words(&error))
    }
}

/// Whether the database, not the statement, is to blame, and later may be better.
fn is_away(error: &Error) -> bool {
    let Some(record) = record(error) else { return true };
    let state = record.state.as_str();
    PASSING.iter().any(|class| state.starts_with(class)) || passes(record)
}

/// The name that a message is about: in quotes, or behind `no such …:`.
fn missing(message: &str) -> Option<&str> {
    if let Some((_, name)) = message.split_once("no such ").and_then(|(_, of)| of.split_once(": "))
    {
        return name.split_whitespace().next();
    }
    message.split(['"', '\'', '`']).nth(1)
}
