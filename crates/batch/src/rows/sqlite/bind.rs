//! Binds values to statements; a missing value is an error.

use longshore::SqlValue;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Statement, ToSql};

use super::error;
use crate::rows::SourceError;

/// Binds every parameter: SQLite would take one without a value for NULL. `value_of` gets a
/// parameter's number, from 1, and its name, without the colon.
pub(super) fn bind<'v>(
    statement: &mut Statement<'_>,
    value_of: impl Fn(usize, Option<&str>) -> Option<&'v SqlValue>,
) -> Result<(), SourceError> {
    for at in 1..=statement.parameter_count() {
        let Some(value) = value_of(at, name(statement, at)) else {
            let name = name(statement, at).map_or_else(|| at.to_string(), |name| format!(":{name}"));
            return Err(SourceError::Data(format!("parameter `{name}` has no value")));
        };
        statement.raw_bind_parameter(at, BoundValue(value)).map_err(error::of_run)?;
    }
    Ok(())
}

/// The value of a parameter among named ones.
pub(super) fn named<'v>(values: &'v [(String, SqlValue)], name: Option<&str>) -> Option<&'v SqlValue> {
    let own = |(known, _): &&(String, SqlValue)| Some(known.as_str()) == name;
    values.iter().find(own).map(|(_, value)| value)
}

/// A parameter's name without its prefix; `None` for a bare `?`.
pub(super) fn name<'s>(statement: &'s Statement<'_>, at: usize) -> Option<&'s str> {
    statement.parameter_name(at).map(|name| &name[1..])
}

struct BoundValue<'v>(&'v SqlValue);

impl ToSql for BoundValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            SqlValue::Null => ValueRef::Null,
            SqlValue::Bool(value) => ValueRef::Integer(i64::from(*value)),
            SqlValue::Int(value) => ValueRef::Integer(*value),
            SqlValue::Real(value) => ValueRef::Real(*value),
            SqlValue::Text(value) => ValueRef::Text(value.as_bytes()),
            SqlValue::Blob(value) => ValueRef::Blob(value),
        }))
    }
}
