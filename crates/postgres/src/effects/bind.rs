//! Values of effects, as a server takes them that finds out their types itself.

use std::error::Error;

use longshore_core::SqlValue;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

/// A value for a parameter whose type the server finds out. It is sent as one would write it in
/// SQL, so that a number fits columns of all sizes, and text dates and UUIDs.
#[derive(Debug)]
pub(super) struct UntypedParam<'v>(pub(super) &'v SqlValue);

impl ToSql for UntypedParam<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self.0 {
            SqlValue::Null => return Ok(IsNull::Yes),
            // Columns of truth values take 1 and 0, and so do columns of numbers.
            SqlValue::Bool(value) => out.extend_from_slice(if *value { b"1" } else { b"0" }),
            SqlValue::Int(value) => out.extend_from_slice(value.to_string().as_bytes()),
            // Also reads `inf` and `NaN`.
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
        // Bytes need no spelling: they are the same either way.
        if matches!(self.0, SqlValue::Blob(_)) { Format::Binary } else { Format::Text }
    }

    to_sql_checked!();
}
