//! The members of a JSON object, read one by one: so each can be refused by its own name, and what
//! stands before a mistake can be used.

use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Malformed;

/// Members by name. Of two with one name, the last counts.
#[derive(Default)]
pub(super) struct Fields<'a>(HashMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    /// All members of an object.
    pub(super) fn read(text: &'a str) -> Result<Self, Malformed> {
        let (fields, read) = Self::collect(text);
        match read {
            Ok(()) => Ok(fields),
            // Its words would repeat what was found in the object's place.
            Err(error) if error.is_data() => Err(Malformed("is not a JSON object".into())),
            Err(error) => Err(Malformed(format!("is not JSON: {error}"))),
        }
    }

    /// The members up to the first mistake. Not those after it: to guess where one begins could take
    /// a piece of a prompt for an address.
    pub(super) fn read_what_can_be(text: &'a str) -> Self {
        Self::collect(text).0
    }

    fn collect(text: &'a str) -> (Self, serde_json::Result<()>) {
        let mut fields = Self::default();
        let mut reader = serde_json::Deserializer::from_str(text);
        let read = Collect(&mut fields.0).deserialize(&mut reader).and_then(|()| reader.end());
        (fields, read)
    }

    /// A member; `null` is the same as none.
    pub(super) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.0.get(name).copied().filter(|raw| raw.get() != "null")
    }

    /// A member that may be absent. `read` makes something of it, or else it breaks the rule.
    pub(super) fn optional<T>(
        &self,
        name: &str,
        rule: &str,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Result<Option<T>, Malformed> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        let read = serde_json::from_str(raw.get()).ok().and_then(read);
        read.map(Some).ok_or_else(|| Malformed(format!("`{name}` must be {rule}")))
    }

    /// A member that must be there.
    pub(super) fn required<T>(
        &self,
        name: &str,
        rule: &str,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, Malformed> {
        let found = self.optional(name, rule, read)?;
        found.ok_or_else(|| Malformed(format!("`{name}` is missing; it must be {rule}")))
    }
}

/// Puts members into a map, and leaves them there when a later one fails.
struct Collect<'m, 'de>(&'m mut HashMap<String, &'de RawValue>);

impl<'de> DeserializeSeed<'de> for Collect<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Collect<'_, 'de> {
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

/// Any text.
pub(super) fn text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// A text that is not empty.
pub(super) fn some_text(value: Value) -> Option<String> {
    text(value).filter(|text| !text.is_empty())
}

/// A text of one line: 1 to 200 characters, no control characters.
pub(super) fn line(value: Value) -> Option<String> {
    let sound = |text: &String| {
        (1..=200).contains(&text.chars().count()) && !text.chars().any(char::is_control)
    };
    text(value).filter(sound)
}

/// A whole number in a range. JSON does not tell 5 and 5.0 apart.
pub(super) fn whole(value: &Value, range: RangeInclusive<u32>) -> Option<u32> {
    let number = value.as_f64().filter(|number| number.fract() == 0.0)?;
    let (least, most) = (f64::from(*range.start()), f64::from(*range.end()));
    // In the range, it is a whole number that fits.
    (least..=most).contains(&number).then_some(number as u32)
}

/// A number in a range.
pub(super) fn number(value: &Value, range: RangeInclusive<f64>) -> Option<f64> {
    value.as_f64().filter(|number| range.contains(number))
}
