//! The capabilities of each provider, as data.

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
    let simulated = Capabilities {
        schema: false,
        streaming: false,
        tools: false,
        images: false,
        caching: Caching::Free,
        batches: false,
        limits: false,
        simulated: true,
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
            Capabilities { caching: Caching::Marked, batches: true, limits: true, ..real }
        }
        ProviderName::Openai => {
            Capabilities { caching: Caching::Automatic, batches: true, limits: true, ..real }
        }
        ProviderName::Ollama => real,
        ProviderName::Gemini => Capabilities { caching: Caching::Automatic, ..real },
    }
}
