//! What MySQL says, as what the caller can do about it.

use std::io;
use std::time::Duration;

use mysql_async::{DriverError, Error, IoError, ServerError};

use crate::rows::SourceError;
use crate::rows::positional::Positional;

/// Errors of the server that pass: no room, a shutdown, a deadlock, a lock or a statement that took
/// too long, a session that somebody ended.
const PASSING: [u16; 11] = [1040, 1053, 1152, 1158, 1159, 1203, 1205, 1213, 1317, 1927, 1969];

/// A server that does not let us in. Somebody may start it, or put the password right.
pub(super) fn of_connect(server: &str, error: Error) -> SourceError {
    SourceError::Away(format!("{server}: {}", words(error)))
}

/// A server that does not answer at all.
pub(super) fn silent(server: &str, patience: Duration) -> SourceError {
    SourceError::Away(format!("{server} did not answer within {} s", patience.as_secs()))
}

/// Whether a connection was closed by the other side.
pub(super) fn was_closed(error: &Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof,
    };
    match error {
        Error::Driver(DriverError::ConnectionClosed) => true,
        Error::Io(IoError::Io(error)) => matches!(
            error.kind(),
            BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof
        ),
        _ => false,
    }
}

/// A statement that could not be prepared.
pub(super) fn of_statement(statement: &Positional, error: Error) -> SourceError {
    if is_away(&error) {
        return SourceError::Away(words(error));
    }
    let message = words(error);
    let offset = place(statement, &message);
    SourceError::Statement { message, offset }
}

/// A statement that was accepted and failed while it ran.
pub(super) fn of_run(error: Error) -> SourceError {
    if is_away(&error) { SourceError::Away(words(error)) } else { SourceError::Data(words(error)) }
}

/// Whether the server, not the statement, is to blame, and later may be better.
fn is_away(error: &Error) -> bool {
    match error {
        Error::Server(ServerError { code, .. }) => PASSING.contains(code),
        Error::Io(_) | Error::Other(_) => true,
        Error::Driver(error) => matches!(
            error,
            DriverError::ConnectionClosed
                | DriverError::PoolDisconnected
                | DriverError::PacketOutOfOrder
        ),
        Error::Url(_) => false,
    }
}

fn words(error: Error) -> String {
    match error {
        Error::Server(error) => error.message,
        Error::Io(IoError::Io(error)) => error.to_string(),
        Error::Io(error) => error.to_string(),
        Error::Driver(error) => error.to_string(),
        Error::Other(error) => error.to_string(),
        Error::Url(_) => "the database's address is wrong".to_owned(),
    }
}

/// Where the mistake is: `near '…'` begins with it, other messages name what is missing.
fn place(statement: &Positional, message: &str) -> Option<usize> {
    if let Some((_, rest)) = message.split_once(" near '") {
        let near = rest.rsplit_once("' at line").map_or(rest, |(near, _)| near);
        return statement.place(statement.sql.find(near).filter(|_| !near.is_empty())?);
    }
    let name = message.split('\'').nth(1)?;
    statement.place_of(name)
}
