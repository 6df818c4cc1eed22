//! A JSON object as it was received: its text, and the positions of its fields.
//!
//! Parsed once. A caller parses only the fields that it needs; an object with some fields changed
//! is written by copying the others unparsed.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// A JSON object as it was received.
#[derive(Debug, Clone, PartialEq)]
pub struct RawObject {
    text: Bytes,
    fields: Vec<FieldPosition>,
}

/// The position of a field in the text: its name with the quotes, and its value.
#[derive(Debug, Clone, PartialEq)]
struct FieldPosition {
    name: Range<usize>,
    value: Range<usize>,
}

impl Hash for RawObject {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl RawObject {
    /// Locates the fields, without parsing their values. Rejects a text of which the values would take
    /// much more memory than the text, or that is nested deeper than any request.
    pub fn parse(text: impl Into<Bytes>) -> serde_json::Result<Self> {
        let text = text.into();
        check_structure(&text)?;
        let RawFields(found) = serde_json::from_slice(&text)?;
        let position_of = |raw: &RawValue| position(&text, raw.get());
        let members = found
            .iter()
            .map(|(name, value)| FieldPosition { name: position_of(name), value: position_of(value) });
        let fields = members.collect();
        Ok(Self { text, fields })
    }

    /// The length of the text, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// The fields in order: names, and unparsed values.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (Cow<'_, str>, &str)> {
        self.fields.iter().map(|field| (self.name(field), self.at(&field.value)))
    }

    /// A field, if present. Of duplicates, the last one counts.
    pub fn field(&self, name: &str) -> Option<Value> {
        let field = self.fields.iter().rfind(|field| self.name(field) == name)?;
        serde_json::from_str(self.at(&field.value)).ok()
    }

    /// The text with some fields changed. A missing field is added; `None` removes it.
    pub fn with(&self, changes: &[(&str, Option<Value>)]) -> serde_json::Result<Vec<u8>> {
        let mut out = Vec::with_capacity(self.text.len() + 32 * changes.len());
        let changed = |name: &str| changes.iter().any(|(other, _)| *other == name);
        for field in self.fields.iter().filter(|field| !changed(&self.name(field))) {
            out.push(if out.is_empty() { b'{' } else { b',' });
            out.extend_from_slice(&self.text[field.name.clone()]);
            out.push(b':');
            out.extend_from_slice(&self.text[field.value.clone()]);
        }
        for (name, value) in changes {
            let Some(value) = value else { continue };
            out.push(if out.is_empty() { b'{' } else { b',' });
            serde_json::to_writer(&mut out, name)?;
            out.push(b':');
            serde_json::to_writer(&mut out, value)?;
        }
        if out.is_empty() {
            out.push(b'{');
        }
        out.push(b'}');
        Ok(out)
    }

    /// A field's name with escapes resolved; usually there are none.
    fn name(&self, field: &FieldPosition) -> Cow<'_, str> {
        let written = self.at(&field.name);
        match written.contains('\\') {
            true => Cow::Owned(serde_json::from_str(written).unwrap_or_default()),
            false => Cow::Borrowed(written.trim_matches('"')),
        }
    }

    /// A part of the text. All positions were validated as UTF-8 by the parser.
    fn at(&self, position: &Range<usize>) -> &str {
        std::str::from_utf8(&self.text[position.clone()]).unwrap_or_default()
    }
}

/// The most values in a text: they are parsed into some hundred bytes each.
const MAX_VALUES: usize = 250_000;

/// The deepest nesting: that of the parser, which does not check values that stay unparsed.
const MAX_DEPTH: usize = 128;

