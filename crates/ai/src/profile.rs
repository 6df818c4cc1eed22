//! Profiles: a provider, a model and their settings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longshore::{HumanDuration, PoolName};
use serde::{Deserialize, Serialize, Serializer};

use crate::http::HttpOptionsError;
use crate::model_api::Provider;
use crate::passthrough::OnUnsupported;
use crate::pricing::Prices;
use crate::resilience::CallRetryPolicy;
use crate::simulated::{Echo, ScriptError, Scripted, SimulatorScript};

/// Longest name of a model that a client may ask for, and that the ledger keeps, in bytes.
pub(crate) const MAX_MODEL_NAME: usize = 256;

/// Among a profile's further models: every model.
pub const ANY_MODEL: &str = "*";

/// A provider and its settings, complete: files that it names have been read into it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The profile's name.
    #[serde(default)]
    pub name: String,
    /// The provider.
    pub provider: ProviderName,
    /// The model. By default a simulated provider uses its own name.
    #[serde(default)]
    pub model: String,
    /// Prices of tokens. By default those of the price table for a provider that is paid at its own
    /// endpoint ([`crate::PriceTable::complete`]), and zero for all others.
    #[serde(default, skip_serializing_if = "is_default")]
    pub prices: Prices,
    /// Further models that a question may name, with their prices; [`ANY_MODEL`] is every model. One
    /// without prices has those of the price table, or else of the profile.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, Prices>,
    /// Simulated providers: how long each answer takes, in seconds or as `4s`.
    #[serde(
        default,
        deserialize_with = "longshore::duration::deserialize",
        serialize_with = "seconds",
        skip_serializing_if = "Duration::is_zero"
    )]
    pub delay: Duration,
    /// `scripted`: the script's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// The provider's URL, without the path of its API. By default the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The reference of its key: `env:NAME`, `file:PATH`, or the name of a key in the vault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// API options that depend on model or server.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wire: ApiOptions,
    /// Maximum tokens of an answer, if the question sets none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// The temperature, if the question sets none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The system prompt, if the question has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// What happens to a request in another provider's API that this one's cannot express.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_unsupported: OnUnsupported,
    /// Rate limits.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: ProfileLimits,
    /// Retries, and when an answer counts as stalled.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retry: RetrySettings,
    /// An HTTP proxy, as `http://proxy.example:3128`: connections are tunnelled through it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// The reference of the proxy's `user:password`, like `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_key: Option<String>,
    /// Certificates of the authorities to trust in place of the machine's, as PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// Fallback profiles of the same tenant, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<String>,
    /// A bounded pool: each direct question holds a permit of it while it is in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// API options of a provider that depend on model or server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApiOptions {
    /// Whether the model takes `temperature` and the like; by default decided by its name, because
    /// newer ones reject them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<bool>,
    /// `anthropic`: the API version; by default `2023-06-01`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `anthropic`: whether the key is sent as `x-api-key` or as a bearer token.
    pub auth: Auth,
    /// `anthropic`: the system prompt is marked to be cached, for this long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheFor>,
    /// `openai`: the server supports only the older `max_tokens`.
    pub old_max_tokens: bool,
    /// `openai`: the server takes no JSON Schema; it is put into the prompt.
    pub no_schema: bool,
    /// `ollama`: single prompts are sent to `/api/generate` instead of `/api/chat`.
    pub generate: bool,
    /// `ollama`: the model's context size. The server silently truncates longer questions, so this
    /// is sent, and a truncated question is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_ctx: Option<u32>,
    /// Additional headers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// How a key is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    /// As the API version requires.
    #[default]
    Usual,
    /// `x-api-key: …`
    Header,
    /// `authorization: Bearer …`
    Bearer,
}

/// How long a provider caches a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheFor {
    /// Five minutes.
    #[serde(rename = "5m")]
    Minutes,
    /// An hour.
    #[serde(rename = "1h")]
    Hour,
}

/// Rate limits of a profile or a tenant.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileLimits {
    /// Requests per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<f64>,
    /// Tokens per minute, questions and answers together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<f64>,
    /// Burst, in minutes of the limit. By default 1/60.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<f64>,
    /// Calls in flight, per process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// What happens to a question at the limit.
    pub when_full: WhenPoolFull,
    /// How long a question waits while its provider fails. By default 2 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wait: Option<HumanDuration>,
}

/// Retries of a profile's calls, and when an answer counts as stalled.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetrySettings {
    /// Attempts in all, the first included. By default 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// Longest wait after the first failure, doubled with each further one. By default 1 s; four
    /// times as long after a rejection by a rate limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<HumanDuration>,
    /// Longest time without a byte from the provider, before its answer begins and while it
    /// arrives. By default the answer may begin until the deadline, and pause for 2 minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<HumanDuration>,
}

