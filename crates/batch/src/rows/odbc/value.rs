//! Values between ODBC and us. Numbers that must be exact come and go as text: every driver does
//! that in the same way.

use longshore::SqlValue;
use odbc_api::parameter::InputParameter;
use odbc_api::sys::SqlDataType;
use odbc_api::{CursorRow, DataType, Error, IntoParameter, Nullable};

use super::dialect::Dialect;

/// SQL_GUID
const GUID: SqlDataType = SqlDataType(-11);

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Whole,
    Real,
    Decimal {
        precision: usize,
        scale: i16,
    },
    Truth,
    Date,
    Time,
    Timestamp,
    Bytes,
    Text,
    /// A UUID, for which only some databases have a type.
    Guid,
}

/// A column of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
}

impl Column {
    pub(super) fn new(name: String, data_type: DataType) -> Self {
        Self { name, kind: kind(data_type) }
    }
}

fn kind(data_type: DataType) -> Kind {
    match data_type {
        DataType::TinyInt | DataType::SmallInt | DataType::Integer | DataType::BigInt => {
            Kind::Whole
        }
        DataType::Real | DataType::Float { .. } | DataType::Double => Kind::Real,
        DataType::Numeric { precision, scale } | DataType::Decimal { precision, scale } => {
            Kind::Decimal { precision, scale }
        }
        DataType::Bit => Kind::Truth,
        DataType::Date => Kind::Date,
        DataType::Time { .. } => Kind::Time,
        DataType::Timestamp { .. } => Kind::Timestamp,
        DataType::Binary { .. } | DataType::Varbinary { .. } | DataType::LongVarbinary { .. } => {
            Kind::Bytes
        }
        DataType::Other { data_type: GUID, .. } => Kind::Guid,
        _ => Kind::Text,
    }
}

/// The value in column `at`, from 0. Columns must be read in order.
pub(super) fn read(row: &mut CursorRow<'_>, at: usize, kind: Kind) -> Result<SqlValue, Error> {
    let at = u16::try_from(at + 1).unwrap_or(u16::MAX);
    match kind {
        Kind::Real => {
            let mut value = Nullable::<f64>::null();
            row.get_data(at, &mut value)?;
            Ok(value.into_opt().map_or(SqlValue::Null, SqlValue::Real))
        }
        Kind::Bytes => {
            let mut bytes = Vec::new();
            let is_there = row.get_binary(at, &mut bytes)?;
            Ok(if is_there { SqlValue::Blob(bytes) } else { SqlValue::Null })
        }
        _ => {
            let mut wide = Vec::new();
            let is_there = row.get_wide_text(at, &mut wide)?;
            let text = String::from_utf16_lossy(&wide);
            Ok(if is_there { of_text(text, kind) } else { SqlValue::Null })
        }
    }
}

fn of_text(text: String, kind: Kind) -> SqlValue {
    match kind {
        // Beyond our numbers it stays text.
        Kind::Whole => text.trim().parse().map_or(SqlValue::Text(text), SqlValue::Int),
        Kind::Truth => SqlValue::Bool(text.trim() != "0"),
        Kind::Decimal { .. } => SqlValue::Text(with_zero(&text)),
        // As it is written, not as drivers like to show it.
        Kind::Guid => SqlValue::Text(text.to_lowercase()),
        _ => SqlValue::Text(text),
    }
}

/// Some drivers write `.5` for 0.5.
fn with_zero(number: &str) -> String {
    let number = number.trim();
    let (sign, digits) = number.strip_prefix('-').map_or(("", number), |digits| ("-", digits));
    if digits.starts_with('.') { format!("{sign}0{digits}") } else { number.to_owned() }
}

/// A value for a `?`.
pub(super) fn bound(value: &SqlValue, dialect: Dialect) -> Box<dyn InputParameter> {
    match value {
        SqlValue::Null => Box::new(None::<String>.into_parameter()),
        SqlValue::Bool(value) if dialect.counts_truth() => Box::new(i64::from(*value)),
        SqlValue::Bool(value) => Box::new(i64::from(*value).to_string().into_parameter()),
        SqlValue::Int(value) => Box::new(*value),
        SqlValue::Real(value) => Box::new(*value),
        SqlValue::Text(value) => Box::new(value.clone().into_parameter()),
        SqlValue::Blob(value) => Box::new(value.clone().into_parameter()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_what_the_column_holds() {
        let decimal = Kind::Decimal { precision: 9, scale: 2 };
        let text = |text: &str| SqlValue::Text(text.to_owned());
        for (from, kind, to) in [
            ("-7", Kind::Whole, SqlValue::Int(-7)),
            ("18446744073709551615", Kind::Whole, text("18446744073709551615")),
            (".50", decimal, text("0.50")),
            ("-.50", decimal, text("-0.50")),
            ("10.50", decimal, text("10.50")),
            ("1", Kind::Truth, SqlValue::Bool(true)),
            ("0", Kind::Truth, SqlValue::Bool(false)),
            (" 7", Kind::Text, text(" 7")),
            ("0190A0B0", Kind::Guid, text("0190a0b0")),
        ] {
            assert_eq!(of_text(from.to_owned(), kind), to, "{from}");
        }
    }
}
