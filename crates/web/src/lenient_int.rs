//! Deserialises integers leniently: `5.0` is accepted, since some JSON encoders write nothing else.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::known_fields::KnownFields;

/// The longest value, in bytes: integers and their names, as the resources of a unit.
const MAX_BYTES: usize = 8 * 1024;

/// Deserialises a value that contains integers, in either notation. A longer one than any such value
/// is rejected before it is parsed. Unknown fields are rejected. Only from JSON text.
pub(crate) fn lenient_int<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<T, D::Error> {
    let text = <&RawValue>::deserialize(from)?.get();
    if text.len() > MAX_BYTES {
        return Err(D::Error::custom(format_args!("a value is longer than {MAX_BYTES} bytes")));
    }
    let mut value = serde_json::from_str(text).map_err(D::Error::custom)?;
    normalise(&mut value);
    T::deserialize(KnownFields(value)).map_err(D::Error::custom)
}

fn normalise(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(integer) = number.as_f64().filter(|_| number.is_f64()).and_then(as_integer) {
                *value = integer.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalise),
        Value::Object(fields) => fields.values_mut().for_each(normalise),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[expect(clippy::cast_possible_truncation, reason = "what does not fit is no number of ours")]
fn as_integer(number: f64) -> Option<i64> {
    // From here on floats cannot represent every integer.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Size {
        #[serde(deserialize_with = "lenient_int")]
        max: u32,
        #[serde(default, deserialize_with = "lenient_int")]
        min: Option<u32>,
    }

    #[test]
    fn a_whole_number_is_one_however_it_is_written() {
        let read = |text: &str| serde_json::from_str::<Size>(text);
        assert_eq!(read(r#"{"max":5.0,"min":2e2}"#).unwrap(), Size { max: 5, min: Some(200) });
        assert_eq!(read(r#"{"max":5}"#).unwrap(), Size { max: 5, min: None });
        let long = format!("[{}]", "0,".repeat(1_000_000) + "0");
        assert!(read(&format!(r#"{{"max":{long}}}"#)).unwrap_err().to_string().contains("longer than 8192"));
        for odd in ["5.5", "-1.0", "1e300", "\"5\"", "null", "4294967296.0"] {
            assert!(read(&format!(r#"{{"max":{odd}}}"#)).is_err(), "{odd}");
        }
    }
}
