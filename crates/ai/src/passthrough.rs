//! Requests passed through to a provider unchanged.
//!
//! If the client uses the provider's own API, a translation there and back would take time and lose
//! what only that API has. So the gateway keeps the original body beside its translation. A
//! provider with the same API is sent the original; every other provider is sent the translation.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model_api::{AskError, Code, Question};
use crate::profile::ProviderName;
use crate::providers::capabilities;
use crate::raw_json::RawObject;

/// A request as the client sent it.
#[derive(Debug, Clone, PartialEq)]
pub struct PassthroughRequest {
    /// The provider that defines its API, if one has it.
    pub format: Option<ProviderName>,
    /// The request body.
    pub body: RawObject,
    /// Fields that matter and that the translation would lose, as text for users.
    pub unsupported: Vec<Cow<'static, str>>,
    /// Fields that the translation would lose without harm, as text for users.
    pub ignored: Vec<Cow<'static, str>>,
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
}

/// What happens to a request that a provider's API cannot express.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnsupported {
    /// It is refused, by the names of what would be lost.
    #[default]
    Refuse,
    /// It is asked without that.
    Drop,
}

/// What a translation loses, as text for users.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TranslationLoss {
    /// What changes the answer.
    unsupported: Vec<Cow<'static, str>>,
    /// What does not.
    ignored: Vec<Cow<'static, str>>,
}

impl TranslationLoss {
    /// The error of a request that would lose something; `None` if nothing, or if that is dropped.
    pub(crate) fn refused(&self, provider: ProviderName, on_unsupported: OnUnsupported) -> Option<AskError> {
        if self.unsupported.is_empty() || on_unsupported == OnUnsupported::Drop {
            return None;
        }
        let what = self.unsupported.join(", ");
        let message = format!("provider {provider} does not support: {what}");
        Some(AskError::new(Code::InvalidRequest, message))
    }

    /// What was dropped, if anything was.
    pub(crate) fn dropped(&self) -> Option<Box<str>> {
        let all: Vec<&str> = self.unsupported.iter().chain(&self.ignored).map(|what| &**what).collect();
        (!all.is_empty()).then(|| all.join(", ").into())
    }
}

impl Question {
    /// What a translation to this provider's API loses.
    pub(crate) fn translation_loss(&self, provider: ProviderName) -> TranslationLoss {
        let mut loss = TranslationLoss::default();
        if let Some(raw) = &self.raw {
            (loss.unsupported, loss.ignored) = (raw.unsupported.clone(), raw.ignored.clone());
        }
        let can = capabilities(provider).features;
        let features = self.chat.iter().flat_map(|chat| chat.features());
        for feature in features.filter(|feature| !can.contains(feature)) {
            let lost = if feature.is_hint() { &mut loss.ignored } else { &mut loss.unsupported };
            lost.push(feature.as_str().into());
        }
        loss
    }

    /// Why it cannot be sent to this provider; `None` if it can.
    pub(crate) fn unsupported_by(
        &self,
        provider: ProviderName,
        on_unsupported: OnUnsupported,
    ) -> Option<AskError> {
        match &self.raw {
            Some(raw) if raw.format == Some(provider) => None,
            _ => self.translation_loss(provider).refused(provider, on_unsupported),
        }
    }

    /// The original request, if it may be sent to this provider unchanged.
    pub fn raw_for(&self, format: ProviderName) -> Option<&PassthroughRequest> {
        let raw = self.raw.as_deref()?;
        let complete = raw.has_system || self.system.is_none();
        (raw.format == Some(format) && complete).then_some(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::Chat;

    fn raw(body: &'static str) -> PassthroughRequest {
        PassthroughRequest {
            format: Some(ProviderName::Openai),
            body: RawObject::parse(body).unwrap(),
            unsupported: Vec::new(),
            ignored: Vec::new(),
            unpriced: Vec::new(),
            choices: 1,
            images: 0,
            has_system: false,
        }
    }

    #[test]
    fn only_the_same_wire_takes_what_the_translation_leaves_out() {
        let raw = PassthroughRequest {
            unsupported: vec!["`n`".into()],
            ignored: vec!["`store`".into()],
            ..raw("{}")
        };
        let chat = Chat { seed: Some(1), top_k: Some(2), ..Chat::default() };
        let plain = Question::new("r", "", tokio::time::Instant::now());
        let question = Question { raw: Some(raw.into()), chat: Some(chat.into()), ..plain };
        let unsupported = |provider| question.unsupported_by(provider, OnUnsupported::Refuse);
        assert_eq!(unsupported(ProviderName::Openai), None);
        let error = unsupported(ProviderName::Anthropic).unwrap();
        assert_eq!(error.code, Code::InvalidRequest);
        assert_eq!(error.message, "provider anthropic does not support: `n`");
        let dropped = question.translation_loss(ProviderName::Anthropic).dropped();
        assert_eq!(dropped.as_deref(), Some("`n`, `store`, `seed`"));
        assert_eq!(question.unsupported_by(ProviderName::Anthropic, OnUnsupported::Drop), None);
        // OpenAI's servers have a seed, but no `top_k`.
        let translated = question.translation_loss(ProviderName::Openai).dropped();
        assert_eq!(translated.as_deref(), Some("`n`, `top_k`, `store`"));
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
