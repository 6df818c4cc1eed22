//! Questions as they came over a provider's own wire.
//!
//! Where the asked wire is also the provider's, a translation there and back would lose what only that
//! wire knows, and take time. So the gateway keeps what came beside its translation; whoever speaks
//! the wire sends that on, everybody else asks by the translation.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::ask::{AskError, Code, Question};
use crate::profile::ProviderName;

/// A question as it came over a wire.
#[derive(Debug, Clone, PartialEq)]
pub struct Raw {
    /// Whose wire it is.
    pub wire: ProviderName,
    /// The request's body: a JSON object.
    pub body: Bytes,
    /// What of it the translation leaves out although it means something, in words for people.
    pub left_out: Vec<Cow<'static, str>>,
    /// It tells the model about its role. One that does not is of no use where the profile does.
    pub has_system: bool,
}

impl Raw {
    /// The body with other values in the place of some of its members: the model, whether it is
    /// streamed. What is not there yet is added; `None` takes it away.
    pub fn rewritten(&self, changes: &[(&str, Option<Value>)]) -> serde_json::Result<Vec<u8>> {
        let members: Members<'_> = serde_json::from_slice(&self.body)?;
        serde_json::to_vec(&Rewritten { members, changes })
    }

    /// One of the body's members, if it is there.
    pub fn member(&self, name: &str) -> Option<Value> {
        let members: Members<'_> = serde_json::from_slice(&self.body).ok()?;
        let (_, value) = members.0.iter().rfind(|(other, _)| other == name)?;
        serde_json::from_str(value.get()).ok()
    }

    /// Why a provider of another wire may not ask the question.
    pub fn refusal(&self, wire: ProviderName) -> Option<AskError> {
        if wire == self.wire { None } else { self.loss(wire) }
    }

    /// Why a provider may not ask by the translation: something would be lost.
    pub(crate) fn loss(&self, wire: ProviderName) -> Option<AskError> {
        if self.left_out.is_empty() {
            return None;
        }
        let what = self.left_out.join(", ");
        let words = format!("this profile of {wire} cannot be asked with: {what}");
        Some(AskError::new(Code::InvalidRequest, words))
    }
}

impl Question {
    /// The question as it came, if it may go over this wire like that.
    pub fn raw_for(&self, wire: ProviderName) -> Option<&Raw> {
        let raw = self.raw.as_deref()?;
        let complete = raw.has_system || self.system.is_none();
        (raw.wire == wire && complete).then_some(raw)
    }
}

/// The members of a JSON object, in their order, unread.
pub(crate) struct Members<'a>(pub(crate) Vec<(Cow<'a, str>, &'a RawValue)>);

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
        let mut members = Vec::with_capacity(16);
        while let Some(Key(key)) = map.next_key()? {
            members.push((key, map.next_value()?));
        }
        Ok(Members(members))
    }
}

/// A member's name, borrowed where nothing in it is escaped.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

struct Rewritten<'a> {
    members: Members<'a>,
    changes: &'a [(&'a str, Option<Value>)],
}

impl Serialize for Rewritten<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let changed = |key: &str| self.changes.iter().any(|(other, _)| *other == key);
        for (key, value) in self.members.0.iter().filter(|(key, _)| !changed(key)) {
            map.serialize_entry(key, value)?;
        }
        for (key, value) in self.changes {
            if let Some(value) = value {
                map.serialize_entry(key, value)?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(body: &'static str) -> Raw {
        let body = Bytes::from_static(body.as_bytes());
        Raw { wire: ProviderName::Openai, body, left_out: Vec::new(), has_system: false }
    }

    #[test]
    fn a_body_is_rewritten_without_touching_the_rest() {
        let raw = raw(r#"{"model":"p", "x": {"b":1, "a":[ 2 ]},"stream":true}"#);
        let changes = [("model", Some("m".into())), ("stream", None), ("n", Some(1.into()))];
        let body = String::from_utf8(raw.rewritten(&changes).unwrap()).unwrap();
        assert_eq!(body, r#"{"x":{"b":1, "a":[ 2 ]},"model":"m","n":1}"#);
    }

    #[test]
    fn only_the_same_wire_takes_what_the_translation_leaves_out() {
        let raw = Raw { left_out: vec!["`n`".into()], ..raw("{}") };
        assert_eq!(raw.refusal(ProviderName::Openai), None);
        let error = raw.refusal(ProviderName::Ollama).unwrap();
        assert_eq!(error.code, Code::InvalidRequest);
        assert!(error.message.contains("`n`"), "{error}");
    }

    #[test]
    fn a_profiles_own_instructions_are_not_lost_on_a_raw_question() {
        let until = tokio::time::Instant::now();
        let plain = Question { raw: Some(raw("{}").into()), ..Question::new("r", "", until) };
        assert!(plain.raw_for(ProviderName::Openai).is_some());
        assert!(plain.raw_for(ProviderName::Anthropic).is_none());
        let told = Question { system: Some("Be kind.".into()), ..plain };
        assert!(told.raw_for(ProviderName::Openai).is_none());
    }
}
