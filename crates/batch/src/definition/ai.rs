//! Who is asked, and how.

use std::time::Duration;

use longshore::ProfileName;
use longshore_ai::Profile;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Who is asked, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ai {
    /// The provider and its settings.
    pub profile: ByProfile,
    /// Who sends the questions.
    #[serde(default, skip_serializing_if = "Through::is_desk")]
    pub through: Through,
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
}

impl Ai {
    /// Whether rows are asked about at the desk of the worker that has them. What is simulated needs
    /// none, and what goes through the queue is asked elsewhere.
    pub fn needs_desk(&self) -> bool {
        match &self.profile {
            ByProfile::Named(_) => self.through == Through::Desk,
            ByProfile::Written(profile) => !profile.provider.is_simulated(),
        }
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
        assert_eq!(ai.through, Through::Desk);
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
