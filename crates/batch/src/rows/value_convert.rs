//! Converts values and rows from and to the driver layer's.

use longshore::SqlValue;
use longshore_databases::{ResultTable, Statement, Value};

use super::Row;
use super::placeholders::PositionalStatement;

/// A statement with its values.
pub(super) fn bind(statement: &PositionalStatement, values: Vec<&SqlValue>) -> Statement {
    Statement::new(statement.sql.as_str(), values.into_iter().map(to_driver))
}

/// The rows of a result.
pub(super) fn rows(table: ResultTable) -> Vec<Row> {
    let ResultTable { names, rows } = table;
    let row = |values: Vec<Value>| Row {
        columns: names.iter().cloned().zip(values.into_iter().map(from_driver)).collect(),
    };
    rows.into_iter().map(row).collect()
}

fn from_driver(value: Value) -> SqlValue {
    match value {
        Value::Null => SqlValue::Null,
        Value::Bool(value) => SqlValue::Bool(value),
        Value::Int(value) => SqlValue::Int(value),
        Value::Real(value) => SqlValue::Real(value),
        Value::Text(value) => SqlValue::Text(value),
        Value::Bytes(value) => SqlValue::Blob(value),
    }
}

fn to_driver(value: &SqlValue) -> Value {
    match value {
        SqlValue::Null => Value::Null,
        SqlValue::Bool(value) => Value::Bool(*value),
        SqlValue::Int(value) => Value::Int(*value),
        SqlValue::Real(value) => Value::Real(*value),
        SqlValue::Text(value) => Value::Text(value.clone()),
        SqlValue::Blob(value) => Value::Bytes(value.clone()),
    }
}
