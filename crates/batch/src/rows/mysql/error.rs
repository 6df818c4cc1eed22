//! Maps MySQL's errors to what the caller can do about them.

use std::io;
use std::time::Duration;

use mysql_async::{DriverError, Error, IoError, ServerError};

use crate::rows::SourceError;
use crate::rows::placeholders::PositionalStatement;

/// Transient error codes of the server: too many connections, shutdown, deadlock, lock or statement
/// timeout, killed session.
const TRANSIENT_CODES: [u16; 11] = [1040, 1053, 1152, 1158, 1159, 1203, 1205, 1213, 1317, 1927, 1969];

/// A failed connection attempt. Retryable: the server may be started or its password corrected.
pub(super) fn of_connect(server: &str, error: Error) -> SourceError {
    SourceError::Unavailable(format!("{server}: {}", message(error)))
}

/// A server that does not answer.
pub(super) fn connect_timeout(server: &str, timeout: Duration) -> SourceError {
    SourceError::Unavailable(format!("{server} did not answer within {} s", timeout.as_secs()))
}

/// Whether the server closed the connection.
pub(super) fn was_closed(error: &Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
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
pub(super) fn of_statement(statement: &PositionalStatement, error: Error) -> SourceError {
    if is_transient(&error) {
        return SourceError::Unavailable(message(error));
    }
    let message = message(error);
    let offset = offset(statement, &message);
    SourceError::Statement { message, offset }
}

/// A prepared statement that failed when it ran.
pub(super) fn of_run(error: Error) -> SourceError {
    if is_transient(&error) {
        SourceError::Unavailable(message(error))
    } else {
        SourceError::Data(message(error))
    }
}

/// Whether the server and not the statement failed, so that a retry may help.
fn is_transient(error: &Error) -> bool {
    match error {
        Error::Server(ServerError { code, .. }) => TRANSIENT_CODES.contains(code),
        Error::Io(_) | Error::Other(_) => true,
        Error::Driver(error) => matches!(
            error,
            DriverError::ConnectionClosed | DriverError::PoolDisconnected | DriverError::PacketOutOfOrder
        ),
        Error::Url(_) => false,
    }
}

fn message(error: Error) -> String {
    match error {
        Error::Server(error) => error.message,
        Error::Io(IoError::Io(error)) => error.to_string(),
        Error::Io(error) => error.to_string(),
        Error::Driver(error) => error.to_string(),
        Error::Other(error) => error.to_string(),
        Error::Url(_) => "the database's address is wrong".to_owned(),
    }
}

/// The offset of the mistake: `near '…'` begins with it, other messages quote the missing name.
fn offset(statement: &PositionalStatement, message: &str) -> Option<usize> {
    if let Some((_, rest)) = message.split_once(" near '") {
        let near = rest.rsplit_once("' at line").map_or(rest, |(near, _)| near);
        return statement.original_offset(statement.sql.find(near).filter(|_| !near.is_empty())?);
    }
    let name = message.split('\'').nth(1)?;
    statement.offset_of_name(name)
}
