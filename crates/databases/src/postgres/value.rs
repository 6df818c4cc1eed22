//! Converts values from and to PostgreSQL: exact, or as text where [`Value`] has no such type.

use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::types::{Format, FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::error;
use crate::error::DbError;
use crate::value::{Value, non_finite_name};

/// How a column is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Whole,
    Real,
    Truth,
    Bytes,
    Text,
    /// The result of a function that returns `void`.
    Void,
    /// Cannot be read directly: cast to text.
    Other,
}

impl Kind {
    pub(super) fn of(type_: &Type) -> Self {
        match *type_ {
            Type::INT2 | Type::INT4 | Type::INT8 | Type::OID => Self::Whole,
            Type::FLOAT4 | Type::FLOAT8 => Self::Real,
            Type::BOOL => Self::Truth,
            Type::BYTEA => Self::Bytes,
            Type::TEXT
            | Type::VARCHAR
            | Type::BPCHAR
            | Type::NAME
            | Type::UNKNOWN
            | Type::JSON
            | Type::XML => Self::Text,
            Type::VOID => Self::Void,
            _ => Self::Other,
        }
    }
}

/// Converts a row.
pub(super) fn row(row: &Row, kinds: &[Kind]) -> Result<Vec<Value>, DbError> {
    let values = kinds.iter().enumerate().map(|(at, kind)| value(row, at, *kind));
    values.collect::<Result<_, _>>().map_err(|error| error::of(&error))
}

fn value(row: &Row, at: usize, kind: Kind) -> Result<Value, tokio_postgres::Error> {
    let value = match kind {
        Kind::Whole => row.try_get::<_, Option<Whole>>(at)?.map(|Whole(value)| Value::Int(value)),
        Kind::Real => row.try_get::<_, Option<Real>>(at)?.map(|Real(value)| Value::Real(value)),
        Kind::Truth => row.try_get::<_, Option<Truth>>(at)?.map(|Truth(value)| Value::Bool(value)),
        Kind::Bytes => row.try_get::<_, Option<Raw>>(at)?.map(|Raw(value)| Value::Bytes(value)),
        Kind::Text => row.try_get::<_, Option<Text>>(at)?.map(|Text(value)| Value::Text(value)),
        Kind::Void | Kind::Other => None,
    };
    Ok(value.unwrap_or_default())
}

type ReadError = Box<dyn Error + Sync + Send>;

/// Reads a value whatever the type's name is: domains and enums are user-defined types.
macro_rules! read {
    ($name:ident, $to:ty, |$type:pat_param, $raw:ident| $read:expr) => {
        struct $name($to);

        impl<'r> FromSql<'r> for $name {
            fn from_sql($type: &Type, $raw: &'r [u8]) -> Result<Self, ReadError> {
                Ok(Self($read))
            }

            fn accepts(_: &Type) -> bool {
                true
            }
        }
    };
}

read!(Truth, bool, |_, raw| raw.first().is_some_and(|byte| *byte != 0));
read!(Raw, Vec<u8>, |_, raw| raw.to_vec());
read!(Text, String, |_, raw| std::str::from_utf8(raw)?.to_owned());
read!(Whole, i64, |type_, raw| whole(type_, raw)?);
read!(Real, f64, |_, raw| real(raw)?);

/// INT2, INT4 or INT8 by length. An OID is as long as an INT4, but unsigned.
fn whole(type_: &Type, raw: &[u8]) -> Result<i64, ReadError> {
    Ok(match *raw {
        [a, b] => i64::from(i16::from_be_bytes([a, b])),
        [a, b, c, d] if *type_ == Type::OID => i64::from(u32::from_be_bytes([a, b, c, d])),
        [a, b, c, d] => i64::from(i32::from_be_bytes([a, b, c, d])),
        _ => i64::from_be_bytes(raw.try_into()?),
    })
}

/// FLOAT4 gets the digits that PostgreSQL prints: 0.1, not 0.10000000149011612.
fn real(raw: &[u8]) -> Result<f64, ReadError> {
    Ok(match *raw {
        [a, b, c, d] => f32::from_be_bytes([a, b, c, d]).to_string().parse()?,
        _ => f64::from_be_bytes(raw.try_into()?),
    })
}

/// A parameter, for whatever type the server has inferred.
#[derive(Debug)]
pub(super) struct Bound<'v>(pub(super) &'v Value);

impl ToSql for Bound<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, ReadError> {
        match self.0 {
            Value::Null => return Ok(IsNull::Yes),
            Value::Bool(value) => out.extend_from_slice(value.to_string().as_bytes()),
            Value::Int(value) => out.extend_from_slice(value.to_string().as_bytes()),
            Value::Real(value) if value.is_finite() => {
                out.extend_from_slice(value.to_string().as_bytes());
            }
            Value::Real(value) => out.extend_from_slice(non_finite_name(*value).as_bytes()),
            Value::Text(value) => out.extend_from_slice(value.as_bytes()),
            Value::Bytes(value) => out.extend_from_slice(value),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        // Bytes need no text form: binary and text hold the same bytes.
        if matches!(self.0, Value::Bytes(_)) { Format::Binary } else { Format::Text }
    }

    to_sql_checked!();
}

/// Parameters without types: the server infers them.
pub(super) fn untyped(params: &[Value]) -> Vec<Bound<'_>> {
    params.iter().map(Bound).collect()
}

/// The parameters as the driver takes them.
pub(super) fn typed<'b>(params: &'b [Bound<'_>]) -> Vec<(&'b (dyn ToSql + Sync), Type)> {
    params.iter().map(|param| (param as &(dyn ToSql + Sync), Type::UNKNOWN)).collect()
}
