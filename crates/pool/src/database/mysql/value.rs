//! Values between MySQL and us: exact, or as text where we have no such number.

use mysql_async::consts::ColumnType;
use mysql_async::{Column, Row, Value as Own};

use crate::database::error::{DbError, Reason};
use crate::database::value::Value;

/// The character set of what is not text.
const BINARY: u16 = 63;

/// The values of a row.
pub(super) fn row(row: Row) -> Result<Vec<Value>, DbError> {
    let columns = row.columns();
    let values = columns.iter().zip(row.unwrap());
    values.map(|(column, value)| of_column(value, column)).collect()
}

/// A value for a `?`.
pub(super) fn bound(value: &Value) -> Own {
    match value {
        Value::Null => Own::NULL,
        Value::Bool(value) => Own::Int(i64::from(*value)),
        Value::Int(value) => Own::Int(*value),
        Value::Real(value) => Own::Double(*value),
        Value::Text(value) => Own::Bytes(value.as_bytes().to_vec()),
        Value::Bytes(value) => Own::Bytes(value.clone()),
    }
}

fn of_column(value: Own, column: &Column) -> Result<Value, DbError> {
    Ok(match value {
        Own::NULL => Value::Null,
        Own::Int(value) => Value::Int(value),
        Own::UInt(value) => unsigned(value),
        // With the digits that MySQL shows: 0.1, not 0.10000000149011612.
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

fn of_bytes(bytes: Vec<u8>, column: &Column) -> Result<Value, DbError> {
    match column.column_type() {
        ColumnType::MYSQL_TYPE_BIT if column.column_length() == 1 => Ok(Value::Bool(bytes != [0])),
        ColumnType::MYSQL_TYPE_BIT => {
            Ok(unsigned(bytes.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte))))
        }
        ColumnType::MYSQL_TYPE_DECIMAL
        | ColumnType::MYSQL_TYPE_NEWDECIMAL
        | ColumnType::MYSQL_TYPE_JSON => text(bytes, column),
        ColumnType::MYSQL_TYPE_GEOMETRY => Ok(Value::Bytes(bytes)),
        _ if column.character_set() == BINARY => Ok(Value::Bytes(bytes)),
        _ => text(bytes, column),
    }
}

/// Beyond our numbers it is text: MySQL makes a number of it again.
fn unsigned(value: u64) -> Value {
    i64::try_from(value).map_or_else(|_| Value::Text(value.to_string()), Value::Int)
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

fn text(bytes: Vec<u8>, column: &Column) -> Result<Value, DbError> {
    String::from_utf8(bytes).map(Value::Text).map_err(|_| {
        let words = format!("column `{}` holds text that is not UTF-8", column.name_str());
        DbError::new(Reason::Sql, words).code("22021")
    })
}
