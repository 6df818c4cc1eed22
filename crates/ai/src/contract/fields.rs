//! Fields of a JSON object, parsed one by one, so that an error names the field, and fields before
//! a syntax error can be used.

use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::ContractError;

/// Fields by name. Of duplicates, the last one counts.
#[derive(Default)]
pub(super) struct Fields<'a>(HashMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    /// Parses all fields of an object.
    pub(super) fn parse(text: &'a str) -> Result<Self, ContractError> {
        let (fields, read) = Self::collect(text);
        match read {
            Ok(()) => Ok(fields),
            // The parser's message would repeat what was found instead of an object.
            Err(error) if error.is_data() => Err(ContractError("is not a JSON object".into())),
            Err(error) => Err(ContractError(format!("is not JSON: {error}"))),
        }
    }

    /// Parses the fields before the first syntax error. Not those after it: a guess where the next
    /// field begins could take a piece of a prompt for a reply queue.
    pub(super) fn parse_prefix(text: &'a str) -> Self {
        Self::collect(text).0
    }

    fn collect(text: &'a str) -> (Self, serde_json::Result<()>) {
        let mut fields = Self::default();
        let mut reader = serde_json::Deserializer::from_str(text);
        let read = FieldCollector(&mut fields.0).deserialize(&mut reader).and_then(|()| reader.end());
        (fields, read)
    }

    /// A field; `null` counts as absent.
    pub(super) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.0.get(name).copied().filter(|raw| raw.get() != "null")
    }

    /// An optional field. `read` converts it; `None` means that it violates the rule.
    pub(super) fn optional<T>(
        &self,
        name: &str,
        rule: &str,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Result<Option<T>, ContractError> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        let read = serde_json::from_str(raw.get()).ok().and_then(read);
        read.map(Some).ok_or_else(|| ContractError(format!("`{name}` must be {rule}")))
    }

    /// A required field.
    pub(super) fn required<T>(
        &self,
        name: &str,
        rule: &str,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, ContractError> {
        let found = self.optional(name, rule, read)?;
        found.ok_or_else(|| ContractError(format!("`{name}` is missing; it must be {rule}")))
    }
}

/// Collects fields into a map, and keeps them if a later one fails.
struct FieldCollector<'m, 'de>(&'m mut HashMap<String, &'de RawValue>);

impl<'de> DeserializeSeed<'de> for FieldCollector<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FieldCollector<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some((name, value)) = members.next_entry()? {
            self.0.insert(name, value);
        }
        Ok(())
    }
}

/// Any string.
pub(super) fn text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// A string that is not empty.
pub(super) fn nonempty_text(value: Value) -> Option<String> {
    text(value).filter(|text| !text.is_empty())
}

/// A single-line string: 1 to 200 characters, no control characters.
pub(super) fn line(value: Value) -> Option<String> {
    let sound =
        |text: &String| (1..=200).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    text(value).filter(sound)
}

/// A whole number in a range. JSON does not distinguish 5 and 5.0.
pub(super) fn whole_number(value: &Value, range: RangeInclusive<u32>) -> Option<u32> {
    let number = value.as_f64().filter(|number| number.fract() == 0.0)?;
    let (least, most) = (f64::from(*range.start()), f64::from(*range.end()));
    // Within the range, the cast is exact.
    (least..=most).contains(&number).then_some(number as u32)
}

/// A number in a range.
pub(super) fn number(value: &Value, range: RangeInclusive<f64>) -> Option<f64> {
    value.as_f64().filter(|number| range.contains(number))
}
