//! Profiles: which provider, which model, at what price.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longshore::PoolName;
use serde::{Deserialize, Serialize};

use crate::ask::Provider;
use crate::echo::Echo;
use crate::prices::Prices;
use crate::script::{Script, ScriptError};
use crate::scripted::Scripted;

/// A provider and its settings, complete: files it names have been read into it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// What the profile is called.
    #[serde(default)]
    pub name: String,
    /// Who answers.
    pub provider: ProviderName,
    /// Which model is asked. A simulated provider without one is called by its own name.
    #[serde(default)]
    pub model: String,
    /// What tokens cost. Nothing, unless it is said.
    #[serde(default)]
    pub prices: Prices,
    /// Simulated providers: how long each answer takes.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub delay: Duration,
    /// `scripted`: the script's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Where the provider is, without the path of its API: the provider's own address, unless it is
    /// said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Where its key is: `env:NAME`, `file:PATH`, or the name of a key in the vault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What is particular about its wire.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wire: Wire,
    /// Most tokens of an answer, where the question does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// The temperature, where the question does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// What the model is told about its role, where the question does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// How much may be asked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: Limits,
    /// Profiles of the same tenant that are asked, in this order, where this one cannot answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<String>,
    /// A bounded pool: each question that is asked by itself holds a permit of it while it is out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
}

/// What is particular about a provider's wire, as far as it depends on model or server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wire {
    /// The model takes temperature and the like. Newer ones refuse them, so nothing is sent unless
    /// this says so.
    pub sampling: bool,
    /// `anthropic`: the version of the API that is spoken; `2023-06-01` unless it is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `anthropic`: the key goes as `x-api-key` or as a bearer token.
    pub auth: Auth,
    /// `anthropic`: the instructions are marked to be cached, for this long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheFor>,
    /// `openai`: the server knows only the older `max_tokens`.
    pub old_max_tokens: bool,
    /// `openai`: the server does not take a JSON Schema; it is told of it in words.
    pub no_schema: bool,
    /// `ollama`: questions go to `/api/generate` instead of `/api/chat`.
    pub generate: bool,
    /// `ollama`: how many tokens the model looks at. Longer questions are cut in silence by the
    /// server, so this is sent, and a question that was cut is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_ctx: Option<u32>,
    /// Headers beside the usual ones.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// How a key travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    /// As the version of the API has it.
    #[default]
    Usual,
    /// `x-api-key: …`
    Header,
    /// `authorization: Bearer …`
    Bearer,
}

/// How long a provider keeps what it has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheFor {
    /// Five minutes.
    #[serde(rename = "5m")]
    Minutes,
    /// An hour.
    #[serde(rename = "1h")]
    Hour,
}

/// How much may be asked by a profile or a tenant.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Requests per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<f64>,
    /// Tokens per minute, questions and answers together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<f64>,
    /// How many minutes' worth may be used at once after a rest. A sixtieth unless it is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<f64>,
    /// How many questions may be out at once, in each process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// What becomes of a question that finds no room.
    pub when_full: WhenFull,
}

/// What becomes of a question that finds no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// It waits, as long as its deadline lets it.
    #[default]
    Wait,
    /// It is refused at once.
    Refuse,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProviderName {
    /// Says the prompt back.
    Echo,
    /// Answers by a script.
    Scripted,
    /// Anthropic's messages.
    Anthropic,
    /// OpenAI's chat completions, and any server that speaks the same.
    Openai,
    /// Ollama.
    Ollama,
    /// Google's Gemini.
    Gemini,
}

impl ProviderName {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Echo, Self::Scripted, Self::Anthropic, Self::Openai, Self::Ollama, Self::Gemini];

    /// Whether it makes its answers up.
    pub fn is_simulated(self) -> bool {
        matches!(self, Self::Echo | Self::Scripted)
    }

    /// The provider's name in profiles and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Scripted => "scripted",
            Self::Anthropic => "anthropic",
            Self::Openai => "openai",
            Self::Ollama => "ollama",
            Self::Gemini => "gemini",
        }
    }
}

impl std::fmt::Display for ProviderName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl Profile {
    /// The model that is asked: the question's own wish, or else the profile's.
    pub(crate) fn asked_model<'a>(&'a self, wished: Option<&'a str>) -> &'a str {
        wished.unwrap_or_else(|| model(self))
    }

    /// A profile of which nothing is known but who answers.
    pub fn new(name: impl Into<String>, provider: ProviderName) -> Self {
        Self {
            name: name.into(),
            provider,
            model: String::new(),
            prices: Prices::default(),
            delay: Duration::ZERO,
            script: None,
            endpoint: None,
            key: None,
            wire: Wire::default(),
            max_tokens: None,
            temperature: None,
            system: None,
            limits: Limits::default(),
            fallback: Vec::new(),
            pool: None,
        }
    }
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Its script does not work.
    #[error("the script does not work")]
    Script(#[from] ScriptError),
    /// `scripted` without a script.
    #[error("profile `{0}` is scripted and has no script")]
    NoScript(String),
    /// An endpoint that is none.
    #[error("profile `{0}` has an endpoint that cannot be used: {1}")]
    Endpoint(String, String),
    /// A header that is none. Its value, which may be the key, is not told.
    #[error("profile `{0}` has a header `{1}` that cannot be sent")]
    Header(String, String),
    /// A provider that answers nobody without a key.
    #[error("profile `{0}` has no key, and {1} answers nobody without one")]
    NoKey(String, ProviderName),
    /// A provider that needs the network, where there is none.
    #[error("profile `{0}` asks {1}, which needs the network")]
    NeedsNetwork(String, ProviderName),
    /// A provider that does not take questions in bulk.
    #[error("profile `{0}` asks {1}, which has no batches")]
    NoBatches(String, ProviderName),
}

/// Makes a simulated profile's provider.
pub fn open(profile: &Profile) -> Result<Arc<dyn Provider>, ProfileError> {
    let model = model(profile).to_owned();
    Ok(match profile.provider {
        ProviderName::Echo => Arc::new(Echo { model, delay: profile.delay }),
        ProviderName::Scripted => Arc::new(Scripted::new(script(profile)?, model, profile.delay)),
        other => return Err(ProfileError::NeedsNetwork(profile.name.clone(), other)),
    })
}

fn model(profile: &Profile) -> &str {
    if profile.model.is_empty() { profile.provider.as_str() } else { &profile.model }
}

fn script(profile: &Profile) -> Result<Script, ProfileError> {
    let text = profile.script.as_deref();
    let text = text.ok_or_else(|| ProfileError::NoScript(profile.name.clone()))?;
    Ok(Script::parse(text)?)
}
