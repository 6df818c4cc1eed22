//! Who is asked, and how.

use std::sync::Arc;
use std::time::Duration;

use longshore::{PoolName, ProfileName};
use longshore_ai::batches::{self, Pace};
use longshore_ai::{Profile, Question};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

/// Who is asked, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ai {
    /// The provider and its settings.
    pub profile: ByProfile,
    /// Who sends the questions.
    #[serde(default, skip_serializing_if = "Through::is_desk")]
    pub through: Through,
    /// With a provider's batches, and how patiently; otherwise each question is asked by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_batch: Option<ProviderBatch>,
    /// What the model is told about its role.
    pub system: Option<String>,
    /// Most tokens of an answer.
    pub max_tokens: u32,
    /// 0 is the most predictable.
    pub temperature: f64,
    /// From the start of a row's run to its answer, the provider's own tries included.
    pub timeout: Duration,
    /// What answers must look like. Without one, any text will do.
    pub schema: Option<Value>,
    /// A bounded pool: each question holds a permit of it while it is out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
}

impl Ai {
    /// Whether a provider's batches can be asked for: why not, if they cannot. Of a profile that is not
    /// written here that is seen when it is used.
    pub fn check_provider_batch(&self) -> Result<(), String> {
        match &self.profile {
            _ if self.provider_batch.is_none() => Ok(()),
            _ if self.pool.is_some() => {
                Err("questions of a provider's batch hold no permits of a pool".to_owned())
            }
            _ if self.through == Through::Queue => {
                Err("questions of a provider's batch do not go through the queue".to_owned())
            }
            ByProfile::Written(profile) if !batches::has(profile.provider) => {
                Err(format!("provider `{}` has no batches", profile.provider))
            }
            _ => Ok(()),
        }
    }

    /// A question about a row.
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

    /// Whether rows are asked about at the desk of the worker that has them. What is simulated needs
    /// none, and what goes through the queue is asked elsewhere.
    pub fn needs_desk(&self) -> bool {
        match &self.profile {
            ByProfile::Named(_) => self.through == Through::Desk,
            ByProfile::Written(profile) => !profile.provider.is_simulated(),
        }
    }
}

/// How patiently a provider's batches are filled and looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderBatch {
    /// How long a question waits for others to go with.
    pub gather: Duration,
    /// How long between two looks at a batch, at first; the longer it takes, the longer.
    pub look: Duration,
    /// How long it may take until the provider lists a new batch.
    pub lag: Duration,
}

/// How many times the first wait between two looks grows, and how many of them a row sleeps.
const SLOWEST: u32 = 20;
const ROW_LOOK: u32 = 30;

impl Default for ProviderBatch {
    fn default() -> Self {
        let Pace { gather, look, lag, .. } = Pace::default();
        Self { gather, look, lag }
    }
}

impl ProviderBatch {
    /// The same for whoever takes questions to the provider.
    pub fn pace(&self) -> Pace {
        let Self { gather, look, lag } = *self;
        Pace { gather, look, lag, most: look.saturating_mul(SLOWEST), ..Pace::default() }
    }

    /// How long a row sleeps that nobody wakes: a quarter of an hour, unless it is told otherwise.
    pub fn row_look(&self) -> Duration {
        self.look.saturating_mul(ROW_LOOK)
    }
}

/// By which profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ByProfile {
    /// By one of the tenant's own, which the ledger has: looked up on each use.
    Named(ProfileName),
    /// By one that is written here.
    Written(Box<Profile>),
}

impl ByProfile {
    /// The profile, if it is written here.
    pub fn written(&self) -> Option<&Profile> {
        match self {
            Self::Named(_) => None,
            Self::Written(profile) => Some(profile),
        }
    }

    /// Its name, if it is one of the tenant's own.
    pub fn named(&self) -> Option<&ProfileName> {
        match self {
            Self::Named(name) => Some(name),
            Self::Written(_) => None,
        }
    }

    /// Its name as batch files have it.
    pub fn shown(&self) -> String {
        match self {
            Self::Named(name) => format!("@{name}"),
            Self::Written(profile) => profile.name.clone(),
        }
    }
}

impl From<Profile> for ByProfile {
    fn from(profile: Profile) -> Self {
        Self::Written(Box::new(profile))
    }
}

/// Who sends the questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Through {
    /// The worker that has the row.
    #[default]
    Desk,
    /// `longshore ai worker`, to which they go through the queue.
    Queue,
}

impl Through {
    fn is_desk(&self) -> bool {
        *self == Self::Desk
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
        assert_eq!(ai.profile.written().unwrap().provider, ProviderName::Echo);
        assert_eq!((ai.through, ai.provider_batch), (Through::Desk, None));
    }

    #[test]
    fn a_row_looks_after_a_quarter_of_an_hour_unless_it_is_told_otherwise() {
        let usual = ProviderBatch::default();
        assert_eq!(usual.pace(), Pace::default());
        assert_eq!(usual.row_look(), Duration::from_secs(15 * 60));
    }

    #[test]
    fn a_name_and_a_written_profile_are_told_apart_when_they_are_read_again() {
        let named = ByProfile::Named(ProfileName::new("fast").unwrap());
        assert_eq!(serde_json::to_value(&named).unwrap(), json!("fast"));
        for one in [named, Profile::new("p", ProviderName::Openai).into()] {
            let text = serde_json::to_string(&one).unwrap();
            assert_eq!(serde_json::from_str::<ByProfile>(&text).unwrap(), one);
        }
    }
}
