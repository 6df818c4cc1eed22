//! What each provider can, as data.

use crate::profile::ProviderName;

/// What a provider can. The models behind it may be able to do less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Answers follow a JSON Schema by the provider's own means.
    pub schema: bool,
    /// Answers come in pieces as they are made.
    pub streaming: bool,
    /// Models can call tools.
    pub tools: bool,
    /// Questions may have pictures.
    pub images: bool,
    /// Whether what was read once is cheaper to read again.
    pub caching: Caching,
    /// Questions can be handed over in bulk, answered later and cheaper.
    pub batches: bool,
    /// Answers say how much of its limits is left.
    pub limits: bool,
    /// Answers are made up.
    pub simulated: bool,
}

/// How a provider keeps what it has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// Not at all, or nobody pays for it.
    Free,
    /// By itself.
    Automatic,
    /// Where the question says so.
    Marked,
}

/// What a provider can.
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
