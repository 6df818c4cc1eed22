//! The capabilities of each provider, as data.

use crate::chat::Feature;
use crate::profile::ProviderName;

/// The capabilities of a provider. A model may have fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The provider enforces a JSON Schema.
    pub schema: bool,
    /// Answers can be streamed.
    pub streaming: bool,
    /// Models can call tools.
    pub tools: bool,
    /// Questions may contain images.
    pub images: bool,
    /// How prompts are cached.
    pub caching: Caching,
    /// It has a batch API: answers later, at a lower price.
    pub batches: bool,
    /// Responses report the remaining rate limits.
    pub limits: bool,
    /// Answers are simulated.
    pub simulated: bool,
    /// What a translated conversation may contain besides what all providers have.
    pub features: &'static [Feature],
}

/// How a provider caches prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// Not at all, or without a price.
    Free,
    /// Automatically.
    Automatic,
    /// Where the request marks a prefix.
    Marked,
}

/// The capabilities of a provider.
pub fn capabilities(provider: ProviderName) -> Capabilities {
    use Feature::*;
    let simulated = Capabilities {
        schema: false,
        streaming: false,
        tools: false,
        images: false,
        caching: Caching::Free,
        batches: false,
        limits: false,
        simulated: true,
        features: &[
            TopK,
            Penalty,
            Seed,
            Effort,
            NamedTool,
            AnyTool,
            OneToolCall,
            Document,
            ImageUrl,
            User,
            CacheMark,
        ],
    };
    let real = Capabilities {
        schema: true,
        streaming: true,
        tools: true,
        images: true,
        simulated: false,
        ..simulated
    };
    match provider {
        ProviderName::Echo | ProviderName::Scripted => simulated,
        ProviderName::Anthropic => {
            let features =
                &[TopK, Effort, NamedTool, AnyTool, OneToolCall, Document, ImageUrl, User, CacheMark];
            Capabilities { caching: Caching::Marked, batches: true, limits: true, features, ..real }
        }
        ProviderName::Openai => {
            let features =
                &[Penalty, Seed, Effort, NamedTool, AnyTool, OneToolCall, Document, ImageUrl, User];
            Capabilities { caching: Caching::Automatic, batches: true, limits: true, features, ..real }
        }
        ProviderName::Ollama => Capabilities { features: &[TopK, Penalty, Seed, Effort, NamedTool], ..real },
        ProviderName::Gemini => {
            let features = &[TopK, Penalty, Seed, Effort, NamedTool, AnyTool, Document, ImageUrl];
            Capabilities { caching: Caching::Automatic, features, ..real }
        }
    }
}

/// Whether a model takes `temperature` and the like, by its name. Claude models do up to Opus 4.6 and the
/// other models of version 4; OpenAI's reasoning models do not. A server may host any other model: it does.
pub(crate) fn takes_sampling(provider: ProviderName, model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    match provider {
        ProviderName::Anthropic => is_older_claude(name),
        _ if name.starts_with("claude") => is_older_claude(name),
        ProviderName::Openai => !is_openai_reasoning(name),
        _ => true,
    }
}

fn is_older_claude(name: &str) -> bool {
    let Some(name) = name.strip_prefix("claude-") else { return false };
    let mut parts = name.split(['-', '.']);
    let (family, version) = match parts.next() {
        Some("instant") => return true,
        Some(family @ ("opus" | "sonnet" | "haiku")) => (family, parts.next()),
        // Older names begin with the version, as `claude-3-5-sonnet`.
        version => ("", version),
    };
    // A date may follow the version.
    let minor = parts.next().and_then(|part| part.parse().ok()).filter(|minor| *minor < 100).unwrap_or(0);
    match version.and_then(|version| version.parse::<u32>().ok()) {
        Some(4) => family != "opus" || minor < 7,
        Some(major) => major < 4,
        None => false,
    }
}

/// `o1`, `o3-mini` and so on, and `gpt-5` and later except the chat models.
fn is_openai_reasoning(name: &str) -> bool {
    let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok());
    if let Some(rest) = name.strip_prefix("gpt-") {
        return number(rest).is_some_and(|major: u32| major >= 5) && !rest.contains("chat");
    }
    name.strip_prefix('o').and_then(number).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temperature_is_for_models_that_take_it() {
        use ProviderName::{Anthropic, Gemini, Ollama, Openai};
        for (provider, model, takes) in [
            (Anthropic, "claude-3-5-sonnet-20241022", true),
            (Anthropic, "claude-instant-1.2", true),
            (Anthropic, "claude-sonnet-4-20250514", true),
            (Anthropic, "claude-haiku-4-5", true),
            (Anthropic, "claude-opus-4-6", true),
            (Anthropic, "claude-opus-4-7", false),
            (Anthropic, "claude-sonnet-5", false),
            (Anthropic, "claude-fable-1", false),
            (Openai, "gpt-4o-mini", true),
            (Openai, "gpt-3.5-turbo", true),
            (Openai, "gpt-5-chat-latest", true),
            (Openai, "gpt-5.4", false),
            (Openai, "openai/o3-mini", false),
            (Openai, "olmo-2", true),
            (Openai, "anthropic/claude-opus-4.7", false),
            (Openai, "anthropic/claude-opus-4.5", true),
            (Openai, "mistral-large", true),
            (Ollama, "llama3.2", true),
            (Gemini, "gemini-2.5-flash", true),
        ] {
            assert_eq!(takes_sampling(provider, model), takes, "{provider} {model}");
        }
    }
}
