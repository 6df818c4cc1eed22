//! Requests.

use std::time::Duration;

use longshore::{BatchId, Priority, ProfileName, QueueName, TenantId};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::ibmi_libraries::Libraries;
use super::metadata::Metadata;
use super::reply::ReplyHeader;
use super::version::Version;
use super::{ContractError, parse};
use crate::model_api::Question;
use crate::profile::Profile;

/// A request. [`Self::parse`] accepts exactly what the contract allows.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The contract version of the request and its replies.
    pub version: Version,
    /// The client's id of the request. A repeat is answered once.
    pub request_id: String,
    /// The tenant that asks and pays.
    pub customer: TenantId,
    /// The profile.
    pub profile: ProfileName,
    /// The queue for the reply, which is also the result of the request's unit.
    pub reply_queue: Option<ReplyTo>,
    /// The prompt.
    pub prompt: Prompt,
    /// Another model than the profile's.
    pub model: Option<String>,
    /// 0 to 2; by default the profile's.
    pub temperature: Option<f64>,
    /// Maximum tokens of the answer; by default the profile's.
    pub max_tokens: Option<u32>,
    /// The system prompt; by default the profile's.
    pub system: Option<String>,
    /// How long the client waits.
    pub timeout: Duration,
    /// Echoed in the reply.
    pub metadata: Metadata,
    /// The priority.
    pub priority: Priority,
    /// The JSON Schema that the answer must follow. Not validated here.
    pub schema: Option<Value>,
    /// Whether the answer is delivered in pieces.
    pub delivery: Delivery,
    /// The batch that the call is recorded with.
    pub batch: Option<BatchId>,
}

/// The prompt, or where it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// The prompt.
    Text(String),
    /// The location of a prompt that is too long for a message.
    Reference(String),
}

/// A reply queue, as clients name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplyTo {
    /// Its library, which identifies the tenant.
    pub library: String,
    /// Its name.
    pub name: String,
}

/// How the answer is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// In one reply.
    #[default]
    Whole,
    /// In partial replies while it is generated, then in one.
    Pieces,
}

/// The default timeout.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

impl Request {
    /// A request with only the required fields.
    pub fn new(
        request_id: impl Into<String>,
        customer: TenantId,
        profile: ProfileName,
        prompt: Prompt,
    ) -> Self {
        Self {
            version: Version::V1,
            request_id: request_id.into(),
            customer,
            profile,
            reply_queue: None,
            prompt,
            model: None,
            temperature: None,
            max_tokens: None,
            system: None,
            timeout: DEFAULT_TIMEOUT,
            metadata: Metadata::default(),
            priority: Priority::NORMAL,
            schema: None,
            delivery: Delivery::Whole,
            batch: None,
        }
    }

    /// Parses a request. Fields that are not in the contract are ignored.
    pub fn parse(bytes: &[u8]) -> Result<Self, ContractError> {
        parse::request(bytes)
    }

    /// The header of its replies.
    pub fn header(&self) -> ReplyHeader {
        ReplyHeader {
            version: self.version.reply_version(),
            request_id: Some(self.request_id.clone()),
            metadata: self.metadata.clone(),
        }
    }

    /// The question for a provider, with the profile's values as defaults. `prompt` is the
    /// request's own, or what its reference points to.
    pub fn question(&self, prompt: String, profile: &Profile, until: Instant) -> Question {
        let defaults = Question::new(self.request_id.clone(), prompt, until);
        Question {
            system: self.system.clone().or_else(|| profile.system.clone()),
            max_tokens: self.max_tokens.or(profile.max_tokens).unwrap_or(defaults.max_tokens),
            temperature: self.temperature.or(profile.temperature).unwrap_or(defaults.temperature),
            schema: self.schema.clone().map(Into::into),
            model: self.model.clone(),
            ..defaults
        }
    }

    /// The request as JSON. [`Self::parse`] returns the same request.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        let (prompt, prompt_ref) = match &self.prompt {
            Prompt::Text(text) => (Some(text.as_str()), None),
            Prompt::Reference(place) => (None, Some(place.as_str())),
        };
        serde_json::to_vec(&RequestJson {
            version: self.version,
            request_id: &self.request_id,
            customer: &self.customer,
            profile_ref: &self.profile,
            reply_queue: self.reply_queue.as_ref(),
            prompt,
            prompt_ref,
            model_override: self.model.as_deref(),
            temperature: self.temperature,
            max_tokens: self.max_tokens,
            system_prompt: self.system.as_deref(),
            timeout_ms: u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX),
            metadata: &self.metadata,
            priority: self.priority,
            response_schema: self.schema.as_ref(),
            stream: (self.delivery == Delivery::Pieces).then_some(true),
            batch: self.batch.as_ref(),
        })
    }
}

/// A request's JSON fields.
#[derive(Serialize)]
struct RequestJson<'a> {
    version: Version,
    request_id: &'a str,
    customer: &'a TenantId,
    profile_ref: &'a ProfileName,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_queue: Option<&'a ReplyTo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_ref: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_override: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_prompt: Option<&'a str>,
    timeout_ms: u64,
    metadata: &'a Metadata,
    priority: Priority,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_schema: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<&'a BatchId>,
}

impl ReplyTo {
    /// The queue, if its library belongs to `tenant`. Another tenant's is rejected, so that no
    /// tenant gets replies that it did not ask for.
    pub fn queue(&self, tenant: &TenantId, libraries: &Libraries) -> Result<QueueName, ContractError> {
        if !libraries.owns(tenant, &self.library) {
            let library = &self.library;
            let message = format!("the library `{library}` of `reply_queue` does not belong to `{tenant}`");
            return Err(ContractError(message));
        }
        let name = QueueName::new(format!("{tenant}/{}", self.name));
        name.map_err(|_| ContractError("the name of `reply_queue` is too long".into()))
    }
}
