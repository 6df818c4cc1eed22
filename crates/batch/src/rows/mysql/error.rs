//! Maps MySQL's errors to what the caller can do about them.

use std::io;
use std::time::Duration;

use mysql_async::{DriverError, Error, IoError, ServerError};

use crate::rows::SourceError;
use crate::rows::placeholders::PositionalStatement;

/// Error codes of a server that is unavailable: full disk, no memory, too many connections, shutdown, lost or killed
/// connections, blocked hosts, read-only servers.
const UNAVAILABLE_CODES: [u16; 27] = [
    1021, 1030, 1037, 1038, 1040, 1041, 1053, 1077, 1079, 1114, 1129, 1135, 1152, 1158, 1159, 1160, 1161,
    1184, 1203, 1226, 1290, 1317, 1637, 1836, 1927, 3168, 4031,
];
/// Error codes of locks and deadlocks.
const BUSY_CODES: [u16; 5] = [1205, 1206, 1213, 1614, 3572];
/// Error codes of the time limits of statements: MariaDB's and MySQL's.
const TIME_LIMIT_CODES: [u16; 2] = [1969, 3024];
/// How long the server may take to prepare a statement.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A failed connection attempt. Retryable: the server may be started or its password corrected.
pub(super) fn of_connect(server: &str, error: Error) -> SourceError {
    SourceError::Unavailable(format!("{server}: {}", message(error)))
}

/// A transaction that takes too long, as when another one holds its locks.
pub(super) fn too_slow(limit: Duration) -> SourceError {
    SourceError::Busy(format!("the transaction did not end within {} s", limit.as_secs()))
}

/// A server that does not answer.
pub(super) fn no_answer(server: &str, timeout: Duration) -> SourceError {
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
    if let Some(transient) = transient(&error) {
        return transient(message(error));
    }
    let message = message(error);
    let offset = offset(statement, &message);
    SourceError::Statement { message, offset }
}

/// A prepared statement that failed when it ran.
pub(super) fn of_run(error: Error) -> SourceError {
    match transient(&error) {
        Some(transient) => transient(message(error)),
        None => SourceError::Data(message(error)),
    }
}

/// The error for the caller if the server and not the statement failed.
fn transient(error: &Error) -> Option<fn(String) -> SourceError> {
    let is_unavailable = match error {
        Error::Server(ServerError { code, .. }) if BUSY_CODES.contains(code) => {
            return Some(SourceError::Busy);
        }
        Error::Server(ServerError { code, .. }) if TIME_LIMIT_CODES.contains(code) => {
            return Some(SourceError::TimedOut);
        }
        Error::Server(ServerError { code, .. }) => UNAVAILABLE_CODES.contains(code),
        Error::Io(_) | Error::Other(_) => true,
        Error::Driver(error) => matches!(
            error,
            DriverError::ConnectionClosed | DriverError::PoolDisconnected | DriverError::PacketOutOfOrder
        ),
        Error::Url(_) => false,
    };
    is_unavailable.then_some(SourceError::Unavailable)
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
