//! Converts SQL values from and to JSON.

use longshore::SqlValue;
use serde_json::Value;

/// A SQL value as JSON: bytes become `{"base16": "…"}`, numbers that JSON cannot represent become
/// text.
pub fn to_json(value: &SqlValue) -> Value {
    match value {
        SqlValue::Null => Value::Null,
        SqlValue::Bool(value) => Value::Bool(*value),
        SqlValue::Int(value) => Value::from(*value),
        SqlValue::Real(value) => serde_json::Number::from_f64(*value)
            .map_or_else(|| Value::String(value.to_string()), Value::Number),
        SqlValue::Text(value) => Value::String(value.clone()),
        SqlValue::Blob(bytes) => {
            let hex = bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
            serde_json::json!({ "base16": hex })
        }
    }
}

/// JSON as a SQL value: lists and objects become their JSON text.
pub fn from_json(value: &Value) -> SqlValue {
    match value {
        Value::Null => SqlValue::Null,
        Value::Bool(value) => SqlValue::Bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => SqlValue::Int(whole),
            (None, Some(real)) => SqlValue::Real(real),
            (None, None) => SqlValue::Text(number.to_string()),
        },
        Value::String(text) => SqlValue::Text(text.clone()),
        Value::Array(_) | Value::Object(_) => SqlValue::Text(value.to_string()),
    }
}

/// A key for people.
pub fn show_key(value: &SqlValue) -> String {
    match value {
        SqlValue::Text(text) => text.clone(),
        other => to_json(other).to_string(),
    }
}
