//! What is asked for.

use std::time::Duration;

use longshore::{BatchId, Priority, ProfileName, QueueName, TenantId};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::libraries::Libraries;
use super::metadata::Metadata;
use super::reply::Heading;
use super::version::Version;
use super::{Malformed, request_read};
use crate::ask::Question;
use crate::profile::Profile;

/// A request. [`Self::parse`] accepts what the contract allows, and nothing else.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The version it is written in, and wants to be answered in.
    pub version: Version,
    /// What the caller recognises it by. The same again is answered once.
    pub request_id: String,
    /// Who asks, and pays.
    pub customer: TenantId,
    /// By which profile.
    pub profile: ProfileName,
    /// Where the reply goes, beside into the result of the request's unit.
    pub reply_queue: Option<ReplyTo>,
    /// What is asked.
    pub prompt: Prompt,
    /// Another model than the profile's.
    pub model: Option<String>,
    /// 0 to 2; the profile's where it is not said.
    pub temperature: Option<f64>,
    /// Most tokens of the answer; the profile's where it is not said.
    pub max_tokens: Option<u32>,
    /// What the model is told about its role; what the profile says where it is not said.
    pub system: Option<String>,
    /// How long the caller waits.
    pub timeout: Duration,
    /// Echoed.
    pub metadata: Metadata,
    /// Which goes first.
    pub priority: Priority,
    /// The JSON Schema that the answer must follow. Whether it is one is for whoever compiles it.
    pub schema: Option<Value>,
    /// Whether the answer comes in pieces.
    pub delivery: Delivery,
    /// The batch that it is asked for: the books name it.
    pub batch: Option<BatchId>,
}

/// What is asked, or where it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// The prompt.
    Text(String),
    /// Where the prompt is, for what is too long for a message.
    Reference(String),
}

/// A reply queue's address, as callers write it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplyTo {
    /// The library it is in, which says whose it is.
    pub library: String,
    /// Its name.
    pub name: String,
}

/// How an answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// In one reply.
    #[default]
    Whole,
    /// In partial replies as it is made, and then whole.
    Pieces,
}

/// How long a caller waits who does not say.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

impl Request {
    /// A request with nothing said that need not be.
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
            timeout: TIMEOUT,
            metadata: Metadata::default(),
            priority: Priority::NORMAL,
            schema: None,
            delivery: Delivery::Whole,
            batch: None,
        }
    }

    /// Reads a request. Fields that are not in the contract are ignored.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        request_read::read(bytes)
    }

    /// What its replies begin with.
    pub fn heading(&self) -> Heading {
        Heading {
            version: self.version.answered_in(),
            request_id: Some(self.request_id.clone()),
            metadata: self.metadata.clone(),
        }
    }

    /// The question to a provider: what the request does not say, the profile does. `prompt` is the
    /// request's own, or what its reference led to.
    pub fn question(&self, prompt: String, profile: &Profile, until: Instant) -> Question {
        let plain = Question::new(self.request_id.clone(), prompt, until);
        Question {
            system: self.system.clone().or_else(|| profile.system.clone()),
            max_tokens: self.max_tokens.or(profile.max_tokens).unwrap_or(plain.max_tokens),
            temperature: self.temperature.or(profile.temperature).unwrap_or(plain.temperature),
            schema: self.schema.clone().map(Into::into),
            model: self.model.clone(),
            ..plain
        }
    }

    /// As it is sent. What [`Self::parse`] makes of it is the same request.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        let (prompt, prompt_ref) = match &self.prompt {
            Prompt::Text(text) => (Some(text.as_str()), None),
            Prompt::Reference(place) => (None, Some(place.as_str())),
        };
        serde_json::to_vec(&Written {
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

/// A request as it is written.
#[derive(Serialize)]
struct Written<'a> {
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
    /// The queue that is meant, if its library is `tenant`'s. Another tenant's is refused: nobody
    /// gets replies that he did not ask for.
    pub fn queue(&self, tenant: &TenantId, known: &Libraries) -> Result<QueueName, Malformed> {
        if !known.owns(tenant, &self.library) {
            let library = &self.library;
            let words = format!("the library `{library}` of `reply_queue` is not `{tenant}`'s");
            return Err(Malformed(words));
        }
        let name = QueueName::new(format!("{tenant}/{}", self.name));
        name.map_err(|_| Malformed("`reply_queue` has too long a name".into()))
    }
}
