//! A JSON object as it came: its text, and where its members stand in it.
//!
//! Read once. Whoever wants a member reads that one; whoever sends the object on with some members
//! changed copies the others without a look into them.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// A JSON object as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    text: Bytes,
    members: Vec<Member>,
}

/// Where a member stands in the text: its name with the quotes, and its value.
#[derive(Debug, Clone, PartialEq)]
struct Member {
    name: Range<usize>,
    value: Range<usize>,
}

impl Object {
    /// Reads where the members stand, but not what is in them.
    pub fn read(text: impl Into<Bytes>) -> serde_json::Result<Self> {
        let text = text.into();
        let Members(found) = serde_json::from_slice(&text)?;
        let place = |raw: &RawValue| place(&text, raw.get());
        let members =
            found.iter().map(|(name, value)| Member { name: place(name), value: place(value) });
        let members = members.collect();
        Ok(Self { text, members })
    }

    /// The members in their order: names, and values as they were written.
    pub(crate) fn members(&self) -> impl Iterator<Item = (Cow<'_, str>, &str)> {
        self.members.iter().map(|member| (self.name(member), self.at(&member.value)))
    }

    /// A member, if it is there. Of two with one name, the last counts.
    pub fn member(&self, name: &str) -> Option<Value> {
        let member = self.members.iter().rfind(|member| self.name(member) == name)?;
        serde_json::from_str(self.at(&member.value)).ok()
    }

    /// The text with other values in the place of some members. What is not there yet is added; `None`
    /// takes it away.
    pub fn with(&self, changes: &[(&str, Option<Value>)]) -> serde_json::Result<Vec<u8>> {
        let mut out = Vec::with_capacity(self.text.len() + 32 * changes.len());
        let changed = |name: &str| changes.iter().any(|(other, _)| *other == name);
        for member in self.members.iter().filter(|member| !changed(&self.name(member))) {
            out.push(if out.is_empty() { b'{' } else { b',' });
            out.extend_from_slice(&self.text[member.name.clone()]);
            out.push(b':');
            out.extend_from_slice(&self.text[member.value.clone()]);
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

    /// A member's name, as it is meant: nearly always as it is written.
    fn name(&self, member: &Member) -> Cow<'_, str> {
        let written = self.at(&member.name);
        match written.contains('\\') {
            true => Cow::Owned(serde_json::from_str(written).unwrap_or_default()),
            false => Cow::Borrowed(written.trim_matches('"')),
        }
    }

    /// A part of the text. All of them were found to be text when they were read.
    fn at(&self, place: &Range<usize>) -> &str {
        std::str::from_utf8(&self.text[place.clone()]).unwrap_or_default()
    }
}

/// Where a part stands in the text that it was borrowed from.
fn place(text: &[u8], part: &str) -> Range<usize> {
    let start = part.as_ptr().addr().saturating_sub(text.as_ptr().addr());
    start..start + part.len()
}

/// The names and values of an object, in their order, unread.
struct Members<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(InOrder)
    }
}

struct InOrder;

impl<'de> Visitor<'de> for InOrder {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::with_capacity(8);
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &'static str, changes: &[(&str, Option<Value>)]) -> String {
        String::from_utf8(Object::read(text).unwrap().with(changes).unwrap()).unwrap()
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
        let object = Object::read(r#"{"a":1,"\u0061":2,"b\"":3}"#).unwrap();
        assert_eq!(object.member("a"), Some(2.into()), "the last counts");
        assert_eq!(object.member("b\""), Some(3.into()));
        assert_eq!(object.member("c"), None);
        assert_eq!(object.with(&[("a", None)]).unwrap(), br#"{"b\"":3}"#);
        let names: Vec<_> = object.members().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "a", "b\""]);
    }

    #[test]
    fn only_objects_are_read() {
        for text in ["[1]", "{", "1", "", r#"{"a":1} {}"#, r#"{a:1}"#, r#"{1:1}"#] {
            assert!(Object::read(text).is_err(), "{text}");
        }
        assert!(Object::read(&b"{\"a\":\"\xff\"}"[..]).is_err(), "what is no text");
    }
}
