//! Values between PostgreSQL and us: exact, or as text where we have no such type.
//!
//! Parameters are sent as text without a type, as in a literal: the server knows best what stands
//! there. Results are asked for as text, too, except for the few types that we have ourselves: so
//! arrays, ranges, enums and whatever an extension brings come as the server writes them, and can be
//! written back.

use std::error::Error;

use bytes::BytesMut;
use longshore::SqlValue;
use tokio_postgres::Row;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

/// What a column holds, to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A whole number.
    Whole,
    /// A number of double precision.
    Real,
    /// One of single precision.
    Rough,
    /// true or false
    Truth,
    /// Bytes.
    Bytes,
    /// Something else whose order is total: two keys that are equal there are the same.
    Ordered,
    /// Text, or what is written as such.
    Text,
}

impl Kind {
    /// What a type is; domains are their bases'.
    pub(super) fn of(type_: Option<&Type>) -> Self {
        let Some(type_) = type_ else { return Self::Text };
        match *type_ {
            Type::INT2 | Type::INT4 | Type::INT8 | Type::OID => Self::Whole,
            Type::FLOAT8 => Self::Real,
            Type::FLOAT4 => Self::Rough,
            Type::BOOL => Self::Truth,
            Type::BYTEA => Self::Bytes,
            Type::NUMERIC
            | Type::DATE
            | Type::TIME
            | Type::TIMESTAMP
            | Type::TIMESTAMPTZ
            | Type::UUID => Self::Ordered,
            _ => Self::Text,
        }
    }

    /// What a column must be cast to so that [`read`] understands it.
    pub(super) fn cast(self) -> &'static str {
        match self {
            Self::Whole => "int8",
            Self::Real => "float8",
            Self::Rough => "float4",
            Self::Truth => "bool",
            Self::Bytes => "bytea",
            Self::Ordered | Self::Text => "text",
        }
    }
}

/// The value in a column that was cast for its kind.
pub(super) fn read(row: &Row, at: usize, kind: Kind) -> Result<SqlValue, tokio_postgres::Error> {
    let value = match kind {
        Kind::Whole => row.try_get::<_, Option<i64>>(at)?.map(SqlValue::Int),
        Kind::Real => row.try_get::<_, Option<f64>>(at)?.map(SqlValue::Real),
        Kind::Rough => row.try_get::<_, Option<f32>>(at)?.map(as_shown),
        Kind::Truth => row.try_get::<_, Option<bool>>(at)?.map(SqlValue::Bool),
        Kind::Bytes => row.try_get::<_, Option<Vec<u8>>>(at)?.map(SqlValue::Blob),
        Kind::Ordered | Kind::Text => row.try_get::<_, Option<String>>(at)?.map(SqlValue::Text),
    };
    Ok(value.unwrap_or(SqlValue::Null))
}

/// With the digits that PostgreSQL shows: 0.1, not 0.10000000149011612.
fn as_shown(value: f32) -> SqlValue {
    SqlValue::Real(value.to_string().parse().unwrap_or(f64::from(value)))
}

/// A value for a parameter whose type the server finds out.
#[derive(Debug)]
pub(super) struct Bound<'v>(pub(super) &'v SqlValue);

/// Parameters as the driver takes them.
pub(super) fn untyped<'b>(values: &'b [Bound<'_>]) -> Vec<(&'b (dyn ToSql + Sync), Type)> {
    values.iter().map(|value| (value as &(dyn ToSql + Sync), Type::UNKNOWN)).collect()
}

impl ToSql for Bound<'_> {
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
        // Bytes need no spelling: they are the same either way.
        if matches!(self.0, SqlValue::Blob(_)) { Format::Binary } else { Format::Text }
    }

    to_sql_checked!();
}

/// A number as PostgreSQL reads it.
fn real(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    value.to_string()
}
