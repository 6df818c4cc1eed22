//! Profiles: which provider, which model, at what price.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ask::Provider;
use crate::cost::Prices;
use crate::echo::Echo;
use crate::script::{Script, ScriptError};
use crate::scripted::Scripted;

/// A provider and its settings, complete: files it names have been read into it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// What the profile is called.
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
    #[serde(default)]
    pub delay: Duration,
    /// `scripted`: the script's text.
    #[serde(default)]
    pub script: Option<String>,
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
}

impl ProviderName {
    /// The provider's name in batch files and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Scripted => "scripted",
        }
    }
}

impl std::fmt::Display for ProviderName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
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
    /// A price that is not a number, or below zero.
    #[error("profile `{0}` has a price that is no amount of dollars")]
    Prices(String),
}

/// Makes a profile's provider.
pub fn open(profile: &Profile) -> Result<Arc<dyn Provider>, ProfileError> {
    if !profile.prices.are_sound() {
        return Err(ProfileError::Prices(profile.name.clone()));
    }
    let model = model(profile).to_owned();
    Ok(match profile.provider {
        ProviderName::Echo => Arc::new(Echo { model, delay: profile.delay }),
        ProviderName::Scripted => Arc::new(Scripted::new(script(profile)?, model, profile.delay)),
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
