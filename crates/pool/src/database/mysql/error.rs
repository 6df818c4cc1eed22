//! What MySQL says.

use mysql_async::{DriverError, Error, IoError, ServerError};

use super::address::AddressError;
use crate::database::error::{DbError, Reason};

/// Errors of the server that pass though their SQLSTATE does not say so: no room, a deadlock, a lock
/// or a statement that took too long.
const PASSING: [u16; 6] = [1040, 1203, 1205, 1213, 1317, 1969];
/// Those that end the session: a shutdown, somebody's KILL, silence.
const ENDING: [u16; 5] = [1053, 1152, 1158, 1159, 1927];
/// Those by which a server that is asked to let us in will say no again: the user, the database.
const NO_ENTRY: [u16; 4] = [1044, 1045, 1049, 1698];

/// A URL that is none.
pub(super) fn of_address(error: &AddressError) -> DbError {
    DbError::new(Reason::Refused, error.to_string())
}

/// A server that does not let us in. Somebody may start it, or put the password right.
pub(super) fn of_connect(shown: &str, error: Error) -> DbError {
    let retryable = !matches!(&error, Error::Server(told) if NO_ENTRY.contains(&told.code));
    let found = of(error);
    let message = format!("{shown}: {}", found.message);
    DbError { retryable, message, reason: Reason::Unreachable, ..found.unsent() }
}

/// What a statement met with.
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
