//! Values between databases, Rust and JSON. What JSON lacks is encoded: bytes are `{"$bytes": "…"}`
//! with base64; NaN and infinities are text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The key of an object that encodes bytes.
const BYTES_KEY: &str = "$bytes";

/// A value of a database: a parameter, or a column's value.
///
/// Other types are text in both directions, as the database prints them: decimal numbers with all
/// their digits, dates, UUIDs, JSON.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    /// NULL
    #[default]
    Null,
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A floating-point number.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl Value {
    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The integer, if it is one.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The text, if it is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(value) => Some(value),
            _ => None,
        }
    }

    /// The bytes, if it is binary.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(value) => Some(value),
            _ => None,
        }
    }

    /// Approximate memory use.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Text(value) => value.len() + 8,
            Self::Bytes(value) => value.len() + 8,
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Real(_) => 8,
        }
    }
}

macro_rules! values {
    ($($variant:ident: $($from:ty),+;)+) => {
        $($(impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        })+)+
    };
}

values! {
    Bool: bool;
    Int: i64, i32, i16, i8, u32, u16, u8;
    Real: f64, f32;
    Text: String, &str, &String;
    Bytes: Vec<u8>, &[u8];
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Parameters of a statement, of any types: `params![7, "open", None::<i64>]`.
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        ::std::vec::Vec::<$crate::Value>::from([$($crate::Value::from($value)),*])
    };
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => to.serialize_unit(),
            Self::Bool(value) => to.serialize_bool(*value),
            Self::Int(value) => to.serialize_i64(*value),
            Self::Real(value) if value.is_finite() => to.serialize_f64(*value),
            Self::Real(value) => to.serialize_str(non_finite_name(*value)),
            Self::Text(value) => to.serialize_str(value),
            Self::Bytes(value) => {
                let mut map = to.serialize_map(Some(1))?;
                map.serialize_entry(BYTES_KEY, &STANDARD.encode(value))?;
                map.end()
            }
        }
    }
}

/// As PostgreSQL prints and parses them.
pub(crate) fn non_finite_name(value: f64) -> &'static str {
    match value {
        value if value.is_nan() => "NaN",
        value if value > 0.0 => "Infinity",
        _ => "-Infinity",
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("null, true, false, a number, text or {\"$bytes\": base64}")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        let beyond = |_| E::custom(format!("{value} is beyond 64 bits with sign: send it as text"));
        i64::try_from(value).map(Value::Int).map_err(beyond)
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Real(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let first: Option<(String, String)> = map.next_entry()?;
        let more: Option<String> = map.next_key()?;
        match (first, more) {
            (Some((key, text)), None) if key == BYTES_KEY => {
                STANDARD.decode(text).map(Value::Bytes).map_err(de::Error::custom)
            }
            _ => Err(de::Error::custom("an object that is not {\"$bytes\": base64}")),
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Value {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Value".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A value of a database. Bytes are {\"$bytes\": base64}.",
            "anyOf": [
                { "type": ["null", "boolean", "number", "string"] },
                { "type": "object", "properties": { BYTES_KEY: { "type": "string" } },
                  "required": [BYTES_KEY], "additionalProperties": false },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_through_json_as_they_were() {
        for value in params![
            None::<i64>,
            true,
            i64::MIN,
            i64::MAX,
            0.1,
            -0.0,
            1e300,
            "ü\u{0}\"",
            "",
            &[0_u8, 255][..],
            Vec::new(),
        ] {
            let json = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), value, "{json}");
        }
    }

    #[test]
    fn a_whole_real_stays_a_real() {
        let json = serde_json::to_string(&Value::Real(2.0)).unwrap();
        assert_eq!((&*json, serde_json::from_str(&json).unwrap()), ("2.0", Value::Real(2.0)));
    }

    #[test]
    fn what_is_no_value_is_refused_rather_than_guessed() {
        for json in ["[1]", "{}", r#"{"a": "b"}"#, r#"{"$bytes": "?"}"#, r#"{"$bytes": "", "a": ""}"#] {
            assert!(serde_json::from_str::<Value>(json).is_err(), "{json}");
        }
        let error = serde_json::from_str::<Value>("18446744073709551615").unwrap_err();
        assert!(error.to_string().contains("send it as text"), "{error}");
    }

    #[test]
    fn numbers_that_are_none_become_text() {
        for (value, json) in
            [(f64::NAN, "\"NaN\""), (f64::INFINITY, "\"Infinity\""), (-f64::INFINITY, "\"-Infinity\"")]
        {
            assert_eq!(serde_json::to_string(&Value::Real(value)).unwrap(), json);
        }
    }
}
