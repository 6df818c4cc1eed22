//! Maps PostgreSQL's errors.

use std::error::Error as _;

use longshore_postgres_address::AddressError;
use tokio_postgres::Error;
use tokio_postgres::error::DbError as Told;

use crate::database::error::{DbError, Reason};

/// Maps an invalid URL, or one with a missing file.
pub(super) fn of_address(error: AddressError) -> DbError {
    DbError::new(Reason::Refused, error.0)
}

/// Maps a failed connect. It is retryable, since the server may be starting, unless the credentials
/// are wrong.
pub(super) fn of_connect(shown: &str, error: &Error) -> DbError {
    let found = DbError::new(Reason::Unreachable, format!("{shown}: {}", words(error)));
    match error.as_db_error() {
        // A wrong password or database name does not change by waiting.
        Some(told) => {
            let retryable =
                !told.code().code().starts_with("28") && !told.code().code().starts_with("3D");
            DbError { retryable, ..found.code(told.code().code()) }
        }
        None => found,
    }
}

/// Maps an error of a statement.
pub(super) fn of(error: &Error) -> DbError {
    match error.as_db_error() {
        // The server ends the session.
        Some(told) if ends_session(told) => DbError::lost(words(error)).code(told.code().code()),
        Some(told) => DbError::new(Reason::Sql, words(error)).code(told.code().code()),
        None if is_of_connection(error) => DbError::lost(words(error)).code("08006"),
        // A value could not be converted.
        None => DbError::new(Reason::Sql, words(error)).code("22000"),
    }
}

fn ends_session(told: &Told) -> bool {
    let by_operator = ["57P01", "57P02", "57P03", "57P04", "57P05"];
    by_operator.contains(&told.code().code()) || told.severity() == "FATAL"
}

fn is_of_connection(error: &Error) -> bool {
    let io = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    error.is_closed() || io.is_some()
}

fn words(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(told), _) => match told.detail() {
            Some(detail) => format!("{}: {detail}", told.message()),
            None => told.message().to_owned(),
        },
        (None, Some(cause)) => cause.to_string(),
        (None, None) => error.to_string(),
    }
}
