//! Maps MySQL's errors.

use mysql_async::{DriverError, Error, IoError, ServerError};

use super::connection_url::MysqlUrlError;
use crate::error::{DbError, ErrorClass, Reason};

/// Errors of a server that is unavailable, which their SQLSTATE does not show: full disk, no memory, too many connections,
/// shutdown, lost or killed connections, blocked hosts, read-only servers.
const UNAVAILABLE: [u16; 27] = [
    1021, 1030, 1037, 1038, 1040, 1041, 1053, 1077, 1079, 1114, 1129, 1135, 1152, 1158, 1159, 1160, 1161,
    1184, 1203, 1226, 1290, 1317, 1637, 1836, 1927, 3168, 4031,
];
/// Errors of locks and deadlocks.
const BUSY: [u16; 5] = [1205, 1206, 1213, 1614, 3572];
/// Errors of the time limits of statements: MariaDB's and MySQL's.
const TIME_LIMIT: [u16; 2] = [1969, 3024];
/// Errors of statements that may be repeated at once: too many connections, a deadlock, a lock or a statement that took
/// too long.
const TRANSIENT: [u16; 6] = [1040, 1203, 1205, 1213, 1317, 1969];
/// Errors that end the session: a shutdown, a KILL, a timeout.
const SESSION_ENDING: [u16; 5] = [1053, 1152, 1158, 1159, 1927];
/// Permanent errors of connecting: a wrong user, password or database.
const ACCESS_DENIED: [u16; 4] = [1044, 1045, 1049, 1698];

/// Maps an invalid URL.
pub(super) fn of_address(error: &MysqlUrlError) -> DbError {
    DbError::new(Reason::Refused, error.to_string())
}

/// Maps a failed connect. It is retryable, since the server may be starting, unless the credentials
/// are wrong.
pub(super) fn of_connect(shown: &str, error: Error) -> DbError {
    let retryable = !matches!(&error, Error::Server(error) if ACCESS_DENIED.contains(&error.code));
    let found = of(error);
    let message = format!("{shown}: {}", found.message);
    DbError { retryable, message, reason: Reason::Unreachable, ..found.unsent() }
}

/// Maps an error of a statement.
pub(super) fn of(error: Error) -> DbError {
    match error {
        Error::Server(error) => of_server(error),
        Error::Io(IoError::Io(error)) => DbError::lost(error.to_string()).code("08S01"),
        Error::Io(error) => DbError::lost(error.to_string()).code("08S01"),
        Error::Driver(
            error @ (DriverError::ConnectionClosed
            | DriverError::PoolDisconnected
            | DriverError::PacketOutOfOrder),
        ) => DbError::lost(error.to_string()).code("08S01"),
        Error::Driver(error) => DbError::new(Reason::Sql, error.to_string()).code("HY000"),
        Error::Other(error) => DbError::new(Reason::Sql, error.to_string())
            .code("HY000")
            .with_class(Some(ErrorClass::Unavailable)),
        Error::Url(error) => of_address(&MysqlUrlError::of(error)),
    }
}

fn of_server(error: ServerError) -> DbError {
    let found = match SESSION_ENDING.contains(&error.code) {
        true => DbError::lost(error.message),
        false => DbError::new(Reason::Sql, error.message),
    };
    let found = found.code(error.state).native(i64::from(error.code)).with_class(class(error.code));
    DbError { retryable: found.retryable || TRANSIENT.contains(&error.code), ..found }
}

/// The class of an error, unless its SQLSTATE shows it.
fn class(code: u16) -> Option<ErrorClass> {
    match code {
        _ if BUSY.contains(&code) => Some(ErrorClass::Busy),
        _ if TIME_LIMIT.contains(&code) => Some(ErrorClass::TimedOut),
        _ if UNAVAILABLE.contains(&code) => Some(ErrorClass::Unavailable),
        _ => None,
    }
}
