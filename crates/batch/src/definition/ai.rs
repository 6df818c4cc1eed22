//! `[ai]`: the model, and how it is called.

use std::sync::Arc;
use std::time::Duration;

use longshore::{PoolName, ProfileName};
use longshore_ai::batches::{self, BatchPacing};
use longshore_ai::{Cost, Profile, Question};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

/// The model, and how it is called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ai {
    /// The profile: a provider and its settings.
    pub profile: ProfileRef,
    /// The worker that makes the calls.
    #[serde(default, skip_serializing_if = "AskRoute::is_local")]
    pub through: AskRoute,
    /// Use the provider's batch API with these intervals; otherwise each question is a call of its
    /// own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_batch: Option<ProviderBatchOptions>,
    /// The system prompt.
    pub system: Option<String>,
    /// Maximum tokens of an answer.
    pub max_tokens: u32,
    /// The sampling temperature; 0 is the most predictable.
    pub temperature: f64,
    /// The time from the start of a row's run to its answer, including the provider's retries.
    pub timeout: Duration,
    /// The JSON schema of answers. Without one, any text is accepted.
    pub schema: Option<Value>,
    /// Keep the answers of rows that are done, at most
    /// [`MAX_KEPT_ANSWER`](crate::handler::MAX_KEPT_ANSWER) bytes of each.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_answers: bool,
    /// Pause the batch when its answers have cost this much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Cost>,
    /// The longest prompt, in bytes. A row with a longer one fails before anything is asked.
    #[serde(default = "default_max_prompt")]
    pub max_prompt: u64,
    /// A bounded pool: each call holds one of its permits while it is in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
}

/// The default of [`Ai::max_prompt`].
pub const DEFAULT_MAX_PROMPT: u64 = 1_000_000;

fn default_max_prompt() -> u64 {
    DEFAULT_MAX_PROMPT
}

impl Ai {
    /// Checks that the provider's batch API can be used with these settings. A tenant's profile is
    /// checked when it is used.
    pub fn check_provider_batch(&self) -> Result<(), String> {
        match &self.profile {
            _ if self.provider_batch.is_none() => Ok(()),
            _ if self.pool.is_some() => Err("a provider batch cannot hold permits of a pool".to_owned()),
            _ if self.through == AskRoute::Queue => {
                Err("a provider batch does not go through the queue".to_owned())
            }
            ProfileRef::Inline(profile) if !batches::has(profile.provider) => {
                Err(format!("provider `{}` has no batch API", profile.provider))
            }
            _ => Ok(()),
        }
    }

    /// The question about a row.
    pub(crate) fn question(
        &self,
        request_id: String,
        prompt: String,
        schema: Option<Arc<Value>>,
        until: Instant,
    ) -> Question {
        Question {
            system: self.system.clone(),
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            schema,
            ..Question::new(request_id, prompt, until)
        }
    }

    /// Whether the worker that runs a row makes the call itself and so needs a `Inference`. Simulated
    /// providers need none, and calls through the queue are made by another worker.
    pub fn needs_inference(&self) -> bool {
        match &self.profile {
            ProfileRef::Named(_) => self.through == AskRoute::Local,
            ProfileRef::Inline(profile) => !profile.provider.is_simulated(),
        }
    }
}

/// Intervals of provider batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderBatchOptions {
    /// How long a question waits for others to share a provider batch.
    pub gather: Duration,
    /// The first polling interval of a provider batch; it grows with the batch's age.
    pub look: Duration,
    /// The longest time until the provider lists a new batch.
    pub lag: Duration,
}

/// The longest polling interval, and the polling interval of a sleeping row, as multiples of
/// `look`.
const MAX_POLL_BACKOFF: u32 = 20;
const ROW_POLL_FACTOR: u32 = 30;

impl Default for ProviderBatchOptions {
    fn default() -> Self {
        let BatchPacing { fill_delay: gather, poll_interval: look, listing_lag: lag, .. } =
            BatchPacing::default();
        Self { gather, look, lag }
    }
}

impl ProviderBatchOptions {
    /// The intervals for the runner.
    pub fn pace(&self) -> BatchPacing {
        let Self { gather, look, lag } = *self;
        BatchPacing {
            fill_delay: gather,
            poll_interval: look,
            listing_lag: lag,
            max_interval: look.saturating_mul(MAX_POLL_BACKOFF),
            ..BatchPacing::default()
        }
    }

    /// How long a row sleeps before it polls by itself: a quarter of an hour with the default
    /// `look`.
    pub fn row_poll_interval(&self) -> Duration {
        self.look.saturating_mul(ROW_POLL_FACTOR)
    }
}

/// A reference to a profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ProfileRef {
    /// The name of one of the tenant's profiles in the ledger, looked up on each use.
    Named(ProfileName),
    /// A profile written in the definition.
    Inline(Box<Profile>),
}

impl ProfileRef {
    /// The profile, if the definition contains it.
    pub fn inline(&self) -> Option<&Profile> {
        match self {
            Self::Named(_) => None,
            Self::Inline(profile) => Some(profile),
        }
    }

    /// The name, if it refers to one of the tenant's profiles.
    pub fn name(&self) -> Option<&ProfileName> {
        match self {
            Self::Named(name) => Some(name),
            Self::Inline(_) => None,
        }
    }

    /// The name as written in batch files.
    pub fn display_name(&self) -> String {
        match self {
            Self::Named(name) => format!("@{name}"),
            Self::Inline(profile) => profile.name.clone(),
        }
    }
}

impl From<Profile> for ProfileRef {
    fn from(profile: Profile) -> Self {
        Self::Inline(Box::new(profile))
    }
}

/// The worker that makes the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskRoute {
    /// The worker that runs the row makes the call.
    #[default]
    Local,
    /// `longshore ai worker` makes the call; questions reach it through the queue.
    Queue,
}

impl AskRoute {
    fn is_local(&self) -> bool {
        *self == Self::Local
    }
}

#[cfg(test)]
mod tests {
    use longshore_ai::ProviderName;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_from_before_there_were_named_profiles_reads_as_it_was_meant() {
        let text = json!({
            "profile": { "name": "echo", "provider": "echo", "model": "echo" },
            "system": null, "max_tokens": 7, "temperature": 0.0,
            "timeout": { "secs": 60, "nanos": 0 }, "schema": null,
        });
        let ai = Ai::deserialize(&text).unwrap();
        assert_eq!(ai.profile.inline().unwrap().provider, ProviderName::Echo);
        assert_eq!((ai.through, ai.provider_batch), (AskRoute::Local, None));
    }

    #[test]
    fn a_row_looks_after_a_quarter_of_an_hour_unless_it_is_told_otherwise() {
        let default = ProviderBatchOptions::default();
        assert_eq!(default.pace(), BatchPacing::default());
        assert_eq!(default.row_poll_interval(), Duration::from_secs(15 * 60));
    }

    #[test]
    fn a_name_and_a_written_profile_are_told_apart_when_they_are_read_again() {
        let named = ProfileRef::Named(ProfileName::new("fast").unwrap());
        assert_eq!(serde_json::to_value(&named).unwrap(), json!("fast"));
        for one in [named, Profile::new("p", ProviderName::Openai).into()] {
            let text = serde_json::to_string(&one).unwrap();
            assert_eq!(serde_json::from_str::<ProfileRef>(&text).unwrap(), one);
        }
    }
}
