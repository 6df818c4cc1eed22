//! Converts values from and to ODBC. Numbers that must be exact are converted as text: all drivers
//! do that alike.

use odbc_api::parameter::InputParameter;
use odbc_api::sys::SqlDataType;
use odbc_api::{CursorRow, DataType, Error, IntoParameter, Nullable};

use crate::column::ColumnKind;
use crate::dialect::Dialect;
use crate::value::Value;

/// SQL_GUID
const GUID: SqlDataType = SqlDataType(-11);

/// The kind for a type that the driver reports.
pub(super) fn kind(data_type: DataType) -> ColumnKind {
    match data_type {
        DataType::TinyInt | DataType::SmallInt | DataType::Integer | DataType::BigInt => ColumnKind::Whole,
        DataType::Real | DataType::Float { .. } | DataType::Double => ColumnKind::Real,
        DataType::Numeric { precision, scale } | DataType::Decimal { precision, scale } => {
            ColumnKind::Decimal { precision, scale }
        }
        DataType::Bit => ColumnKind::Truth,
        DataType::Date => ColumnKind::Date,
        DataType::Time { .. } => ColumnKind::Time,
        DataType::Timestamp { .. } => ColumnKind::Timestamp,
        DataType::Binary { .. } | DataType::Varbinary { .. } | DataType::LongVarbinary { .. } => {
            ColumnKind::Bytes
        }
        DataType::Other { data_type: GUID, .. } => ColumnKind::Guid,
        _ => ColumnKind::Text,
    }
}

/// The value in column `at`, from 0. Columns must be read in order.
pub(super) fn read(row: &mut CursorRow<'_>, at: usize, kind: ColumnKind) -> Result<Value, Error> {
    let at = u16::try_from(at + 1).unwrap_or(u16::MAX);
    match kind {
        ColumnKind::Real => {
            let mut value = Nullable::<f64>::null();
            row.get_data(at, &mut value)?;
            Ok(value.into_opt().into())
        }
        ColumnKind::Bytes => {
            let mut bytes = Vec::new();
            let is_there = row.get_binary(at, &mut bytes)?;
            Ok(if is_there { Value::Bytes(bytes) } else { Value::Null })
        }
        _ => {
            let mut wide = Vec::new();
            let is_there = row.get_wide_text(at, &mut wide)?;
            let text = String::from_utf16_lossy(&wide);
            Ok(if is_there { of_text(text, kind) } else { Value::Null })
        }
    }
}

fn of_text(text: String, kind: ColumnKind) -> Value {
    match kind {
        // Beyond `i64` it stays text.
        ColumnKind::Whole => text.trim().parse().map_or(Value::Text(text), Value::Int),
        ColumnKind::Truth => Value::Bool(text.trim() != "0"),
        ColumnKind::Decimal { .. } => Value::Text(with_zero(&text)),
        // In the usual lower case; drivers report capitals.
        ColumnKind::Guid => Value::Text(text.to_lowercase()),
        _ => Value::Text(text),
    }
}

/// Some drivers write `.5` for 0.5.
fn with_zero(number: &str) -> String {
    let number = number.trim();
    let (sign, digits) = number.strip_prefix('-').map_or(("", number), |digits| ("-", digits));
    if digits.starts_with('.') { format!("{sign}0{digits}") } else { number.to_owned() }
}

/// Converts a parameter.
pub(super) fn to_parameter(value: Value, dialect: Dialect) -> Box<dyn InputParameter> {
    match value {
        Value::Null => Box::new(None::<String>.into_parameter()),
        Value::Bool(value) if dialect.binds_bool_as_number() => Box::new(i64::from(value)),
        Value::Bool(value) => Box::new(i64::from(value).to_string().into_parameter()),
        Value::Int(value) => Box::new(value),
        Value::Real(value) => Box::new(value),
        Value::Text(value) => Box::new(value.into_parameter()),
        Value::Bytes(value) => Box::new(value.into_parameter()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_what_the_column_holds() {
        let decimal = ColumnKind::Decimal { precision: 9, scale: 2 };
        for (from, kind, to) in [
            ("-7", ColumnKind::Whole, Value::Int(-7)),
            ("18446744073709551615", ColumnKind::Whole, "18446744073709551615".into()),
            (".50", decimal, "0.50".into()),
            ("-.50", decimal, "-0.50".into()),
            ("10.50", decimal, "10.50".into()),
            ("1", ColumnKind::Truth, Value::Bool(true)),
            ("0", ColumnKind::Truth, Value::Bool(false)),
            (" 7", ColumnKind::Text, " 7".into()),
            ("0190A0B0", ColumnKind::Guid, "0190a0b0".into()),
        ] {
            assert_eq!(of_text(from.to_owned(), kind), to, "{from}");
        }
    }
}
