//! Converts values from and to MySQL with the pool's driver code.

use longshore::SqlValue;
use longshore_pool::database::mysql::value;
use mysql_async::{Column, Value};

use crate::rows::SourceError;
use crate::rows::value_convert::{from_pool_value, to_pool_value};

/// A value of a row.
pub(super) fn of_column(value: Value, column: &Column) -> Result<SqlValue, SourceError> {
    let read = value::from_column(value, column);
    read.map(from_pool_value).map_err(|error| SourceError::Data(error.to_string()))
}

/// A value for a placeholder.
pub(super) fn bound(value: &SqlValue) -> Value {
    value::to_parameter(to_pool_value(value))
}