impl RetrySettings {
    /// The policy for a call's attempts.
    pub(crate) fn policy(&self) -> CallRetryPolicy {
        let mut policy = CallRetryPolicy::default();
        if let Some(attempts) = self.attempts {
            policy.max_attempts = attempts;
        }
        if let Some(HumanDuration(base)) = self.base {
            (policy.base, policy.rate_limit_base) = (base, base.saturating_mul(4));
            policy.cap = policy.cap.max(base);
        }
        policy
    }
}

/// What happens to a question at a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenPoolFull {
    /// It waits, at most until its deadline.
    #[default]
    Wait,
    /// It is rejected at once.
    Refuse,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProviderName {
    /// Returns the prompt.
    Echo,
    /// Answers by a script.
    Scripted,
    /// Anthropic's messages API.
    Anthropic,
    /// OpenAI's chat completions API, and compatible servers.
    Openai,
    /// Ollama.
    Ollama,
    /// Google's Gemini.
    Gemini,
}

impl ProviderName {
    /// All providers.
    pub const ALL: [Self; 6] =
        [Self::Echo, Self::Scripted, Self::Anthropic, Self::Openai, Self::Ollama, Self::Gemini];

    /// Whether its answers are simulated.
    pub fn is_simulated(self) -> bool {
        matches!(self, Self::Echo | Self::Scripted)
    }

    /// Whether calls to its own endpoint cost money.
    pub fn is_paid(self) -> bool {
        match self {
            Self::Echo | Self::Scripted | Self::Ollama => false,
            Self::Anthropic | Self::Openai | Self::Gemini => true,
        }
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
    /// Whether its calls cost money: they go to the endpoint of a provider that is paid.
    pub fn is_billed(&self) -> bool {
        self.endpoint.is_none() && self.provider.is_paid()
    }

    /// The model to ask: the question's, or else the profile's.
    pub(crate) fn asked_model<'a>(&'a self, requested: Option<&'a str>) -> &'a str {
        requested.unwrap_or_else(|| model(self))
    }

    /// The prices of a model; `None` if the profile does not offer it, or offers every model and the
    /// price of this one is not known.
    pub fn prices_of(&self, model: &str) -> Option<&Prices> {
        let named = model == self.model || model == self.asked_model(None);
        match self.models.get(model).filter(|_| model != ANY_MODEL) {
            Some(own) if own.is_stated() => Some(own),
            Some(_) => Some(&self.prices),
            None if named => Some(&self.prices),
            None if model == ANY_MODEL => None,
            None => match self.models.get(ANY_MODEL)? {
                any if any.is_stated() => Some(any),
                _ => (!self.is_billed()).then_some(&self.prices),
            },
        }
    }

    /// The models that a question may name, the profile's own first.
    pub(crate) fn offered_models(&self) -> impl Iterator<Item = &str> {
        let others = self.models.keys().map(String::as_str).filter(|model| *model != self.model);
        std::iter::once(self.asked_model(None)).chain(others)
    }

    /// A profile with default settings.
    pub fn new(name: impl Into<String>, provider: ProviderName) -> Self {
        Self {
            name: name.into(),
            provider,
            model: String::new(),
            prices: Prices::default(),
            models: BTreeMap::new(),
            delay: Duration::ZERO,
            script: None,
            endpoint: None,
            key: None,
            wire: ApiOptions::default(),
            max_tokens: None,
            temperature: None,
            system: None,
            on_unsupported: OnUnsupported::default(),
            limits: ProfileLimits::default(),
            retry: RetrySettings::default(),
            proxy: None,
            proxy_key: None,
            ca: None,
            fallback: Vec::new(),
            pool: None,
        }
    }
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Its script is invalid.
    #[error("the script is invalid")]
    Script(#[from] ScriptError),
    /// `scripted` without a script.
    #[error("profile `{0}` is scripted and has no script")]
    NoScript(String),
    /// The endpoint is invalid.
    #[error("profile `{0}` has an endpoint that cannot be used: {1}")]
    Endpoint(String, String),
    /// The proxy or the certificates are invalid.
    #[error("profile `{0}`: {1}")]
    Http(String, HttpOptionsError),
    /// A header is invalid. Its value, which may be the key, is not shown.
    #[error("profile `{0}` has a header `{1}` that cannot be sent")]
    Header(String, String),
    /// The provider requires a key.
    #[error("profile `{0}` has no key, and {1} requires one")]
    NoKey(String, ProviderName),
    /// The provider needs the network.
    #[error("profile `{0}` asks {1}, which needs the network")]
    NeedsNetwork(String, ProviderName),
    /// The provider has no batch API.
    #[error("profile `{0}` asks {1}, which has no batches")]
    NoBatches(String, ProviderName),
}

/// Opens a simulated profile's provider.
pub fn open_simulated(profile: &Profile) -> Result<Arc<dyn Provider>, ProfileError> {
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

fn script(profile: &Profile) -> Result<SimulatorScript, ProfileError> {
    let text = profile.script.as_deref();
    let text = text.ok_or_else(|| ProfileError::NoScript(profile.name.clone()))?;
    Ok(SimulatorScript::parse(text)?)
}
