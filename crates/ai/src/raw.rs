//! Questions as they came over a provider's own wire.
//!
//! Where the asked wire is also the provider's, a translation there and back would lose what only that
//! wire knows, and take time. So the gateway keeps what came beside its translation; whoever speaks
//! the wire sends that on, everybody else asks by the translation.

use std::borrow::Cow;

use serde_json::Value;

use crate::ask::{AskError, Code, Question};
use crate::object::Object;
use crate::profile::ProviderName;

/// A question as it came over a wire.
#[derive(Debug, Clone, PartialEq)]
pub struct Raw {
    /// Whose wire it is.
    pub wire: ProviderName,
    /// The request's body.
    pub body: Object,
    /// What of it the translation leaves out although it means something, in words for people.
    pub left_out: Vec<Cow<'static, str>>,
    /// It tells the model about its role. One that does not is of no use where the profile does.
    pub has_system: bool,
}

impl Raw {
    /// The body with other values in the place of some of its members: the model, whether it is
    /// streamed. What is not there yet is added; `None` takes it away.
    pub fn rewritten(&self, changes: &[(&str, Option<Value>)]) -> serde_json::Result<Vec<u8>> {
        self.body.with(changes)
    }

    /// One of the body's members, if it is there.
    pub fn member(&self, name: &str) -> Option<Value> {
        self.body.member(name)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(body: &'static str) -> Raw {
        let body = Object::read(body).unwrap();
        Raw { wire: ProviderName::Openai, body, left_out: Vec::new(), has_system: false }
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
