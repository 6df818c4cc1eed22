//! Database workers. `cases` contains what all databases must do; each database has its own file of
//! tests.

mod cases;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "odbc")]
mod odbc;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod processes;
#[cfg(feature = "sqlite")]
mod sqlite;

use longshore_pool::CallError;
use longshore_pool::database::{DbError, Reason};

/// The database error of a call.
pub(crate) fn db_error<T: std::fmt::Debug>(answer: Result<T, CallError>) -> DbError {
    let error = answer.unwrap_err();
    error.db_error().unwrap_or_else(|| panic!("not of the database: {error:?}"))
}

pub(crate) fn reason<T: std::fmt::Debug>(answer: Result<T, CallError>) -> Reason {
    db_error(answer).reason
}
