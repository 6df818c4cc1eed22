//! Values between MySQL and us: exact, or as text where we have no such number.

use longshore::SqlValue;
use mysql_async::consts::ColumnType;
use mysql_async::{Column, Value};

use crate::rows::SourceError;

/// The character set of what is not text.
const BINARY: u16 = 63;

/// What a column's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bytes {
    /// Characters.
    Text,
    /// The digits of a decimal number.
    Decimal,
    /// Bits of a BIT column, the highest first.
    Bits,
    /// Just bytes.
    Blob,
}

/// What a column's bytes are.
pub(super) fn bytes_of(column: &Column) -> Bytes {
    match column.column_type() {
        ColumnType::MYSQL_TYPE_DECIMAL | ColumnType::MYSQL_TYPE_NEWDECIMAL => Bytes::Decimal,
        ColumnType::MYSQL_TYPE_BIT => Bytes::Bits,
        ColumnType::MYSQL_TYPE_JSON => Bytes::Text,
        ColumnType::MYSQL_TYPE_GEOMETRY => Bytes::Blob,
        _ if column.character_set() == BINARY => Bytes::Blob,
        _ => Bytes::Text,
    }
}

/// A value of a row.
pub(super) fn of_column(value: Value, column: &Column) -> Result<SqlValue, SourceError> {
    Ok(match value {
        Value::NULL => SqlValue::Null,
        Value::Int(value) => SqlValue::Int(value),
        Value::UInt(value) => unsigned(value),
        Value::Float(value) => SqlValue::Real(as_shown(value)),
        Value::Double(value) => SqlValue::Real(value),
        Value::Date(year, month, day, hour, minute, second, micros) => {
            let date = format!("{year:04}-{month:02}-{day:02}");
            if column.column_type() == ColumnType::MYSQL_TYPE_DATE {
                return Ok(SqlValue::Text(date));
            }
            let fraction = fraction(micros, column);
            SqlValue::Text(format!("{date} {hour:02}:{minute:02}:{second:02}{fraction}"))
        }
        Value::Time(negative, days, hours, minutes, seconds, micros) => {
            let (sign, fraction) = (if negative { "-" } else { "" }, fraction(micros, column));
            let hours = days * 24 + u32::from(hours);
            SqlValue::Text(format!("{sign}{hours:02}:{minutes:02}:{seconds:02}{fraction}"))
        }
        Value::Bytes(bytes) => match bytes_of(column) {
            Bytes::Text | Bytes::Decimal => text(bytes, column)?,
            Bytes::Bits if column.column_length() == 1 => SqlValue::Bool(bytes != [0]),
            Bytes::Bits => {
                unsigned(bytes.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte)))
            }
            Bytes::Blob => SqlValue::Blob(bytes),
        },
    })
}

/// A value for a `?`.
pub(super) fn bound(value: &SqlValue) -> Value {
    match value {
        SqlValue::Null => Value::NULL,
        SqlValue::Bool(value) => Value::Int(i64::from(*value)),
        SqlValue::Int(value) => Value::Int(*value),
        SqlValue::Real(value) => Value::Double(*value),
        SqlValue::Text(value) => Value::Bytes(value.as_bytes().to_vec()),
        SqlValue::Blob(value) => Value::Bytes(value.clone()),
    }
}

/// Beyond our numbers it is text: MySQL makes a number of it again.
fn unsigned(value: u64) -> SqlValue {
    i64::try_from(value).map_or_else(|_| SqlValue::Text(value.to_string()), SqlValue::Int)
}

/// A FLOAT with the digits that MySQL shows: 0.1, not 0.10000000149011612.
fn as_shown(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

/// As many digits as the column has.
fn fraction(micros: u32, column: &Column) -> String {
    let digits = format!(".{micros:06}");
    match usize::from(column.decimals()) {
        0 => String::new(),
        most @ 1..=6 => digits[..=most].to_owned(),
        // Not known: as few as say it all.
        _ => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

fn text(bytes: Vec<u8>, column: &Column) -> Result<SqlValue, SourceError> {
    String::from_utf8(bytes).map(SqlValue::Text).map_err(|_| {
        let words = format!("column `{}` holds text that is not UTF-8", column.name_str());
        SourceError::Data(words)
    })
}
