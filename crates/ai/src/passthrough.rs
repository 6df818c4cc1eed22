//! Requests passed through to a provider unchanged.
//!
//! If the client uses the provider's own API, a translation there and back would take time and lose
//! what only that API has. So the gateway keeps the original body beside its translation. A
//! provider with the same API is sent the original; every other provider is sent the translation.

use std::borrow::Cow;

use serde_json::Value;

use crate::model_api::{AskError, Code, Question};
use crate::profile::ProviderName;
use crate::raw_json::RawObject;

/// A request as the client sent it.
#[derive(Debug, Clone, PartialEq)]
pub struct PassthroughRequest {
    /// The provider that defines its API.
    pub format: ProviderName,
    /// The request body.
    pub body: RawObject,
    /// Fields that matter and that the translation would lose, as text for users.
    pub unsupported: Vec<Cow<'static, str>>,
    /// Parts that may change the price of the call in a way that is not reserved, as text for users.
    pub unpriced: Vec<Cow<'static, str>>,
    /// How many answers it asks for.
    pub choices: u32,
    /// Images that the translation does not have.
    pub images: u32,
    /// Whether it has a system prompt. If not, it cannot be passed through by a profile that has
    /// one.
    pub has_system: bool,
}

impl PassthroughRequest {
    /// The body with some fields changed, such as the model. A missing field is added; `None`
    /// removes it.
    pub fn with_changes(&self, changes: &[(&str, Option<Value>)]) -> serde_json::Result<Vec<u8>> {
        self.body.with(changes)
    }

    /// A field of the body, if present.
    pub fn field(&self, name: &str) -> Option<Value> {
        self.body.field(name)
    }

    /// Why the request cannot be sent to this provider; `None` if it can.
    pub fn unsupported_by(&self, format: ProviderName) -> Option<AskError> {
        if format == self.format { None } else { self.translation_loss(format) }
    }

    /// Why the translation cannot be sent: it would lose something.
    pub(crate) fn translation_loss(&self, format: ProviderName) -> Option<AskError> {
        if self.unsupported.is_empty() {
            return None;
        }
        let what = self.unsupported.join(", ");
        let message = format!("provider {format} does not support: {what}");
        Some(AskError::new(Code::InvalidRequest, message))
    }
}

impl Question {
    /// The original request, if it may be sent to this provider unchanged.
    pub fn raw_for(&self, format: ProviderName) -> Option<&PassthroughRequest> {
        let raw = self.raw.as_deref()?;
        let complete = raw.has_system || self.system.is_none();
        (raw.format == format && complete).then_some(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(body: &'static str) -> PassthroughRequest {
        let body = RawObject::parse(body).unwrap();
        let (unsupported, unpriced) = (Vec::new(), Vec::new());
        let (format, choices, images) = (ProviderName::Openai, 1, 0);
        PassthroughRequest { format, body, unsupported, unpriced, choices, images, has_system: false }
    }

    #[test]
    fn only_the_same_wire_takes_what_the_translation_leaves_out() {
        let raw = PassthroughRequest { unsupported: vec!["`n`".into()], ..raw("{}") };
        assert_eq!(raw.unsupported_by(ProviderName::Openai), None);
        let error = raw.unsupported_by(ProviderName::Ollama).unwrap();
        assert_eq!(error.code, Code::InvalidRequest);
        assert!(error.message.contains("`n`"), "{error}");
    }

    #[test]
    fn a_profiles_own_instructions_are_not_lost_on_a_raw_question() {
        let until = tokio::time::Instant::now();
        let plain = Question { raw: Some(raw("{}").into()), ..Question::new("r", "", until) };
        assert!(plain.raw_for(ProviderName::Openai).is_some());
        assert!(plain.raw_for(ProviderName::Anthropic).is_none());
        let with_system = Question { system: Some("Be kind.".into()), ..plain };
        assert!(with_system.raw_for(ProviderName::Openai).is_none());
    }
}
