//! Converts values of the drivers that are shared with the pool's database workers.

use longshore::SqlValue;
use longshore_pool::database::Value;

/// A value that a driver read.
pub(super) fn from_pool_value(value: Value) -> SqlValue {
    match value {
        Value::Null => SqlValue::Null,
        Value::Bool(value) => SqlValue::Bool(value),
        Value::Int(value) => SqlValue::Int(value),
        Value::Real(value) => SqlValue::Real(value),
        Value::Text(value) => SqlValue::Text(value),
        Value::Bytes(value) => SqlValue::Blob(value),
    }
}

/// A value for a driver to bind.
pub(super) fn to_pool_value(value: &SqlValue) -> Value {
    match value {
        SqlValue::Null => Value::Null,
        SqlValue::Bool(value) => Value::Bool(*value),
        SqlValue::Int(value) => Value::Int(*value),
        SqlValue::Real(value) => Value::Real(*value),
        SqlValue::Text(value) => Value::Text(value.clone()),
        SqlValue::Blob(value) => Value::Bytes(value.clone()),
    }
}
