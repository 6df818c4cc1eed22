//! Maps MySQL's errors.

use mysql_async::{DriverError, Error, IoError, ServerError};

use super::address::AddressError;
use crate::database::error::{DbError, Reason};

/// Transient errors of the server that their SQLSTATE does not show: too many connections, a
/// deadlock, a lock or a statement that took too long.
const PASSING: [u16; 6] = [1040, 1203, 1205, 1213, 1317, 1969];
/// Errors that end the session: a shutdown, a KILL, a timeout.
const ENDING: [u16; 5] = [1053, 1152, 1158, 1159, 1927];
/// Permanent errors of connecting: a wrong user, password or database.
const NO_ENTRY: [u16; 4] = [1044, 1045, 1049, 1698];

/// Maps an invalid URL.
pub(super) fn of_address(error: &AddressError) -> DbError {
    DbError::new(Reason::Refused, error.to_string())
}

/// Maps a failed connect. It is retryable, since the server may be starting, unless the credentials
/// are wrong.
pub(super) fn of_connect(shown: &str, error: Error) -> DbError {
    let retryable = !matches!(&error, Error::Server(told) if NO_ENTRY.contains(&told.code));
    let found = of(error);
    let message = format!("{shown}: {}", found.message);
    DbError { retryable, message, reason: Reason::Unreachable, ..found.unsent() }
}

/// Maps an error of a statement.
pub(super) fn of(error: Error) -> DbError {
    match error {
        Error::Server(told) => of_server(told),
        Error::Io(IoError::Io(error)) => DbError::lost(error.to_string()).code("08S01"),
        Error::Io(error) => DbError::lost(error.to_string()).code("08S01"),
        Error::Driver(
            error @ (DriverError::ConnectionClosed
            | DriverError::PoolDisconnected
            | DriverError::PacketOutOfOrder),
        ) => DbError::lost(error.to_string()).code("08S01"),
        Error::Driver(error) => DbError::new(Reason::Sql, error.to_string()).code("HY000"),
        Error::Other(error) => DbError::new(Reason::Sql, error.to_string()).code("HY000"),
        Error::Url(error) => of_address(&AddressError::of(error)),
    }
}

fn of_server(told: ServerError) -> DbError {
    let found = match ENDING.contains(&told.code) {
        true => DbError::lost(told.message),
        false => DbError::new(Reason::Sql, told.message),
    };
    let found = found.code(told.state).native(i64::from(told.code));
    DbError { retryable: found.retryable || PASSING.contains(&told.code), ..found }
}
