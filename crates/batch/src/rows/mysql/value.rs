//! Values between MySQL and us: the pool reads and binds them.

use longshore::SqlValue;
use longshore_pool::database::mysql::value;
use mysql_async::{Column, Value};

use crate::rows::SourceError;
use crate::rows::foreign::{of_pool, to_pool};

/// A value of a row.
pub(super) fn of_column(value: Value, column: &Column) -> Result<SqlValue, SourceError> {
    let read = value::of_column(value, column);
    read.map(of_pool).map_err(|error| SourceError::Data(error.to_string()))
}

/// A value for a `?`.
pub(super) fn bound(value: &SqlValue) -> Value {
    value::bound(to_pool(value))
}