/// Counts the values of a text and their depth, by the signs outside of strings.
fn check_structure(text: &[u8]) -> serde_json::Result<()> {
    let (mut values, mut depth, mut rest) = (0, 0_usize, text);
    while let Some((sign, after)) = rest.split_first() {
        rest = after;
        match sign {
            b'"' => rest = after_string(after),
            b',' | b':' => values += 1,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if values > MAX_VALUES || depth > MAX_DEPTH {
            return Err(serde::de::Error::custom(format_args!(
                "it has more than {MAX_VALUES} values, or is nested deeper than {MAX_DEPTH}"
            )));
        }
    }
    Ok(())
}

/// What follows the end of a string.
fn after_string(mut text: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', text) {
        let escaped = usize::from(text[at] == b'\\');
        text = text.get(at + 1 + escaped..).unwrap_or_default();
        if escaped == 0 {
            return text;
        }
    }
    &[]
}

/// The position of a part within the text that it borrows from.
fn position(text: &[u8], part: &str) -> Range<usize> {
    let start = part.as_ptr().addr().saturating_sub(text.as_ptr().addr());
    start..start + part.len()
}

/// The names and values of an object, in order, unparsed.
struct RawFields<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for RawFields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RawFieldsVisitor)
    }
}

struct RawFieldsVisitor;

impl<'de> Visitor<'de> for RawFieldsVisitor {
    type Value = RawFields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::with_capacity(8);
        while let Some(field) = map.next_entry()? {
            members.push(field);
        }
        Ok(RawFields(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &'static str, changes: &[(&str, Option<Value>)]) -> String {
        String::from_utf8(RawObject::parse(text).unwrap().with(changes).unwrap()).unwrap()
    }

    #[test]
    fn an_object_is_rewritten_without_touching_the_rest() {
        let changes = [("model", Some("m".into())), ("stream", None), ("n", Some(1.into()))];
        let text = r#"{"model":"p", "x": {"b":1, "a":[ 2 ]},"stream":true}"#;
        assert_eq!(with(text, &changes), r#"{"x":{"b":1, "a":[ 2 ]},"model":"m","n":1}"#);
        assert_eq!(with("{}", &changes), r#"{"model":"m","n":1}"#);
        assert_eq!(with(r#"{"stream":1}"#, &changes[1..2]), "{}");
        assert_eq!(with(" { \"é\" : \"ü\" } ", &[]), r#"{"é":"ü"}"#);
    }

    #[test]
    fn a_member_is_known_by_what_its_name_means() {
        let object = RawObject::parse(r#"{"a":1,"\u0061":2,"b\"":3}"#).unwrap();
        assert_eq!(object.field("a"), Some(2.into()), "the last counts");
        assert_eq!(object.field("b\""), Some(3.into()));
        assert_eq!(object.field("c"), None);
        assert_eq!(object.with(&[("a", None)]).unwrap(), br#"{"b\"":3}"#);
        let names: Vec<_> = object.fields().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "a", "b\""]);
    }

    #[test]
    fn what_would_take_much_memory_is_refused_before_it_is_parsed() {
        let many = |count: usize| format!(r#"{{"a":[0{}]}}"#, ",0".repeat(count - 1));
        let deep = |depth: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        assert!(RawObject::parse(many(MAX_VALUES)).is_ok() && RawObject::parse(deep(MAX_DEPTH - 1)).is_ok());
        for text in [many(MAX_VALUES + 1), deep(MAX_DEPTH), "[".repeat(32 << 20)] {
            let error = RawObject::parse(text).unwrap_err().to_string();
            assert!(error.contains("more than 250000 values"), "{error}");
        }
        let quoted = format!(r#"{{"a":"\\\"{}"}}"#, "[,".repeat(MAX_VALUES));
        assert!(RawObject::parse(quoted).is_ok(), "a text is one value");
    }

    #[test]
    fn only_objects_are_read() {
        for text in ["[1]", "{", "1", "", r#"{"a":1} {}"#, r#"{a:1}"#, r#"{1:1}"#] {
            assert!(RawObject::parse(text).is_err(), "{text}");
        }
        assert!(RawObject::parse(&b"{\"a\":\"\xff\"}"[..]).is_err(), "what is no text");
    }
}
