//! Maps PostgreSQL's errors.

use std::error::Error as _;

use longshore_postgres_url::UrlError;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError as ServerError, ErrorPosition};

use crate::error::{DbError, Reason};

/// Maps an invalid URL, or one with a missing file.
pub(super) fn of_address(error: UrlError) -> DbError {
    DbError::new(Reason::Refused, error.0)
}

/// Maps a failed connect. It is retryable, since the server may be starting, unless the credentials
/// are wrong.
pub(super) fn of_connect(shown: &str, error: &Error) -> DbError {
    let found = DbError::new(Reason::Unreachable, format!("{shown}: {}", message(error)));
    match error.as_db_error() {
        // A wrong password or database name does not change by waiting.
        Some(server) => {
            let retryable =
                !server.code().code().starts_with("28") && !server.code().code().starts_with("3D");
            DbError { retryable, ..found.code(server.code().code()) }
        }
        None => found,
    }
}

/// Maps an error of a statement, with the place of a mistake.
pub(super) fn of_sql(sql: &str, error: &Error) -> DbError {
    // The server counts characters, from 1.
    let position = match error.as_db_error().and_then(ServerError::position) {
        Some(ErrorPosition::Original(at)) => usize::try_from(*at).ok().and_then(|at| at.checked_sub(1)),
        _ => None,
    };
    let position = position.and_then(|at| sql.char_indices().nth(at)).map(|(at, _)| at);
    DbError { position, ..of(error) }
}

/// Maps an error of a statement.
pub(super) fn of(error: &Error) -> DbError {
    match error.as_db_error() {
        // The server ends the session.
        Some(server) if ends_session(server) => DbError::lost(message(error)).code(server.code().code()),
        Some(server) => DbError::new(Reason::Sql, message(error)).code(server.code().code()),
        None if is_connection_error(error) => DbError::lost(message(error)).code("08006"),
        // A value could not be converted.
        None => DbError::new(Reason::Sql, message(error)).code("22000"),
    }
}

fn ends_session(server: &ServerError) -> bool {
    let by_operator = ["57P01", "57P02", "57P03", "57P04", "57P05"];
    by_operator.contains(&server.code().code()) || server.severity() == "FATAL"
}

fn is_connection_error(error: &Error) -> bool {
    let io = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    error.is_closed() || io.is_some()
}

fn message(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(server), _) => match server.detail() {
            Some(detail) => format!("{}: {detail}", server.message()),
            None => server.message().to_owned(),
        },
        (None, Some(cause)) => cause.to_string(),
        (None, None) => error.to_string(),
    }
}
