//! What drivers say, as what the caller can do about it.

use odbc_api::Error;
use odbc_api::handles::Record;

use crate::rows::SourceError;
use crate::rows::positional::Positional;

/// Classes of SQLSTATE that pass: connections, rollbacks by deadlock, no room, an operator's word.
const PASSING: [&str; 4] = ["08", "40", "53", "57"];
/// Single ones: time ran out.
const TIMEOUTS: [&str; 3] = ["HYT00", "HYT01", "S1T00"];

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
    PASSING.iter().any(|class| state.starts_with(class))
        || TIMEOUTS.contains(&state)
        // SQLite's driver has no better word for it.
        || text(record).contains("database is locked")
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

/// The name that a message is about: in quotes, or behind `no such …:`.
fn missing(message: &str) -> Option<&str> {
    if let Some((_, name)) = message.split_once("no such ").and_then(|(_, of)| of.split_once(": "))
    {
        return name.split_whitespace().next();
    }
    message.split(['"', '\'', '`']).nth(1)
}
