//! Values of effects, for parameters of inferred types.

use std::error::Error;

use longshore_core::SqlValue;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

/// A value for a parameter; the server infers its type. It is sent as SQL text, so that a number
/// fits columns of all sizes, and text fits dates and UUIDs.
#[derive(Debug)]
pub(super) struct UntypedParam<'v>(pub(super) &'v SqlValue);

impl ToSql for UntypedParam<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self.0 {
            SqlValue::Null => return Ok(IsNull::Yes),
            // Boolean and numeric columns both accept 1 and 0.
            SqlValue::Bool(value) => out.extend_from_slice(if *value { b"1" } else { b"0" }),
            SqlValue::Int(value) => out.extend_from_slice(value.to_string().as_bytes()),
            // PostgreSQL also parses `inf` and `NaN`.
            SqlValue::Real(value) => out.extend_from_slice(value.to_string().as_bytes()),
            SqlValue::Text(value) => out.extend_from_slice(value.as_bytes()),
            SqlValue::Blob(value) => out.extend_from_slice(value),
        }
        Ok(IsNull::No)
    }

    fn accepts(type_: &Type) -> bool {
        *type_ == Type::UNKNOWN
    }

    fn encode_format(&self, _: &Type) -> Format {
        // Bytes need no text form: they are the same for every type.
        if matches!(self.0, SqlValue::Blob(_)) { Format::Binary } else { Format::Text }
    }

    to_sql_checked!();
}
