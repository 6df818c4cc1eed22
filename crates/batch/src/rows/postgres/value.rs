//! Converts values from and to PostgreSQL: exactly, or as text for types that we do not have.
//!
//! Parameters are sent as text without a type, like a literal: the server infers the type. Results
//! are requested as text too, except for the few types that we have. So arrays, ranges, enums and
//! types of extensions arrive as the server writes them and can be written back.

use std::error::Error;

use bytes::BytesMut;
use longshore::SqlValue;
use tokio_postgres::Row;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

/// The type as which we read a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnKind {
    /// An integer.
    Integer,
    /// A number with double precision.
    Double,
    /// A number with single precision.
    Single,
    /// A boolean.
    Boolean,
    /// Bytes.
    Bytes,
    /// Another type with a total order: equal keys are identical.
    Ordered,
    /// Text, or a type that is read as text.
    Text,
}

impl ColumnKind {
    /// The kind of a type; for a domain, that of its base type.
    pub(super) fn of(type_: Option<&Type>) -> Self {
        let Some(type_) = type_ else { return Self::Text };
        match *type_ {
            Type::INT2 | Type::INT4 | Type::INT8 | Type::OID => Self::Integer,
            Type::FLOAT8 => Self::Double,
            Type::FLOAT4 => Self::Single,
            Type::BOOL => Self::Boolean,
            Type::BYTEA => Self::Bytes,
            Type::NUMERIC | Type::DATE | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::UUID => {
                Self::Ordered
            }
            _ => Self::Text,
        }
    }

    /// The type to which a column is cast for [`read`].
    pub(super) fn cast(self) -> &'static str {
        match self {
            Self::Integer => "int8",
            Self::Double => "float8",
            Self::Single => "float4",
            Self::Boolean => "bool",
            Self::Bytes => "bytea",
            Self::Ordered | Self::Text => "text",
        }
    }
}

/// Reads a column that was cast to its kind's type.
pub(super) fn read(row: &Row, at: usize, kind: ColumnKind) -> Result<SqlValue, tokio_postgres::Error> {
    let value = match kind {
        ColumnKind::Integer => row.try_get::<_, Option<i64>>(at)?.map(SqlValue::Int),
        ColumnKind::Double => row.try_get::<_, Option<f64>>(at)?.map(SqlValue::Real),
        ColumnKind::Single => row.try_get::<_, Option<f32>>(at)?.map(as_displayed),
        ColumnKind::Boolean => row.try_get::<_, Option<bool>>(at)?.map(SqlValue::Bool),
        ColumnKind::Bytes => row.try_get::<_, Option<Vec<u8>>>(at)?.map(SqlValue::Blob),
        ColumnKind::Ordered | ColumnKind::Text => row.try_get::<_, Option<String>>(at)?.map(SqlValue::Text),
    };
    Ok(value.unwrap_or(SqlValue::Null))
}

/// The value with the digits that PostgreSQL shows: 0.1, not 0.10000000149011612.
fn as_displayed(value: f32) -> SqlValue {
    SqlValue::Real(value.to_string().parse().unwrap_or(f64::from(value)))
}

/// A parameter value; the server infers its type.
#[derive(Debug)]
pub(super) struct TextParam<'v>(pub(super) &'v SqlValue);

/// The parameters as the driver takes them.
pub(super) fn untyped_params<'b>(values: &'b [TextParam<'_>]) -> Vec<(&'b (dyn ToSql + Sync), Type)> {
    values.iter().map(|value| (value as &(dyn ToSql + Sync), Type::UNKNOWN)).collect()
}

impl ToSql for TextParam<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self.0 {
            SqlValue::Null => return Ok(IsNull::Yes),
            SqlValue::Bool(value) => out.extend_from_slice(value.to_string().as_bytes()),
            SqlValue::Int(value) => out.extend_from_slice(value.to_string().as_bytes()),
            SqlValue::Real(value) => out.extend_from_slice(real(*value).as_bytes()),
            SqlValue::Text(value) => out.extend_from_slice(value.as_bytes()),
            SqlValue::Blob(value) => out.extend_from_slice(value),
        }
        Ok(IsNull::No)
    }

    fn accepts(type_: &Type) -> bool {
        *type_ == Type::UNKNOWN
    }

    fn encode_format(&self, _: &Type) -> Format {
        // Bytes are sent as they are.
        if matches!(self.0, SqlValue::Blob(_)) { Format::Binary } else { Format::Text }
    }

    to_sql_checked!();
}

/// A number in PostgreSQL's syntax.
fn real(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    value.to_string()
}
