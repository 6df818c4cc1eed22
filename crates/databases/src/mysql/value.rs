//! Converts values from and to MySQL: exact, or as text where [`Value`] has no such type.

use mysql_async::consts::{ColumnFlags, ColumnType};
use mysql_async::{Column, Row, Value as Own};

use crate::column::{Column as Described, ColumnKind};
use crate::error::{DbError, Reason};
use crate::value::Value;

/// The error of a text column that is not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column `{0}` holds text that is not UTF-8")]
struct NotUtf8(String);

/// The content of a column that arrives as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BytesKind {
    /// Characters.
    Text,
    /// The digits of a decimal number.
    Decimal,
    /// Bits of a BIT column, the highest first.
    Bits,
    /// Binary data.
    Blob,
}

/// The content of a column that arrives as bytes.
fn bytes_kind(column: &Column) -> BytesKind {
    match column.column_type() {
        ColumnType::MYSQL_TYPE_DECIMAL | ColumnType::MYSQL_TYPE_NEWDECIMAL => BytesKind::Decimal,
        ColumnType::MYSQL_TYPE_BIT => BytesKind::Bits,
        ColumnType::MYSQL_TYPE_JSON => BytesKind::Text,
        ColumnType::MYSQL_TYPE_GEOMETRY => BytesKind::Blob,
        _ if column.character_set() == BINARY => BytesKind::Blob,
        _ => BytesKind::Text,
    }
}

/// The character set of binary columns.
const BINARY: u16 = 63;

/// A column of a prepared statement.
pub(super) fn describe(column: &Column) -> Described {
    let kind = match column.column_type() {
        ColumnType::MYSQL_TYPE_DECIMAL | ColumnType::MYSQL_TYPE_NEWDECIMAL => {
            ColumnKind::Decimal { precision: 65, scale: column.decimals().into() }
        }
        // Beyond `i64` its values are text.
        ColumnType::MYSQL_TYPE_LONGLONG if column.flags().contains(ColumnFlags::UNSIGNED_FLAG) => {
            ColumnKind::Decimal { precision: 20, scale: 0 }
        }
        ColumnType::MYSQL_TYPE_DATE => ColumnKind::Date,
        ColumnType::MYSQL_TYPE_TIME => ColumnKind::Time,
        ColumnType::MYSQL_TYPE_DATETIME | ColumnType::MYSQL_TYPE_TIMESTAMP => ColumnKind::Timestamp,
        ColumnType::MYSQL_TYPE_VARCHAR
        | ColumnType::MYSQL_TYPE_VAR_STRING
        | ColumnType::MYSQL_TYPE_STRING
        | ColumnType::MYSQL_TYPE_ENUM
        | ColumnType::MYSQL_TYPE_SET
        | ColumnType::MYSQL_TYPE_TINY_BLOB
        | ColumnType::MYSQL_TYPE_BLOB
        | ColumnType::MYSQL_TYPE_MEDIUM_BLOB
        | ColumnType::MYSQL_TYPE_LONG_BLOB
        | ColumnType::MYSQL_TYPE_JSON
            if bytes_kind(column) == BytesKind::Text =>
        {
            ColumnKind::Text
        }
        _ => ColumnKind::Inferred,
    };
    Described { name: column.name_str().into_owned(), kind }
}

/// Converts a row.
pub(super) fn row(row: Row) -> Result<Vec<Value>, DbError> {
    let columns = row.columns();
    let values = columns.iter().zip(row.unwrap());
    let not_text = |error: NotUtf8| DbError::new(Reason::Sql, error.to_string()).code("22021");
    values.map(|(column, value)| from_column(value, column).map_err(not_text)).collect()
}

/// Converts a parameter.
pub(super) fn to_parameter(value: Value) -> Own {
    match value {
        Value::Null => Own::NULL,
        Value::Bool(value) => Own::Int(i64::from(value)),
        Value::Int(value) => Own::Int(value),
        Value::Real(value) => Own::Double(value),
        Value::Text(value) => Own::Bytes(value.into_bytes()),
        Value::Bytes(value) => Own::Bytes(value),
    }
}

/// Converts a column's value.
fn from_column(value: Own, column: &Column) -> Result<Value, NotUtf8> {
    Ok(match value {
        Own::NULL => Value::Null,
        Own::Int(value) => Value::Int(value),
        Own::UInt(value) => unsigned(value),
        // With the digits that MySQL prints: 0.1, not 0.10000000149011612.
        Own::Float(value) => Value::Real(value.to_string().parse().unwrap_or(f64::from(value))),
        Own::Double(value) => Value::Real(value),
        Own::Date(year, month, day, hour, minute, second, micros) => {
            let date = format!("{year:04}-{month:02}-{day:02}");
            if column.column_type() == ColumnType::MYSQL_TYPE_DATE {
                return Ok(Value::Text(date));
            }
            let fraction = fraction(micros, column);
            Value::Text(format!("{date} {hour:02}:{minute:02}:{second:02}{fraction}"))
        }
        Own::Time(negative, days, hours, minutes, seconds, micros) => {
            let (sign, fraction) = (if negative { "-" } else { "" }, fraction(micros, column));
            let hours = days * 24 + u32::from(hours);
            Value::Text(format!("{sign}{hours:02}:{minutes:02}:{seconds:02}{fraction}"))
        }
        Own::Bytes(bytes) => of_bytes(bytes, column)?,
    })
}

fn of_bytes(bytes: Vec<u8>, column: &Column) -> Result<Value, NotUtf8> {
    match bytes_kind(column) {
        BytesKind::Text | BytesKind::Decimal => {
            let text = String::from_utf8(bytes).map(Value::Text);
            text.map_err(|_| NotUtf8(column.name_str().into_owned()))
        }
        BytesKind::Bits if column.column_length() == 1 => Ok(Value::Bool(bytes != [0])),
        BytesKind::Bits => Ok(unsigned(bytes.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte)))),
        BytesKind::Blob => Ok(Value::Bytes(bytes)),
    }
}

/// Converts an unsigned number. Beyond `i64` it becomes text, which MySQL converts back to a
/// number.
fn unsigned(value: u64) -> Value {
    i64::try_from(value).map_or_else(|_| Value::Text(value.to_string()), Value::Int)
}

/// Fractional seconds with as many digits as the column has.
fn fraction(micros: u32, column: &Column) -> String {
    let digits = format!(".{micros:06}");
    match usize::from(column.decimals()) {
        0 => String::new(),
        most @ 1..=6 => digits[..=most].to_owned(),
        // Unknown precision: without trailing zeros.
        _ => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}
